"""Writes and reads the AMQP properties and headers of OJS jobs: the union of what the OJS texts define. Makes records
of dead letters, also of those that another program or the broker wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw
from pamqp.commands import Basic

from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.rabbitmq.plain import CONTRACT_HEADERS, OF_THE_JOURNEY, kept_properties, short_or_none
from babelgate.brokers.rabbitmq.profile import EXPIRED_HEADER, NativeMessage
from babelgate.brokers.rabbitmq.tables import whole_number
from babelgate.clock import milliseconds, timestamp
from babelgate.envelope import Limits, Poison, dead_letter_block, dead_letter_record, inspect
from babelgate.ojs import MEDIA_TYPE, Attributes, Job, MessageProperties, dead_letter_of, members, value

ATTEMPT, QUEUE = "x-ojs-attempt", "x-ojs-queue"
SCHEDULED_AT, ENQUEUED_AT = "x-ojs-scheduled-at", "x-ojs-enqueued-at"
ERROR_MESSAGE, ERROR_CODE = "x-ojs-error-message", "x-ojs-error-code"
TRACE = {"traceparent": ("x-ojs-traceparent", "x-ojs-trace-id"), "tracestate": ("x-ojs-trace-state",)}
"""W3C headers and their OJS names. In the OJS repository ``x-ojs-trace-id`` is a complete ``traceparent``."""

_OURS = CONTRACT_HEADERS | frozenset(
    {ATTEMPT, QUEUE, SCHEDULED_AT, ERROR_MESSAGE, ERROR_CODE, EXPIRED_HEADER, "x-ojs-max-attempts", "x-ojs-created-at"}
    | {ENQUEUED_AT, "x-ojs-tags", *TRACE, *(alias for aliases in TRACE.values() for alias in aliases)}
)
_MAX_EXPIRATION_MS = 4_294_967_295
"""https://www.rabbitmq.com/docs/ttl: for a larger value the broker closes the channel."""
MAX_TEXT = 2048
"""The most characters of a header from a body, because all headers of a message must fit into one frame."""

_LAST_SECOND = 253_402_300_799
_LEVELS = ((100, 9), (10, 8), (1, 6), (0, 4), (-9, 3), (-99, 1))


_BY_BROKER = {
    "expired": "message expired",
    "maxlen": "the queue was full",
    "delivery_limit": "the delivery limit of the queue was reached",
    "rejected": "rejected",
}
"""The error of a job that no worker failed, by the reason with which RabbitMQ dead-lettered it:
https://www.rabbitmq.com/docs/dlx#effects"""


class Carried(msgspec.Struct, frozen=True):
    """The parts of a delivery that a copy needs; ``job`` is None where the body was no job."""

    properties: Basic.Properties
    job: Attributes | None


def level_of(priority: int) -> int:
    """The AMQP priority (0 to 9) of an OJS priority: higher is sooner, 10 is 8, 0 is 4 and -10 is 1."""
    return next((level for least, level in _LEVELS if priority >= least), 0)


