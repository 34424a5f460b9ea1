import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import * as calls from "./calls.js";
import { Attempts, Batch } from "./calls.js";
import { Consumer } from "./consumer.js";
import { DeadLetters } from "./deadletters.js";
import { ProblemError } from "./errors.js";
import { camel, Delivery } from "./messages.js";
const LOCAL_URL = "http://127.0.0.1:8080";
/** A client of one gateway. Its methods throw ProblemError and UnreachableError. */
export class Client {
    url;
    timeoutSeconds;
    retrySeconds;
    #headers;
    #withoutKeys = new Set();
    /** Throws TypeError for a URL or a token that cannot be one. */
    constructor({ url, token, timeoutSeconds = 30, retrySeconds = 60 } = {}) {
        this.url = calls.gatewayUrl(url ?? (process.env["BABELGATE_URL"] || LOCAL_URL));
        this.timeoutSeconds = timeoutSeconds;
        this.retrySeconds = retrySeconds;
        this.#headers = { "User-Agent": `babelgate-typescript/${calls.VERSION}` };
        const given = token ?? process.env["BABELGATE_TOKEN"];
        if (given)
            this.#headers["Authorization"] = calls.bearer(given);
    }
    /**
     * Publish one message; resolves when the broker has stored it. A failed call is repeated with the same idempotency
     * key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was written.
     */
    async publish(queue, job, data, options = {}) {
        const { traceparent, ...rest } = options;
        const message = { job, data, ...rest };
        const key = message.idempotencyKey ?? (this.#withoutKeys.has(queue) ? undefined : randomUUID());
        try {
            return camel(await this.call(calls.publish(queue, message, key, traceparent)));
        }
        catch (error) {
            const own = message.idempotencyKey === undefined;
            if (!own || !(error instanceof ProblemError) || error.code !== calls.NEEDS_NO_KEY)
                throw error;
            this.#withoutKeys.add(queue);
            return camel(await this.call(calls.publish(queue, message, undefined, traceparent)));
        }
    }
    /** Publish messages in order; one result per message. Only entries that failed are sent again. */
    async publishBatch(queue, messages, { traceparent } = {}) {
        const batch = new Batch(queue, messages, !this.#withoutKeys.has(queue), traceparent);
        const attempts = new Attempts(false, this.retrySeconds);
        for (;;) {
            for (const [part, call] of batch.calls())
                batch.record(part, await this.call(call));
            const failure = batch.failure();
            if (batch.keysUnsupported)
                this.#withoutKeys.add(queue);
            if (failure === undefined)
                return batch.results();
            let pause;
            try {
                pause = attempts.pauseAfter(failure);
            }
            catch {
                return batch.results();
            }
            await sleep(pause);
        }
    }
    /**
     * Lease up to 100 messages; an empty list when there are none within `waitSeconds` (0 to 30, default 0).
     * `maxMessages`: default 1. `leaseSeconds`: default that of the queue.
     */
    async receive(queue, options = {}) {
        const call = calls.receive(queue, options.maxMessages ?? 1, options.waitSeconds ?? 0, options.leaseSeconds);
        const answer = await this.call(call);
        return answer["messages"].map((message) => new Delivery(queue, message));
    }
    /** Remove messages of one queue. A single delivery whose lease is over throws LeaseLostError. */
    async ack(deliveries) {
        return this.#settle("ack", deliveries);
    }
    /** Deliver messages again. `failed: false`: they were not attempted, so no attempt is counted. */
    async nack(deliveries, options = {}) {
        const { delaySeconds, error, failed } = options;
        return this.#settle("nack", deliveries, { delay_seconds: delaySeconds, error, failed });
    }
    /** Dead-letter messages. */
    async reject(deliveries, options = {}) {
        return this.#settle("reject", deliveries, { error: options.error });
    }
    /** Prolong leases: they end `leaseSeconds` from now. */
    async extend(deliveries, leaseSeconds) {
        return this.#settle("extend", deliveries, { lease_seconds: leaseSeconds });
    }
    /** A consumer of `queue`. It starts with its method `run`. */
    consumer(queue, handler, options = {}) {
        return new Consumer(this, queue, handler, options);
    }
    /** The dead letters of `queue`: list, show, redrive, delete and purge them. */
    deadLetters(queue) {
        return new DeadLetters(this, queue);
    }
    async #settle(action, given, parameters) {
        const deliveries = given instanceof Delivery ? [given] : given;
        if (deliveries[0] === undefined)
            return { settled: 0, failed: 0, results: [] };
        const tokens = deliveries.map((delivery) => delivery.ackToken);
        const answer = await this.call(calls.settle(deliveries[0].queue, action, tokens, parameters));
        const results = answer["results"].map((result) => camel(result));
        return { settled: answer["settled"], failed: answer["failed"], results };
    }
    /** @internal */
    async call(call, retrySeconds = this.retrySeconds) {
        const attempts = new Attempts(call.unlessWritten ?? false, retrySeconds);
        for (;;) {
            try {
                return await this.once(call);
            }
            catch (error) {
                await sleep(attempts.pauseAfter(error));
            }
        }
    }
    /** @internal */
    async once(call, options = {}) {
        return calls.send(this.url, this.#headers, call, options.timeoutSeconds ?? this.timeoutSeconds, options.signal);
    }
    /** @internal The answer, before its body is read. */
    async open(call, signal) {
        return calls.open(this.url, this.#headers, call, signal);
    }
}
