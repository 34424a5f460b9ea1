import { setTimeout as sleep } from "node:timers/promises";
import * as calls from "./calls.js";
import { Attempts, type Action } from "./calls.js";
import type { Client, Failure } from "./client.js";
import { BabelgateError, LeaseLostError, Reject, Retry } from "./errors.js";
import { Delivery } from "./messages.js";
import { Stream, StreamsNotOffered } from "./stream.js";

const MOST_PER_RECEIVE = 100;
/** One request prolongs all leases, and takes so many ack tokens. */
const MOST_CONCURRENCY = 1_000;
/** How long a stop waits for an answer that is on its way: else its messages stay leased for nobody. */
const ARRIVE_WITHIN_MS = 250;
const MOST_ERROR_CHARACTERS = 10_000;
const MOST_NAME_CHARACTERS = 1_000;

/**
 * Handles one message. A return, or a promise that resolves, acks the message. A throw nacks it with its text and
 * class; Reject and Retry do what they say. `signal` aborts when the lease is lost or the grace of a stop is over:
 * then somebody else may handle the message, and what the handler does later is ignored.
 */
export type Handler = (delivery: Delivery, signal: AbortSignal) => unknown;

export interface ConsumerOptions {
  /** Most messages at a time; no more are leased. Default: 10. */
  concurrency?: number;
  /** The lease, which is prolonged for as long as the handler runs. Default: 60. */
  leaseSeconds?: number;
  /** Of the long poll, at most 30. Default: 20. */
  waitSeconds?: number;
  /** How long a stop waits for running handlers. Default: 30. */
  graceSeconds?: number;
  /**
   * Read a stream instead of long polls, if the gateway offers streams. It delivers the next message as soon as one is
   * settled. When its connection ends, all its leases do, and no attempt is counted. Default: false.
   */
  stream?: boolean;
  /** Hears of failed handlers and of a gateway that is away. Default: console.warn. */
  log?: (text: string, error: unknown) => void;
}

/** Runs a handler for the messages of a queue, several at a time, until it is stopped. */
export class Consumer {
  readonly #client: Client;
  readonly #queue: string;
  readonly #handler: Handler;
  readonly #concurrency: number;
  readonly #leaseSeconds: number;
  readonly #waitSeconds: number;
  readonly #graceSeconds: number;
  readonly #log: (text: string, error: unknown) => void;
  readonly #running = new Map<Held, Promise<void>>();
  readonly #stopping = new AbortController();
  readonly #hangUp = new AbortController();
  #stream: Stream | undefined;
  #keeping = false;
  /** Ends the wait for a handler to end. */
  #wake = (): void => undefined;

