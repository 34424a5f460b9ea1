"""Examples for the OpenAPI document: what clients send, what the service answers, and one problem for each code.

The problems are made by the code that answers requests. `tests/http/test_openapi_words.py` fails for a code without an
example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from babelgate.envelope import Limits, read_publication
from babelgate.errors import BabelgateError, EnvelopeError, EnvelopeSyntaxError, Problem, UnsupportedByBroker
from babelgate.http.envelopes import DRAFT, ENVELOPE_EXAMPLE
from babelgate.http.letter_examples import JOB_ID, LETTER_ID
from babelgate.http.problems import MEANINGS, problem
from babelgate.ojs import as_entry

Json = dict[str, Any]

TOKEN = "AQNrZXl…"
_ID = ENVELOPE_EXAMPLE["meta"]["id"]
_TRACE_ID = ENVELOPE_EXAMPLE["trace_id"]
_AT = 1_790_000_000_000

RECEIPT: Json = {
    "id": _ID,
    "trace_id": _TRACE_ID,
    "queue": "emails",
    "broker": "local",
    "attempts": 0,
    "created_at": _AT,
}
_ACCEPTED: Json = {"index": 0, "status": 201, "id": _ID, "trace_id": _TRACE_ID}
_REFUSED: Json = {
    "index": 1,
    "status": 422,
    "code": "invalid_data",
    "detail": "data must be an object.",
    "retryable": False,
    "errors": [{"pointer": "/data", "code": "invalid_data", "detail": "data must be an object."}],
}
RECEIVED: Json = {
    "messages": [
        {
            "ack_token": TOKEN,
            "lease_expires_at": _AT + 60_000,
            "attempts": 0,
            "redelivered": False,
            "headers": {},
            "envelope": ENVELOPE_EXAMPLE,
        }
    ]
}
_LOST: Json = {
    "index": 1,
    "action": "ack",
    "status": 409,
    "code": "lease_lost",
    "detail": "The lease has expired, or the message was delivered again.",
    "retryable": False,
}
_BODY = json.dumps(ENVELOPE_EXAMPLE, separators=(",", ":"))
_CAPABILITIES: Json = {
    "max_delay_seconds": 31_536_000,
    "max_retry_delay_seconds": 31_536_000,
    "max_lease_seconds": 43_200,
    "extendable": True,
    "ack_scope": "anywhere",
    "ordering": "fifo",
    "native_release": True,
    "delivery_count": "zero_based",
    "max_body_bytes": None,
    "max_batch": 1000,
    "headers": True,
    "max_headers": None,
    "broker_properties": [],
}
_QUEUE: Json = {
    "queue": "emails",
    "broker": "local",
    "native_name": "emails",
    "dead_letter_queue": None,
    "stored_as": {},
    "stats": {"depth": 12, "in_flight": 3, "delayed": 0, "dead": 1, "oldest_age_seconds": 4.2, "foreign": None},
    "capabilities": _CAPABILITIES,
    "policy": {
        "lease_seconds": 60,
        "max_attempts": 10,
        "backoff_seconds": [1, 10, 60],
        "ttl_seconds": None,
        "dead_letter_retention_seconds": None,
        "ordering_key": "refuse",
    },
    "idempotency": {
        "broker": "local",
        "in_one_transaction": True,
        "retention_seconds": 86_400,
        "max_keys": 1_000_000,
    },
}
_LOSSY = "The queue emails drops messages that are older than 3600 s (message-ttl)."
_BROKER: Json = {"broker": "local", "required": True, "up": True, "circuit": "closed", "warnings": []}
_METRICS = (
    "# HELP babelgate_queue_depth Ready messages.\n# TYPE babelgate_queue_depth gauge\nbabelgate_queue_depth 12\n"
)


def settled(action: str) -> Json:
    """The answer to a settle call of one token."""
    result: Json = {"index": 0, "action": "ack" if action == "settle" else action, "status": 200}
    return {"settled": 1, "failed": 0, "results": [result | ({"lease_expires_at": _AT} if action == "extend" else {})]}


def partly_settled(action: str) -> Json:
    """The answer to a settle call of two tokens, of which one failed."""
    done = settled(action)["results"]
    return {"settled": 1, "failed": 1, "results": [*done, _LOST | {"action": done[0]["action"]}]}


ANSWERS: dict[str, dict[str, Any]] = {
    "publish_message": {"201": RECEIPT},
    "publish_batch": {
        "201": {"accepted": 1, "failed": 0, "results": [_ACCEPTED]},
        "207": {"accepted": 1, "failed": 1, "results": [_ACCEPTED, _REFUSED]},
    },
    "validate_message": {
        "200": {
            "queue": "emails",
            "broker": "local",
            "native_name": "emails",
            "headers": {},
            "size_bytes": len(_BODY),
            "warnings": [],
            "delay_seconds": 0,
            "ordering_key": None,
            "idempotency": None,
            "writes": [
                {
                    "operation": "RPUSH",
                    "target": {"key": "emails"},
                    "fields": {},
                    "headers": {},
                    "body": _BODY,
                    "body_base64": None,
                    "assigned": [],
                }
            ],
            "envelope": ENVELOPE_EXAMPLE,
        }
    },
    **{name: {"200": RECEIVED} for name in ("receive_messages", "receive_messages_get")},
    **{
        f"{action}_messages": {"200": settled(action), "207": partly_settled(action)}
        for action in ("ack", "nack", "reject", "extend", "settle")
    },
    "peek_messages": {"200": {"messages": [{"headers": {}, "envelope": ENVELOPE_EXAMPLE, "body_base64": None}]}},
    "list_queues": {"200": {"queues": [_QUEUE | {"source": "configured"}], "next_cursor": None}},
    "get_queue": {"200": _QUEUE | {"warnings": [_LOSSY]}},
    "purge_queue": {"200": {"removed": 12, "matched": 12, "dry_run": False}},
    "list_brokers": {
        "200": {
            "brokers": [
                _BROKER
                | {
                    "kind": "sqlite",
                    "url": "sqlite:///babelgate.db",
                    "detail": None,
                    "capabilities": _CAPABILITIES,
                }
            ]
        }
    },
    "livez": {"200": {"status": "ok"}},
    "startupz": {"200": {"status": "ok"}},
    "readyz": {"200": {"status": "ok", "brokers": [_BROKER]}},
    "metrics": {"200": _METRICS},
}
"""The answer of each operation by status, in the media type `application/json` or `text/plain`."""

BODIES: dict[str, list[Any]] = {
    "purge_queue": [{"dry_run": True}],
    "purge_dead_letters": [{"dry_run": True}],
    "delete_dead_letters": [{"ids": [LETTER_ID]}],
    "redrive_dead_letters": [{"limit": 100, "filter": {"reason": "failed"}, "dry_run": True}],
}
"""What is sent to the operations whose body FastAPI documents."""

_FACTS: Json = {"queue": "emails", "broker": "local", "path": "/queue/emails", "allow": "POST", "kind": "lines"}
_SPECIAL: dict[str, Json] = {
    "invalid_filter": {"name": "reason", "reason": "must be failed, unknown_urn or poison"},
    "not_redrivable": {"letter_id": LETTER_ID, "reason": "its record contains no valid envelope"},
    "purge_in_progress": {"reason": "the service ended the last purge 20 seconds ago"},
    "redrive_running": {"id": JOB_ID},
    "state_unavailable": {"reason": "No space left on device"},
    "idempotency_share_full": {"whose": "The caller 'shop'", "held": 750_000, "limit": 750_000},
    "too_many_redrives": {"whose": "The caller 'shop'", "limit": 32},
    "unknown_dead_letter": {"letter_id": LETTER_ID},
    "dead_letter_not_reached": {"letter_id": LETTER_ID, "scanned": 10_000, "next_cursor": "10000"},
    "unknown_redrive": {"id": JOB_ID},
    "body_too_large": {"actual": 1_200_000, "limit": 1_048_576},
    "broker_rejected": {"reason": "the queue has the type quorum."},
    "broker_unavailable": {"reason": "connection refused"},
    "compression_ratio_too_high": {"limit": 200},
    "config_invalid": {"key": "queues.emails.broker", "reason": "there is no broker cache"},
    "forbidden": {"reason": "The token lacks the right manage on the queue emails."},
    "head_too_large": {"limit": 65_536},
    "idempotency_keys_full": {"limit": 1_000_000},
    "idempotency_unsupported": {"reason": "its broker keeps no keys", "pointer": "/idempotency_key"},
    "idempotency_key_reused": {"pointer": "/idempotency_key"},
    "invalid_encoding": {"reason": "the gzip data is truncated"},
    "invalid_idempotency_key": {"reason": "the header occurs more than once", "header": "Idempotency-Key"},
    "invalid_ack_token": {"reason": "does not belong to the queue emails, or was altered", "pointer": "/ack_tokens/0"},
    "invalid_parameter": {"name": "delay_seconds", "reason": "given more than once"},
    "malformed_http": {"kind": "request_line", "reason": "The request line is not HTTP/1.1."},
    "not_found": {
        "path": "/queues/emails/messages:recieve",
        "hint": "Did you mean /queues/emails/messages:receive? All paths are described at /docs.",
    },
    "not_ready": {"reason": "The gateway is starting."},
    "outcome_unknown": {"reason": "no answer within 2 s"},
    "overloaded": {"reason": "it serves as many publishes as it has memory for"},
    "owner_unreachable": {"reason": "it did not answer within 2 s"},
    "request_timeout": {"reason": "no byte came within 20 s"},
    "storage_full": {"reason": "database or disk is full"},
    "storage_read_only": {"reason": "attempt to write a readonly database"},
    "results_incomplete": {"omitted": 51_500, "reason": "No space left on device"},
    "too_many_failures": {"limit": 10_000, "kind": "entries"},
    "too_many_lines": {"limit": 2_500_000},
    "unsupported_media_type": {"reason": "The body must be application/json, not text/plain."},
}
"""The facts of an error that its sentence names, by code, beside those of _FACTS."""

_UNSUPPORTED: dict[str, tuple[str, str, Json]] = {
    "delay_too_long": ("/delay_seconds", "The broker local delays at most 3600 s.", {"maximum": 3600}),
    "message_too_old": (
        "/meta/created_at",
        "The topic emails of the broker 'kafka' keeps messages for 3600 s after their created_at (retention.ms), "
        "and this one is 7200 s old.",
        {"maximum": 3600},
    ),
    "lease_too_long": ("/lease_seconds", "The broker local leases at most 1500 s.", {"maximum": 1500}),
    "job_too_long": ("/job", "job has 300 bytes; the broker rabbit has at most 255.", {"maximum": 255}),
    "trace_id_too_long": ("/trace_id", "trace_id has 300 bytes; the broker rabbit has at most 255.", {"maximum": 255}),
    "ordering_unsupported": ("/ordering_key", "The queue emails keeps no order, so it takes no ordering_key.", {}),
    "header_unsupported": (
        "/headers/sent at",
        "The header sent at is not one that Amazon SQS carries: a name has letters, digits, _, - and dots, and a value "
        "is not empty.",
        {},
    ),
    "character_unsupported": (
        "/data/note",
        "Amazon SQS does not carry the character U+FFFE, which XML 1.0 does not allow. Leave it out, or encode the "
        "value, such as in Base64.",
        {},
    ),
    "too_many_headers": ("/headers", "The broker aws carries at most 4 headers, not 5.", {"maximum": 4}),
    "queue_name_unsupported": ("", "The broker aws cannot have a queue of this name: it has a dot.", {}),
    "queue_unsupported": (
        "",
        "RabbitMQ does not support this for the queue logs: basic.get not supported by stream queues.",
        {},
    ),
    "headers_unsupported": ("/headers", "The broker local has no native headers.", {}),
    "broker_property_unsupported": (
        "/broker_properties/SessionId",
        "Messages of the queue emails have no broker property SessionId on the broker local.",
        {},
    ),
    "unsupported_by_broker": ("", "The broker local cannot peek.", {}),
}
"""Pointer, sentence and facts of each code of an UnsupportedByBroker."""

_META = ENVELOPE_EXAMPLE["meta"]
_DEEP: Json = {}
for _ in range(300):
    _DEEP = {"a": _DEEP}
_INVALID: tuple[Any, ...] = (
    {"data": {}},
    {"job": "urn:babel:emails:welcome", "trace_id": _TRACE_ID, "data": {}, "attempts": 0},
    ENVELOPE_EXAMPLE | {"meta": _META | {"schema_version": 2}},
    DRAFT | {"data": []},
    ENVELOPE_EXAMPLE | {"trace_id": ""},
    ENVELOPE_EXAMPLE | {"attempts": -1},
    ENVELOPE_EXAMPLE | {"meta": _META | {"id": ""}},
    ENVELOPE_EXAMPLE | {"meta": _META | {"created_at": "today"}},
    ENVELOPE_EXAMPLE | {"meta": _META | {"queue": ""}},
    ENVELOPE_EXAMPLE | {"meta": _META | {"lang": "cobol"}},
    ENVELOPE_EXAMPLE | {"meta": _META | {"queue": "orders"}},
    DRAFT | {"timestamp": 1},
    DRAFT | {"priority": 1},
    ENVELOPE_EXAMPLE | {"delay_seconds": 60},
    DRAFT | {"dead_letter": {}},
    DRAFT | {"data": _DEEP},
    '{"job": "a", "data": {"n": 1e400}}',
    '{"job": "a", "data": {"s": "\\ud800"}}',
    {"envelope": 1},
    {"envelope": DRAFT, "delay": 1},
    {"envelope": DRAFT, "delay_seconds": -1},
    {"envelope": DRAFT, "ordering_key": ""},
    {"envelope": DRAFT, "headers": {"a": ""}},
    {"envelope": DRAFT, "idempotency_key": ""},
    {"envelope": DRAFT, "broker_properties": {"TimeToLive": -1}},
    {"envelope": DRAFT, "broker_properties": {"MessageId": "4711"}},
    {"envelope": DRAFT, "broker_properties": {"SessionId": "a", "PartitionKey": "b"}},
)
"""Publish bodies, one for each code of the codec."""
_INVALID_JOBS: tuple[Json, ...] = (
    {"type": "email.send", "args": [], "scheduled_at": "tomorrow"},
    {"type": "email.send", "args": [], "expires_at": "tomorrow"},
    {"type": "", "args": []},
    {"type": "email.send", "args": {}},
    {"type": "email.send", "args": [], "specversion": "2.0"},
    {"type": "email.send", "args": [], "id": 1},
    {"type": "email.send", "args": [], "meta": 1},
)
"""Jobs, one for each code of a job."""
_SENTENCES: dict[str, tuple[str, str]] = {
    "delay_seconds_mismatch": ("/delay_seconds", "delay_seconds of the body differs from the query parameter."),
    "ordering_key_mismatch": ("/ordering_key", "ordering_key of the body differs from the query parameter."),
    "idempotency_key_mismatch": (
        "/idempotency_key",
        "The entry's idempotency_key differs from the header Idempotency-Key.",
    ),
    "answer_too_large": ("", "With an idempotency key, id and trace_id must fit an answer of 1024 bytes."),
    "invalid_job": ("", "No envelope can carry this job."),
    "invalid_dead_letter": ("/dead_letter", "dead_letter is not an object with the contract's types."),
}
"""Pointer and sentence of the codes that depend on more than the body."""


def _errors() -> Iterator[tuple[str, BabelgateError]]:
    """An error for each code that a client may see, with the name of its example."""
    own = [cls for cls in MEANINGS if "code" in vars(cls) and not cls.__subclasses__()]
    for cls in sorted(own, key=lambda cls: (cls.code, not cls.retryable)):
        if cls is EnvelopeSyntaxError:
            yield cls.code, EnvelopeSyntaxError([Problem("", cls.code, "The body is not JSON: it is truncated.")])
        else:
            try:
                yield cls.code, cls(**_FACTS | _SPECIAL.get(cls.code, {}))
            except KeyError as error:
                raise ValueError(
                    f"Add the fact {error} of {cls.code} to _SPECIAL in app/babelgate/http/examples.py."
                ) from None
    for code, (pointer, reason, facts) in _UNSUPPORTED.items():
        yield code, UnsupportedByBroker(code, pointer, reason, **facts)
    for code, (pointer, sentence) in _SENTENCES.items():
        yield code, EnvelopeError([Problem(pointer, code, sentence)])
    for body in _INVALID:
        yield _refusal(body.encode() if isinstance(body, str) else json.dumps(body).encode())
    for job in _INVALID_JOBS:
        yield _refusal(json.dumps(job).encode(), as_job=True)


def _refusal(body: bytes, as_job: bool = False) -> tuple[str, EnvelopeError]:
    """The error of a publish with the invalid ``body``, and its code. Raises ValueError when it is valid."""
    try:
        read_publication(as_entry(body, "emails", lambda: _AT) if as_job else body, "emails", Limits(), lambda: _AT)
    except EnvelopeError as error:
        return error.problem_code, error
    raise ValueError(f"The example of a refused body is accepted: {body!r}")


def problem_examples() -> dict[str, tuple[int, Json]]:
    """Status and body of one problem for each code. Where a code is both retryable and final, the final one has a name
    of its own."""
    made: dict[str, tuple[int, Json]] = {}
    for code, error in _errors():
        status, _, body = problem(error, instance="/queues/emails/messages")
        name, value = code, json.loads(body)
        if code in made:
            before = made[code][1]
            if (before["status"], before["retryable"]) == (status, value["retryable"]):
                continue
            name = f"{code}_final" if before["status"] == status else f"{code}_{status}"
        made[name] = (status, value)
    return made
