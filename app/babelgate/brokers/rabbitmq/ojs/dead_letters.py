"""Turns dead letters of OJS queues into records, also those that another program or the broker wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from babelgate.brokers.rabbitmq.ojs.message import ERROR_CODE, ERROR_MESSAGE, QUEUE, deaths
from babelgate.brokers.rabbitmq.profile import NativeMessage
from babelgate.clock import milliseconds
from babelgate.envelope import Limits, Poison, dead_letter_block, dead_letter_record, inspect
from babelgate.ojs import Attributes, dead_letter_of, members, value

_BY_BROKER = {
    "expired": "message expired",
    "maxlen": "the queue was full",
    "delivery_limit": "the delivery limit of the queue was reached",
    "rejected": "rejected",
}


def record_of(envelope: bytes, job: Attributes | None, native: NativeMessage, queue: str, attempts: int) -> bytes:
    """``envelope`` as a dead-letter record, a body that is no envelope unchanged. ``job``: None where it was no job."""
    block = None if job is None else dead_letter_of(job)
    try:
        if job is None and "dead_letter" in msgspec.json.decode(envelope, type=dict[str, Raw]):
            return envelope
        attempts = max(attempts, inspect(envelope, Limits()).attempts)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, Poison):
        if job is None:
            return envelope
    return dead_letter_record(envelope, block or _block(job or {}, native, queue, attempts))


def _block(job: Attributes, native: NativeMessage, queue: str, attempts: int) -> Mapping[str, Any]:
    """The ``dead_letter`` block from the headers, the job and the broker's record."""
    properties = native.properties
    headers = properties.headers or {}
    death = next(iter(deaths(headers)), {})
    reason = death.get("reason")
    failure = value(job, "error", dict[str, Any]) or {}
    error = _first(headers.get(ERROR_MESSAGE), failure.get("message"))
    exception = _first(headers.get(ERROR_CODE), failure.get("type"), failure.get("code"))
    if reason in ("expired", "maxlen") or error is None:
        error, exception = _BY_BROKER.get(str(reason), error or "dead-lettered by another program"), None
    at = [milliseconds(value(job, name, str)) for name in ("discarded_at", "completed_at")]
    at += [_ms(death.get("time")), _ms(properties.timestamp)]
    return dead_letter_block(
        "failed",
        _first(headers.get(QUEUE), value(job, "queue", str)) or queue,
        attempts,
        next((ms for ms in at if ms is not None), 0),
        error,
        exception,
        _first(value(members(job, "meta"), "lang", str)) or "python",
    )


def _first(*found: Any) -> str | None:
    return next((text for text in found if isinstance(text, str) and text), None)


def _ms(at: Any) -> int | None:
    return int(at.timestamp() * 1000) if isinstance(at, datetime) else None
