/** Base of all errors of this package, but for those that a handler throws to end its delivery. */
export class BabelgateError extends Error {
    name = "BabelgateError";
}
/**
 * The gateway answered with a problem (RFC 9457). `code` is stable: use it, and not the text, to tell problems apart.
 * `retryable`: the same request may succeed later, after `retryAfterSeconds` if that is given.
 */
export class ProblemError extends BabelgateError {
    name = "ProblemError";
    status;
    code;
    title;
    detail;
    retryable;
    traceId;
    errors;
    retryAfterSeconds;
    /** Whether a gateway said this, and not a proxy in front of it. */
    fromGateway;
    constructor(status, problem, retryAfterSeconds) {
        const code = problem.code ?? `http_${status}`;
        const detail = problem.detail ?? "the answer has no details";
        super(`${code}: ${detail}`);
        this.status = status;
        this.code = code;
        this.title = problem.title ?? "";
        this.detail = detail;
        this.retryable = problem.retryable === true;
        this.traceId = problem.trace_id ?? undefined;
        this.errors = problem.errors ?? [];
        this.retryAfterSeconds = retryAfterSeconds;
        this.fromGateway = typeof problem.code === "string";
    }
}
/** The lease is over: the message was settled, or is delivered again. */
export class LeaseLostError extends ProblemError {
    name = "LeaseLostError";
}
/** No gateway answered. `outcomeUnknown`: the request may have been carried out all the same. */
export class UnreachableError extends BabelgateError {
    name = "UnreachableError";
    outcomeUnknown;
    constructor(reason, outcomeUnknown, cause) {
        super(reason + (outcomeUnknown ? " The request may have been carried out." : ""), { cause });
        this.outcomeUnknown = outcomeUnknown;
    }
}
/** Thrown by a handler: dead-letter the message now. */
export class Reject extends Error {
    name = "Reject";
}
/** Thrown by a handler: deliver the message again after `delaySeconds`. It counts as a failed attempt. */
export class Retry extends Error {
    name = "Retry";
    delaySeconds;
    constructor(delaySeconds, message = "the handler requested another delivery") {
        super(message);
        this.delaySeconds = delaySeconds;
    }
}
