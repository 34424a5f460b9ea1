"""The verdict on a body, as the gateway gives it: its own codec, imported unchanged, in the tasks of Spark.

A row is made of any body; no content raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from app.envelope import Limits, Poison, canonical, inspect
from app.envelope.contract import is_int64, is_text
from app.jsontext import JsonSyntaxError, JsonTooDeep, decode_object, is_encodable
from app.pipeline.inputs import Body

Row = dict[str, Any]
ACCEPTED, QUARANTINED = "accepted", "quarantined"

FAULTS = ("truncated_file", "unreadable_file", "invalid_export", "no_body", "too_large", "internal_error")
"""Reasons of this job's own; the others are the codes of the codec."""

_LIMITS = Limits()
_READABLE_BYTES = 4 * 1024 * 1024
"""A larger body that is refused is not read a second time for what it might say of itself."""


def judged(found: Body) -> Row:
    """The row of a body: its columns but ``source_file`` and ``run_id``, and its ``verdict``."""
    body = found.content
    row: Row = {
        "body": body,
        "body_bytes": found.size,
        "body_sha256": found.sha256 or hashlib.sha256(body).hexdigest(),
        "source_at": found.at,
    }
    if found.fault is not None:
        reason, detail = found.fault
        refusal = {"reason": reason, "reason_pointer": "", "detail": _text(detail)}
        return row | {"verdict": QUARANTINED, "truncated": found.size > len(body)} | refusal
    try:
        return row | _accepted(body)
    except Poison as poison:
        refusal = {"reason": poison.code, "reason_pointer": _text(poison.pointer), "detail": _text(poison.detail)}
    except Exception as error:
        refusal = {"reason": "internal_error", "reason_pointer": "", "detail": f"{type(error).__name__}: {error}"[:500]}
    return row | _told(body) | {"verdict": QUARANTINED, "truncated": False} | refusal


def _accepted(body: bytes) -> Row:
    received = inspect(body, _LIMITS)
    made = canonical(body)
    return {
        "verdict": ACCEPTED,
        "message_id": _text(received.id),
        "job": _text(received.job),
        "queue": _text(received.queue),
        "trace_id": _text(received.trace_id),
        "lang": _text(received.lang),
        "created_at": received.created_at,
        "attempts": received.attempts,
        "has_dead_letter": received.is_dead_letter,
        "body": made,
        "body_bytes": len(made),
        "body_sha256": hashlib.sha256(made).hexdigest(),
        "rewritten": made is not body,
        "dropped": [_text(each) for each in received.warnings],
    }


def _told(body: bytes) -> Row:
    """What a refused body says of itself, as far as it can be read."""
    try:
        return dict(_sayings(body)) if len(body) <= _READABLE_BYTES else {}
    except (JsonSyntaxError, JsonTooDeep, RecursionError, MemoryError):
        return {}


def _sayings(body: bytes) -> Iterator[tuple[str, Any]]:
    top = {member.name: member.value for member in decode_object(body).members}
    meta = top.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    texts = {
        "message_id": meta.get("id"),
        "job": next((top[name] for name in ("job", "urn") if is_text(top.get(name))), None),
        "queue": meta.get("queue"),
        "trace_id": top.get("trace_id"),
        "lang": meta.get("lang"),
    }
    yield from ((name, _text(value)) for name, value in texts.items() if isinstance(value, str))
    integers = {"created_at": meta.get("created_at"), "attempts": top.get("attempts")}
    yield from ((name, value) for name, value in integers.items() if is_int64(value))
    yield "has_dead_letter", isinstance(top.get("dead_letter"), dict)


def _text(value: str | None) -> str | None:
    """A string that a column can hold: a lone surrogate is spelled out."""
    if value is None or is_encodable(value):
        return value
    return value.encode(errors="backslashreplace").decode()
