"""Reads the ingested journal: its records at one moment, and which records are missing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec

from babelgate.observe.journal.record import Segment
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.commits import Commit, CommitContent, IngestedState
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, require
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_CORRUPT, JOURNAL_GAPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_RECORDS = 200_000
"""Up to this number of records, Spark costs less with the settings of a short job."""
_COMMITS = "_batches"
_BODIES = ("envelope", "envelope_encrypted", "headers_encrypted")
_WRITING = {
    # Bodies are nearly all different, so a dictionary and min/max statistics only cost memory.
    **{f"parquet.enable.dictionary#{column}": "false" for column in _BODIES},
    **{f"parquet.column.statistics.enabled#{column}": "false" for column in (*_BODIES, "headers")},
    # A search for an id then reads only the filters of the files that lack it. Their size follows the number of ids,
    # from 2 KiB to 1 MiB: https://parquet.apache.org/docs/file-format/bloomfilter/
    "parquet.bloom.filter.adaptive.enabled": "true",
    **{f"parquet.bloom.filter.enabled#{column}": "true" for column in ("message_id", "trace_id")},
    **{f"parquet.bloom.filter.candidates.number#{column}": "10" for column in ("message_id", "trace_id")},
}
_commit = msgspec.json.Decoder(Commit)


class CompactedDate(msgspec.Struct, frozen=True):
    """The compacted records of a date. ``folder``: relative to the folder of ``journal``."""

    folder: str
    rows: int


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction. ``parts``: by ISO date; ``corrupt``: folders of ``journal_corrupt``; ``merged``: the
    batches in them; ``retired``: folders that new readers no longer use. The values of both are Unix ms: since when.
    ``newest_at``: the latest ``committed_at`` of a merged batch, 0 if an earlier version did not keep it."""

    parts: dict[str, CompactedDate] = {}
    corrupt: list[str] = []
    merged: dict[str, int] = {}
    retired: dict[str, int] = {}
    newest_at: int = 0
    content: CommitContent = CommitContent()


class Snapshot:
    """The journal at one moment: the compacted part, and the batches since. It stays readable as long as ``compact``
    retains the folders it replaces (``--retain-hours``)."""

    def __init__(self, store: DatasetReader, run: str | None, compacted: Compacted, batches: list[Commit]) -> None:
        self.run = run
        """The run id of the compaction it is based on; None before the first."""
        self.compacted = compacted
        self.batches = batches
        """The batches that are not in ``compacted``, in the order of their commits."""
        self._store = store

    def known(self) -> IngestedState:
        """Everything that has been ingested."""
        known = IngestedState()
        known.add(self.compacted.content)
        for each in self.batches:
            known.add(each.content)
        return known

    def newest_at(self) -> int:
        """The latest ``committed_at`` of a batch; 0 before the first."""
        return max(self.compacted.newest_at, *(each.committed_at for each in self.batches), 0)

    def dates(self) -> dict[str, int]:
        """The number of records of each date, by ISO date, sorted."""
        rows = {day: part.rows for day, part in self.compacted.parts.items()}
        for batch in self.batches:
            for day, count in batch.dates.items():
                rows[day] = rows.get(day, 0) + count
        return dict(sorted(rows.items()))

    def folders(self, dates: Collection[str] | None = None) -> list[str]:
        """The URLs of the folders with the records of ``dates``; None: all. Batches may also contain other dates."""
        parts = [part.folder for day, part in self.compacted.parts.items() if dates is None or day in dates]
        batches = [
            each.folder
            for each in self.batches
            if each.folder is not None and (dates is None or not each.dates.keys().isdisjoint(dates))
        ]
        return [f"{self._store.folder(JOURNAL.name)}/{folder}" for folder in (*parts, *batches)]

    def records(self, dates: Collection[str] | None = None) -> DataFrame:
        """The records of ``dates`` (None: all), each once, with the columns of ``journal``."""
        from pyspark.sql import functions as f

        frame = self._read(self.folders(dates), JOURNAL.ddl)
        return frame if dates is None else frame.where(f.col("date").isin([date.fromisoformat(day) for day in dates]))

    def corrupt(self) -> DataFrame:
        """The corrupt lines, each once, also if a damaged file was read more than once."""
        folders = [*self.compacted.corrupt, *(each.corrupt_folder for each in self.batches if each.corrupt_folder)]
        home = self._store.folder(JOURNAL_CORRUPT.name)
        frame = self._read([f"{home}/{folder}" for folder in folders], JOURNAL_CORRUPT.ddl)
        return frame.dropDuplicates(["src_file", "src_at", "reason", "raw_sha256"])

    def missing(self) -> DataFrame:
        """The missing records, as rows of ``journal_gaps``."""
        return self._spark().createDataFrame(list(gaps(self.known())), JOURNAL_GAPS.ddl)

    def _spark(self) -> SparkSession:
        if not isinstance(self._store, DatasetStore):
            raise TypeError("this snapshot was taken without Spark")
        return self._store.spark

    def _read(self, folders: list[str], ddl: str) -> DataFrame:
        spark = self._spark()
        if not folders:
            return spark.createDataFrame([], ddl)
        # Columns come from the files alone, not from folder names.
        return spark.read.schema(ddl).option("recursiveFileLookup", "true").parquet(*folders)


