"""The job ``ingest``: a Spark stream that turns landed segments into rows of ``journal``, each record once."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.commits import IngestedState
from babelgate.pipeline.journal.ingest_batch import BatchWriter, LandedFile, Totals, escape_glob
from babelgate.pipeline.journal.ingest_unchanged import ENDINGS, ingested_already
from babelgate.pipeline.journal.reader import gaps
from babelgate.pipeline.spark.console import progress, say, summarize
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetStore, run_id
from babelgate.pipeline.storage.files import Files
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_GAPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMES = "*.ndjson{,.gz,.zst}"
_FILE = "path string, modificationTime timestamp, length bigint, content binary"
_LISTED = "path", "unix_millis(modificationTime) as modified_at", "length"
_FOREVER = "36500d"
"""Spark's file source ignores files older than the newest by more than this; its default is a week."""


def ingest(
    launch: Launch,
    landing: str,
    output: str,
    interval_seconds: float | None = None,
    max_files: int = 1000,
    checkpoint: str | None = None,
    committed: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run the job and print its result. Returns the facts of the summary.

    ``interval_seconds``: seconds between batches of an endless run; None: read what has landed and end. ``max_files``:
    segments per batch. ``committed``: called after each batch of an endless run. Raises UsageError for a missing
    landing folder, JobFailed.
    """
    _check(landing, must_have=interval_seconds is None)
    began = time.monotonic()
    known = ingested_already(landing, output) if interval_seconds is None else None
    if known is not None:
        say("ingest: nothing new has landed")
        folder, root = (f"file:{ArrowFiles(each).root}" for each in (landing, output))
        return _finish(launch, began, _facts(folder, root, Totals(), known))
    with launch.spark("ingest") as spark:
        landed = Files(spark, landing)
        if not landed.is_folder(landing):
            raise click.UsageError(f"{landing}: there is no such folder")
        store = DatasetStore(spark, output)
        home = store.folder(JOURNAL.name)
        place = checkpoint or f"{home}/_checkpoint"
        with exclusive_lock(store.files, store.lock("ingest"), "ingest"):
            job = _IngestJob(store, landed.qualified(landing), place, max_files, committed)
            with progress(spark, "ingest") if interval_seconds is None else nullcontext():
                job.reread_damaged()
                job.stream(interval_seconds)
            facts = job.finish()
    return _finish(launch, began, facts)


def _finish(launch: Launch, began: float, facts: dict[str, Any]) -> dict[str, Any]:
    facts["seconds"] = round(time.monotonic() - began, 3)
    summarize(launch.summary, facts)
    _print_result(facts)
    return facts


def _facts(landing: str, root: str, totals: Totals, known: IngestedState) -> dict[str, Any]:
    """The facts of the summary."""
    missing = _missing_counts(gaps(known))
    return {
        "job": "ingest",
        "landing": landing,
        "root": root,
        **asdict(totals),
        "journal": {
            "records": known.records,
            "processes": len(known.seqs),
            "damaged_files": len(known.damaged),
            **missing,
            "at_least": any(missing.values()),
        },
    }


def _missing_counts(rows: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    counts = {"lost": 0, "in_holes": 0}
    for kind, *_, records, _, _ in rows:
        if kind != "open_end":
            counts["lost" if kind == "lost" else "in_holes"] += records
    return counts


class _IngestJob:
    def __init__(
        self, store: DatasetStore, landing: str, checkpoint: str, max_files: int, committed: Callable[[], None] | None
    ) -> None:
        self._committed = committed
        self._store = store
        self._spark: SparkSession = store.spark
        self._landing = landing
        self._checkpoint = checkpoint
        self._max_files = max_files
        self._ingest = BatchWriter(store)
        self._query: str | None = None
        self._error: BaseException | None = None
        self._is_continuous = False

    def reread_damaged(self) -> None:
        """Read damaged files again that have changed. The stream itself reads every path once."""
        changed = self._ingest.changed([landed for url in self._ingest.known.damaged for landed in self._listed(url)])
        if changed:
            made_of = hashlib.sha256(repr(changed).encode()).hexdigest()[:16]
            self._ingest.batch(f"mended-{made_of}-{time.time_ns()}", changed)

    def _listed(self, url: str) -> list[LandedFile]:
        """The file, if it exists. It may be on another file system than the root."""
        files = Files(self._spark, url)
        if not files.exists(url):
            return []
        return [LandedFile(each.url, each.size, each.modified_at) for each in files.walk(url)]

    def stream(self, interval_seconds: float | None) -> None:
        """Read new segments until a stop signal, or with None until all are read.

        Raises JobFailed if, with None, a signal came before all were read.
        """
        self._is_continuous = interval_seconds is not None
        files = (
            self._spark.readStream.format("binaryFile")
            .schema(_FILE)
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", _NAMES)
            .option("maxFilesPerTrigger", str(self._max_files))
            .option("maxFileAge", _FOREVER)
            .option("ignoreMissingFiles", "true")
            .load(escape_glob(self._landing))
            .selectExpr(*_LISTED)
        )
        writer = files.writeStream.foreachBatch(self._batch).option("checkpointLocation", self._checkpoint)
        if interval_seconds is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_seconds} seconds")
        query = writer.start()
        try:
            with _stop_signals() as stopping:
                while not (ended := query.awaitTermination(1)) and not stopping.is_set():
                    pass
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            query.stop()
        if not (ended or self._is_continuous):
            raise JobFailed("Stopped before everything was read. Start the same command again to continue.")

    def finish(self) -> dict[str, Any]:
        """Publish ``journal_gaps``, and return the facts of the summary."""
        self._publish_gaps()
        return _facts(self._landing, self._store.root, self._ingest.totals, self._ingest.known)

    def _batch(self, listed: DataFrame, number: int) -> None:
        try:
            files = [LandedFile(row["path"], row["length"], row["modified_at"]) for row in listed.collect()]
            made = self._ingest.batch(f"{self._query_id()}-{number:08d}", files)
            if self._is_continuous:
                self.reread_damaged()
                self._publish_gaps()
                if self._committed is not None:
                    self._committed()
                say(f"ingest: batch {number}: {_totals_text(made)}")
        except BaseException as error:
            self._error = error
            raise

    def _query_id(self) -> str:
        """The id of the stream. A stream whose checkpoint was lost gets another id, and numbers its batches from 0."""
        if self._query is None:
            content = self._store.files.read(f"{self._checkpoint}/metadata")
            if content is None:
                raise JobFailed(f"{self._checkpoint} has no metadata")
            self._query = json.loads(content)["id"].replace("-", "")[:12]
        return self._query

    def _publish_gaps(self) -> None:
        rows = list(gaps(self._ingest.known))
        run = run_id("gaps", rows, {})
        if self._store.completed([JOURNAL_GAPS.name], run) is None:
            frame = self._spark.createDataFrame(rows, JOURNAL_GAPS.ddl).coalesce(1)
            self._store.write(frame, JOURNAL_GAPS.name, run)
            self._store.publish([JOURNAL_GAPS.name], run, {"job": "ingest", "counts": _missing_counts(rows)})


def _check(landing: str, must_have: bool) -> None:
    """Raise UsageError for a missing local folder; with ``must_have`` warn of one without segments. Needs no Spark."""
    if "://" in landing or landing.startswith("file:"):
        return
    if not Path(landing).is_dir():
        raise click.UsageError(f"{landing}: there is no such folder")
    if must_have and not any(file.name.endswith(ENDINGS) for file in Path(landing).rglob("*")):
        say(
            f"warning: {landing}: no closed segment of a journal is in it. Is it the gateway's journal.landing? "
            "A segment is closed after journal.segment_seconds."
        )


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set during the block."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _totals_text(made: Totals) -> str:
    words = [f"{made.records} records of {made.files} files"]
    if made.duplicates or made.skipped_files:
        words.append(f"{made.duplicates} records and {made.skipped_files} files that were there already")
    if made.corrupt:
        words.append(f"{made.corrupt} that are no records")
    return ", ".join(words)


def _print_result(facts: dict[str, Any]) -> None:
    journal = facts["journal"]
    made = Totals(**{name: facts[name] for name in asdict(Totals())})
    click.echo(f"Ingested {_totals_text(made)}, in {made.batches} batches.")
    at_least = "at least " if journal["at_least"] else ""
    click.echo(f"journal: {at_least}{journal['records']} records of {journal['processes']} processes")
    if journal["at_least"]:
        click.echo(f"  missing: {journal['lost']} that the gateway lost, {journal['in_holes']} that never landed")
    if journal["damaged_files"]:
        click.echo(f"  {journal['damaged_files']} files could not be read whole: see journal_corrupt")
