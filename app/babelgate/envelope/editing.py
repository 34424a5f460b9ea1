"""Edits bodies found on a queue: canonical form, attempts, dead letters and redrives.

Edits splice text: all bytes stay, except those of the edited members. They drop the forbidden keys, and rename ``urn``
to ``job``.
"""

from __future__ import annotations

import contextlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from babelgate.envelope.contract import (
    FORBIDDEN,
    FORBIDDEN_META,
    DeadSummary,
    Limits,
    Poison,
    identity,
    is_int64,
    is_text,
)
from babelgate.envelope.fast_path import canonical_ordinary, describe_ordinary, inspect, with_attempts_ordinary
from babelgate.jsontext import (
    WHITESPACE,
    JsonSyntaxError,
    JsonTooDeep,
    Member,
    ObjectText,
    compact_any,
    decode_object,
    has_lone_surrogate,
    is_encodable,
    parse_object,
    quote,
)


def with_attempts(body: bytes, attempts: int) -> bytes:
    """Set the top-level ``attempts`` of ``body``. Raises Poison if ``body`` is not a JSON object."""
    edited = with_attempts_ordinary(body, attempts)
    if edited is None:
        frame = _object(body)
        _reemit(frame, attempts)
        edited = str(frame).encode()
    return edited


def dead_letter_block(
    reason: str,
    original_queue: str,
    attempts: int,
    failed_at: int,
    error: str | None = None,
    exception: str | None = None,
    lang: str = "python",
) -> dict[str, Any]:
    """Return the ``dead_letter`` member, in the order in which it is written.

    ``reason`` is ``failed``, ``unknown_urn`` or ``poison``; ``failed_at`` is Unix ms.
    """
    return {
        "reason": reason,
        "error": error,
        "exception": exception,
        "failed_at": failed_at,
        "original_queue": original_queue,
        "attempts": attempts,
        "lang": lang,
    }


def dead_letter_record(body: bytes, block: Mapping[str, Any]) -> bytes:
    """Return the dead letter for ``body``, with ``block`` as its ``dead_letter``.

    A poison body is kept whole: as an object with the block appended if that loses nothing, else as
    ``{"raw", "raw_encoding"?, "dead_letter"}``. Any other body gets the block's ``attempts``, and the block replaces an
    earlier one. A body that is not an object is kept like a poison body.
    """
    encoded = msgspec.json.encode(block).decode()
    try:
        frame = _object(body)
    except Poison:
        return _wrapped(body, encoded)
    if block["reason"] == "poison":
        if not _is_spliceable(frame):
            return _wrapped(body, encoded)
        frame.head, frame.tail = frame.head.lstrip(WHITESPACE), frame.tail.rstrip(WHITESPACE)
    else:
        _reemit(frame, block["attempts"])
        frame.remove("dead_letter")
    frame.append("dead_letter", encoded)
    return str(frame).encode()


def _is_spliceable(frame: ObjectText) -> bool:
    return "dead_letter" not in frame.by_name() and not has_lone_surrogate(str(frame))


def _wrapped(body: bytes, block: str) -> bytes:
    try:
        raw = f'"raw":{quote(body.decode())}'
    except UnicodeDecodeError:
        raw = f'"raw":"{b64encode(body).decode()}","raw_encoding":"base64"'
    return f'{{{raw},"dead_letter":{block}}}'.encode()


def describe_dead(record: bytes) -> DeadSummary:
    """Return the facts in ``record``, any bytes found on a dead-letter queue. Never raises."""
    return describe_ordinary(record) or describe_any(record)


def describe_any(record: bytes) -> DeadSummary:
    """:func:`describe_dead` of records of any form."""
    try:
        top = {member.name: member.value for member in _object(record).members}
    except Poison:
        return DeadSummary()
    meta, block = _mapping(top.get("meta")), _mapping(top.get("dead_letter"))
    return DeadSummary(
        id=_text(meta.get("id")),
        job=_text(next((top[name] for name in ("job", "urn") if is_text(top.get(name))), None)),
        trace_id=_text(top.get("trace_id")),
        reason=_text(block.get("reason")),
        error=_text(block.get("error")),
        failed_at=_integer(block.get("failed_at")),
        attempts=_integer(block.get("attempts", top.get("attempts"))),
    )


def redriven(record: bytes) -> bytes:
    """Return ``record`` as it is sent back to a queue: without ``dead_letter``, and with ``attempts`` 0.

    Raises Poison if the result is not a valid envelope.
    """
    frame = _object(record)
    _reemit(frame, 0)
    frame.remove("dead_letter")
    body = str(frame).encode()
    inspect(body, Limits())
    return body


