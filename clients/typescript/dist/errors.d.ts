import type { Defect } from "./messages.js";
/** Base of all errors of this package, but for those that a handler throws to end its delivery. */
export declare class BabelgateError extends Error {
    name: string;
}
/**
 * The gateway answered with a problem (RFC 9457). `code` is stable: use it, and not the text, to tell problems apart.
 * `retryable`: the same request may succeed later, after `retryAfterSeconds` if that is given.
 */
export declare class ProblemError extends BabelgateError {
    name: string;
    readonly status: number;
    readonly code: string;
    readonly title: string;
    readonly detail: string;
    readonly retryable: boolean;
    readonly traceId: string | undefined;
    readonly errors: readonly Defect[];
    readonly retryAfterSeconds: number | undefined;
    /** Whether a gateway said this, and not a proxy in front of it. */
    readonly fromGateway: boolean;
    constructor(status: number, problem: Record<string, any>, retryAfterSeconds?: number);
}
/** The lease is over: the message was settled, or is delivered again. */
export declare class LeaseLostError extends ProblemError {
    name: string;
}
/** No gateway answered. `outcomeUnknown`: the request may have been carried out all the same. */
export declare class UnreachableError extends BabelgateError {
    name: string;
    readonly outcomeUnknown: boolean;
    constructor(reason: string, outcomeUnknown: boolean, cause: unknown);
}
/** Thrown by a handler: dead-letter the message now. */
export declare class Reject extends Error {
    name: string;
}
/** Thrown by a handler: deliver the message again after `delaySeconds`. It counts as a failed attempt. */
export declare class Retry extends Error {
    name: string;
    readonly delaySeconds: number;
    constructor(delaySeconds: number, message?: string);
}