def properties_of(job: Job, outgoing: Outgoing, queue: str, now: int) -> Basic.Properties:
    """The properties of a new message, without the headers for the attempt and the schedule."""
    attributes = job.attributes
    priority = value(attributes, "priority", int)
    ttl = value(attributes, "enqueue_ttl", float)
    return Basic.Properties(
        content_type=MEDIA_TYPE,
        content_encoding="utf-8",
        headers=_headers(job, outgoing.headers, queue, now),
        delivery_mode=2,
        priority=outgoing.priority if outgoing.priority is not None or priority is None else level_of(priority),
        correlation_id=short_or_none(job.trace_id),
        # In a delay queue it would expire too early, and for a retry the time does not start again.
        expiration=_expiration(ttl) if not outgoing.delay_seconds and outgoing.failure is None else None,
        message_id=short_or_none(job.id),
        timestamp=datetime.fromtimestamp(min(max(job.created_at // 1000, 0), _LAST_SECOND), UTC),
        message_type=short_or_none(job.type),
        app_id="ojs",
    )


def _headers(job: Job, given: Mapping[str, str], queue: str, now: int) -> dict[str, Any]:
    headers: dict[str, Any] = dict(given)
    headers[QUEUE] = queue
    headers["x-ojs-created-at"] = timestamp(job.created_at)
    headers[ENQUEUED_AT] = timestamp(now)
    most = value(members(job.attributes, "retry"), "max_attempts", int)
    if most is not None and 0 < most < 2**31:
        headers["x-ojs-max-attempts"] = most
    tags = ",".join(value(job.attributes, "tags", list[str]) or [])
    if 0 < len(tags) <= MAX_TEXT:
        headers["x-ojs-tags"] = tags
    meta = members(job.attributes, "meta")
    for name, aliases in TRACE.items():
        traced = given.get(name) or value(meta, name, str)
        if traced and len(traced) <= MAX_TEXT:
            headers |= dict.fromkeys((name, *aliases), traced)
    return headers


def copied(properties: Basic.Properties, headers: Mapping[str, str] = NO_HEADERS) -> Basic.Properties:
    """The properties of a delivery without those that are specific to it. ``headers``: those of the copy; texts that
    were replaced since they were read are taken from there."""
    made = kept_properties(properties)
    kept = {n: value for n, value in (properties.headers or {}).items() if n not in OF_THE_JOURNEY}
    made.headers = {n: headers.get(n, value) if isinstance(value, str) else value for n, value in kept.items()}
    return made


def given_headers(properties: Basic.Properties) -> dict[str, str]:
    """The headers for a consumer: texts that do not belong to the profile, and the trace context under W3C names."""
    headers = properties.headers or {}
    hidden = _OURS | OF_THE_JOURNEY
    seen = {n: text for n, text in headers.items() if isinstance(text, str) and text and n not in hidden}
    for name, aliases in TRACE.items():
        traced = next((text for n in (name, *aliases) if isinstance(text := headers.get(n), str) and text), None)
        if traced is not None:
            seen[name] = traced
    return seen


def beside(native: NativeMessage, queue: str, job_queue: str, seen: Mapping[str, str]) -> MessageProperties:
    """The values that a message has outside the body of its job."""
    properties = native.properties
    headers = properties.headers or {}
    named, created = headers.get(QUEUE), headers.get("x-ojs-created-at")
    ms = milliseconds(created) if isinstance(created, str) else None
    if ms is None and isinstance(properties.timestamp, datetime):
        ms = int(properties.timestamp.timestamp()) * 1000
    arrived = headers.get(ENQUEUED_AT) if ms is None else None
    return MessageProperties(
        queue=named if isinstance(named, str) and named else queue,
        id=properties.message_id,
        trace_id=properties.correlation_id,
        traceparent=seen.get("traceparent"),
        created_at=ms,
        attempts=attempts_of(headers, job_queue),
        enqueued_at=milliseconds(arrived) if isinstance(arrived, str) else None,
    )


def attempts_of(headers: Mapping[str, Any], job_queue: str) -> int:
    """The failed attempts by the headers, or by the broker's x-death, which counts a peer's rejects."""
    counts = [0]
    if (current := whole_number(headers.get(ATTEMPT))) is not None:
        counts.append(current - 1)
    if (failed := whole_number(headers.get("x-attempts"))) is not None:
        counts.append(failed)
    for death in deaths(headers):
        count = whole_number(death.get("count"))
        if death.get("reason") == "rejected" and death.get("queue") == job_queue and count is not None:
            counts.append(count)
    return max(counts)


def deaths(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The broker's records of dead-lettering (x-death), the last one first."""
    found = headers.get("x-death")
    return [death for death in found if isinstance(death, dict)] if isinstance(found, list) else []


def _expiration(ttl: float | None) -> str | None:
    if ttl is None or not 0 < ttl * 1000 <= _MAX_EXPIRATION_MS:
        return None
    return str(math.ceil(ttl * 1000))


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
