import { BabelgateError, ProblemError } from "./errors.js";
import { type EntryResult, type Message } from "./messages.js";
export declare const VERSION = "0.2.0";
/** The code with which a queue refuses idempotency keys. */
export declare const NEEDS_NO_KEY = "idempotency_unsupported";
/** The content type of a stream. */
export declare const JSON_LINES = "application/x-ndjson";
/** One request. The same bytes are sent each time, as an idempotency key requires. */
export interface Call {
    path: string;
    /** That of a POST; without it, a GET. */
    body?: string;
    headers?: Record<string, string>;
    /** How long the gateway may wait before it answers, beyond the usual time-out. */
    waitSeconds?: number;
    /** Repeat only if it is certain that nothing was written; else the call has the same effect twice as once. */
    unlessWritten?: boolean;
}
/**
 * The pauses between the attempts of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says.
 * They end `retrySeconds` after the first attempt.
 */
export declare class Attempts {
    #private;
    constructor(unlessWritten: boolean, retrySeconds: number);
    /** Milliseconds until the next attempt. Throws `error` if there is none. */
    pauseAfter(error: unknown): number;
}
export declare function publish(queue: string, message: Message, key: string | undefined, traceparent: string | undefined): Call;
export declare function receive(queue: string, maxMessages: number, waitSeconds: number, leaseSeconds?: number): Call;
/** Proxies that compress an answer hold parts of it back. */
export declare function stream(queue: string, maxInFlight: number, leaseSeconds: number): Call;
export type Action = "ack" | "nack" | "reject" | "extend";
export declare function settle(queue: string, action: Action, tokens: string[], parameters?: object): Call;
/** A batch on its way: the bytes of each entry, and its last result. */
export declare class Batch {
    #private;
    keysUnsupported: boolean;
    constructor(queue: string, messages: readonly Message[], keyed: boolean, traceparent: string | undefined);
    /** A call for each part of the entries that are not done, with their positions. */
    calls(): Generator<[number[], Call]>;
    /** Note the results of a part. */
    record(part: number[], answer: Record<string, any>): void;
    /** The error for which entries are to be sent again, and prepares that; undefined when all are done. */
    failure(): ProblemError | undefined;
    /** One result per message, in order. */
    results(): EntryResult[];
}
/** The JSON of the answer. Throws ProblemError and UnreachableError, or the reason of `signal` when that aborts. */
export declare function send(base: string, headers: Record<string, string>, call: Call, timeoutSeconds: number, signal?: AbortSignal): Promise<Record<string, any>>;
/** The answer, before its body is read. Throws what `fetch` does. */
export declare function open(base: string, headers: Record<string, string>, call: Call, signal: AbortSignal): Promise<Response>;
/** The error of an answer that is none of success. */
export declare function problem(response: Response, text: string): ProblemError;
/** What `fetch` threw, in the terms of this package. */
export declare function unreachable(error: unknown): BabelgateError;
/** `url` without slashes at its end. Throws TypeError unless it can be the URL of a gateway. */
export declare function gatewayUrl(url: string): string;
/** The value of the header `Authorization`. Throws TypeError, without the token, if no header can carry it. */
export declare function bearer(token: string): string;
