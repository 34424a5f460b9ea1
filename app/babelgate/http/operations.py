"""The OpenAPI operations of the hot endpoints. FastAPI generates those of the other endpoints."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.gateway.model import Receipt
from babelgate.http import schemas
from babelgate.http.envelopes import DELAYED, DRAFT, ENTRY, ENVELOPE_EXAMPLE, JOB, LATER
from babelgate.http.examples import TOKEN
from babelgate.ojs import MEDIA_TYPE

REF = "#/components/schemas/{name}"

Json = dict[str, Any]

COMPONENTS: Json = msgspec.json.schema_components(
    [
        Receipt,
        schemas.BatchResult,
        schemas.ReceiveRequest,
        schemas.ReceivedView,
        schemas.AckRequest,
        schemas.NackRequest,
        schemas.RejectRequest,
        schemas.ExtendRequest,
        schemas.SettleRequest,
        schemas.SettleOutcome,
        schemas.RedriveDeadLetterRequest,
    ],
    ref_template=REF,
)[1]
COMPONENTS["DeadLetterEdit"] |= {"minProperties": 1, "maxProperties": 1}


_RECEIPT = {
    "id": "The `meta.id` of the message.",
    "trace_id": "The `trace_id` of the message.",
    "queue": "The queue to which it was published.",
    "broker": "The configured name of the queue's broker.",
    "attempts": "The `attempts` of the published body; 0 for a draft.",
    "created_at": "The `meta.created_at` of the message; Unix milliseconds UTC.",
}
"""Descriptions of a class of the gateway, which knows nothing of the document."""
for _name, _text in _RECEIPT.items():
    COMPONENTS["Receipt"]["properties"][_name]["description"] = _text


def ref(name: str) -> Json:
    """A reference to the schema ``name``."""
    return {"$ref": REF.format(name=name)}


def json_content(schema: Json, example: Any = None) -> Json:
    """A JSON body."""
    return {"application/json": {"schema": schema} | ({} if example is None else {"example": example})}


def query_of(kind: type[Struct]) -> list[Json]:
    """The fields of ``kind`` as query parameters."""
    _, components = msgspec.json.schema_components([kind], ref_template=REF)
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in components[kind.__name__]["properties"].items()
    ]


ENVELOPE_TYPE = "application/vnd.babelqueue.envelope+json"
ENTRY_TYPE = "application/vnd.babelqueue.entry+json"
# One media type per kind of body, and the draft alone as JSON: generators make a class of each, and take the first for
# the type of the argument. The service accepts each kind with any of these media types but the last.
PUBLISH_BODY: Json = {
    "required": True,
    "content": {
        "application/json": {
            "schema": ref("Draft"),
            "examples": {
                "draft": {"summary": "A draft, which the gateway completes", "value": DRAFT},
                "delayed": {"summary": "A draft with a delay of a minute, published once", "value": DELAYED},
            },
        },
        ENVELOPE_TYPE: {"schema": ref("Envelope"), "example": ENVELOPE_EXAMPLE},
        ENTRY_TYPE: {"schema": ref("Entry"), "example": ENTRY},
        MEDIA_TYPE: {"schema": ref("Job"), "example": JOB},
    },
}
# Not in `content`: the generators have no type for NDJSON, and one makes a client that fails at every call when there
# is more than one kind of array.
_BATCH_EXTENSION: Json = {
    "x-also-accepts": [
        {"mediaType": "application/json", "itemSchemas": [ref("Envelope"), ref("Entry")]},
        {
            "mediaType": "application/x-ndjson",
            "itemSchemas": [ref("Draft"), ref("Envelope"), ref("Entry")],
            "example": "".join(f"{json.dumps(line)}\n" for line in (DRAFT, LATER)),
        },
        {"mediaType": MEDIA_TYPE, "itemSchemas": [ref("Job")]},
    ]
}
REDRIVE_LETTER_BODY: Json = {
    "required": False,
    "content": json_content(ref("RedriveDeadLetterRequest"), {"edit": {"data": {"to": "ada@example.com"}}}),
}
PUBLISH_QUERY = query_of(schemas.PublishParameters)
VALIDATE_QUERY = query_of(schemas.ValidateParameters)
IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": 'Publishes once: a repeated request gets the answer of the first. `"…"`, or a text without quotes.',
    "schema": {"type": "string", "pattern": r"""^("([ !#-\[\]-~]|\\["\\]){1,255}"|[!#-~]{1,255})$"""},
    "example": '"order-4711"',
}
BROKER_PROPERTIES: Json = {
    "name": "BrokerProperties",
    "in": "header",
    "required": False,
    "description": "Broker properties as one JSON object, as in the API of Azure Service Bus, with the members of the "
    "schema `BrokerProperties`. The member `broker_properties` of the body, if given too, must be equal.",
    "schema": {"type": "string", "pattern": r"^\s*\{.*\}\s*$"},
    "example": '{"SessionId":"customer-42","TimeToLive":3600}',
}
_REPLAYED: Json = {
    "Idempotency-Replayed": {
        "description": "This is the answer to the first request with this key; this request wrote nothing.",
        "schema": {"type": "string", "const": "true"},
    }
}


