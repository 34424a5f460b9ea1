"""The content of a segment: its records, and what is none."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET

from app.observe.journal.record import VERSION, Record, decode
from app.pipeline.storage.inputs import KEPT_BYTES, Body, ReadOptions, Split
from app.pipeline.storage.lines import LineReader

LINE_BYTES = 64 * 1024 * 1024
"""A longer line is no record: the largest body that any broker takes, in Base64, is shorter."""
_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FIRST_AT, _LAST_AT = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, Unix ms."""


class CorruptLine(NamedTuple):
    """What is no record, at a byte of the unpacked file. Of large content only the beginning is kept."""

    at: int
    reason: str
    detail: str
    content: bytes = b""
    size: int = 0
    sha256: str | None = None


class _Version(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Version)


def parse_segment_lines(content: Any) -> Iterator[Record | CorruptLine]:
    """The records of a file's content, plain or compressed, and what is none; no content raises."""
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
        record = decode(line.content)
        if record.v == VERSION:
            _check(record)
            return record
    except ValueError as error:
        wrong = str(error)
    version = _version_of(line.content)
    if version != VERSION:
        return _corrupt(line, "unknown_version", f"It is of version {version}; this program knows {VERSION}.")
    return _corrupt(line, "invalid_record", wrong)


def _check(record: Record) -> None:
    """Raise ValueError where the record says what cannot be, or what no column holds."""
    if record.seq <= 0:
        raise ValueError("its seq is not positive")
    if not _FIRST_AT <= record.at <= _LAST_AT:
        raise ValueError("its at is in no year from 1 to 9999")
    if record.envelope_base64 is not UNSET:
        b64decode(record.envelope_base64, validate=True)


def _version_of(line: bytes) -> int:
    """The version that a line says it is of; this program's where it says nothing."""
    try:
        return _version.decode(line).v
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return VERSION


def _corrupt(line: Body, reason: str, detail: str) -> CorruptLine:
    digest = line.sha256 or hashlib.sha256(line.content).hexdigest()
    return CorruptLine(line.at, reason, detail, line.content[:KEPT_BYTES], line.size, digest)
