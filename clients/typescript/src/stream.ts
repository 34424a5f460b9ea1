import { setTimeout as sleep } from "node:timers/promises";
import * as calls from "./calls.js";
import { Attempts, type Call } from "./calls.js";
import type { Client } from "./client.js";
import { BabelgateError, ProblemError, UnreachableError } from "./errors.js";
import { Delivery } from "./messages.js";

/** A gateway sends a keep-alive after 15 s without an event. A connection that is silent for three of them is dead. */
const KEEP_ALIVE_MS = 15_000;
/** The silence is counted in these. One that is late because a handler blocked the event loop counts once. */
const SILENT_TICKS = 4;
/** Where a stream has worked, so many answers in a row that are no streams come from a gateway that is away. */
const MOST_REFUSALS = 8;

/** The gateway is older than streams, or a proxy in front of it refuses or buffers them. */
export class StreamsNotOffered extends Error {
  override name = "StreamsNotOffered";
}

/** What a stream tells its consumer. */
export interface StreamListener {
  log(text: string, error: unknown): void;
  /** A stream has ended. The leases of what it delivered are over then, unless the gateway was killed. */
  ended(): void;
}

/**
 * Messages of a queue over a stream: what a consumer with `stream: true` reads instead of long polls. Each stream that
 * ends is followed by another, after a pause as between long polls. None is opened after `stopping` has aborted.
 */
export class Stream {
  readonly #client: Client;
  readonly #queue: string;
  readonly #call: Call;
  readonly #stopping: AbortSignal;
  readonly #listener: StreamListener;
  readonly #closing = new AbortController();
  /** What was delivered and not received. The window of the stream bounds it. */
  #arrived: Delivery[] = [];
  #failure: unknown;
  #begun = false;
  /** Whether a stream has sent anything yet. */
  #works = false;
  #wake = (): void => undefined;

  constructor(
    client: Client,
    queue: string,
    maxInFlight: number,
    leaseSeconds: number,
    stopping: AbortSignal,
    listener: StreamListener,
  ) {
    this.#client = client;
    this.#queue = queue;
    this.#call = calls.stream(queue, maxInFlight, leaseSeconds);
    this.#stopping = stopping;
    this.#listener = listener;
  }

  /**
   * Wait for messages until `signal` aborts; none then. Throws StreamsNotOffered, and ProblemError when the gateway
   * refuses the consumer.
   */
  async receive(maxMessages: number, signal: AbortSignal): Promise<Delivery[]> {
    if (!this.#begun) {
      this.#begun = true;
      this.#read().catch((error: unknown) => {
        this.#failure = error;
        this.#wake();
      });
    }
    const wake = (): void => this.#wake();
    signal.addEventListener("abort", wake);
    try {
      while (!this.#arrived.length && !signal.aborted) {
        if (this.#failure !== undefined) throw this.#failure;
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
    return signal.aborted ? [] : this.#arrived.splice(0, maxMessages);
  }

  /** End the stream. The gateway delivers what is not settled again, and counts no attempt. */
  close(): void {
    this.#closing.abort();
  }

  async #read(): Promise<void> {
    const closing = this.#closing.signal;
    let attempts = new Attempts(false, Infinity);
    let refusals = 0;
    while (!closing.aborted && !this.#stopping.aborted) {
      let hasBegun = false;
      let error: unknown = new UnreachableError("The stream has ended.", false, undefined);
      try {
        for await (const { event, data } of this.#events()) {
          hasBegun = this.#works = true;
          this.#take(event, data);
        }
      } catch (thrown) {
        error = thrown;
      }
      if (closing.aborted) return;
      this.#arrived = [];
      this.#listener.ended();
      if (this.#stopping.aborted) return;
      refusals = error instanceof StreamsNotOffered ? refusals + 1 : 0;
      if (error instanceof StreamsNotOffered && this.#works && refusals <= MOST_REFUSALS) {
        error = new UnreachableError(`No stream came: ${error.message}.`, false, error);
      }
      if (hasBegun) attempts = new Attempts(false, Infinity);
      const pause = attempts.pauseAfter(error);
      this.#listener.log(`the stream of ${this.#queue} ended, next in ${Math.round(pause)} ms`, error);
      await sleep(pause, undefined, { signal: closing }).catch(() => undefined);
    }
  }

  #take(event: string, data: any): void {
    if (event === "message") {
      this.#arrived.push(new Delivery(this.#queue, data));
      this.#wake();
    } else if (event === "problem") {
      const problem = new ProblemError(data.status ?? 500, data);
      if (!problem.retryable) throw problem;
      this.#listener.log(`the stream of ${this.#queue} has a problem`, problem);
    }
  }

  /** The events of one stream, until it ends. Throws StreamsNotOffered, ProblemError and UnreachableError. */
  async *#events(): AsyncGenerator<{ event: string; data: any }> {
    const connection = new AbortController();
    const close = (): void => connection.abort();
    let hasBegun = false;
    let quiet = 0;
    const timer = setInterval(() => {
      if (++quiet === SILENT_TICKS) connection.abort();
    }, KEEP_ALIVE_MS);
    this.#closing.signal.addEventListener("abort", close);
    try {
      const response = await this.#client.open(this.#call, connection.signal);
      await check(response);
      const decoder = new TextDecoder();
      let rest = "";
      for await (const bytes of response.body!) {
        quiet = 0;
        hasBegun = true;
        const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
        rest = lines.pop()!;
        for (const line of lines) yield decoded(line);
      }
    } catch (error) {
      if (quiet >= SILENT_TICKS) {
        const silence = `nothing came within ${(SILENT_TICKS * KEEP_ALIVE_MS) / 1000} s`;
        if (!hasBegun) throw new StreamsNotOffered(silence);
        throw new UnreachableError(`The stream is silent: ${silence}.`, false, error);
      }
      if (error instanceof BabelgateError || error instanceof StreamsNotOffered) throw error;
      throw calls.unreachable(error);
    } finally {
      clearInterval(timer);
      this.#closing.signal.removeEventListener("abort", close);
      connection.abort();
    }
  }
}

/** The event of a line. Throws ProblemError, which ends the consumer: the next stream would send the same. */
function decoded(line: string): { event: string; data: any } {
  try {
    const { event, data } = JSON.parse(line);
    return { event, data };
  } catch {
    throw new ProblemError(200, { detail: "a line of the stream is no JSON object" });
  }
}

/** Whether an answer is a stream. */
async function check(response: Response): Promise<void> {
  const type = response.headers.get("content-type");
  if (response.ok && type?.startsWith(calls.JSON_LINES)) return;
  if (response.ok) throw new StreamsNotOffered(`the answer has the type ${type}`);
  const problem = calls.problem(response, await response.text());
  const isUnknown = problem.status === 404 && problem.code !== "queue_not_found";
  if (isUnknown || [405, 406, 501].includes(problem.status) || problem.code === "http_504") {
    throw new StreamsNotOffered(problem.message);
  }
  throw problem;
}
