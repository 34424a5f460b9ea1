"""JSON Schemas of the envelope for the OpenAPI document. Validation itself is done by the codec."""

from __future__ import annotations

from typing import Any

from babelgate.envelope.broker_properties import MAX_KEY, MAX_TIME_TO_LIVE
from babelgate.envelope.contract import FORBIDDEN, FORBIDDEN_META, INT64_MAX, LANGS, MAX_ID
from babelgate.envelope.options import MAX_ORDERING_KEY, OPTIONS

Json = dict[str, Any]

_TEXT: Json = {"type": "string", "pattern": r"[^ \t\n\v\f\r]"}
_COUNT: Json = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
_OBJECT: Json = {"type": "object", "additionalProperties": True}
_LANG: Json = {"type": "string", "enum": list(LANGS)}
_ID: Json = {
    "type": "string",
    "pattern": "^[ -~]*[!-~][ -~]*$",
    "maxLength": MAX_ID,
    "description": f"Identifies the message: 1 to {MAX_ID} printable ASCII characters, by convention a UUID.",
}
_WRITTEN_TEXT: Json = {"type": ["string", "null"]}
_FULL_META = ("id", "queue", "lang", "schema_version", "created_at")


def _without(names: tuple[str, ...]) -> Json:
    return {"not": {"enum": list(names)}}


_OPTIONS: Json = {
    "delay_seconds": {
        "type": "number",
        "minimum": 0,
        "description": "Seconds until the message can be received; may be decimal; at most the broker's "
        "`max_delay_seconds`. Without it: 0. The query parameter of this name, if given too, must be equal.",
        "examples": [60],
    },
    "ordering_key": _TEXT
    | {
        "maxLength": MAX_ORDERING_KEY,
        "description": "Messages with the same key are delivered in their order. A queue without order refuses it, "
        "unless its route ignores it.",
        "examples": ["customer-42"],
    },
    "headers": {
        "description": "Native headers of the message, where the broker supports them. They are no part of the body.",
        "type": "object",
        "propertyNames": _TEXT,
        "additionalProperties": {"type": "string", "minLength": 1},
    },
    "idempotency_key": {
        "description": "Publishes the message once, like the header `Idempotency-Key` of a single publish: 1 to 255 "
        "printable ASCII characters.",
        "type": "string",
        "pattern": "^[ -~]{1,255}$",
        "examples": ["order-4711"],
    },
    "broker_properties": {"$ref": "#/components/schemas/BrokerProperties"},
}
"""Members that belong to the message and not to its body. ``null`` means the same as none. The document does not say
so, because generators make a class of its own for it."""

_KEY: Json = _TEXT | {"maxLength": MAX_KEY}
_TIME: Json = {"type": "string", "examples": ["Tue, 24 Nov 2026 10:00:00 GMT"]}
_PAGE = "https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties"

