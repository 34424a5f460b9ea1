"""Reads any body found on a queue as a Received, or raises Poison with the reason why it must not be delivered.

A body is refused if the SDKs call it poison (not one JSON object, a known member with a wrong type in any of its
occurrences, no identity), or if it breaks a rule that consumers check. If several codes apply, the first one in the
contract's order is reported: ``missing_urn``, ``missing_meta``, ``unsupported_schema_version``, ``invalid_data``,
``missing_trace_id``, ``invalid_attempts``; then ``number_out_of_range`` (inside ``data``), ``invalid_id``,
``invalid_queue``, ``invalid_lang``, ``invalid_created_at``, ``invalid_dead_letter``. An unreadable body is
``invalid_json`` or ``too_deep``, and a job of the Open Job Spec, which is no envelope, is ``invalid_job``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from babelgate.envelope.contract import (
    READ_DEPTH,
    Limits,
    Poison,
    Received,
    dropped_keys,
    identity,
    is_int64,
    is_text,
    job_defect,
)
from babelgate.jsontext import (
    JsonSyntaxError,
    JsonTooDeep,
    Member,
    ObjectText,
    decode_object,
    defects,
    exceeds_depth,
    parse_object,
    surely_finite,
)

_DETAILS = {
    "missing_urn": "Neither job nor urn is a non-blank string.",
    "missing_meta": "meta is missing or not an object.",
    "unsupported_schema_version": "meta.schema_version is not the integer 1.",
    "invalid_data": "data is missing or not an object.",
    "missing_trace_id": "trace_id is missing, blank or not a string.",
    "invalid_attempts": "attempts is missing or not an int64 integer.",
    "number_out_of_range": "data contains a number that is not a finite double.",
    "invalid_id": "meta.id is not a string.",
    "invalid_queue": "meta.queue is not a string.",
    "invalid_lang": "meta.lang is not a string.",
    "invalid_created_at": "meta.created_at is not an int64 integer.",
    "invalid_dead_letter": "dead_letter is not an object with the contract's types.",
}
_POINTERS = {
    "missing_urn": "/job",
    "missing_meta": "/meta",
    "unsupported_schema_version": "/meta/schema_version",
    "invalid_data": "/data",
    "missing_trace_id": "/trace_id",
    "invalid_attempts": "/attempts",
    "invalid_id": "/meta/id",
    "invalid_queue": "/meta/queue",
    "invalid_lang": "/meta/lang",
    "invalid_created_at": "/meta/created_at",
    "invalid_dead_letter": "/dead_letter",
}
_DEAD_LETTER_TEXTS = ("reason", "error", "exception", "original_queue", "lang")
_DEAD_LETTER_INTEGERS = ("failed_at", "attempts")


def inspect_any(body: bytes, limits: Limits) -> Received:
    """Read a body of any shape. Raises Poison."""
    try:
        frame = decode_object(body, ("data",))
    except JsonSyntaxError as error:
        raise Poison("invalid_json", f"The body is not one JSON object: {error}.") from None
    except JsonTooDeep:
        raise _too_deep(limits) from None
    if exceeds_depth(body, read_depth(limits)):
        raise _too_deep(limits)
    if identity(frame.by_name()) is None and (defect := job_defect(frame.by_name())) is not None:
        raise Poison("invalid_job", defect[1], defect[0])
    found = set(_violations(frame))
    for code, detail in _DETAILS.items():
        if code in found:
            raise Poison(code, detail, _POINTERS.get(code) or _first_number_out_of_range(frame))
    last = {name: member.value for name, member in frame.by_name().items()}
    meta = last["meta"]
    job = identity(frame.by_name())
    assert job is not None
    return Received(
        id=meta.get("id"),
        trace_id=last["trace_id"],
        job=job.value,
        attempts=last["attempts"],
        created_at=meta.get("created_at"),
        lang=meta.get("lang"),
        warnings=dropped_keys(frame),
        queue=meta.get("queue"),
        is_dead_letter=last.get("dead_letter") is not None,
    )


def read_depth(limits: Limits) -> int:
    """Return the maximum depth of a body on a queue: the larger of READ_DEPTH and the gateway's own limit."""
    return max(limits.max_depth, READ_DEPTH)


def _too_deep(limits: Limits) -> Poison:
    return Poison("too_deep", f"The body has more than {read_depth(limits)} levels of nesting.")


def _violations(frame: ObjectText) -> Iterator[str]:
    """Yield the codes that apply, unordered. Rules check the last of repeated members, types every occurrence."""
    last = frame.by_name()
    if identity(last) is None:
        yield "missing_urn"
    if not is_text(_value(last.get("trace_id"))):
        yield "missing_trace_id"
    if not is_int64(_value(last.get("attempts"))):
        yield "invalid_attempts"
    if not isinstance(_value(last.get("data")), dict):
        yield "invalid_data"
    meta = _value(last.get("meta"))
    if not isinstance(meta, dict):
        yield "missing_meta"
    elif not (is_int64(meta.get("schema_version")) and meta["schema_version"] == 1):
        yield "unsupported_schema_version"
    for member in frame.members:
        yield from _type_violations(member)


def _first_number_out_of_range(frame: ObjectText) -> str:
    every = (found for member in frame.members if member.name == "data" for found in defects(member.raw))
    return next("/data" + at for at, code in every if code == "number_out_of_range")


def _value(member: Member | None) -> Any:
    return None if member is None else member.value


def _type_violations(member: Member) -> Iterator[str]:
    name, value = member.name, member.value
    if value is None:
        return
    if name == "trace_id" and not isinstance(value, str):
        yield "missing_trace_id"
    elif name == "attempts" and not is_int64(value):
        yield "invalid_attempts"
    elif name == "data":
        if not isinstance(value, dict):
            yield "invalid_data"
        elif not surely_finite(member.raw.encode()) and "number_out_of_range" in (
            code for _, code in defects(member.raw)
        ):
            yield "number_out_of_range"
    elif name == "meta":
        if not isinstance(value, dict):
            yield "missing_meta"
        else:
            yield from _meta_violations(parse_object(member.raw).members)
    elif name == "dead_letter" and not (isinstance(value, dict) and _is_dead_letter(parse_object(member.raw).members)):
        yield "invalid_dead_letter"


def _meta_violations(members: Sequence[Member]) -> Iterator[str]:
    for name, value in ((member.name, member.value) for member in members):
        if name in ("id", "queue", "lang") and not isinstance(value, str | None):
            yield f"invalid_{name}"
        elif name == "schema_version" and value is not None and not is_int64(value):
            yield "unsupported_schema_version"
        elif name == "created_at" and value is not None and not is_int64(value):
            yield "invalid_created_at"


def _is_dead_letter(members: Sequence[Member]) -> bool:
    for name, value in ((member.name, member.value) for member in members):
        if name in _DEAD_LETTER_TEXTS and not isinstance(value, str | None):
            return False
        if name in _DEAD_LETTER_INTEGERS and value is not None and not is_int64(value):
            return False
    return True