def snapshot(store: DatasetReader) -> Snapshot:
    """The journal below the store's root as it is now; empty before the first batch."""
    # Where replacing a file is not atomic, a killed process may have left no CURRENT file: see Files.write.
    run = store.current(JOURNAL.name) or store.newest(JOURNAL.name)
    compacted = Compacted()
    if run is not None:
        compacted = msgspec.convert((store.manifest(JOURNAL.name, run) or {})["compacted"], Compacted)
    # A later batch may complete a damaged file of an earlier one, so the order matters.
    batches = sorted(_commits(store, compacted.merged), key=lambda each: (each.committed_at, each.batch))
    return Snapshot(store, run, compacted, batches)


INGEST_FIRST = "run `babelgate pipeline ingest` first"


def has_few_records(root: str) -> bool:
    """Whether the journal below the local folder ``root`` has at most :data:`FEW_RECORDS`, without starting Spark."""
    reader = DatasetReader.of_local(root)
    return reader is not None and sum(snapshot(reader).dates().values()) <= FEW_RECORDS


def require_journal(root: str) -> None:
    """Raise JobFailed, without starting Spark, if nothing was ever ingested below ``root``."""
    require(root, JOURNAL.name, INGEST_FIRST)


def existing(spark: SparkSession, root: str) -> Snapshot:
    """The journal below ``root`` as it is now. Raises JobFailed if nothing was ever ingested."""
    return existing_in(DatasetStore(spark, root))


def existing_in(store: DatasetReader) -> Snapshot:
    """The journal below the store's root as it is now. Raises JobFailed if nothing was ever ingested."""
    found = snapshot(store)
    if found.run is None and not found.batches:
        raise JobFailed(f"{store.root} has no dataset journal: {INGEST_FIRST}")
    return found


def read_journal(spark: SparkSession, root: str, dates: Collection[str] | None = None) -> DataFrame:
    """The records of the journal below ``root``, each once; of ``dates`` (ISO 8601), or all.

    Use one :class:`Snapshot` for several queries that must agree. Raises JobFailed if nothing was ever ingested.
    """
    return existing(spark, root).records(dates)


def read_missing(spark: SparkSession, root: str) -> DataFrame:
    """The records missing from :func:`read_journal`, as rows of ``journal_gaps``. With a row ``lost`` or ``hole`` every
    count over the journal is a lower bound. Raises JobFailed if nothing was ever ingested."""
    return existing(spark, root).missing()


def gaps(known: IngestedState) -> Iterator[tuple[Any, ...]]:
    """Yields rows of ``journal_gaps``: lost records, holes, and the last record of each process."""
    for lost in sorted(known.lost):
        yield "lost", lost.node, lost.epoch, lost.seq, lost.seq, lost.records, lost.first_lost_at, lost.last_lost_at
    for (node, epoch), seqs in sorted(known.seqs.items(), key=lambda each: each[0]):
        for first, last, from_at, to_at in seqs.holes():
            since = _started_at(epoch) if from_at is None else from_at
            yield "hole", node, epoch, first, last, last - first + 1, since, to_at
        *_, (_, last, _, last_at) = seqs
        yield "open_end", node, epoch, last + 1, None, None, last_at, None


def _started_at(epoch: str) -> int | None:
    """The start time of a process, Unix ms; None if its epoch has another format."""
    try:
        return Segment("", epoch, 1).started_at
    except ValueError:
        return None


def commit(store: DatasetStore, made: Commit) -> None:
    """Write the commit of a batch, which makes it readable."""
    store.files.write(_url(store, made.batch), msgspec.json.encode(made))


def save(store: DatasetStore, frame: DataFrame, dataset: str, folder: str) -> None:
    """Write rows to a folder of a dataset that no reader uses yet."""
    frame.write.mode("overwrite").options(**_WRITING).parquet(f"{store.folder(dataset)}/{folder}")


def folders_of(store: DatasetReader, batch: str) -> list[tuple[str, str]]:
    """The folders of a batch as (dataset, folder); empty if it has no commit."""
    content = store.files.read(_url(store, batch))
    if content is None:
        return []
    made = _commit.decode(content)
    folders = (JOURNAL.name, made.folder), (JOURNAL_CORRUPT.name, made.corrupt_folder)
    return [(dataset, folder) for dataset, folder in folders if folder is not None]


def remove_commit(store: DatasetReader, batch: str) -> None:
    """Remove the commit of a batch that was compacted."""
    store.files.remove(_url(store, batch))


def committed(store: DatasetReader) -> list[str]:
    """The names of all committed batches."""
    listed = store.files.list(f"{store.folder(JOURNAL.name)}/{_COMMITS}")
    names = (each.url.rpartition("/")[2] for each in listed)
    return [name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")]


def remove_leftover_batches(store: DatasetReader, found: Snapshot) -> None:
    """Remove folders of batches without a commit. The caller owns the lock of ``ingest``, and then took ``found``."""
    named = {folder for each in found.batches for folder in (each.folder, each.corrupt_folder)}
    for dataset in (JOURNAL.name, JOURNAL_CORRUPT.name):
        for each in store.files.list(store.folder(dataset)):
            name = each.url.rstrip("/").rpartition("/")[2]
            is_merged = name.removeprefix("batch=").rpartition(".")[0] in found.compacted.merged
            if name.startswith("batch=") and name not in named and not is_merged:
                store.files.remove(each.url)


def now_ms() -> int:
    """The current time, Unix ms."""
    return time.time_ns() // 1_000_000


def _url(store: DatasetReader, batch: str) -> str:
    return f"{store.folder(JOURNAL.name)}/{_COMMITS}/{batch}.json"


def _commits(store: DatasetReader, merged: Collection[str]) -> Iterator[Commit]:
    for name in committed(store):
        content = None if name in merged else store.files.read(_url(store, name))
        # None: compact has removed the commit meanwhile, because it is in an older compaction.
        if content is not None:
            yield _commit.decode(content)
