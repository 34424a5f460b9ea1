"""Converts a published job to an entry of the publish API."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Raw

from babelgate.clock import Clock, milliseconds, timestamp
from babelgate.envelope.contract import MAX_ID, Limits, is_id, is_spec_version, is_text
from babelgate.envelope.options import EXPIRES_AT_HEADER, OPTIONS
from babelgate.envelope.publication import MAX_PROBLEMS, read_any
from babelgate.errors import EnvelopeError, EnvelopeSyntaxError, Problem
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object, defects, is_plain
from babelgate.ojs.reading import MessageProperties, data_of, envelope_of
from babelgate.ojs.reading import members as members_of
from babelgate.ojs.terms import SERVER, SPEC_VERSION, uuid7

_ANY_SIZE = Limits(max_message_bytes=2**40, max_depth=800)
"""The gateway's own limits are checked later."""
_DEFECTS = {
    "number_out_of_range": "The number must fit a double; send a larger one as a string.",
    "lone_surrogate": "The string holds an unpaired surrogate, which UTF-8 cannot carry.",
}


def as_entry(body: bytes, queue: str, clock: Clock, trace_id: str | None = None) -> bytes:
    """Return the publish entry of ``body``, an OJS job for ``queue``: its envelope, when it is due and when it expires.

    ``id`` and ``queue`` are optional; attributes of the server are replaced. ``trace_id``, that of the request's trace,
    is used for a job without one. Raises EnvelopeSyntaxError, or
    EnvelopeError with all problems of the job and pointers within the job.
    """
    try:
        members = decode_object(body).by_name()
        values = {name: member.value for name, member in members.items()}
        problems = list(islice(_problems(body.decode(), values, queue), MAX_PROBLEMS))
    except JsonSyntaxError as error:
        raise EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not one JSON object: {error}.")]) from None
    except (JsonTooDeep, RecursionError):
        raise EnvelopeError([Problem("", "too_deep", "The job is nested too deeply.")]) from None
    if problems:
        raise EnvelopeError(problems)
    now = clock()
    job = {name: Raw(member.raw.encode()) for name, member in members.items() if name not in SERVER}
    given: dict[str, Any] = {"specversion": SPEC_VERSION, "id": uuid7(now, os.urandom(10)), "queue": queue}
    given = {name: said for name, said in given.items() if name not in job} | {"created_at": timestamp(now)}
    job |= msgspec.json.decode(msgspec.json.encode(given), type=dict[str, Raw])
    job_meta = members_of(job, "meta")
    envelope = envelope_of(job, MessageProperties(queue, created_at=now, request_trace_id=trace_id))
    if envelope is None:
        raise EnvelopeError([Problem("", "invalid_job", "No envelope can carry this job.")])
    if "bq_schema_version" in job_meta:
        _check_written(envelope, queue, clock)
    entry: dict[str, Any] = {"envelope": Raw(envelope)}
    due = milliseconds(values.get("scheduled_at"))
    if due is not None and due > now:
        entry["deliver_at"] = due
    expires_at = milliseconds(values.get("expires_at"))
    if expires_at is not None:
        # As ttl_seconds it would differ with each repetition of an idempotency key.
        entry["headers"] = {EXPIRES_AT_HEADER: str(max(expires_at, 0))}
    return msgspec.json.encode(entry)


def places_in_job(body: bytes, places: Iterable[str]) -> list[str]:
    """The pointers in the job ``body`` of ``places`` in the entry that :func:`as_entry` makes of it.

    "" for what no member stands for. An option that the job does not set keeps its place.
    """
    job = decode_object(body).by_name()
    attributes = {name: Raw(member.raw.encode()) for name, member in job.items()}
    meta = members_of(attributes, "meta")
    is_array = data_of(attributes)[1]
    return [_place(each, job, meta, is_array) for each in places]


def _place(place: str, job: Container[str], meta: Container[str], is_array: bool) -> str:
    """The pointer in a job of ``place`` in its entry. ``is_array``: whether the arguments are the array in ``data``."""
    first, *inner = place.removeprefix("/envelope").split("/")[1:] or [""]
    if first == "job":
        return "/meta/urn" if "urn" in meta else "/type"
    if first == "trace_id":
        return "/meta/trace_id" if "trace_id" in meta else ""
    if first == "deliver_at" and "scheduled_at" in job:
        return "/scheduled_at"
    if first == "headers" and "expires_at" in job:
        return "/expires_at"
    if first == "data":
        # An array is the only member of data.
        inner = inner[1:] if is_array and inner[:1] == ["args"] else inner
        return "/".join(("/args", *inner) if is_array else ("/args/0", *inner))
    if first == "meta":
        return _place_in_meta(inner, job)
    return place if first in OPTIONS and first != "headers" else ""


def _place_in_meta(inner: Sequence[str], job: Container[str]) -> str:
    """The pointer of what is at ``inner`` in the meta of the envelope."""
    if inner[:2] == ["ext", "ojs"]:
        return "".join(f"/{name}" for name in inner[2:])
    if inner[:1] == ["ext"]:
        return "/".join(("/meta", *inner))
    return f"/{inner[0]}" if inner and inner[0] in ("id", "queue", "created_at") and inner[0] in job else ""


def _check_written(envelope: bytes, queue: str, clock: Clock) -> None:
    """Check the envelope that the ``bq_`` members of a job describe. Raises EnvelopeError with pointers in the job."""
    try:
        read_any(envelope, queue, _ANY_SIZE, clock)
    except EnvelopeError as error:
        detail = f"The members of meta whose names begin with bq_ describe no valid envelope: {error.detail}"
        raise EnvelopeError([Problem("/meta", "invalid_job", detail)]) from None


def _problems(text: str, job: dict[str, Any], queue: str) -> Iterator[Problem]:
    if not is_text(job.get("type")):
        yield Problem("/type", "invalid_type", "type names the job: it must be a string that is not blank.")
    if not isinstance(job.get("args"), list):
        yield Problem("/args", "invalid_args", "args must be an array; it may be empty.")
    version = job.get("specversion", SPEC_VERSION)
    if not (isinstance(version, str) and is_spec_version(version)):
        yield Problem("/specversion", "unsupported_specversion", f"specversion must be {SPEC_VERSION!r}.")
    if "id" in job and not is_id(job["id"]):
        detail = f"id must be a string of 1 to {MAX_ID} printable ASCII characters that is not blank, or absent."
        yield Problem("/id", "invalid_id", detail)
    if not isinstance(job.get("meta", {}), dict):
        yield Problem("/meta", "invalid_meta", "meta must be an object, or absent.")
    if job.get("queue", queue) != queue:
        yield Problem("/queue", "queue_mismatch", f"queue must be {queue!r}, the queue of the path.")
    for name in ("scheduled_at", "expires_at"):
        written = job.get(name)
        if written is not None and not (isinstance(written, str) and milliseconds(written) is not None):
            yield Problem(f"/{name}", f"invalid_{name}", f"{name} must be an RFC 3339 time with a zone.")
    if not is_plain(text):
        for pointer, code in defects(text):
            yield Problem(pointer, code, _DEFECTS[code])
