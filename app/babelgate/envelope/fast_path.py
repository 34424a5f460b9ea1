"""The fast path for ordinary bodies, which falls back to the complete path for all others.

msgspec splits the frame and checks syntax, types and paired surrogates, also inside ``data``, whose text it keeps. It
does not check UTF-8, finite numbers and depth, and does not report repeated keys; this module checks or excludes these.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from babelgate.clock import Clock
from babelgate.envelope.contract import (
    BLANK,
    INT64_MAX,
    INT64_MIN,
    MAX_ID,
    READ_DEPTH,
    DeadSummary,
    Envelope,
    Lang,
    Limits,
    Publication,
    Received,
    is_int64,
)
from babelgate.envelope.options import OPTIONS, option_problems
from babelgate.envelope.publication import check_size, new_ids, read_any
from babelgate.envelope.reception import inspect_any, read_depth
from babelgate.jsontext import compact, exceeds_depth, surely_finite


# The fields are in the contract's order, in which they are written.
class _Meta(Struct, forbid_unknown_fields=True, gc=False):
    id: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    lang: Lang | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    ext: Raw | UnsetType = UNSET


class _Frame(Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    job: str
    trace_id: str | UnsetType = UNSET
    data: Raw
    meta: _Meta | UnsetType = UNSET
    attempts: int | UnsetType = UNSET


class _DraftMeta(Struct, forbid_unknown_fields=True, gc=False):
    queue: str | UnsetType = UNSET
    lang: Lang | UnsetType = UNSET
    ext: Raw | UnsetType = UNSET


class _Draft(Struct, forbid_unknown_fields=True, gc=False):
    job: str
    data: Raw
    trace_id: str | UnsetType = UNSET
    meta: _DraftMeta | UnsetType = UNSET


_DraftWithOptions: type[Struct] = msgspec.defstruct(
    "_DraftWithOptions", [(name, Any, None) for name in OPTIONS], bases=(_Draft,), forbid_unknown_fields=True
)


class _WireMeta(Struct, forbid_unknown_fields=True, gc=False):
    id: str
    queue: str
    lang: str
    schema_version: int
    created_at: int
    ext: Raw | UnsetType = UNSET


class _WireFrame(Struct, forbid_unknown_fields=True, gc=False):
    job: str
    trace_id: str
    data: Raw
    meta: _WireMeta
    attempts: int


class _OrdinaryBlock(Struct, forbid_unknown_fields=True, gc=False):
    reason: str
    failed_at: int
    attempts: int
    original_queue: str
    lang: str
    error: str | None = None
    exception: str | None = None


class _OrdinaryRecord(Struct, forbid_unknown_fields=True, gc=False):
    job: str
    trace_id: str
    data: Raw
    meta: _WireMeta
    attempts: int
    dead_letter: _OrdinaryBlock


_decode = msgspec.json.Decoder(_Frame).decode
_decode_draft = msgspec.json.Decoder(_DraftWithOptions).decode
_encode = msgspec.json.Encoder().encode
_decode_wire = msgspec.json.Decoder(_WireFrame).decode
_decode_record = msgspec.json.Decoder(_OrdinaryRecord).decode
_NEEDS_SLOW_PATH = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# In a frame without unknown keys the last "}" closes the frame, so the count before it belongs to the frame.
_LAST_ATTEMPTS = re.compile(rb',"attempts":(-?[0-9]+)\}\Z')
_BACKSLASH, _BRACE = b"\\{"


def read_publication(body: bytes, queue: str, limits: Limits, clock: Clock, trace_id: str | None = None) -> Publication:
    """Read a publish body for ``queue``: a full envelope, a draft, which is completed, or an entry that wraps either.

    ``trace_id`` is used for a draft without one, in place of a new one.

    Raises EnvelopeSyntaxError, EnvelopeError with all problems of the body, or BodyTooLarge.
    """
    envelope = read_ordinary(body, queue, limits, clock, trace_id)
    if envelope is not None:
        return Publication(envelope)
    with_options = read_with_options(body, queue, limits, clock, trace_id)
    return read_any(body, queue, limits, clock, trace_id) if with_options is None else with_options


def read_ordinary(
    body: bytes, queue: str, limits: Limits, clock: Clock, trace_id: str | None = None
) -> Envelope | None:
    """Read an ordinary publish body, as :func:`babelgate.envelope.publication.read_any` would; None for any other
    body."""
    if len(body) > limits.max_message_bytes:
        return None
    try:
        frame = _decode(body)
        if not body.isascii():
            body.decode()
    except _NEEDS_SLOW_PATH:
        return None
    raw = bytes(frame.data)
    if raw[0] != _BRACE or exceeds_depth(raw, limits.max_depth - 1) or not surely_finite(raw):
        return None
    escapes = _BACKSLASH in body
    meta = frame.meta
    if meta is UNSET:
        meta = frame.meta = _Meta()
    if meta.queue is not UNSET and meta.queue != queue:
        return None
    if frame.attempts is UNSET and meta.id is UNSET and meta.created_at is UNSET and meta.schema_version is UNSET:
        meta.id, new_trace_id = new_ids()
        if frame.trace_id is UNSET:
            frame.trace_id = trace_id or new_trace_id
        frame.job, frame.trace_id = frame.job.strip(BLANK), frame.trace_id.strip(BLANK)
        frame.attempts, meta.created_at, meta.schema_version = 0, clock(), 1
        meta.queue, meta.lang = queue, meta.lang or "python"
    elif meta.id is UNSET or len(meta.id) > MAX_ID or not (meta.id.isascii() and meta.id.isprintable()):
        return None
    job, traced, id_ = frame.job, frame.trace_id, meta.id
    attempts, created_at, lang = frame.attempts, meta.created_at, meta.lang
    if attempts is UNSET or traced is UNSET or created_at is UNSET or lang is UNSET or meta.queue is UNSET:
        return None
    if meta.schema_version != 1 or not (0 <= attempts <= INT64_MAX and 0 <= created_at <= INT64_MAX):
        return None
    if not (job.strip(BLANK) and traced.strip(BLANK) and id_.strip(BLANK)):
        return None
    frame.data = _compacted(raw, escapes)
    if meta.ext is not UNSET:
        ext = bytes(meta.ext)
        if exceeds_depth(ext, limits.max_depth - 2) or not surely_finite(ext):
            return None
        meta.ext = _compacted(ext, escapes)
    canonical = _encode(frame)
    if len(canonical) > limits.max_message_bytes:
        check_size(len(canonical), limits)
    return Envelope(body if body == canonical else canonical, id_, traced, job, attempts, created_at, lang)


def read_with_options(
    body: bytes, queue: str, limits: Limits, clock: Clock, trace_id: str | None = None
) -> Publication | None:
    """Read an ordinary draft with options, as :func:`babelgate.envelope.publication.read_any` would; None for any
    other."""
    if len(body) > limits.max_message_bytes:
        return None
    try:
        draft: Any = _decode_draft(body)
    except _NEEDS_SLOW_PATH:
        return None
    options = {name: value for name in OPTIONS if (value := getattr(draft, name)) is not None}
    if any(option_problems(options)):
        return None
    frame = _Draft(draft.job, draft.data, draft.trace_id, draft.meta)
    envelope = read_ordinary(_encode(frame), queue, limits, clock, trace_id)
    return None if envelope is None else Publication(envelope, **options)


def _compacted(raw: bytes, escapes: bool) -> Raw:
    return Raw(compact(raw.decode()) if escapes else msgspec.json.format(raw, indent=-1))


def inspect(body: bytes, limits: Limits) -> Received:
    """Read a body found on a queue. Raises Poison if it is poison or breaks a consumer rule.

    There is no size limit, and the depth limit is at least the 512 levels that every SDK reads, so that a foreign body
    is not refused for a limit of this gateway.
    """
    return inspect_ordinary(body, limits) or inspect_any(body, limits)


def inspect_ordinary(body: bytes, limits: Limits) -> Received | None:
    """Read an ordinary valid body, as :func:`babelgate.envelope.reception.inspect_any` would; None for any other
    body."""
    try:
        frame = _decode_wire(body)
        if not body.isascii():
            body.decode()
    except _NEEDS_SLOW_PATH:
        return None
    meta = frame.meta
    raw = bytes(frame.data)
    if (
        raw[0] != _BRACE
        # A second "data" would be unchecked, even if its name is written with escapes.
        or body.count(b'"data"') != 1
        or (_BACKSLASH in body and (b"\\u006" in body or b"\\u007" in body))
        or meta.schema_version != 1
        or not INT64_MIN <= frame.attempts <= INT64_MAX
        or not INT64_MIN <= meta.created_at <= INT64_MAX
        or not (frame.job.strip(BLANK) and frame.trace_id.strip(BLANK))
        or exceeds_depth(body, read_depth(limits))
        or not surely_finite(raw)
    ):
        return None
    return Received(meta.id, frame.trace_id, frame.job, frame.attempts, meta.created_at, meta.lang, (), meta.queue)


def canonical_ordinary(body: bytes) -> bytes | None:
    """Return the canonical form of a frame with exactly the known keys; None for any other body."""
    try:
        frame = _decode_wire(body)
    except _NEEDS_SLOW_PATH:
        return None
    escapes = _BACKSLASH in body
    frame.data = _compacted(bytes(frame.data), escapes)
    if frame.meta.ext is not UNSET:
        frame.meta.ext = _compacted(bytes(frame.meta.ext), escapes)
    return _encode(frame)


def with_attempts_ordinary(body: bytes, attempts: int) -> bytes | None:
    """Set ``attempts`` if it is the last member and no key is dropped; None for any other body."""
    last = _LAST_ATTEMPTS.search(body, max(0, len(body) - 40))
    if last is None or body.count(b'"attempts"') != 1:
        return None
    try:
        _decode_wire(body)
    except _NEEDS_SLOW_PATH:
        return None
    return b"%b%d}" % (body[: last.start(1)], attempts)


def describe_ordinary(record: bytes) -> DeadSummary | None:
    """The facts in a dead letter that a gateway or an SDK made of an envelope, as
    :func:`babelgate.envelope.editing.describe_dead` would give them; None for any other record."""
    try:
        found = _decode_record(record)
        if not record.isascii():
            record.decode()
    except _NEEDS_SLOW_PATH:
        return None
    meta, block = found.meta, found.dead_letter
    opaque = [found.data] if meta.ext is UNSET else [found.data, meta.ext]
    if any(exceeds_depth(bytes(each), READ_DEPTH) for each in opaque) or not found.job.strip(BLANK):
        return None
    if not (is_int64(block.failed_at) and is_int64(block.attempts)):
        return None
    return DeadSummary(meta.id, found.job, found.trace_id, block.reason, block.error, block.failed_at, block.attempts)
