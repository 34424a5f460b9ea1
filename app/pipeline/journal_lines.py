"""A segment's content as records, and as what is no record; the task of ``ingest``, which makes columns of them."""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import astuple

from app.observe.journal import VERSION, Record, decode
from app.pipeline.arrow import schema
from app.pipeline.inputs import KEPT_BYTES, Body, Reading, Split
from app.pipeline.lines import Lines
from app.pipeline.ranges import Range, Ranges
from app.pipeline.reports import Lost, Owner, Report
from app.pipeline.schemas import JOURNAL, JOURNAL_CORRUPT

_JOURNAL, _CORRUPT = schema(JOURNAL.columns), schema(JOURNAL_CORRUPT.columns)

LINE_BYTES = 64 * 1024 * 1024
"""A longer line is no record: the largest body that any broker takes, in Base64, is shorter."""
DAMAGED = frozenset({"truncated_file", "unreadable_file", "too_large_file", "missing_file", "unknown_version"})
"""Reasons for which a file is to be read once more when it has changed."""

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BATCH_ROWS = 8192
_BATCH_BYTES = 8 * 1024 * 1024
_DAY_MS = 86_400_000
_MEMBERS = Record.__struct_fields__


class Corrupt(NamedTuple):
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


def found(content: Any) -> Iterator[Record | Corrupt]:
    """The records of a file's content, plain or compressed, and what is none; no content raises."""
    codec = next((name for magic, name in _CODECS.items() if content[:4].to_pybytes().startswith(magic)), None)
    for line in Lines(lambda: pa.BufferReader(content), codec, Split("", 0, None, True), Reading(max_bytes=LINE_BYTES)):
        yield _read(line)


def _read(line: Body) -> Record | Corrupt:
    if line.fault is not None:
        return _corrupt(line, *line.fault)
    try:
        record = decode(line.content)
        if record.v == VERSION and record.seq > 0:
            _day(record.at // _DAY_MS)
            if record.envelope_base64 is not UNSET:
                b64decode(record.envelope_base64, validate=True)
            return record
    except (ValueError, binascii.Error) as error:
        wrong = str(error)
    else:
        wrong = "its seq is not positive"
    try:
        version = _version.decode(line.content).v
    except (msgspec.MsgspecError, ValueError, RecursionError):
        version = VERSION
    if version != VERSION:
        return _corrupt(line, "unknown_version", f"It is of version {version}; this program knows {VERSION}.")
    return _corrupt(line, "invalid_record", wrong)


def _corrupt(line: Body, reason: str, detail: str) -> Corrupt:
    digest = line.sha256 or hashlib.sha256(line.content).hexdigest()
    return Corrupt(line.at, reason, detail, line.content[:KEPT_BYTES], line.size, digest)


@lru_cache(maxsize=4096)
def _day(number: int) -> datetime:
    try:
        return datetime.fromtimestamp(number * (_DAY_MS // 1000), UTC)
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"its at lies {number} days from 1970, where no calendar reaches") from None


def journal_rows(
    batches: Iterable[Any],
    known: Mapping[Owner, Sequence[Range]],
    report: Callable[[dict[str, Report]], None],
    batch: str,
) -> Iterator[Any]:
    """For ``mapInArrow``: files, as (path, content), become rows of ``journal``, without what is ``known`` already.

    Of every file a Report is handed to ``report``, once it is read.
    """
    have = {owner: Ranges(ranges) for owner, ranges in known.items()}
    for files in batches:
        for number in range(files.num_rows):
            path, content = files.column(0)[number].as_py(), files.column(1)[number].as_buffer()
            made = Report()
            yield from _journal_rows(path, content, have, made, batch)
            report({path: made})


def _journal_rows(path: str, content: Any, known: Mapping[Owner, Ranges], report: Report, batch: str) -> Iterator[Any]:
    new: dict[Owner, Ranges] = {}
    held: list[Record] = []
    size = 0
    nothing = Ranges()
    for each in found(content):
        if isinstance(each, Corrupt):
            report.corrupt += 1
            if each.reason in DAMAGED:
                report.damage = each.reason
            continue
        owner = each.node, each.epoch
        seqs = new.get(owner)
        if seqs is None:
            seqs = new[owner] = Ranges()
        if each.seq in known.get(owner, nothing) or not seqs.add(each.seq, each.at):
            report.duplicates += 1
            continue
        if each.event == "gap":
            report.lost.append(_lost(each))
        held.append(each)
        size += 0 if each.envelope is UNSET and each.envelope_base64 is UNSET else each.bytes or 0
        if len(held) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _columns(held, path, batch, report)
            held, size = [], 0
    if held:
        yield _columns(held, path, batch, report)
    report.seqs = {owner: list(seqs) for owner, seqs in new.items() if len(seqs)}
    report.records = sum(map(len, new.values()))


def _lost(gap: Record) -> Lost:
    def number(value: Any, otherwise: int) -> int:
        return otherwise if value is UNSET else value

    first, last = number(gap.first_lost_at, gap.at), number(gap.last_lost_at, gap.at)
    return Lost(gap.node, gap.epoch, gap.seq, number(gap.count, 1), first, last)


def _columns(records: Sequence[Record], path: str, batch: str, report: Report) -> Any:
    members = dict(zip(_MEMBERS, zip(*map(astuple, records), strict=True), strict=True))
    bodies, coded = members.pop("envelope"), members.pop("envelope_base64")
    columns: dict[str, Sequence[Any]] = {
        name: [None if each is UNSET else each for each in values] if UNSET in values else values
        for name, values in members.items()
    }
    columns["envelope"] = [_body(*pair) for pair in zip(bodies, coded, strict=True)]
    days = [_day(at // _DAY_MS).date() for at in members["at"]]
    for day in days:
        report.dates[day.isoformat()] = report.dates.get(day.isoformat(), 0) + 1
    columns |= {"date": days, "ingest_batch": [batch] * len(records), "src_file": [path] * len(records)}
    arrays = [pa.array(columns[each.name], each.type) for each in _JOURNAL]
    return pa.RecordBatch.from_arrays(arrays, schema=_JOURNAL)


def _body(raw: Any, coded: Any) -> bytes | None:
    if raw is not UNSET:
        return bytes(raw)
    return None if coded is UNSET else b64decode(coded)


def corrupt_rows(batches: Iterable[Any], batch: str) -> Iterator[Any]:
    """For ``mapInArrow``: files, as (path, content), become rows of ``journal_corrupt``."""
    for files in batches:
        for number in range(files.num_rows):
            path, content = files.column(0)[number].as_py(), files.column(1)[number].as_buffer()
            for each in found(content):
                if isinstance(each, Corrupt):
                    yield pa.RecordBatch.from_pylist([corrupt_row(path, each, batch)], _CORRUPT)


def corrupt_row(path: str, corrupt: Corrupt, batch: str) -> dict[str, Any]:
    """The row of ``journal_corrupt`` for what is no record in the file ``path``."""
    return {
        "src_file": path,
        "src_at": corrupt.at,
        "reason": corrupt.reason,
        "detail": corrupt.detail,
        "raw": corrupt.content,
        "raw_bytes": corrupt.size,
        "raw_sha256": corrupt.sha256,
        "ingest_batch": batch,
    }
