"""Writes the batches of ``ingest``: rows of files, each record once, then a commit that makes them readable."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from babelgate import __version__
from babelgate.pipeline.journal.commits import (
    Commit,
    CommitContent,
    DamagedFile,
    IngestedState,
    LostRecords,
    Owner,
    TopicPosition,
    read_whole,
    segment_of,
)
from babelgate.pipeline.journal.ranges import Ranges
from babelgate.pipeline.journal.reader import commit, now_ms, remove_leftover_batches, save, snapshot
from babelgate.pipeline.journal.segment_lines import CorruptLine
from babelgate.pipeline.journal.tasks import FileReport, FileReportsParam, corrupt_row, corrupt_rows, journal_rows
from babelgate.pipeline.storage.datasets import DatasetStore
from babelgate.pipeline.storage.files import Files
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LARGEST_BYTES = 128 * 1024 * 1024
"""The largest file that is read. A task keeps several copies of a file in memory, and Spark has 1 GB by default. The
gateway's own segments are far smaller."""
_KEY = ["node", "epoch", "seq"]


class LandedFile(NamedTuple):
    """A file in the landing folder: ``url`` as Spark spells it, ``size`` in bytes, ``modified_at`` in Unix ms."""

    url: str
    size: int
    modified_at: int


@dataclass
class Totals:
    """Counts of one batch, or of a run so far."""

    batches: int = 0
    files: int = 0
    skipped_files: int = 0
    damaged_files: int = 0
    records: int = 0
    duplicates: int = 0
    corrupt: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Totals)))


@dataclass
class _MergedReports:
    """The reports of all files of a batch, added up."""

    reports: Mapping[str, FileReport]
    seqs: dict[Owner, Ranges] = field(default_factory=dict)
    dates: dict[str, int] = field(default_factory=dict)
    lost: dict[tuple[str, str, int], LostRecords] = field(default_factory=dict)
    records: int = 0

    def __post_init__(self) -> None:
        for report in self.reports.values():
            self.records += report.records
            self.lost |= {lost[:3]: lost for lost in report.lost}
            for day, count in report.dates.items():
                self.dates[day] = self.dates.get(day, 0) + count
            for owner, ranges in report.seqs.items():
                seqs = self.seqs.setdefault(owner, Ranges())
                for each in ranges:
                    seqs.add_range(each)

    @property
    def repeated(self) -> int:
        """The number of records that came again from another file of the batch."""
        return self.records - sum(map(len, self.seqs.values()))


