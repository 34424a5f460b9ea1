"""The ledger of a run: the outcome of every message. Tasks write pieces of it, and the driver merges them.

``ledger/v=1/_pieces/run=<run id>/`` contains the pieces, and ``_run.json``, which describes the run. The pieces are
authoritative until the run is done. A message may be in several pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore
from babelgate.pipeline.storage.files import FileStatus
from babelgate.pipeline.storage.schemas import LEDGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RUN = "_run.json"


class RunRecord(msgspec.Struct, frozen=True):
    """Describes a run. ``options``: those in its id; ``inputs``: digest of its inputs; ``started_at``: Unix ms.

    ``unsure_since``: the last activity of the first attempt that left messages unsent, Unix ms; None in the first
    attempt. Outcomes from just before that time may be missing in the ledger. ``places``: URLs of the inputs.
    """

    run_id: str
    job: str
    options: dict[str, Any]
    inputs: str
    started_at: int
    unsure_since: int | None = None
    places: list[str] | None = None


class Ledger:
    """The ledgers below the root of a store."""

    def __init__(self, store: DatasetStore) -> None:
        self._store = store
        self._home = _home(store)

    def pieces(self, run: str) -> str:
        """The URL of the folder of a run's pieces."""
        return pieces(self._store, run)

    def target(self, run: str) -> str:
        """The same folder as Arrow reads it in tasks: Hadoop does not percent-encode URLs of local paths."""
        url = self.pieces(run)
        return Path(url.removeprefix("file:")).as_uri() if self._store.files.is_local else url

    def begun(self, run: str) -> RunRecord | None:
        """The record of a run that has begun and is not done; else None."""
        content = self._store.files.read(f"{self.pieces(run)}/{_RUN}")
        return None if content is None else msgspec.json.decode(content, type=RunRecord)

    def others(self) -> list[RunRecord]:
        """All runs that have begun and are not done."""
        names = (each.url.rpartition("run=")[2] for each in self._store.files.list(self._home))
        return [run for run in map(self.begun, names) if run is not None]

    def begin(self, run: RunRecord) -> None:
        """Store the record of a run, before it sends anything."""
        self._store.files.make_folder(self.pieces(run.run_id))
        self._store.files.write(f"{self.pieces(run.run_id)}/{_RUN}", msgspec.json.encode(run))

    def lines(self, run: str) -> DataFrame:
        """One row per message in the run's pieces: the best outcome of each."""
        from pyspark.sql import functions as f

        spark = self._store.spark
        if not self._files(run):
            return spark.createDataFrame([], LEDGER.ddl)
        rank = f.array_position(
            f.array(*map(f.lit, ("accepted", "replayed", "rejected", "unknown", "left"))), f.col("status")
        )
        # The first row if accepted; the last row if unknown or left, because it has the latest key.
        order = f.struct(rank, f.when(rank <= 2, f.col("at")).otherwise(-f.col("at")))
        identity = ("run_id", "message_id", "target_queue")
        rest = [name for name in LEDGER.columns if name not in identity]
        best = (
            spark.read.schema(LEDGER.ddl)
            .parquet(self.pieces(run))
            .groupBy(*identity)
            .agg(f.min_by(f.struct(*rest), order).alias("best"))
        )
        return best.select(*identity, "best.*").select(*LEDGER.columns)

    def last_at(self, run: str) -> int | None:
        """The time of the newest piece of a run, Unix ms; None if there is none."""
        return max((each.modified_at for each in self._files(run)), default=None)

    def publish(self, run: str, rows: int, facts: dict[str, Any], done: bool) -> dict[str, Any]:
        """Write the dataset from the pieces, and remove these if the run is ``done``. Returns the manifest."""
        lines = self.lines(run).coalesce(1 + rows // 1_000_000)
        self._store.write(lines, LEDGER.name, run)
        manifest = self._store.publish([LEDGER.name], run, {**facts, "done": done})
        if done:
            self._store.files.remove(self.pieces(run))
        return manifest

    def _files(self, run: str) -> list[FileStatus]:
        listed = self._store.files.list(self.pieces(run))
        return [
            each for each in listed if each.url.endswith(".parquet") and not each.url.rpartition("/")[2].startswith(".")
        ]


def pieces(reader: DatasetReader, run: str) -> str:
    """The URL of the folder of a run's pieces."""
    return f"{_home(reader)}/run={run}"


def _home(reader: DatasetReader) -> str:
    return f"{reader.folder(LEDGER.name)}/_pieces"


def overlap(places: Sequence[str], others: Sequence[str] | None) -> bool:
    """Whether a URL of one list equals or contains one of the other list. True if ``others`` is None, unknown."""
    return others is None or any(
        f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/") for one in places for other in others
    )


def counts_by_status(rows: Sequence[Any]) -> dict[str, int]:
    """Counts by status, from rows (status, …, n)."""
    counts = dict.fromkeys(("accepted", "replayed", "rejected", "unknown", "left"), 0)
    for row in rows:
        counts[row["status"]] += row["n"]
    return counts
