"""Reads landed journal segments as a Spark data source: all at once, or as a stream that reads each once.

Segments are identified by name, so one that landed twice is read once. An offset lists the segment numbers read of each
process, such as ``{"node-epoch": "1-17,19"}``. Segments that land late are therefore not skipped, and two offsets
always delimit the same segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from babelgate.observe.journal.record import Segment, parse_segment
from babelgate.pipeline.journal.ranges import Ranges
from babelgate.pipeline.journal.segment_lines import CorruptLine, parse_segment_lines
from babelgate.pipeline.journal.tasks import FileReport, journal_rows
from babelgate.pipeline.storage.input_files import InputFile, find, locate
from babelgate.pipeline.storage.schemas import JOURNAL, ddl
from babelgate.privacy.body_keys import opened, opened_headers, why
from babelgate.privacy.ciphers import BodyCipher, BodyKey, BodyUnreadable

RECORDS = {name: kind for name, kind in JOURNAL.columns.items() if name != "ingest_batch"}
"""The columns of ``journal`` except ``ingest_batch``, which only the job ``ingest`` sets."""
SCHEMA = ddl(RECORDS)

_IN_CLEAR = ("envelope", "envelope_encrypted", "headers", "ordering_key", "headers_encrypted")
_SHARE_BYTES = 16 * 1024 * 1024
Offset = dict[str, str]


class RecordReading(NamedTuple):
    """How records are read. ``body_keys``: id and secret of the keys of encrypted bodies; none: those stay encrypted.

    ``skip_corrupt``: corrupt lines are skipped, and bodies that no key opens stay encrypted; otherwise both fail.
    """

    skip_corrupt: bool = False
    body_keys: tuple[tuple[str, bytes], ...] = ()


class SegmentPartition(InputPartition):
    """The segments that one task reads."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)


class JournalReader(DataSourceReader):
    """Reads all landed segments."""

    def __init__(self, path: str, reading: RecordReading) -> None:
        self._path = path
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        """Groups small segments into one partition."""
        return _shared(landed_segments(self._path).values())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the records as Arrow batches. Raises ValueError for a corrupt line, unless those are skipped."""
        assert isinstance(partition, SegmentPartition)
        return _records(partition.urls, self._reading)


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams segments as they land, at most ``max_segments`` per batch, the oldest first."""

    def __init__(self, path: str, max_segments: int, reading: RecordReading) -> None:
        self._path = path
        self._max_segments = max_segments
        self._reading = reading
        self._until: frozenset[Segment] | None = None

    def initialOffset(self) -> Offset:
        """The offset before the first segment."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``max_segments`` per batch."""
        return ReadMaxFiles(self._max_segments)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the segments of this query; those that land later are left to the next one."""
        self._until = frozenset(landed_segments(self._path))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """``start`` plus the next landed segments."""
        read = _ranges(start)
        new = [each for each in landed_segments(self._path) if not _is_read(each, read)]
        if self._until is not None:
            new = [each for each in new if each in self._until]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        elif not isinstance(limit, ReadAllAvailable):
            new = new[: self._max_segments]
        for each in new:
            read.setdefault(each.owner, Ranges()).add(each.number, 0)
        return {owner: _text(ranges) for owner, ranges in sorted(read.items())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The segments between two offsets. Raises FileNotFoundError if one no longer exists."""
        before, after = _ranges(start), _ranges(end)
        existing = {each: file for each, file in landed_segments(self._path).items() if _is_read(each, after)}
        wanted = {each: file for each, file in existing.items() if not _is_read(each, before)}
        missing = sum(map(len, after.values())) - sum(map(len, before.values())) - len(wanted)
        if missing:
            raise FileNotFoundError(f"{missing} segments of the batch to repeat no longer exist in {self._path}")
        return _shared(wanted.values())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """As :meth:`JournalReader.read`."""
        assert isinstance(partition, SegmentPartition)
        return _records(partition.urls, self._reading)


def landed_segments(path: str) -> dict[Segment, InputFile]:
    """The segments below ``path``, each once: sorted by start of the process, node and number."""
    files = ((parse_segment(file.url.rpartition("/")[2]), file) for file in find(path))
    named = {segment: file for segment, file in files if segment is not None and not file.url.endswith(".open")}
    return dict(sorted(named.items(), key=lambda each: (each[0].epoch, each[0].node, each[0].number)))


def _shared(files: Iterable[InputFile]) -> list[InputPartition]:
    tasks: list[InputPartition] = []
    pending: list[str] = []
    size = 0
    for file in files:
        pending.append(file.url)
        size += file.size
        if size >= _SHARE_BYTES:
            tasks.append(SegmentPartition(pending))
            pending, size = [], 0
    return [*tasks, SegmentPartition(pending)] if pending else tasks


def _records(urls: Sequence[str], reading: RecordReading) -> Iterator[Any]:
    for url in urls:
        system, path = locate(url)
        with system.open_input_file(path) as file:
            content = file.read()
        reports: list[dict[str, FileReport]] = []
        files = pa.RecordBatch.from_pydict({"path": [url], "content": pa.array([content], pa.binary())})
        for rows in journal_rows([files], {}, reports.append, ""):
            records = rows.select(list(RECORDS))
            yield _in_clear(records, url, reading) if reading.body_keys else records
        if reports[0][url].corrupt and not reading.skip_corrupt:
            first = next(each for each in parse_segment_lines(pa.py_buffer(content)) if isinstance(each, CorruptLine))
            place = f"{url}, byte {first.at}: {first.reason}: {first.detail}"
            raise ValueError(f"{place} (the option corrupt=skip skips such lines)")


def _in_clear(rows: Any, url: str, reading: RecordReading) -> Any:
    """``rows`` with the bodies, headers and ordering keys decrypted. Raises ValueError for one that no key opens."""
    encrypted = rows.column("envelope_encrypted")
    if encrypted.null_count == len(encrypted):
        return rows
    cipher = BodyCipher([BodyKey(key, secret) for key, secret in reading.body_keys])
    columns = {name: rows.column(name).to_pylist() for name in _IN_CLEAR}
    bodies, stored, headers, keys, carried = columns.values()
    for at, (each, queue) in enumerate(zip(stored, rows.column("queue").to_pylist(), strict=True)):
        if each is None:
            continue
        try:
            bodies[at], stored[at] = opened(each, queue or "", cipher), None
            if carried[at] is not None:
                headers[at], keys[at] = opened_headers(carried[at], queue or "", cipher)
                carried[at] = None
        except BodyUnreadable as error:
            if not reading.skip_corrupt:
                place = f"{url}: a body of {queue}: {why(error)}"
                raise ValueError(f"{place} (the option corrupt=skip leaves such bodies encrypted)") from None
    for name, values in columns.items():
        column = rows.schema.get_field_index(name)
        rows = rows.set_column(column, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))
    return rows


def _is_read(segment: Segment, read: Mapping[str, Ranges]) -> bool:
    return segment.owner in read and segment.number in read[segment.owner]


def _ranges(offset: Offset) -> dict[str, Ranges]:
    return {owner: Ranges(_range(part) for part in text.split(",")) for owner, text in offset.items()}


def _range(text: str) -> tuple[int, int, int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first), 0, 0


def _text(ranges: Ranges) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last, _, _ in ranges)