_DEADLINE_TEXT = (
    "After its deadline a lease is over: calls are answered `lease_lost`, and the message is delivered again."
)


def _settle(operation_id: str, summary: str, request: str, example: Json, description: str) -> Json:
    return {
        "operationId": operation_id,
        "tags": ["consume"],
        "summary": summary,
        "description": f"{description} {_DEADLINE_TEXT}",
        "requestBody": {"required": True, "content": json_content(ref(request), example)},
        "responses": {
            "200": {"description": "Every token was settled.", "content": json_content(ref("SettleOutcome"))},
            "207": {
                "description": "Some tokens failed; see their results.",
                "content": json_content(ref("SettleOutcome")),
            },
            "409": {"$ref": "#/components/responses/Problem409"},
        },
    }


_RECEIVED: Json = {
    "200": {
        "description": "Deliveries, oldest first; an empty list when there are none.",
        "headers": {
            "Cache-Control": {
                "description": "Always `no-store`: a stored answer would hand out its tokens again.",
                "schema": {"type": "string", "const": "no-store"},
            }
        },
        "content": {
            "application/json": {"schema": ref("Received")},
        },
        "links": {
            name: {
                "operationId": f"{action}_messages",
                "parameters": {"queue": "$request.path.queue"},
                "description": f"{name} the first message: put its `ack_token` into `ack_tokens` of the body.",
            }
            for name, action in (("Ack", "ack"), ("Nack", "nack"), ("Reject", "reject"), ("Extend", "extend"))
        },
    },
    "204": {"description": "There is no message, and the request accepts a bare envelope."},
}
_BARE_HEADERS: Json = {
    "Ack-Token": {"description": "With a bare envelope: its ack token.", "schema": {"type": "string"}},
    "Lease-Expires-At": {
        "description": "With a bare envelope: the deadline of its lease in Unix milliseconds.",
        "schema": {"type": "integer"},
    },
    "Attempts": {"description": "With a bare envelope: its failed deliveries.", "schema": {"type": "integer"}},
    "Redelivered": {
        "description": "With a bare envelope: whether it was delivered before.",
        "schema": {"type": "boolean"},
    },
    "Message-Headers": {
        "description": "With a bare envelope: the `headers` of a JSON answer, as JSON in ASCII; missing if that is "
        "longer than 4096 bytes.",
        "schema": {"type": "string"},
    },
    "BrokerProperties": {
        "description": "With a bare envelope: the `broker_properties` of a JSON answer, as JSON in ASCII; missing if "
        "there are none, or if that is longer than 4096 bytes.",
        "schema": {"type": "string"},
    },
    "Traceparent": {
        "description": "With a bare envelope: the message's trace context. With other answers: see docs/tracing.md.",
        "schema": {"type": "string"},
    },
    "Tracestate": {"description": "With a bare envelope: as published.", "schema": {"type": "string"}},
    "Baggage": {"description": "With a bare envelope: as published.", "schema": {"type": "string"}},
}
_RECEIVED["200"]["headers"] |= _BARE_HEADERS
# Only GET documents the bare envelope: a typed client of POST would have to distinguish two kinds of answer.
_RECEIVED_OR_BARE = _RECEIVED | {
    "200": _RECEIVED["200"]
    | {
        "content": _RECEIVED["200"]["content"]
        | {ENVELOPE_TYPE: {"schema": ref("ReceivedEnvelope"), "example": ENVELOPE_EXAMPLE}}
    }
}
_RECEIVE_TEXT = (
    "Delivers up to `max_messages`, each with a lease that ends at `lease_expires_at`. Waits up to `wait_seconds` for "
    "the first message. A client that disconnects before the answer loses no message. With "
    "`Accept: application/vnd.babelqueue.envelope+json` the answer is the bare body of one message, with its token in "
    "`Ack-Token`. "
)

