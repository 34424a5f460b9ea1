"""JSON Schemas of the envelope for the OpenAPI document. Validation itself is done by the codec."""

from __future__ import annotations

from typing import Any

from app.envelope.contract import FORBIDDEN, FORBIDDEN_META, INT64_MAX, LANGS, MAX_ID
from app.envelope.options import MAX_ORDERING_KEY, OPTIONS

Json = dict[str, Any]

_TEXT: Json = {"type": "string", "pattern": r"[^ \t\n\v\f\r]"}
_COUNT: Json = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
_OBJECT: Json = {"type": "object", "additionalProperties": True}
_LANG: Json = {"enum": list(LANGS)}
_WRITTEN_TEXT: Json = {"type": ["string", "null"]}
_FULL_META = ("id", "queue", "lang", "schema_version", "created_at")


def _without(names: tuple[str, ...]) -> Json:
    return {"not": {"enum": list(names)}}


_META: Json = {
    "type": "object",
    "required": list(_FULL_META),
    "properties": {
        "id": {
            "type": "string",
            "pattern": "^[ -~]*[!-~][ -~]*$",
            "maxLength": MAX_ID,
            "description": f"1 to {MAX_ID} printable ASCII characters; by convention a UUID.",
        },
        "queue": _TEXT | {"description": "The queue of the path."},
        "lang": _LANG,
        "schema_version": {"type": "integer", "const": 1},
        "created_at": _COUNT | {"description": "Unix milliseconds UTC."},
    },
    "propertyNames": _without(FORBIDDEN_META),
}
_DRAFT_META: Json = {
    "type": "object",
    "properties": {
        "lang": _LANG,
        "queue": _TEXT | {"description": "The queue of the path."},
        "ext": {"description": "Extensions: an object, by vendor."},
    },
    "additionalProperties": False,
}
_OPTIONS: Json = {
    "delay_seconds": {
        "type": ["number", "null"],
        "minimum": 0,
        "description": "Delivers the message after this time; by default at once.",
    },
    "ordering_key": _TEXT
    | {
        "type": ["string", "null"],
        "maxLength": MAX_ORDERING_KEY,
        "description": "Messages with the same key are delivered in their order. A queue without order refuses it, "
        "unless its route ignores it.",
    },
    "headers": {
        "description": "Native headers, where the broker supports them.",
        "type": ["object", "null"],
        "propertyNames": _TEXT,
        "additionalProperties": {"type": "string", "minLength": 1},
    },
    "idempotency_key": {
        "description": "Publishes the message once, like the header `Idempotency-Key` of a single publish.",
        "type": ["string", "null"],
        "pattern": "^[ -~]{1,255}$",
    },
}
"""The members of :data:`app.envelope.options.OPTIONS`, which a draft and an entry have in common."""

SCHEMAS: Json = {
    "Envelope": {
        "description": "A BabelQueue envelope.",
        "type": "object",
        "required": ["job", "trace_id", "data", "meta", "attempts"],
        "properties": {
            "job": _TEXT
            | {"description": "The kind of the message, as a URN.", "examples": ["urn:babel:emails:welcome"]},
            "trace_id": _TEXT | {"description": "By convention a UUID."},
            "data": _OBJECT | {"description": "The payload; key order and number literals are preserved."},
            "meta": _META,
            "attempts": _COUNT,
        },
        "propertyNames": _without((*FORBIDDEN, "urn", "dead_letter", *OPTIONS)),
    },
    "ReceivedEnvelope": {
        "description": "The envelope as stored on the queue. This gateway writes all members of `Envelope`; another "
        "program may omit optional members, or write `urn` instead of `job`.",
        "type": "object",
        "required": ["trace_id", "data", "meta", "attempts"],
        "properties": {
            "job": _WRITTEN_TEXT,
            "trace_id": _TEXT,
            "data": _OBJECT,
            "meta": {
                "type": "object",
                "required": ["schema_version"],
                "properties": {
                    "id": _WRITTEN_TEXT,
                    "queue": _WRITTEN_TEXT,
                    "lang": _WRITTEN_TEXT,
                    "schema_version": {"type": "integer", "const": 1},
                    "created_at": {"type": ["integer", "null"], "description": "Unix milliseconds UTC."},
                },
            },
            "attempts": {"type": "integer", "description": "The `attempts` of the delivery takes precedence."},
        },
    },
    "Draft": {
        "description": "An envelope without its ids, time and version, which the gateway adds, with the options of the "
        "message beside `job` and `data`.",
        "type": "object",
        "required": ["job", "data"],
        "properties": {
            "job": _TEXT | {"examples": ["urn:babel:emails:welcome"]},
            "data": _OBJECT,
            "trace_id": _TEXT | {"type": ["string", "null"], "description": "`null`: the gateway makes one."},
            "meta": _DRAFT_META,
            **_OPTIONS,
        },
        "additionalProperties": False,
    },
    "Entry": {
        "description": "An envelope or a draft, with the options of the message, which are not part of its body.",
        "type": "object",
        "required": ["envelope"],
        "properties": {
            "envelope": {"anyOf": [{"$ref": "#/components/schemas/Draft"}, {"$ref": "#/components/schemas/Envelope"}]},
            **_OPTIONS,
        },
        "additionalProperties": False,
    },
    "Job": {
        "description": "A job of the Open Job Spec. The gateway converts it to an envelope, for queues of any broker, "
        "and keeps members that only a job has in `meta.ext.ojs`. Members that the server manages are ignored. "
        "`scheduled_at` delays the message.",
        "type": "object",
        "required": ["type", "args"],
        "properties": {
            "specversion": {"type": "string", "pattern": r"^1\.0([.-].*)?$", "examples": ["1.0"]},
            "id": _TEXT | {"description": "A UUID of version 7."},
            "type": _TEXT | {"examples": ["email.send"]},
            "queue": _TEXT | {"description": "The queue of the path."},
            "args": {
                "type": "array",
                "description": "A single object becomes the envelope's `data`; any other list becomes `data.args`.",
            },
            "meta": _OBJECT,
            "scheduled_at": {"type": ["string", "null"], "format": "date-time"},
            "expires_at": {"type": ["string", "null"], "format": "date-time"},
        },
    },
    "Publication": {
        "anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Draft", "Envelope", "Entry")],
    },
}

DRAFT: Json = {"job": "urn:babel:emails:welcome", "data": {"to": "ada@example.com"}}
DELAYED: Json = {**DRAFT, "delay_seconds": 60}
ENTRY: Json = {"envelope": DRAFT, "delay_seconds": 1.5}
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
