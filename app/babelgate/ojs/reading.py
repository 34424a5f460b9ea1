"""Reads a job found on a queue as an envelope. The same job always gives the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from babelgate.clock import milliseconds, timestamp
from babelgate.envelope import Poison, with_attempts
from babelgate.envelope.contract import LANGS, is_spec_version, is_text, is_uuid
from babelgate.jsontext import compact
from babelgate.ojs.terms import (
    SERVER,
    SPEC_VERSION,
    derived_uuid,
    is_uuid7,
    trace_id_of,
    type_of,
    urn_of,
    uuid7_ms,
)

Attributes = Mapping[str, Raw]
"""The attributes of a job by name, as written; for a repeated name the last one."""

Value = TypeVar("Value")

LIST = Raw(b'"list"')
"""Value of ``args`` in ``meta.ext.ojs`` if the arguments are the array in ``data``, not one object."""

MAPPED = frozenset({"specversion", "id", "type", "queue", "args", "meta", "created_at", "dead_letter"})
"""Attributes that are mapped to members of the envelope."""
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, Poison)
_OURS = frozenset({"urn", "trace_id", "lang", "ext", "bq_schema_version", "bq_id", "bq_queue", "bq_frame"})
_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_is_object = b"{"


class Arguments(Struct, array_like=True, gc=False):
    """The first two elements of an array; the others are skipped."""

    first: Raw | UnsetType = UNSET
    second: Raw | UnsetType = UNSET


class Frame(Struct, frozen=True):
    """The text of an envelope around its data, or around the array in its data (``spread``), and its attempts."""

    before: str
    after: str
    attempts: int
    spread: bool


class MessageProperties(Struct, frozen=True):
    """The properties of the message that carried a job; None if absent. Times are Unix ms.

    ``request_trace_id``: of the request that brought the job, for a job that has none.
    """

    queue: str = "default"
    id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    created_at: int | None = None
    attempts: int = 0
    enqueued_at: int | None = None
    request_trace_id: str | None = None


def attributes_of(body: bytes, declared: bool) -> Attributes | None:
    """Return the attributes of ``body`` if it is a job of this version of OJS, else None. Never raises.

    ``declared``: whether its content type is that of a job; otherwise it must have a ``specversion``.
    """
    try:
        body.decode()
        found = _decode(body)
        version = value(found, "specversion", str) if "specversion" in found else None
        type_ = value(found, "type", str)
        known = declared if version is None and "specversion" not in found else bool(is_spec_version(version or ""))
        return found if known and is_text(type_) and value(found, "args", Arguments) is not None else None
    except UNREADABLE:
        return None


def value(attributes: Attributes, name: str, kind: type[Value]) -> Value | None:
    """Return the attribute ``name`` if it can be decoded as ``kind``, else None."""
    raw = attributes.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE:
        return None


def text(attributes: Attributes, name: str) -> str | None:
    """Return the attribute ``name`` if it is a non-blank string, else None."""
    found = value(attributes, name, str)
    return found if is_text(found) else None


def members(attributes: Attributes, name: str) -> dict[str, Raw]:
    """Return the members of the attribute ``name``; empty if it is not an object."""
    return value(attributes, name, dict[str, Raw]) or {}


def envelope_of(job: Attributes, properties: MessageProperties) -> bytes | None:
    """Return the canonical envelope of ``job``; None if no envelope can represent it."""
    try:
        meta = members(job, "meta")
        attempts = max(_failed(job), properties.attempts)
        framed = _framed(job, meta, attempts)
        return _translated(job, meta, properties, attempts) if framed is None else framed
    except UNREADABLE:
        return None


def _failed(job: Attributes) -> int:
    """Return the failed attempts in the body, which also counts a running attempt."""
    attempt = value(job, "attempt", int) or 0
    return max(attempt - (value(job, "state", str) == "active"), 0)


def _framed(job: Attributes, meta: Attributes, attempts: int) -> bytes | None:
    """Return the envelope whose text around ``data`` was kept in ``bq_frame``; None if there is none."""
    if value(meta, "bq_schema_version", int) != 1:
        return None
    frame = value(meta, "bq_frame", Frame)
    first = (value(job, "args", Arguments) or Arguments()).first
    if frame is None or (first is UNSET and not frame.spread):
        return None
    raw = job["args"] if frame.spread or first is UNSET else first
    body = frame.before.encode() + bytes(raw) + frame.after.encode()
    return body if attempts == frame.attempts else with_attempts(body, attempts)


def _translated(job: Attributes, meta: Attributes, properties: MessageProperties, attempts: int) -> bytes:
    type_ = text(job, "type") or ""
    marked = value(meta, "bq_schema_version", int) == 1 and all(text(meta, n) for n in ("urn", "trace_id", "lang"))
    urn = text(meta, "urn") or urn_of(type_)
    job_id = text(job, "id")
    id_ = (text(meta, "bq_id") if marked else None) or job_id or properties.id or _fingerprint(job)
    created_at, literal = _created_at(job, id_, properties)
    lang = text(meta, "lang") or "python"
    if marked:
        trace_id = text(meta, "trace_id") or ""
        known = _OURS
    else:
        trace_id = _trace_id(meta, properties, id_)
        lang = lang if lang in LANGS else "python"
        known = frozenset(n for n, said in (("trace_id", trace_id), ("lang", lang)) if text(meta, n) == said)
        # A URN that does not follow from the type is kept with the type, to show that the two belong together.
        known |= {"urn"} if text(meta, "urn") is not None and urn == urn_of(type_) else frozenset()

    only: dict[str, Raw] = {}
    if type_of(urn) != type_:
        only["type"] = job["type"]
    if job_id == id_ and not is_uuid7(id_):
        only["id"] = job["id"]
    if value(job, "specversion", str) not in (SPEC_VERSION, None):
        only["specversion"] = job["specversion"]
    if literal is not None:
        only["created_at"] = literal
    data, spread = data_of(job)
    if spread:
        only["args"] = LIST
    only.update((name, raw) for name, raw in job.items() if name not in MAPPED and name not in SERVER)
    others = {name: raw for name, raw in meta.items() if name not in known}
    if others:
        only["meta"] = Raw(msgspec.json.encode(others))
    ext = members(meta, "ext") if marked else {}
    if only:
        ext["ojs"] = Raw(msgspec.json.encode(only))

    frame: dict[str, Any] = {
        "id": id_,
        "queue": (text(meta, "bq_queue") if marked else None) or text(job, "queue") or properties.queue,
        "lang": lang,
        "schema_version": 1,
        "created_at": created_at,
    }
    if ext or (marked and "ext" in meta):
        frame["ext"] = _compacted(msgspec.json.encode(ext) if ext else bytes(meta["ext"]))
    return msgspec.json.encode(
        {"job": urn, "trace_id": trace_id, "data": _compacted(data), "meta": frame, "attempts": attempts}
    )


def data_of(job: Attributes) -> tuple[bytes, bool]:
    """Return ``data``, and whether it contains the arguments as an array."""
    found = value(job, "args", Arguments) or Arguments()
    if found.first is not UNSET and found.second is UNSET and bytes(found.first).startswith(_is_object):
        return bytes(found.first), False
    return b'{"args":%b}' % bytes(job["args"]), True


def _created_at(job: Attributes, id_: str, properties: MessageProperties) -> tuple[int | None, Raw | None]:
    """Return the time in Unix ms, and the attribute as written if it cannot be restored from these."""
    written = value(job, "created_at", str)
    ms = milliseconds(written)
    if ms is not None:
        return ms, None if timestamp(ms) == written else job["created_at"]
    if properties.created_at is not None:
        return properties.created_at, None
    if is_uuid7(id_):
        return uuid7_ms(id_), None
    # Nothing states when the job was made: the time of its arrival is the nearest. A retry does not change it.
    arrived = milliseconds(value(job, "enqueued_at", str))
    return properties.enqueued_at if arrived is None else arrived, None


def _trace_id(meta: Attributes, properties: MessageProperties, id_: str) -> str:
    for found in (properties.trace_id, text(meta, "trace_id")):
        if found is not None and is_uuid(found):
            return found
    carried = trace_id_of(properties.traceparent) or trace_id_of(text(meta, "traceparent"))
    return carried or properties.request_trace_id or derived_uuid(f"trace {id_}")


def _fingerprint(job: Attributes) -> str:
    """Return an id for a job without one, which stays the same when the job is retried, discarded or revived."""
    lasting = {name: raw for name, raw in job.items() if name not in SERVER and name != "dead_letter"}
    return derived_uuid(hashlib.sha256(msgspec.json.encode(lasting)).hexdigest())


def _compacted(raw: bytes) -> Raw:
    return Raw(compact(raw.decode()).encode())
