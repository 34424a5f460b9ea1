import { randomUUID } from "node:crypto";
import { BabelgateError, LeaseLostError, ProblemError, UnreachableError } from "./errors.js";
import { camel, draft, json } from "./messages.js";
export const VERSION = "0.2.0";
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
/** A gateway takes 10,000 entries and 16 MiB by default. Smaller requests are repeated in smaller parts. */
const ENTRIES_PER_REQUEST = 1_000;
const BYTES_PER_REQUEST = 4_194_304;
/** The code with which a queue refuses idempotency keys. */
export const NEEDS_NO_KEY = "idempotency_unsupported";
/** The content type of a stream. */
export const JSON_LINES = "application/x-ndjson";
const VISIBLE = /^[!-~]+$/;
const GATEWAY_URL = /^https?:\/\/[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f/?#]*(\/[^\x00-\x20\x7f?#]*)?$/i;
/** Codes of Node.js for connections that were never made. */
const NOT_CONNECTED = new Set([
    "ECONNREFUSED",
    "EAI_AGAIN",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "UND_ERR_CONNECT_TIMEOUT",
]);
/**
 * The pauses between the attempts of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says.
 * They end `retrySeconds` after the first attempt.
 */
export class Attempts {
    #unlessWritten;
    #deadline;
    #pause = FIRST_PAUSE_MS;
    constructor(unlessWritten, retrySeconds) {
        this.#unlessWritten = unlessWritten;
        this.#deadline = performance.now() + retrySeconds * 1000;
    }
    /** Milliseconds until the next attempt. Throws `error` if there is none. */
    pauseAfter(error) {
        if (!repeats(error, this.#unlessWritten))
            throw error;
        let pause = this.#pause * (0.5 + Math.random() / 2);
        this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
        if (error instanceof ProblemError)
            pause = Math.max(pause, (error.retryAfterSeconds ?? 0) * 1000);
        if (performance.now() + pause > this.#deadline)
            throw error;
        return pause;
    }
}
function repeats(error, unlessWritten) {
    if (error instanceof UnreachableError)
        return !unlessWritten || !error.outcomeUnknown;
    if (!(error instanceof ProblemError))
        return false;
    if (error.fromGateway)
        return error.retryable && (!unlessWritten || [429, 503].includes(error.status));
    return !unlessWritten && [408, 429, 502, 503, 504].includes(error.status);
}
export function publish(queue, message, key, traceparent) {
    const headers = { ...traced(traceparent), ...(key === undefined ? {} : { "Idempotency-Key": quoted(key) }) };
    return { path: path(queue, ""), body: draft(message, undefined), headers, unlessWritten: key === undefined };
}
export function receive(queue, maxMessages, waitSeconds, leaseSeconds) {
    const body = json({ max_messages: maxMessages, wait_seconds: waitSeconds, lease_seconds: leaseSeconds });
    return { path: path(queue, ":receive"), body, waitSeconds };
}
/** Proxies that compress an answer hold parts of it back. */
export function stream(queue, maxInFlight, leaseSeconds) {
    const query = new URLSearchParams({ max_in_flight: `${maxInFlight}`, lease_seconds: `${leaseSeconds}` });
    return { path: path(queue, `:stream?${query}`), headers: { Accept: JSON_LINES, "Accept-Encoding": "identity" } };
}
export function settle(queue, action, tokens, parameters = {}) {
    return { path: path(queue, `:${action}`), body: json({ ack_tokens: tokens, ...parameters }) };
}
/** A batch on its way: the bytes of each entry, and its last result. */
export class Batch {
    #queue;
    #messages;
    #headers;
    #keys;
    #drafts;
    #results;
    #pending;
    keysUnsupported = false;
    constructor(queue, messages, keyed, traceparent) {
        this.#queue = queue;
        this.#messages = messages;
        this.#headers = traced(traceparent);
        this.#keys = messages.map((message) => message.idempotencyKey ?? (keyed ? randomUUID() : undefined));
        this.#drafts = messages.map((message, index) => draft(message, this.#keys[index]));
        this.#results = messages.map(() => ({}));
        this.#pending = [...messages.keys()];
    }
    /** A call for each part of the entries that are not done, with their positions. */
    *calls() {
        let part = [];
        let size = 0;
        for (const index of this.#pending) {
            const bytes = Buffer.byteLength(this.#drafts[index]) + 1;
            if (part.length && (part.length === ENTRIES_PER_REQUEST || size + bytes > BYTES_PER_REQUEST)) {
                yield [part, this.#call(part)];
                [part, size] = [[], 0];
            }
            part.push(index);
            size += bytes;
        }
        if (part.length)
            yield [part, this.#call(part)];
    }
    #call(part) {
        const unlessWritten = part.some((index) => this.#keys[index] === undefined);
        const body = `[${part.map((index) => this.#drafts[index]).join(",")}]`;
        return { path: path(this.#queue, ":batch"), body, headers: this.#headers, unlessWritten };
    }
    /** Note the results of a part. */
    record(part, answer) {
        for (const result of answer["results"]) {
            const index = part[result.index];
            this.#results[index] = { ...result, index };
        }
    }
    /** The error for which entries are to be sent again, and prepares that; undefined when all are done. */
    failure() {
        this.#pending = [];
        let failure;
        for (const [index, result] of this.#results.entries()) {
            if (result["status"] < 300)
                continue;
            const error = new ProblemError(result["status"], result);
            const message = this.#messages[index];
            if (error.code === NEEDS_NO_KEY && message.idempotencyKey === undefined && this.#keys[index] !== undefined) {
                this.keysUnsupported = true;
                this.#keys[index] = undefined;
                this.#drafts[index] = draft(message, undefined);
            }
            else if (!repeats(error, this.#keys[index] === undefined)) {
                continue;
            }
            this.#pending.push(index);
            failure = new ProblemError(503, { ...result, retryable: true });
        }
        return failure;
    }
    /** One result per message, in order. */
    results() {
        return this.#results.map((result) => camel(result));
    }
}
/** The JSON of the answer. Throws ProblemError and UnreachableError, or the reason of `signal` when that aborts. */
export async function send(base, headers, call, timeoutSeconds, signal) {
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort();
    // AbortSignal.any would keep something for each call until `signal` aborts, in some releases of Node.js 20.
    signal?.addEventListener("abort", abort);
    const seconds = timeoutSeconds + (call.waitSeconds ?? 0);
    const timer = setTimeout(() => controller.abort(new Error(`no answer within ${seconds} s`)), seconds * 1000);
    let response;
    let text;
    try {
        response = await open(base, headers, call, controller.signal);
        text = await response.text();
    }
    catch (error) {
        signal?.throwIfAborted();
        throw unreachable(error);
    }
    finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
    }
    if (!response.ok)
        throw problem(response, text);
    return parsed(text);
}
/** The answer, before its body is read. Throws what `fetch` does. */
export function open(base, headers, call, signal) {
    return fetch(base + call.path, {
        ...(call.body === undefined ? {} : { method: "POST", body: call.body }),
        headers: { ...headers, ...call.headers, ...(call.body === undefined ? {} : { "Content-Type": "application/json" }) },
        redirect: "manual",
        signal,
    });
}
/** The error of an answer that is none of success. */
export function problem(response, text) {
    const read = parsed(text);
    const after = Number(response.headers.get("retry-after") ?? NaN);
    const kind = read["code"] === "lease_lost" ? LeaseLostError : ProblemError;
    return new kind(response.status, read, Number.isFinite(after) ? after : undefined);
}
/** What `fetch` threw, in the terms of this package. */
export function unreachable(error) {
    const cause = error.cause;
    const sent = cause?.code === undefined || !NOT_CONNECTED.has(cause.code);
    const reason = cause?.message || cause?.code || error.message;
    return new UnreachableError(`No gateway answered: ${reason}.`, sent, error);
}
function parsed(text) {
    try {
        const read = JSON.parse(text);
        return typeof read === "object" && read !== null ? read : {};
    }
    catch {
        return {};
    }
}
function path(queue, action) {
    return `/queues/${encodeURIComponent(queue)}/messages${action}`;
}
function traced(traceparent) {
    if (traceparent === undefined)
        return {};
    if (!VISIBLE.test(traceparent))
        throw new TypeError("a traceparent is visible ASCII, without spaces and line ends");
    return { traceparent };
}
/** `url` without slashes at its end. Throws TypeError unless it can be the URL of a gateway. */
export function gatewayUrl(url) {
    if (!GATEWAY_URL.test(url)) {
        throw new TypeError("the URL of the gateway begins with http:// or https:// and names a host, such as http://127.0.0.1:8080," +
            " without spaces, line ends, query and fragment");
    }
    return url.replace(/\/+$/, "");
}
/** The value of the header `Authorization`. Throws TypeError, without the token, if no header can carry it. */
export function bearer(token) {
    if (!VISIBLE.test(token)) {
        throw new TypeError("the token is visible ASCII, without spaces and line ends; one that was read from a file often ends in a line feed");
    }
    return `Bearer ${token}`;
}
/** `key` as a structured string of HTTP. */
function quoted(key) {
    if (!/^[ -~]{1,255}$/.test(key))
        throw new TypeError("an idempotency key has 1 to 255 printable ASCII characters");
    return `"${key.replace(/[\\"]/g, "\\$&")}"`;
}
