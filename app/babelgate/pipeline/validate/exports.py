"""Reads exports of dead letters: saved answers of ``GET /queues/{queue}/dead-letters``.

A file is one page, one page per line, or one dead letter per line. The record is what gets validated; of a poison
record that wraps a body, the wrapped body.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

if TYPE_CHECKING:
    from babelgate.pipeline.storage.inputs import Body

_NULL = Raw(b"null")
Fault = tuple[str, str]
_begins_as_page = re.compile(rb'[\xef\xbb\xbf \t\r\n]*\{[ \t\r\n]*"dead_letters"').match
MAX_PAGE_BYTES = 256 * 1024 * 1024
"""The largest page of an export; a page is kept in memory whole."""
_NEITHER = "It is neither a page of dead letters nor one of them."


class _Record(Struct):
    """A dead letter as the API lists it. One of the two members is null."""

    record: Raw = _NULL
    record_base64: str | None = None


class _ExportLine(_Record):
    dead_letters: list[_Record] | None = None


class _Wrapped(Struct, forbid_unknown_fields=True):
    """A poison record around a body that is no JSON object, or that has a dead-letter block already."""

    raw: str
    dead_letter: Raw
    raw_encoding: str | None = None


_decode = msgspec.json.Decoder(_ExportLine).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


def is_export(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is an export of dead letters."""
    return _begins_as_page(head) is not None


def records(lines: Iterable[Body]) -> Iterator[tuple[bytes, Fault | None]]:
    """Yields the records in ``lines``, each with its fault or None. Joins a page that spans several lines."""
    pending: list[bytes] = []
    size, by_line = 0, False
    for line in lines:
        if line.fault is not None:
            yield b"\n".join([*pending, line.content]), line.fault
            pending, size = [], 0
            continue
        found = None if pending else _read(line.content)
        if found is not None:
            by_line = True
            yield from found
        elif by_line:
            yield line.content, ("invalid_export", _NEITHER)
        else:
            pending.append(line.content)
            size += line.size
            if size > MAX_PAGE_BYTES:
                detail = f"It has more than {MAX_PAGE_BYTES} bytes in one page: save pages line by line."
                yield _beginning(pending), ("invalid_export", detail)
                return
    if pending:
        together = _read(b"\n".join(pending))
        yield from [(_beginning(pending), ("invalid_export", _NEITHER))] if together is None else together


def _beginning(pending: list[bytes]) -> bytes:
    return b"\n".join(pending)[:65_536]


def _read(text: bytes) -> list[tuple[bytes, Fault | None]] | None:
    """The records in ``text``; None if it is neither a page nor a dead letter."""
    try:
        page = _decode(text.removeprefix(b"\xef\xbb\xbf"))
    except _ERRORS:
        return None
    if page.dead_letters is not None:
        return [_body_of(each) for each in page.dead_letters]
    if bytes(page.record) == bytes(_NULL) and page.record_base64 is None:
        return None
    return [_body_of(page)]


def _body_of(found: _Record) -> tuple[bytes, Fault | None]:
    base64 = found.record_base64 or ""
    try:
        content = b64decode(base64, validate=True) if found.record_base64 is not None else bytes(found.record)
    except ValueError:
        return base64.encode(), ("invalid_export", "record_base64 is not Base64.")
    try:
        wrapped = _decode_wrapped(content)
        if wrapped.raw_encoding == "base64":
            return b64decode(wrapped.raw, validate=True), None
        return wrapped.raw.encode(), None
    except _ERRORS:
        return content, None