  constructor(client: Client, queue: string, handler: Handler, options: ConsumerOptions = {}) {
    this.#client = client;
    this.#queue = queue;
    this.#handler = handler;
    this.#concurrency = options.concurrency ?? 10;
    this.#leaseSeconds = options.leaseSeconds ?? 60;
    this.#waitSeconds = options.waitSeconds ?? 20;
    this.#graceSeconds = options.graceSeconds ?? 30;
    this.#log = options.log ?? warn;
    if (!(this.#concurrency >= 1 && this.#concurrency <= MOST_CONCURRENCY)) {
      throw new RangeError(`concurrency must be from 1 to ${MOST_CONCURRENCY}`);
    }
    if (options.stream) {
      const listener = { log: this.#log, ended: () => this.#suspectLeases() };
      const stopping = this.#stopping.signal;
      this.#stream = new Stream(client, queue, this.#concurrency, this.#leaseSeconds, stopping, listener);
    }
  }

  /**
   * Consume until `stop`, or until one of `signals` arrives. A gateway that is away or overloaded is waited for.
   * Throws ProblemError when the gateway refuses to receive, such as for an unknown queue or a missing right. What is
   * held is then finished or given back, as after a stop.
   */
  async run({ signals = [] }: { signals?: NodeJS.Signals[] } = {}): Promise<void> {
    const stop = (): void => this.stop();
    for (const signal of signals) process.on(signal, stop);
    const keeping = setInterval(() => void this.#keepLeases(), (this.#leaseSeconds * 1000) / 12);
    try {
      await this.#receive();
    } finally {
      try {
        await this.#finish();
      } finally {
        this.#stream?.close();
        clearInterval(keeping);
        for (const signal of signals) process.off(signal, stop);
      }
    }
  }

  /** Receive no more, and end `run` when the running handlers have ended, or after the grace. */
  stop(): void {
    this.#stopping.abort();
    setTimeout(() => this.#hangUp.abort(), ARRIVE_WITHIN_MS).unref();
    this.#wake();
  }

  async #receive(): Promise<void> {
    const stopping = this.#stopping.signal;
    let attempts = new Attempts(false, Infinity);
    while (!stopping.aborted) {
      const free = this.#concurrency - this.#running.size;
      if (free <= 0) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      try {
        const deliveries = this.#stream ? await this.#stream.receive(free, stopping) : await this.#poll(free);
        for (const delivery of deliveries) this.#start(delivery);
        attempts = new Attempts(false, Infinity);
      } catch (error) {
        if (stopping.aborted) return;
        if (error instanceof StreamsNotOffered) {
          this.#log("The gateway offers no streams: the consumer goes on with long polls.", undefined);
          this.#stream = undefined;
          continue;
        }
        const pause = attempts.pauseAfter(error);
        this.#log(`receive from ${this.#queue} failed, next in ${Math.round(pause)} ms`, error);
        await sleep(pause, undefined, { signal: stopping }).catch(() => undefined);
      }
    }
  }

  async #poll(free: number): Promise<Delivery[]> {
    const call = calls.receive(this.#queue, Math.min(free, MOST_PER_RECEIVE), this.#waitSeconds, this.#leaseSeconds);
    const answer = await this.#client.once(call, { signal: this.#hangUp.signal });
    return (answer["messages"] ?? []).map((message: any) => new Delivery(this.#queue, message));
  }

  #start(delivery: Delivery): void {
    const held = new Held(delivery, performance.now() + this.#leaseSeconds * 1000);
    const done = this.#handle(held).finally(() => {
      this.#running.delete(held);
      this.#wake();
    });
    this.#running.set(held, done);
  }

  async #handle(held: Held): Promise<void> {
    let action: Action = "ack";
    let parameters = {};
    try {
      await this.#handler(held.delivery, held.signal);
    } catch (error) {
      // Its lease is lost, or the stop gives it back.
      if (held.signal.aborted) return;
      action = error instanceof Reject ? "reject" : "nack";
      parameters = { error: described(error), delay_seconds: error instanceof Retry ? error.delaySeconds : undefined };
      if (!(error instanceof Reject || error instanceof Retry)) {
        this.#log(`the handler of ${this.#queue} failed for ${held.delivery.id}`, error);
      }
    }
    if (held.over) return;
    held.settling = true;
    const call = calls.settle(this.#queue, action, [held.delivery.ackToken], parameters);
    const attempts = new Attempts(false, Infinity);
    try {
      // While the lease lives, and it is prolonged until this ends, the message is delivered to nobody else.
      while (!held.over) {
        try {
          await this.#client.once(call);
          return;
        } catch (error) {
          await sleep(attempts.pauseAfter(error));
        }
      }
    } catch (error) {
      const why = error instanceof LeaseLostError ? "the lease was over before" : "the gateway refused";
      this.#log(`${why} the ${action} of ${held.delivery.id} on ${this.#queue}`, error);
    }
  }

  /** Prolong each lease of which a third is over, or that is suspected to be lost. */
  async #keepLeases(): Promise<void> {
    const now = performance.now();
    const held = [...this.#running.keys()].filter((each) => !each.over);
    // A gateway refuses to settle after the end of a lease.
    for (const each of held) if (each.deadline <= now) this.#lose(each);
    const soon = now + (this.#leaseSeconds * 1000 * 2) / 3;
    const due = held.filter((each) => !each.over && (each.deadline < soon || each.suspectedAt !== undefined));
    if (this.#keeping || !due.length) return;
    this.#keeping = true;
    const tokens = due.map((each) => each.delivery.ackToken);
    const call = calls.settle(this.#queue, "extend", tokens, { lease_seconds: this.#leaseSeconds });
    try {
      // An answer that comes too late must not hinder the next attempt.
      const answer = await this.#client.once(call, { timeoutSeconds: Math.max(this.#leaseSeconds / 3, 1) });
      const codes = new Map(answer["results"].map((result: any) => [result.index, result.code]));
      for (const [index, each] of due.entries()) {
        if (codes.get(index) === "lease_lost") this.#lose(each);
        else if (codes.get(index) == null) each.prolong(now, this.#leaseSeconds * 1000);
      }
    } catch (error) {
      if (error instanceof LeaseLostError) this.#lose(due[0]!);
      else this.#log(`${due.length} leases of ${this.#queue} were not prolonged`, error);
    } finally {
      this.#keeping = false;
    }
  }

  /** Ask for all leases soon. Those of a stream that ended are lost, unless its gateway was killed. */
  #suspectLeases(): void {
    for (const held of this.#running.keys()) held.suspectedAt = performance.now();
  }

  #lose(held: Held): void {
    // The message of an ack whose answer is under way is settled, and not lost.
    if (!held.settling) this.#log(`the lease of ${held.delivery.id} on ${this.#queue} is lost`, undefined);
    held.end("the lease is lost");
  }

  /** Wait for what runs, then give back what does not end. */
  async #finish(): Promise<void> {
    await this.#ended(this.#graceSeconds * 1000);
    const left = [...this.#running.keys()].filter((held) => !held.over && !held.settling);
    for (const held of left) held.abort("the consumer stops");
    // A handler that ends its own way now may still ack.
    if (this.#running.size) await this.#ended(1_000);
    const given = left.filter((held) => !held.over && !held.settling);
    for (const held of this.#running.keys()) held.end("the consumer stopped");
    if (!given.length) return;
    const tokens = given.map((held) => held.delivery.ackToken);
    try {
      await this.#client.call(calls.settle(this.#queue, "nack", tokens, { failed: false }), 5);
    } catch (error) {
      if (!(error instanceof BabelgateError)) throw error;
      this.#log(`${tokens.length} messages of ${this.#queue} were not given back; their leases will end`, error);
    }
  }

  /** Resolves when nothing runs any more, or after `ms`. */
  async #ended(ms: number): Promise<void> {
    const timer = new AbortController();
    const late = sleep(ms, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([Promise.all(this.#running.values()), late]);
    timer.abort();
  }
}

/** A delivery on its way. `deadline`: the time of `performance.now` at which its lease ends. */
class Held {
  readonly delivery: Delivery;
  readonly #controller = new AbortController();
  deadline: number;
  /** When its stream ended, until the gateway has prolonged the lease after that. */
  suspectedAt: number | undefined;
  settling = false;
  /** Nothing is to be settled any more. */
  over = false;

  constructor(delivery: Delivery, deadline: number) {
    this.delivery = delivery;
    this.deadline = deadline;
  }

  /** The gateway has prolonged the lease. What was asked before the end of a stream says nothing of the time after it. */
  prolong(asked: number, ms: number): void {
    this.deadline = asked + ms;
    if (this.suspectedAt !== undefined && asked > this.suspectedAt) this.suspectedAt = undefined;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Tell the handler to end. */
  abort(reason: string): void {
    this.#controller.abort(new BabelgateError(reason));
  }

  end(reason: string): void {
    this.over = true;
    this.abort(reason);
  }
}

function warn(text: string, error: unknown): void {
  console.warn("babelgate:", text, error instanceof BabelgateError ? error.message : (error ?? ""));
}

function described(error: unknown): Failure {
  const [text, name] = error instanceof Error ? [error.message, error.constructor.name] : [String(error), typeof error];
  return { message: wellFormed(text, MOST_ERROR_CHARACTERS), exception: wellFormed(name, MOST_NAME_CHARACTERS) };
}

/** JSON has no halves of surrogate pairs, and a cut makes them. */
function wellFormed(text: string, most: number): string {
  return Buffer.from(text.slice(0, most)).toString();
}
