"""What became of every message of a run: the pieces that its tasks have written, and the dataset ``ledger`` of them.

``ledger/v=1/_pieces/run=<run id>/`` holds the pieces, and ``_run.json``, which tells what the run is. They are the
truth until the run is done; a message may stand in several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from app.pipeline.storage.datasets import DatasetStore
from app.pipeline.storage.files import FileStatus
from app.pipeline.storage.schemas import LEDGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RUN = "_run.json"


class RunRecord(msgspec.Struct, frozen=True):
    """What a run is. ``options``: those that its id is made of; ``inputs``: their digest; ``started_at``: Unix ms.

    ``unsure_since``: the last sign of life of the first try that did not end with nothing left, Unix ms; None of the
    first. What that one sent at its end, a later one may not have come to. ``places``: the URLs of its inputs.
    """

    run_id: str
    job: str
    options: dict[str, Any]
    inputs: str
    started_at: int
    unsure_since: int | None = None
    places: list[str] | None = None


class Ledger:
    """The ledgers below a store's root."""

    def __init__(self, store: DatasetStore) -> None:
        self._store = store
        self._home = f"{store.folder(LEDGER.name)}/_pieces"

    def pieces(self, run: str) -> str:
        """The URL of the folder that takes a run's pieces."""
        return f"{self._home}/run={run}"

    def target(self, run: str) -> str:
        """The same folder as tasks find it: Hadoop's URLs of local paths are not encoded, and others' are."""
        url = self.pieces(run)
        return Path(url.removeprefix("file:")).as_uri() if self._store.files.is_local else url

    def begun(self, run: str) -> RunRecord | None:
        """A run that was begun and is not done."""
        content = self._store.files.read(f"{self.pieces(run)}/{_RUN}")
        return None if content is None else msgspec.json.decode(content, type=RunRecord)

    def others(self) -> list[RunRecord]:
        """All runs that were begun and are not done."""
        names = (each.url.rpartition("run=")[2] for each in self._store.files.list(self._home))
        return [run for run in map(self.begun, names) if run is not None]

    def begin(self, run: RunRecord) -> None:
        """Write down what a run is, before it sends anything."""
        self._store.files.make_folder(self.pieces(run.run_id))
        self._store.files.write(f"{self.pieces(run.run_id)}/{_RUN}", msgspec.json.encode(run))

    def lines(self, run: str) -> DataFrame:
        """One row for each message that the run's pieces tell of: the best that was told."""
        from pyspark.sql import functions as f

        spark = self._store.spark
        if not self._files(run):
            return spark.createDataFrame([], LEDGER.ddl)
        rank = f.array_position(
            f.array(*map(f.lit, ("accepted", "replayed", "rejected", "unknown", "left"))), f.col("status")
        )
        # The first that was accepted; of what is unknown or left the last, whose key counts.
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
        """When a task of the run last wrote something down, Unix ms; None: never."""
        return max((each.modified_at for each in self._files(run)), default=None)

    def publish(self, run: str, rows: int, facts: dict[str, Any], done: bool) -> dict[str, Any]:
        """Make the dataset of the pieces, which are gone afterwards when the run is ``done``. Its manifest."""
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


def overlap(places: Sequence[str], others: Sequence[str] | None) -> bool:
    """Whether one of them is one of the others, or lies below it; None: nobody knows, which may be so."""
    return others is None or any(
        f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/") for one in places for other in others
    )


def counts_by_status(rows: Sequence[Any]) -> dict[str, int]:
    """Counts by status, of rows (status, …, count)."""
    counts = dict.fromkeys(("accepted", "replayed", "rejected", "unknown", "left"), 0)
    for row in rows:
        counts[row["status"]] += row["n"]
    return counts