def original(record: bytes) -> bytes:
    """Return the body for which :func:`dead_letter_record` made ``record`` with the reason ``poison``.

    White space around an object is not restored. An object that had only a text called ``raw`` looks like the
    record of that text, unless the text is an object; it is taken for the text. Bytes without a ``dead_letter`` member
    are returned as they are.
    """
    try:
        frame = _object(record)
    except Poison:
        return record
    top = frame.by_name()
    if "dead_letter" not in top:
        return record
    raw = top["raw"].value if "raw" in top else None
    if isinstance(raw, str) and top.keys() <= {"raw", "raw_encoding", "dead_letter"}:
        with contextlib.suppress(ValueError):
            body = b64decode(raw, validate=True) if "raw_encoding" in top else raw.encode()
            if not _would_be_spliced(body):
                return body
    frame.remove("dead_letter")
    return str(frame).encode()


def _would_be_spliced(body: bytes) -> bool:
    try:
        return _is_spliceable(_object(body))
    except Poison:
        return False


def with_data(record: bytes, data: bytes) -> bytes:
    """Return the envelope of ``record`` with other ``data``, a JSON text, as it is sent back to a queue.

    The result is not validated. Raises Poison if ``record`` has no JSON object.
    """
    frame = _object(original(record))
    _reemit(frame, 0)
    frame.remove("dead_letter")
    kept = frame.by_name().get("data")
    frame.remove("data", but=kept)
    if kept is None:
        frame.append("data", data.decode())
    else:
        kept.raw = data.decode()
    return str(frame).encode()


def _object(body: bytes) -> ObjectText:
    try:
        return decode_object(body, ("data",))
    except JsonSyntaxError as error:
        raise Poison("invalid_json", f"The body is not one JSON object: {error}.") from None
    except JsonTooDeep:
        raise Poison("too_deep", "The body is nested too deeply.") from None


def _reemit(frame: ObjectText, attempts: int) -> None:
    members = frame.by_name()
    named = identity(members)
    if named is not None and named.name == "urn":
        frame.remove("job")
        named.name, named.key = "job", '"job"'
    # Of repeated members only the last one, which counts, is kept.
    for name, kept in (("urn", None), ("attempts", members.get("attempts")), *((name, None) for name in FORBIDDEN)):
        frame.remove(name, but=kept)
    meta = members.get("meta")
    if meta is not None and isinstance(meta.value, dict) and not meta.value.keys().isdisjoint(FORBIDDEN_META):
        inner = parse_object(meta.raw)
        for name in FORBIDDEN_META:
            inner.remove(name)
        meta.raw = str(inner)
    if "attempts" in members:
        members["attempts"].raw = str(attempts)
    else:
        frame.append("attempts", str(attempts))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value if is_encodable(value) else value.encode(errors="backslashreplace").decode()


def _integer(value: Any) -> int | None:
    return value if is_int64(value) else None


_TOP = ("trace_id", "data", "meta", "attempts")
_META = ("id", "queue", "lang", "schema_version", "created_at")


def canonical(body: bytes) -> bytes:
    """Return the canonical form of ``body``, which :func:`babelgate.envelope.inspect` has accepted; the same object if
    equal.

    The frame is in the contract's order, with no member added. Keys that a re-emit drops are left out
    (:attr:`~babelgate.envelope.contract.Received.warnings` names them), ``urn`` becomes ``job``, absent members stay
    absent, null stays null, and unknown keys follow the known ones.
    """
    made = canonical_ordinary(body)
    if made is None:
        top = decode_object(body, ("data",)).by_name()
        job = identity(top)
        assert job is not None
        members = [f'"job":{compact_any(job.raw)}', *_ordered(top, _TOP, ("job", "urn", *FORBIDDEN))]
        made = f"{{{','.join(members)}}}".encode()
    return body if made == body else made


def _ordered(members: Mapping[str, Member], known: tuple[str, ...], dropped: tuple[str, ...]) -> list[str]:
    names = [name for name in known if name in members]
    names += [name for name in members if name not in known and name not in dropped]
    return [f"{compact_any(members[name].key)}:{_value(members[name], known)}" for name in names]


def _value(member: Member, known: tuple[str, ...]) -> str:
    if known is _TOP and member.name == "meta":
        return f"{{{','.join(_ordered(parse_object(member.raw).by_name(), _META, FORBIDDEN_META))}}}"
    if member.name in known and type(member.value) is int:
        # -0 is the only integer with two spellings.
        return str(member.value)
    return compact_any(member.raw)
