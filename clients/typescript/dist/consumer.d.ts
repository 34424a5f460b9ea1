import type { Client } from "./client.js";
import { Delivery } from "./messages.js";
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
export declare class Consumer {
    #private;
    constructor(client: Client, queue: string, handler: Handler, options?: ConsumerOptions);
    /**
     * Consume until `stop`, or until one of `signals` arrives. A gateway that is away or overloaded is waited for.
     * Throws ProblemError when the gateway refuses to receive, such as for an unknown queue or a missing right. What is
     * held is then finished or given back, as after a stop.
     */
    run({ signals }?: {
        signals?: NodeJS.Signals[];
    }): Promise<void>;
    /** Receive no more, and end `run` when the running handlers have ended, or after the grace. */
    stop(): void;
}