OPERATIONS: dict[str, dict[str, Json]] = {
    "/queues/{queue}/messages": {
        "post": {
            "operationId": "publish_message",
            "tags": ["publish"],
            "summary": "Publish one message",
            "description": "The answer comes after the broker has durably accepted the message, never before. "
            "The body is a draft that the gateway completes, a full envelope, or an entry that wraps one of these. Any "
            "JSON media type takes any of them; the types below are for clients that are generated.",
            "parameters": [*PUBLISH_QUERY, IDEMPOTENCY_KEY, BROKER_PROPERTIES],
            "requestBody": PUBLISH_BODY,
            "responses": {
                "409": {"$ref": "#/components/responses/Problem409"},
                "201": {
                    "description": "The broker has durably accepted the message, now or at the first use of its key.",
                    "headers": _REPLAYED,
                    "content": json_content(ref("Receipt")),
                    "links": {
                        "Receive": {
                            "operationId": "receive_messages",
                            "parameters": {"queue": "$response.body#/queue"},
                            "description": "Receive from the queue of the published message.",
                        }
                    },
                },
            },
        }
    },
    "/queues/{queue}/messages:batch": {
        "post": {
            "operationId": "publish_batch",
            "tags": ["publish"],
            "summary": "Publish many messages",
            "description": f"A JSON array of at most {schemas.MAX_ENTRIES} entries, or NDJSON (`application/x-ndjson`) "
            "with one entry per line; blank lines are skipped. An entry is a body of a single publish: a draft, an "
            "envelope, or an entry that wraps one. In an array of the media type "
            f"`{MEDIA_TYPE}` it is a job. Each entry has its own result, in order. The first 100 failed entries have "
            "`detail` and `errors`. An NDJSON upload ends after 10,000 failed entries.",
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"type": "array", "items": ref("Draft"), "maxItems": schemas.MAX_ENTRIES},
                        "example": [DRAFT, LATER],
                    },
                },
                **_BATCH_EXTENSION,
            },
            "responses": {
                "201": {"description": "All entries were accepted.", "content": json_content(ref("BatchResult"))},
                "207": {
                    "description": "Some entries failed; see their results.",
                    "content": json_content(ref("BatchResult")),
                },
                "507": {"$ref": "#/components/responses/Problem507"},
            },
        }
    },
    "/queues/{queue}/messages:receive": {
        "post": {
            "operationId": "receive_messages",
            "tags": ["consume"],
            "summary": "Receive messages",
            "description": _RECEIVE_TEXT + "The parameters are in the query or in the body, not in both.",
            "parameters": query_of(schemas.ReceiveRequest),
            "requestBody": {
                "required": False,
                "content": json_content(ref("ReceiveRequest"), {"max_messages": 10, "wait_seconds": 0.1}),
            },
            "responses": _RECEIVED,
        },
        "get": {
            "operationId": "receive_messages_get",
            "tags": ["consume"],
            "summary": "Receive messages, for clients that support only GET",
            "description": _RECEIVE_TEXT + "Prefer POST: a proxy may repeat a GET, and this one changes state.",
            "parameters": query_of(schemas.ReceiveRequest),
            "responses": _RECEIVED_OR_BARE,
        },
    },
    "/queues/{queue}/messages:ack": {
        "post": _settle(
            "ack_messages",
            "Acknowledge messages",
            "AckRequest",
            {"ack_tokens": [TOKEN]},
            "Removes the messages from the queue. A repeated ack is no error.",
        )
    },
    "/queues/{queue}/messages:nack": {
        "post": _settle(
            "nack_messages",
            "Return messages to the queue",
            "NackRequest",
            {"ack_tokens": [TOKEN], "delay_seconds": 5, "error": {"message": "mail server refused"}},
            "Counts a failed attempt and delivers the messages again, now or later. After the last allowed attempt, a "
            "message is dead-lettered with reason `failed`. With `failed: false` no attempt is counted.",
        )
    },
    "/queues/{queue}/messages:reject": {
        "post": _settle(
            "reject_messages",
            "Dead-letter messages",
            "RejectRequest",
            {"ack_tokens": [TOKEN], "error": {"message": "no such customer"}},
            "Moves the messages to the dead-letter queue immediately.",
        )
    },
    "/queues/{queue}/messages:extend": {
        "post": _settle(
            "extend_messages",
            "Extend leases",
            "ExtendRequest",
            {"ack_tokens": [TOKEN], "lease_seconds": 60},
            "The leases end `lease_seconds` from now; the tokens stay the same.",
        )
    },
    "/queues/{queue}/messages:settle": {
        "post": _settle(
            "settle_messages",
            "Ack, nack, reject and extend in one call",
            "SettleRequest",
            {"acks": [TOKEN], "nacks": [], "rejects": [], "extends": []},
            f"Takes 1 to {schemas.MAX_TOKENS} tokens in total; `index` counts within each action.",
        )
    },
}
