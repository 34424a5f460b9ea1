"""Writes an envelope as a job."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from babelgate.clock import milliseconds, timestamp
from babelgate.envelope.contract import is_spec_version
from babelgate.envelope.options import NEVER_EXPIRES
from babelgate.jsontext import decode_object, digits, parse_object
from babelgate.ojs.reading import (
    LIST,
    MAPPED,
    Arguments,
    Attributes,
    Frame,
    MessageProperties,
    envelope_of,
    members,
    text,
    value,
)
from babelgate.ojs.terms import (
    SERVER,
    SPEC_VERSION,
    derived_uuid,
    derived_uuid7,
    is_uuid7,
    type_of,
    urn_of,
)

_HERE = "\0"
"""A placeholder that cannot occur in JSON text."""


class Job(Struct, frozen=True):
    """A job ready to be written: its ``attributes`` in order, and facts for the message. ``created_at`` is Unix ms."""

    attributes: Attributes
    id: str
    type: str
    trace_id: str
    created_at: int
    attempts: int

    @property
    def body(self) -> bytes:
        """The job as JSON."""
        return msgspec.json.encode(self.attributes)


def job_of(body: bytes, queue: str, now: int, expiry: str | None = None) -> Job:
    """Return the job for ``body``, a valid envelope. ``queue`` is its OJS queue, ``now`` is Unix ms.

    ``expiry``: the value of its native header for that. It replaces the ``expires_at`` that the envelope has kept.
    """
    top: Attributes = msgspec.json.decode(body, type=dict[str, Raw])
    meta = members(top, "meta")
    ext = members(meta, "ext")
    only = members(ext, "ojs")
    urn = text(top, "job") or text(top, "urn") or ""
    trace_id = text(top, "trace_id") or ""
    attempts = max(value(top, "attempts", int) or 0, 0)
    created_at = value(meta, "created_at", int)
    created_at = now if created_at is None else created_at
    id_ = text(meta, "id") or derived_uuid(body.decode())
    keeps_id = bool(is_uuid7(id_)) or text(only, "id") == id_
    job_id = id_ if keeps_id else derived_uuid7(created_at, id_)
    type_ = _type(urn, only)

    if only and not ext.keys() - {"ojs"}:
        ext = {}
    else:
        ext.pop("ojs", None)
    own: dict[str, Any] = members(only, "meta")
    for name, said in (("urn", urn), ("trace_id", trace_id), ("lang", text(meta, "lang"))):
        own.setdefault(name, said)
    if ext:
        own.setdefault("ext", ext)
    elif "ext" in meta and not only:
        own.setdefault("ext", meta["ext"])
    own["bq_schema_version"] = 1
    own.update({} if keeps_id else {"bq_id": id_})
    own.update({} if text(meta, "queue") == queue else {"bq_queue": text(meta, "queue")})

    spread = _is_spread(top, only)
    attributes: dict[str, Any] = {
        "specversion": _specversion(only),
        "id": job_id,
        "type": type_,
        "queue": queue,
        "args": members(top, "data")["args"] if spread else [top["data"]],
        "meta": own,
        **{name: raw for name, raw in only.items() if name not in MAPPED and name not in SERVER},
        "state": "available",
        "attempt": attempts,
        "created_at": _created_at(created_at, only),
        "enqueued_at": timestamp(now),
    }
    _set_expiry(attributes, expiry)
    written = _raw(attributes)
    if envelope_of(written, MessageProperties()) != body:
        attributes["meta"] = own | {"bq_frame": _frame(body, attempts, spread)}
        written = _raw(attributes)
    return Job(written, job_id, type_, trace_id, created_at, attempts)


def _set_expiry(attributes: dict[str, Any], expiry: str | None) -> None:
    at = None if expiry is None else digits(expiry)
    if at is not None and milliseconds(value(attributes, "expires_at", str)) != at:
        attributes["expires_at"] = timestamp(at)
    elif expiry == NEVER_EXPIRES:
        attributes.pop("expires_at", None)


def _type(urn: str, only: Attributes) -> str:
    """Return the type in ``meta.ext.ojs``, unless it belongs to another URN."""
    kept = text(only, "type")
    if kept is not None and urn in (urn_of(kept), text(members(only, "meta"), "urn")):
        return kept
    return type_of(urn)


def _specversion(only: Attributes) -> str:
    kept = text(only, "specversion") or ""
    return kept if is_spec_version(kept) else SPEC_VERSION


def _created_at(ms: int, only: Attributes) -> str:
    kept = text(only, "created_at")
    return kept if kept is not None and milliseconds(kept) == ms else timestamp(ms)


def _is_spread(top: Attributes, only: Attributes) -> bool:
    """Return whether the data is only the array of arguments of a job."""
    if bytes(only.get("args", b"")) != bytes(LIST):
        return False
    data = members(top, "data")
    return data.keys() == {"args"} and value(data, "args", Arguments) is not None


def _frame(body: bytes, attempts: int, spread: bool) -> Frame:
    frame = decode_object(body)
    data = frame.by_name()["data"]
    if spread:
        inner = parse_object(data.raw)
        inner.by_name()["args"].raw = _HERE
        data.raw = str(inner)
    else:
        data.raw = _HERE
    before, after = str(frame).split(_HERE)
    return Frame(before, after, attempts, spread)


def _raw(attributes: dict[str, Any]) -> dict[str, Raw]:
    return msgspec.json.decode(msgspec.json.encode(attributes), type=dict[str, Raw])