SCHEMAS: Json = {
    "BrokerProperties": {
        "description": f"Broker properties of Azure Service Bus, [by Microsoft's names]({_PAGE}). A queue takes those "
        "in its capability `broker_properties`. The envelope sets the others: `job` is the label, `trace_id` the "
        "correlation id, and `meta.id` the message id.",
        "type": "object",
        "properties": {
            "TimeToLive": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIME_TO_LIVE,
                "description": "Seconds after which the message expires; may be decimal. Without it: as the queue is "
                "set up.",
                "examples": [3600],
            },
            "ReplyTo": _TEXT | {"description": "Where to send a reply.", "examples": ["replies"]},
            "To": _TEXT | {"description": "A destination, for the consumer.", "examples": ["warehouse"]},
            "ReplyToSessionId": _KEY | {"description": "The session of a reply.", "examples": ["shop-1"]},
            "PartitionKey": _KEY
            | {
                "description": "Messages with the same key are in one partition. Equal to `SessionId` and "
                "`ordering_key`, if these are given.",
                "examples": ["customer-42"],
            },
            "SessionId": _KEY
            | {
                "description": "The session of the message. Equal to `ordering_key`, if that is given.",
                "examples": ["customer-42"],
            },
            "ScheduledEnqueueTimeUtc": _TIME
            | {
                "description": "When the message becomes available: an HTTP-date, or a time of ISO 8601 with `Z` or an "
                "offset. A time in the past is now. It excludes `delay_seconds`.",
            },
        },
        "additionalProperties": False,
    },
    "ReceivedBrokerProperties": {
        "description": f"The broker properties of a delivery, [by Microsoft's names]({_PAGE}); only those that it has. "
        "Times are HTTP-dates.",
        "type": "object",
        "properties": {
            "TimeToLive": {"type": "number", "description": "Seconds after which the message expires."},
            "ReplyTo": {"type": "string", "description": "Where to send a reply."},
            "To": {"type": "string", "description": "A destination, for the consumer."},
            "ReplyToSessionId": {"type": "string", "description": "The session of a reply."},
            "PartitionKey": {"type": "string", "description": "The key of the message's partition."},
            "SessionId": {"type": "string", "description": "The session of the message."},
            "ScheduledEnqueueTimeUtc": _TIME | {"description": "When the message was to become available."},
            "Label": {"type": "string", "description": "The subject: the `job` of an envelope."},
            "CorrelationId": {"type": "string", "description": "The `trace_id` of an envelope."},
            "MessageId": {"type": "string", "description": "The `meta.id` of an envelope."},
            "ContentType": {"type": "string", "description": "The media type of the body."},
            "DeliveryCount": {"type": "integer", "description": "The number of deliveries, with this one."},
            "EnqueuedTimeUtc": _TIME | {"description": "When the message became available."},
            "EnqueuedSequenceNumber": {
                "type": "integer",
                "description": "The number that the message had before it was forwarded.",
            },
            "SequenceNumber": {"type": "integer", "description": "The number of the message in its queue."},
            "LockedUntilUtc": _TIME | {"description": "When the lock ends; `lease_expires_at` takes precedence."},
            "LockToken": {"type": "string", "description": "The lock of the delivery. Settle with its ack token."},
            "DeadLetterSource": {
                "type": "string",
                "description": "The queue from which the message was dead-lettered.",
            },
            "State": {"type": "string", "description": "`Active`, `Deferred` or `Scheduled`."},
        },
    },
    "Envelope": {
        "description": "A BabelQueue envelope.",
        "type": "object",
        "required": ["job", "trace_id", "data", "meta", "attempts"],
        "properties": {
            "job": _TEXT
            | {"description": "The kind of the message, as a URN.", "examples": ["urn:babel:emails:welcome"]},
            "trace_id": _TEXT | {"description": "By convention a UUID."},
            "data": _OBJECT | {"description": "The payload; key order and number literals are preserved."},
            "meta": {"$ref": "#/components/schemas/EnvelopeMeta"},
            "attempts": _COUNT | {"description": "The number of earlier deliveries that ended without an ack."},
        },
        "propertyNames": _without((*FORBIDDEN, "urn", "dead_letter", *OPTIONS)),
    },
    "EnvelopeMeta": {
        "description": "The facts of a message that its producer has recorded.",
        "type": "object",
        "required": list(_FULL_META),
        "properties": {
            "id": _ID,
            "queue": _TEXT | {"description": "The queue of the path."},
            "lang": _LANG | {"description": "The language of the producer."},
            "schema_version": {"type": "integer", "const": 1, "description": "The version of the envelope's schema."},
            "created_at": _COUNT | {"description": "Unix milliseconds UTC."},
        },
        "propertyNames": _without(FORBIDDEN_META),
    },
    "ReceivedEnvelope": {
        "description": "The envelope as stored on the queue. This gateway writes all members of `Envelope`; another "
        "program may omit optional members, or write `urn` instead of `job`.",
        "type": "object",
        "required": ["trace_id", "data", "meta", "attempts"],
        "properties": {
            "job": _WRITTEN_TEXT | {"description": "The kind of the message, as a URN."},
            "trace_id": _TEXT | {"description": "By convention a UUID."},
            "data": _OBJECT | {"description": "The payload, as it was published."},
            "meta": {"$ref": "#/components/schemas/ReceivedEnvelopeMeta"},
            "attempts": {"type": "integer", "description": "The `attempts` of the delivery takes precedence."},
        },
    },
    "ReceivedEnvelopeMeta": {
        "description": "`meta` as stored on the queue. Another program may omit all members but `schema_version`.",
        "type": "object",
        "required": ["schema_version"],
        "properties": {
            "id": _WRITTEN_TEXT | {"description": "Identifies the message. By convention a UUID."},
            "queue": _WRITTEN_TEXT | {"description": "The queue that the producer has named."},
            "lang": _WRITTEN_TEXT | {"description": "The language of the producer."},
            "schema_version": {"type": "integer", "const": 1, "description": "The version of the envelope's schema."},
            "created_at": {"type": ["integer", "null"], "description": "Unix milliseconds UTC."},
        },
    },
    "Draft": {
        "description": "The ordinary body of a publish: an envelope without its ids, time and version, which the "
        "gateway adds, and options of the message, which do not become part of its body.",
        "type": "object",
        "required": ["job", "data"],
        "properties": {
            "job": _TEXT
            | {"description": "The kind of the message, as a URN.", "examples": ["urn:babel:emails:welcome"]},
            "data": _OBJECT | {"description": "The payload; key order and number literals are preserved."},
            "trace_id": _TEXT | {"description": "By convention a UUID. Without it: a new one."},
            "meta": {"$ref": "#/components/schemas/DraftMeta"},
            **_OPTIONS,
        },
        "additionalProperties": False,
    },
    "DraftMeta": {
        "description": "What a draft may say of its producer. The gateway adds the other members.",
        "type": "object",
        "properties": {
            "lang": _LANG | {"description": "The language of the producer. Without it: `python`."},
            "ext": {"description": "Extensions: an object, by vendor."},
        },
        "additionalProperties": False,
    },
    "Entry": {
        "description": "A full envelope, with options of the message, which do not become part of its body.",
        "type": "object",
        "required": ["envelope"],
        "properties": {"envelope": {"$ref": "#/components/schemas/Envelope"}, **_OPTIONS},
        "additionalProperties": False,
    },
    "Job": {
        "description": "A job of the Open Job Spec. The gateway converts it to an envelope, for queues of any broker, "
        "and keeps members that only a job has in `meta.ext.ojs`. Members that the server manages are ignored. "
        "`scheduled_at` delays the message.",
        "type": "object",
        "required": ["type", "args"],
        "properties": {
            "specversion": {
                "description": "The version of the Open Job Spec. Without it: 1.0.",
                "type": "string",
                "pattern": r"^1\.0([.-].*)?$",
                "examples": ["1.0"],
            },
            "id": _TEXT | {"description": "A UUID of version 7."},
            "type": _TEXT | {"description": "The kind of the job.", "examples": ["email.send"]},
            "queue": _TEXT | {"description": "The queue of the path."},
            "args": {
                "type": "array",
                "items": {},
                "description": "A single object becomes the envelope's `data`; any other list becomes `data.args`.",
            },
            "meta": _OBJECT | {"description": "Facts beside the arguments."},
            "scheduled_at": {
                "type": ["string", "null"],
                "format": "date-time",
                "description": "Delays the message until this time.",
            },
            "expires_at": {
                "type": ["string", "null"],
                "format": "date-time",
                "description": "The job is of no use after this time. The gateway keeps it and does not act on it.",
            },
        },
    },
}

DRAFT: Json = {"job": "urn:babel:emails:welcome", "data": {"to": "ada@example.com"}}
LATER: Json = {**DRAFT, "delay_seconds": 60}
DELAYED: Json = {**LATER, "idempotency_key": "order-4711"}
JOB: Json = {"specversion": "1.0", "type": "email.send", "args": [{"to": "ada@example.com"}], "priority": 10}
ENVELOPE_EXAMPLE: Json = {
    "job": "urn:babel:emails:welcome",
    "trace_id": "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10",
    "data": {"to": "ada@example.com"},
    "meta": {
        "id": "7c1f0a52-6f0e-4a55-9d0d-0a6c1f6f2b11",
        "queue": "emails",
        "lang": "python",
        "schema_version": 1,
        "created_at": 1_790_000_000_000,
    },
    "attempts": 0,
}
ENTRY: Json = {"envelope": ENVELOPE_EXAMPLE, "delay_seconds": 1.5}
