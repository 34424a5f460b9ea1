import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import * as calls from "./calls.js";
import { Attempts, Batch, type Action, type Call } from "./calls.js";
import { Consumer, type ConsumerOptions, type Handler } from "./consumer.js";
import { DeadLetters } from "./deadletters.js";
import { ProblemError } from "./errors.js";
import { camel, Delivery, type Data, type EntryResult, type Message, type MessageOptions } from "./messages.js";
import type { Receipt, SettleOutcome, SettleResult } from "./messages.js";

const LOCAL_URL = "http://127.0.0.1:8080";

export interface ClientOptions {
  /** The gateway. Default: BABELGATE_URL, else http://127.0.0.1:8080. */
  url?: string;
  /** The bearer token. Default: BABELGATE_TOKEN. */
  token?: string;
  /** For one answer, beyond the time that a receive may wait. Default: 30. */
  timeoutSeconds?: number;
  /** For how long a failed call is repeated; 0: never. Default: 60. */
  retrySeconds?: number;
}

/** The W3C trace context of the caller, sent as the header of this name. */
export interface Traced {
  traceparent?: string;
}

/** Why a message was not handled. */
export interface Failure {
  message?: string;
  exception?: string;
}

/** A client of one gateway. Its methods throw ProblemError and UnreachableError. */
export class Client {
  readonly url: string;
  readonly timeoutSeconds: number;
  readonly retrySeconds: number;
  readonly #headers: Record<string, string>;
  readonly #withoutKeys = new Set<string>();

  /** Throws TypeError for a URL or a token that cannot be one. */
  constructor({ url, token, timeoutSeconds = 30, retrySeconds = 60 }: ClientOptions = {}) {
    this.url = calls.gatewayUrl(url ?? (process.env["BABELGATE_URL"] || LOCAL_URL));
    this.timeoutSeconds = timeoutSeconds;
    this.retrySeconds = retrySeconds;
    this.#headers = { "User-Agent": `babelgate-typescript/${calls.VERSION}` };
    const given = token ?? process.env["BABELGATE_TOKEN"];
    if (given) this.#headers["Authorization"] = calls.bearer(given);
  }

  /**
   * Publish one message; resolves when the broker has stored it. A failed call is repeated with the same idempotency
   * key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was written.
   */
  async publish(queue: string, job: string, data: Data, options: MessageOptions & Traced = {}): Promise<Receipt> {
    const { traceparent, ...rest } = options;
    const message = { job, data, ...rest };
    const key = message.idempotencyKey ?? (this.#withoutKeys.has(queue) ? undefined : randomUUID());
    try {
      return camel<Receipt>(await this.call(calls.publish(queue, message, key, traceparent)));
    } catch (error) {
      const own = message.idempotencyKey === undefined;
      if (!own || !(error instanceof ProblemError) || error.code !== calls.NEEDS_NO_KEY) throw error;
      this.#withoutKeys.add(queue);
      return camel<Receipt>(await this.call(calls.publish(queue, message, undefined, traceparent)));
    }
  }

  /** Publish messages in order; one result per message. Only entries that failed are sent again. */
  async publishBatch(queue: string, messages: readonly Message[], { traceparent }: Traced = {}): Promise<EntryResult[]> {
    const batch = new Batch(queue, messages, !this.#withoutKeys.has(queue), traceparent);
    const attempts = new Attempts(false, this.retrySeconds);
    for (;;) {
      for (const [part, call] of batch.calls()) batch.record(part, await this.call(call));
      const failure = batch.failure();
      if (batch.keysUnsupported) this.#withoutKeys.add(queue);
      if (failure === undefined) return batch.results();
      let pause;
      try {
        pause = attempts.pauseAfter(failure);
      } catch {
        return batch.results();
      }
      await sleep(pause);
    }
  }

  /**
   * Lease up to 100 messages; an empty list when there are none within `waitSeconds` (0 to 30, default 0).
   * `maxMessages`: default 1. `leaseSeconds`: default that of the queue.
   */
  async receive(
    queue: string,
    options: { maxMessages?: number; waitSeconds?: number; leaseSeconds?: number } = {},
  ): Promise<Delivery[]> {
    const call = calls.receive(queue, options.maxMessages ?? 1, options.waitSeconds ?? 0, options.leaseSeconds);
    const answer = await this.call(call);
    return answer["messages"].map((message: any) => new Delivery(queue, message));
  }

  /** Remove messages of one queue. A single delivery whose lease is over throws LeaseLostError. */
  async ack(deliveries: Delivery | readonly Delivery[]): Promise<SettleOutcome> {
    return this.#settle("ack", deliveries);
  }

  /** Deliver messages again. `failed: false`: they were not attempted, so no attempt is counted. */
  async nack(
    deliveries: Delivery | readonly Delivery[],
    options: { delaySeconds?: number; error?: Failure; failed?: boolean } = {},
  ): Promise<SettleOutcome> {
    const { delaySeconds, error, failed } = options;
    return this.#settle("nack", deliveries, { delay_seconds: delaySeconds, error, failed });
  }

  /** Dead-letter messages. */
  async reject(deliveries: Delivery | readonly Delivery[], options: { error?: Failure } = {}): Promise<SettleOutcome> {
    return this.#settle("reject", deliveries, { error: options.error });
  }

  /** Prolong leases: they end `leaseSeconds` from now. */
  async extend(deliveries: Delivery | readonly Delivery[], leaseSeconds: number): Promise<SettleOutcome> {
    return this.#settle("extend", deliveries, { lease_seconds: leaseSeconds });
  }

  /** A consumer of `queue`. It starts with its method `run`. */
  consumer(queue: string, handler: Handler, options: ConsumerOptions = {}): Consumer {
    return new Consumer(this, queue, handler, options);
  }

  /** The dead letters of `queue`: list, show, redrive, delete and purge them. */
  deadLetters(queue: string): DeadLetters {
    return new DeadLetters(this, queue);
  }

  async #settle(action: Action, given: Delivery | readonly Delivery[], parameters?: object): Promise<SettleOutcome> {
    const deliveries = given instanceof Delivery ? [given] : given;
    if (deliveries[0] === undefined) return { settled: 0, failed: 0, results: [] };
    const tokens = deliveries.map((delivery) => delivery.ackToken);
    const answer = await this.call(calls.settle(deliveries[0].queue, action, tokens, parameters));
    const results = answer["results"].map((result: any) => camel<SettleResult>(result));
    return { settled: answer["settled"], failed: answer["failed"], results };
  }

  /** @internal */
  async call(call: Call, retrySeconds = this.retrySeconds): Promise<Record<string, any>> {
    const attempts = new Attempts(call.unlessWritten ?? false, retrySeconds);
    for (;;) {
      try {
        return await this.once(call);
      } catch (error) {
        await sleep(attempts.pauseAfter(error));
      }
    }
  }

  /** @internal */
  async once(call: Call, options: { timeoutSeconds?: number; signal?: AbortSignal } = {}): Promise<Record<string, any>> {
    return calls.send(this.url, this.#headers, call, options.timeoutSeconds ?? this.timeoutSeconds, options.signal);
  }

  /** @internal The answer, before its body is read. */
  async open(call: Call, signal: AbortSignal): Promise<Response> {
    return calls.open(this.url, this.#headers, call, signal);
  }
}
