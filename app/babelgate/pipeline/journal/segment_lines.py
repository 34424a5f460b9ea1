"""Parses the lines of a journal segment into records and corrupt lines."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw
from msgspec.structs import astuple

from babelgate.observe.journal.record import VERSION, Record, decode
from babelgate.pipeline.storage.inputs import KEPT_BYTES, Body, ReadOptions, Split
from babelgate.pipeline.storage.lines import LineReader

LINE_BYTES = 64 * 1024 * 1024
"""The longest line of a record. The largest body of any broker is shorter, even in Base64."""
_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FIRST_AT, _LAST_AT = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, Unix ms."""


class CorruptLine(NamedTuple):
    """A line that is no record, at the byte ``at`` of the unpacked file. Of a large one only the beginning is kept."""

    at: int
    reason: str
    detail: str
    content: bytes = b""
    size: int = 0
    sha256: str | None = None


class ExtendedRecord(Record, frozen=True, gc=False, kw_only=True):
    """A record with members that this version does not know. ``extra``: a JSON object of them, as they were written."""

    extra: str


class _Version(msgspec.Struct):
    v: int


class _KnownRecord(Record, frozen=True, gc=False, forbid_unknown_fields=True):
    pass


_version = msgspec.json.Decoder(_Version)
_known_record = msgspec.json.Decoder(_KnownRecord)
_members = msgspec.json.Decoder(dict[str, Raw])


def parse_segment_lines(content: Any) -> Iterator[Record | CorruptLine]:
    """Yields the records and corrupt lines of a segment, plain or compressed. No content raises an error."""
    codec = next((name for magic, name in _CODECS.items() if content[:4].to_pybytes().startswith(magic)), None)
    for line in LineReader(
        lambda: pa.BufferReader(content), codec, Split("", 0, None, True), ReadOptions(max_bytes=LINE_BYTES)
    ):
        yield _read(line)


def _read(line: Body) -> Record | CorruptLine:
    if line.fault is not None:
        return _corrupt(line, *line.fault)
    wrong = ""
    try:
        record = _decode(line.content)
        if record.v == VERSION:
            _check(record)
            return record
    except ValueError as error:
        wrong = str(error)
    version = _version_of(line.content)
    if version != VERSION:
        return _corrupt(line, "unknown_version", f"It is of version {version}; this program knows {VERSION}.")
    return _corrupt(line, "invalid_record", wrong)


def _decode(line: bytes) -> Record:
    """The record in ``line``, an ExtendedRecord if it has members that are unknown here. Raises ValueError."""
    try:
        return _known_record.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        record = decode(line)
    try:
        members = _members.decode(line)
        unknown = {name: value for name, value in members.items() if name not in Record.__struct_fields__}
        return ExtendedRecord(*astuple(record), extra=msgspec.json.encode(unknown).decode()) if unknown else record
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Such as a name that is not UTF-8, which no column can store. What is known is a record all the same.
        return record


def _check(record: Record) -> None:
    """Raise ValueError if a member has an impossible value, or one that no column can store."""
    if record.seq <= 0:
        raise ValueError("its seq is not positive")
    if not _FIRST_AT <= record.at <= _LAST_AT:
        raise ValueError("its at is in no year from 1 to 9999")
    for coded in (record.envelope_base64, record.envelope_encrypted, record.headers_encrypted):
        if coded is not UNSET:
            b64decode(coded, validate=True)


def _version_of(line: bytes) -> int:
    """The record version in a line; this program's version if the line has none."""
    try:
        return _version.decode(line).v
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return VERSION


def _corrupt(line: Body, reason: str, detail: str) -> CorruptLine:
    digest = line.sha256 or hashlib.sha256(line.content).hexdigest()
    return CorruptLine(line.at, reason, detail, line.content[:KEPT_BYTES], line.size, digest)
