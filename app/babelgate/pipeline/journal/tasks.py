"""The tasks of ``ingest``: read segment files and yield rows. Spark's Python workers import this module."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import UNSET
from msgspec.json import encode
from msgspec.structs import astuple

from babelgate.observe.journal.record import Record
from babelgate.pipeline.journal.commits import LostRecords, Owner
from babelgate.pipeline.journal.ranges import Range, Ranges
from babelgate.pipeline.journal.segment_lines import CorruptLine, ExtendedRecord, parse_segment_lines
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_CORRUPT, arrow_schema

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam

    _Param = AccumulatorParam[Any]
else:
    # PySpark calls the methods of any object. With nothing new ``ingest`` ends without its import.
    _Param = object

_JOURNAL, _CORRUPT = arrow_schema(JOURNAL.columns), arrow_schema(JOURNAL_CORRUPT.columns)
_MEMBERS = Record.__struct_fields__
_OBJECTS = ("meta", "headers")
_ENCRYPTED = ("envelope_encrypted", "headers_encrypted")
_BATCH_ROWS = 8192
_BATCH_BYTES = 8 * 1024 * 1024
_DAY_MS = 86_400_000


@dataclass
class FileReport:
    """The result of reading a file. ``damage``: why it must be read again; None if it was read completely."""

    records: int = 0
    duplicates: int = 0
    corrupt: int = 0
    damage: str | None = None
    seqs: dict[Owner, list[Range]] = field(default_factory=dict)
    lost: list[LostRecords] = field(default_factory=list)
    dates: dict[str, int] = field(default_factory=dict)


class FileReportsParam(_Param):
    """Accumulates reports by file URL. A retried task reports the same again, which replaces the first report."""

    def zero(self, value: Any) -> Any:
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        value1.update(value2)
        return value1


def journal_rows(
    batches: Iterable[Any],
    known: Mapping[Owner, Sequence[Range]],
    report: Callable[[dict[str, FileReport]], None],
    batch: str,
) -> Iterator[Any]:
    """For ``mapInArrow``: turns files, as (path, content), into rows of ``journal``, except for ``known`` records.

    Calls ``report`` with the FileReport of each file after it is read.
    """
    have = {owner: Ranges(ranges) for owner, ranges in known.items()}
    for files in batches:
        for number in range(files.num_rows):
            path, content = files.column(0)[number].as_py(), files.column(1)[number].as_buffer()
            made = FileReport()
            yield from _journal_rows(path, content, have, made, batch)
            report({path: made})


def _journal_rows(
    path: str, content: Any, known: Mapping[Owner, Ranges], report: FileReport, batch: str
) -> Iterator[Any]:
    new: dict[Owner, Ranges] = {}
    pending: list[Record] = []
    size = 0
    for each in parse_segment_lines(content):
        if isinstance(each, CorruptLine):
            report.corrupt += 1
            report.damage = each.reason
            continue
        owner = each.node, each.epoch
        seqs = new.get(owner)
        if seqs is None:
            seqs = new[owner] = Ranges()
        before = known.get(owner)
        if (before is not None and each.seq in before) or not seqs.add(each.seq, each.at):
            report.duplicates += 1
            continue
        if each.event == "gap":
            report.lost.append(_lost(each))
        pending.append(each)
        bodies = each.envelope, each.envelope_base64, each.envelope_encrypted
        size += sum(len(body) for body in bodies if body is not UNSET)
        if len(pending) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _columns(pending, path, batch, report)
            pending, size = [], 0
    if pending:
        yield _columns(pending, path, batch, report)
    report.seqs = {owner: list(seqs) for owner, seqs in new.items() if len(seqs)}
    report.records = sum(map(len, new.values()))


def _lost(gap: Record) -> LostRecords:
    def number(value: Any, otherwise: int) -> int:
        return otherwise if value is UNSET else value

    first, last = number(gap.first_lost_at, gap.at), number(gap.last_lost_at, gap.at)
    return LostRecords(gap.node, gap.epoch, gap.seq, number(gap.count, 1), first, last)


def _columns(records: Sequence[Record], path: str, batch: str, report: FileReport) -> Any:
    count = len(records)
    members = dict(zip(_MEMBERS, zip(*(astuple(each)[: len(_MEMBERS)] for each in records), strict=True), strict=True))
    bodies = members.pop("envelope"), members.pop("envelope_base64")
    for name in _OBJECTS:
        members[name] = tuple(each if each is UNSET else encode(each).decode() for each in members[name])
    columns: dict[str, Any] = {name: _nullable(values) for name, values in members.items()}
    if any(isinstance(each, ExtendedRecord) for each in records):
        columns["extra"] = [each.extra if isinstance(each, ExtendedRecord) else None for each in records]
    if any(each.count(UNSET) < count for each in bodies):
        columns["envelope"] = [_body(*pair) for pair in zip(*bodies, strict=True)]
    for name in _ENCRYPTED:
        if (encrypted := columns[name]) is not None:
            columns[name] = [None if each is None else b64decode(each) for each in encrypted]
    days = [at // _DAY_MS for at in members["at"]]
    for day, many in Counter(days).items():
        date = datetime.fromtimestamp(day * _DAY_MS // 1000, UTC).date().isoformat()
        report.dates[date] = report.dates.get(date, 0) + many
    columns["date"] = pa.array(days, pa.int32()).cast(pa.date32())
    columns |= {"ingest_batch": pa.repeat(batch, count), "src_file": pa.repeat(path, count)}
    arrays = [_array(columns.get(each.name), each.type, count) for each in _JOURNAL]
    return pa.RecordBatch.from_arrays(arrays, schema=_JOURNAL)


def _nullable(values: tuple[Any, ...]) -> Sequence[Any] | None:
    """The values of a member, None where it is absent; None alone if it is absent everywhere."""
    absent = values.count(UNSET)
    if absent == len(values):
        return None
    return [None if each is UNSET else each for each in values] if absent else values


def _array(values: Any, kind: Any, count: int) -> Any:
    if values is None:
        return pa.nulls(count, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _body(raw: Any, coded: Any) -> bytes | None:
    if raw is not UNSET:
        return bytes(raw)
    return None if coded is UNSET else b64decode(coded)


def corrupt_rows(batches: Iterable[Any], batch: str) -> Iterator[Any]:
    """For ``mapInArrow``: turns files, as (path, content), into rows of ``journal_corrupt``."""
    for files in batches:
        for number in range(files.num_rows):
            path, content = files.column(0)[number].as_py(), files.column(1)[number].as_buffer()
            for each in parse_segment_lines(content):
                if isinstance(each, CorruptLine):
                    yield pa.RecordBatch.from_pylist([corrupt_row(path, each, batch)], _CORRUPT)


def corrupt_row(path: str, corrupt: CorruptLine, batch: str) -> dict[str, Any]:
    """The row of ``journal_corrupt`` for a corrupt line of the file ``path``."""
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
