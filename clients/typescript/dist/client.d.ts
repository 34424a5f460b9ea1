import { Consumer, type ConsumerOptions, type Handler } from "./consumer.js";
import { DeadLetters } from "./deadletters.js";
import { Delivery, type Data, type EntryResult, type Message, type MessageOptions } from "./messages.js";
import type { Receipt, SettleOutcome } from "./messages.js";
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
export declare class Client {
    #private;
    readonly url: string;
    readonly timeoutSeconds: number;
    readonly retrySeconds: number;
    /** Throws TypeError for a URL or a token that cannot be one. */
    constructor({ url, token, timeoutSeconds, retrySeconds }?: ClientOptions);
    /**
     * Publish one message; resolves when the broker has stored it. A failed call is repeated with the same idempotency
     * key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was written.
     */
    publish(queue: string, job: string, data: Data, options?: MessageOptions & Traced): Promise<Receipt>;
    /** Publish messages in order; one result per message. Only entries that failed are sent again. */
    publishBatch(queue: string, messages: readonly Message[], { traceparent }?: Traced): Promise<EntryResult[]>;
    /**
     * Lease up to 100 messages; an empty list when there are none within `waitSeconds` (0 to 30, default 0).
     * `maxMessages`: default 1. `leaseSeconds`: default that of the queue.
     */
    receive(queue: string, options?: {
        maxMessages?: number;
        waitSeconds?: number;
        leaseSeconds?: number;
    }): Promise<Delivery[]>;
    /** Remove messages of one queue. A single delivery whose lease is over throws LeaseLostError. */
    ack(deliveries: Delivery | readonly Delivery[]): Promise<SettleOutcome>;
    /** Deliver messages again. `failed: false`: they were not attempted, so no attempt is counted. */
    nack(deliveries: Delivery | readonly Delivery[], options?: {
        delaySeconds?: number;
        error?: Failure;
        failed?: boolean;
    }): Promise<SettleOutcome>;
    /** Dead-letter messages. */
    reject(deliveries: Delivery | readonly Delivery[], options?: {
        error?: Failure;
    }): Promise<SettleOutcome>;
    /** Prolong leases: they end `leaseSeconds` from now. */
    extend(deliveries: Delivery | readonly Delivery[], leaseSeconds: number): Promise<SettleOutcome>;
    /** A consumer of `queue`. It starts with its method `run`. */
    consumer(queue: string, handler: Handler, options?: ConsumerOptions): Consumer;
    /** The dead letters of `queue`: list, show, redrive, delete and purge them. */
    deadLetters(queue: string): DeadLetters;
}