class BatchWriter:
    """Writes batches below the store's root. The caller owns the lock of ``ingest``; calls must not overlap."""

    def __init__(self, store: DatasetStore) -> None:
        self.known = IngestedState()
        self.totals = Totals()
        self._store = store
        self._done: set[str] = set()
        found = snapshot(store)
        self._done = {*found.compacted.merged, *(each.batch for each in found.batches)}
        self.known = found.known()
        self._newest_at = found.newest_at()
        remove_leftover_batches(store, found)

    def batch(self, name: str, files: Sequence[LandedFile]) -> Totals:
        """Ingest ``files`` as the batch ``name`` and return its counts. Does nothing if that batch exists."""
        if name in self._done:
            return Totals()
        fresh = [file for file in files if not self.known.has(file.url)]
        return self._write_batch(name, fresh, len(files) - len(fresh), self._content_of, None)

    def messages(self, name: str, messages: Mapping[str, bytes], position: TopicPosition) -> Totals:
        """Ingest messages of a topic, by where they were, as the batch ``name``, and return its counts.

        The commit keeps ``position``, which is behind them.
        """
        read = [LandedFile(url, len(content), 0) for url, content in messages.items()]
        return self._write_batch(name, read, 0, partial(self._held, messages), position)

    def _write_batch(
        self,
        name: str,
        fresh: Sequence[LandedFile],
        skipped: int,
        content_of: Callable[[Collection[str]], DataFrame | None],
        position: TopicPosition | None,
    ) -> Totals:
        reports = self._too_large(fresh)
        wanted = [file for file in fresh if file.url not in reports]
        # Each attempt has its own folder, so that a killed attempt that still writes cannot disturb it.
        folder = f"batch={name}.{uuid.uuid4().hex[:8]}"
        found = _MergedReports(self._write(content_of([file.url for file in wanted]), folder, name))
        reports |= found.reports
        if found.repeated:
            folder, found.dates = self._once(folder, found)
        for file in wanted:
            reports.setdefault(file.url, FileReport(corrupt=1, damage="missing_file"))
        corrupt = self._write_corrupt(fresh, reports, folder, name, content_of)
        # A message never changes, so that a damaged one is not read again.
        content = self._content(fresh if position is None else [], reports, found)
        if position is not None:
            content = structs.replace(content, topics=[position])
        rows = sum(found.dates.values())
        # Commits are read in this order, also where the clock was set back, or is another one.
        self._newest_at = max(now_ms(), self._newest_at + 1)
        commit(
            self._store,
            Commit(
                batch=name,
                committed_at=self._newest_at,
                folder=folder if rows else None,
                corrupt_folder=folder if corrupt else None,
                dates=found.dates,
                content=content,
            ),
        )
        self.known.add(content)
        self._done.add(name)
        made = Totals(
            batches=1,
            files=len(fresh),
            skipped_files=skipped,
            damaged_files=len(content.damaged),
            records=rows,
            duplicates=sum(report.duplicates for report in reports.values()) + found.repeated,
            corrupt=corrupt,
        )
        self.totals += made
        return made

    def changed(self, listed: Iterable[LandedFile]) -> list[LandedFile]:
        """Those of ``listed`` that were damaged when read, if the file or this program has changed since."""
        return [file for file in listed if self.known.is_changed(*file)]

    def _too_large(self, files: Iterable[LandedFile]) -> dict[str, FileReport]:
        large = (file.url for file in files if file.size > LARGEST_BYTES)
        return {url: FileReport(corrupt=1, damage="too_large_file") for url in large}

    def _write(self, content: DataFrame | None, folder: str, batch: str) -> dict[str, FileReport]:
        reports = self._store.spark.sparkContext.accumulator({}, FileReportsParam())
        known = {owner: list(seqs) for owner, seqs in self.known.seqs.items()}
        if content is None:
            return {}
        rows = content.mapInArrow(partial(journal_rows, known=known, report=reports.add, batch=batch), JOURNAL.ddl)
        save(self._store, rows, JOURNAL.name, folder)
        return dict(reports.value)

    def _once(self, folder: str, found: _MergedReports) -> tuple[str, dict[str, int]]:
        """Write the rows of ``folder`` again, each record once; the new folder, and records per date."""
        spark, home = self._store.spark, self._store.folder(JOURNAL.name)
        frame = spark.read.schema(JOURNAL.ddl).parquet(f"{home}/{folder}").dropDuplicates(_KEY)
        save(self._store, frame, JOURNAL.name, f"{folder}-once")
        written = spark.read.schema(JOURNAL.ddl).parquet(f"{home}/{folder}-once")
        dates = {row["date"].isoformat(): row["count"] for row in written.groupBy("date").count().collect()}
        self._store.files.remove(f"{home}/{folder}")
        return f"{folder}-once", dates

    def _write_corrupt(
        self,
        files: Sequence[LandedFile],
        reports: Mapping[str, FileReport],
        folder: str,
        batch: str,
        content_of: Callable[[Collection[str]], DataFrame | None],
    ) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        spark = self._store.spark
        broken = [file for file in files if reports[file.url].corrupt]
        if not broken:
            return 0
        unread = {"too_large_file": f"It has more than {LARGEST_BYTES} bytes.", "missing_file": "It is gone."}
        rows = [
            corrupt_row(file.url, CorruptLine(0, damage, unread[damage], size=file.size), batch)
            for file in broken
            if (damage := reports[file.url].damage) in unread
        ]
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], JOURNAL_CORRUPT.ddl)
        content = content_of([file.url for file in broken if reports[file.url].damage not in unread])
        if content is not None:
            frame = frame.union(content.mapInArrow(partial(corrupt_rows, batch=batch), JOURNAL_CORRUPT.ddl))
        seen = Observation()
        save(self._store, frame.observe(seen, f.count("*").alias("rows")), JOURNAL_CORRUPT.name, folder)
        return int(seen.get["rows"])

    def _content(
        self, files: Sequence[LandedFile], reports: Mapping[str, FileReport], found: _MergedReports
    ) -> CommitContent:
        whole = [file.url for file in files if reports[file.url].damage is None]
        # A damaged file is ignored if another file of the same segment is intact.
        segments = {segment_of(url) for url in whole} - {None}
        damaged = [
            DamagedFile(file.url, file.size, file.modified_at, damage, __version__)
            for file in files
            if (damage := reports[file.url].damage) is not None and segment_of(file.url) not in segments
        ]
        processes, unnamed = read_whole(whole, found.seqs)
        return CommitContent(
            processes=processes,
            files=unnamed,
            damaged=damaged,
            mended=[url for url in self.known.damaged if url in whole or segment_of(url) in segments],
            lost=sorted(found.lost.values()),
        )

    def _held(self, messages: Mapping[str, bytes], urls: Collection[str]) -> DataFrame | None:
        """Messages that the driver holds as (path, content); None if there are none."""
        if not urls:
            return None
        frame = self._store.spark.createDataFrame(
            [(url, bytearray(messages[url])) for url in urls], "path string, content binary"
        )
        return frame.repartition(min(len(urls), self._store.spark.sparkContext.defaultParallelism))

    def _content_of(self, urls: Collection[str]) -> DataFrame | None:
        """The files that still exist as (path, content); None if there are none."""
        from pyspark.errors import AnalysisException

        reader = self._store.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        reader = reader.option("ignoreMissingFiles", "true")
        if not urls:
            return None
        try:
            frame = reader.load([escape_glob(url) for url in urls])
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            existing = [url for url in urls if Files(self._store.spark, url).exists(url)]
            if len(existing) == len(urls):
                raise
            return self._content_of(existing)
        return frame.select("path", "content")


def escape_glob(url: str) -> str:
    """``url`` with glob characters escaped, so that it matches only itself."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", url)
