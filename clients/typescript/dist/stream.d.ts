import type { Client } from "./client.js";
import { Delivery } from "./messages.js";
/** The gateway is older than streams, or a proxy in front of it refuses or buffers them. */
export declare class StreamsNotOffered extends Error {
    name: string;
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
export declare class Stream {
    #private;
    constructor(client: Client, queue: string, maxInFlight: number, leaseSeconds: number, stopping: AbortSignal, listener: StreamListener);
    /**
     * Wait for messages until `signal` aborts; none then. Throws StreamsNotOffered, and ProblemError when the gateway
     * refuses the consumer.
     */
    receive(maxMessages: number, signal: AbortSignal): Promise<Delivery[]>;
    /** End the stream. The gateway delivers what is not settled again, and counts no attempt. */
    close(): void;
}
