import type { components } from "./generated/api.js";

type Schemas = components["schemas"];
const LANG = "node";
type CamelKey<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelKey<Tail>>}` : S;
/** The declared members of a schema, named as TypeScript names them. */
export type Camel<T> = { readonly [K in keyof T as string extends K ? never : CamelKey<K & string>]: T[K] };

/** An accepted message. `createdAt`: Unix milliseconds. */
export type Receipt = Camel<Schemas["Receipt"]>;
/** The result of one message of a batch: `id` and `traceId` with the status 201, else its error. */
export type EntryResult = Camel<Schemas["EntryResult"]>;
/** The result of one delivery of a settle call. `leaseExpiresAt`, after an extend: Unix milliseconds. */
export type SettleResult = Camel<Schemas["TokenResult"]>;
/** What became of settled deliveries, with one result for each. */
export interface SettleOutcome {
  readonly settled: number;
  readonly failed: number;
  readonly results: readonly SettleResult[];
}
/** One defect of a body. */
export type Defect = Camel<Schemas["Defect"]>;
/** The whole message as the gateway hands it out. */
export type Envelope = Schemas["ReceivedEnvelope"];
/** [Broker properties](https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties) to publish. */
export type BrokerProperties = Schemas["BrokerProperties"];
/** Broker properties of a delivery. A `SequenceNumber` beyond 2^53 loses digits in JavaScript. */
export type ReceivedBrokerProperties = Schemas["ReceivedBrokerProperties"];
/** Data of a message: a JSON object. An integer beyond 2^53 loses digits in JavaScript; send it as a string. */
export type Data = Record<string, unknown>;

/** Options of a message. */
export interface MessageOptions {
  /** By convention a UUID; the gateway makes one. */
  traceId?: string;
  /** Seconds until the message can be received. */
  delaySeconds?: number;
  /** Deliver it at this time (Unix milliseconds) and not before, instead of `delaySeconds`. */
  deliverAt?: number;
  /** Dead-letter it if it is not delivered in this time. */
  ttlSeconds?: number;
  /** 0 to 9, where the broker has priorities; higher is sooner. */
  priority?: number;
  /** Messages with the same key stay in order, where the broker supports it. */
  orderingKey?: string;
  /** Native headers, where the broker supports them. */
  headers?: Record<string, string>;
  /** By their names in the API, such as `TimeToLive`, where the broker supports them. */
  brokerProperties?: BrokerProperties;
  /** 1 to 255 printable ASCII characters; the client makes one. */
  idempotencyKey?: string;
  /** The language of the producer; by default that of this client, `node`. */
  lang?: Lang;
  /** Extensions by vendor, which become `meta.ext` of the envelope. */
  ext?: Record<string, unknown>;
}

/** The languages that an envelope knows. */
export type Lang = NonNullable<Schemas["DraftMeta"]["lang"]>;

/** A message to publish. `job`: its kind, by convention a URN. */
export interface Message extends MessageOptions {
  job: string;
  data: Data;
}

/** A received message, leased until `leaseExpiresAt` (Unix milliseconds). */
export class Delivery {
  readonly queue: string;
  readonly ackToken: string;
  readonly leaseExpiresAt: number;
  /** The number of earlier deliveries that ended without an ack. */
  readonly attempts: number;
  readonly redelivered: boolean;
  readonly headers: Readonly<Record<string, string>>;
  /** Such as `SequenceNumber`; empty if the broker has none. */
  readonly brokerProperties: Readonly<ReceivedBrokerProperties>;
  readonly envelope: Envelope;

  constructor(queue: string, received: Schemas["ReceivedMessage"]) {
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
  get id(): string | undefined {
    return this.envelope.meta?.id ?? undefined;
  }

  /** The kind of the message. */
  get job(): string | undefined {
    return this.envelope.job ?? (this.envelope["urn"] as string | undefined);
  }

  get data(): Data {
    return this.envelope.data;
  }

  /** The id that all messages of one story share. */
  get traceId(): string {
    return this.envelope.trace_id;
  }

  /** The W3C trace context that travelled with the message. */
  get traceparent(): string | undefined {
    return this.headers["traceparent"];
  }
}

/** `wire` with the names of its members in camel case; what is below them stays as it is. */
export function camel<T>(wire: Record<string, any>): T {
  const entries = Object.entries(wire).map(([name, value]) => [name.replace(/_(\w)/g, (_, c) => c.toUpperCase()), value]);
  return Object.fromEntries(entries) as T;
}

/** The body of a publish, with the idempotency `key` if there is one. Throws TypeError if it is no JSON. */
export function draft(message: Message, key: string | undefined): string {
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
export function json(value: unknown): string {
  return JSON.stringify(value, (name, each) => {
    if (typeof each === "number" && !Number.isFinite(each)) {
      throw new TypeError(`${name || "the value"} is ${each}, which JSON cannot hold`);
    }
    return each;
  });
}
