const LANG = "node";
/** A received message, leased until `leaseExpiresAt` (Unix milliseconds). */
export class Delivery {
    queue;
    ackToken;
    leaseExpiresAt;
    /** The number of earlier deliveries that ended without an ack. */
    attempts;
    redelivered;
    headers;
    /** Such as `SequenceNumber`; empty if the broker has none. */
    brokerProperties;
    envelope;
    constructor(queue, received) {
        this.queue = queue;
        this.ackToken = received.ack_token;
        this.leaseExpiresAt = received.lease_expires_at;
        this.attempts = received.attempts;
        this.redelivered = received.redelivered;
        this.headers = received.headers;
        this.brokerProperties = received.broker_properties ?? {};
        this.envelope = received.envelope;
    }
    /** `meta.id`: use it to detect duplicates. */
    get id() {
        return this.envelope.meta?.id ?? undefined;
    }
    /** The kind of the message. */
    get job() {
        return this.envelope.job ?? this.envelope["urn"];
    }
    get data() {
        return this.envelope.data;
    }
    /** The id that all messages of one story share. */
    get traceId() {
        return this.envelope.trace_id;
    }
    /** The W3C trace context that travelled with the message. */
    get traceparent() {
        return this.headers["traceparent"];
    }
}
/** `wire` with the names of its members in camel case; what is below them stays as it is. */
export function camel(wire) {
    const entries = Object.entries(wire).map(([name, value]) => [name.replace(/_(\w)/g, (_, c) => c.toUpperCase()), value]);
    return Object.fromEntries(entries);
}
/** The body of a publish, with the idempotency `key` if there is one. Throws TypeError if it is no JSON. */
export function draft(message, key) {
    return json({
        job: message.job,
        data: message.data,
        trace_id: message.traceId,
        meta: { lang: message.lang ?? LANG, ext: message.ext },
        delay_seconds: message.delaySeconds,
        deliver_at: message.deliverAt,
        ttl_seconds: message.ttlSeconds,
        priority: message.priority,
        ordering_key: message.orderingKey,
        headers: message.headers,
        broker_properties: message.brokerProperties,
        idempotency_key: key,
    });
}
/** JSON, without the members that are undefined. Throws TypeError for NaN, an infinity or a BigInt. */
export function json(value) {
    return JSON.stringify(value, (name, each) => {
        if (typeof each === "number" && !Number.isFinite(each)) {
            throw new TypeError(`${name || "the value"} is ${each}, which JSON cannot hold`);
        }
        return each;
    });
}
