"""The job ``ingest``: a Spark stream that turns landed segments into rows of ``journal``, each record once."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.pipeline.continuous import Continuous, Service, serving, stop_signals
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.commits import IngestedState
from babelgate.pipeline.journal.ingest_batch import BatchWriter, LandedFile, Totals, escape_glob
from babelgate.pipeline.journal.ingest_unchanged import ENDINGS, as_spark_spells, has_landed_little, ingested_already
from babelgate.pipeline.journal.reader import gaps
from babelgate.pipeline.spark.console import progress, say
from babelgate.pipeline.spark.launch import Launch, check_running
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
    every: Continuous | None = None,
    max_files: int = 1000,
    checkpoint: str | None = None,
    committed: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Run the job and print its result. Returns the facts of the summary.

    ``every``: of an endless run; None: read what has landed and end. ``max_files``: segments per batch.
    ``committed``: called in an endless run before its stream begins, and after each batch. Raises UsageError for a
    missing landing folder, JobFailed.
    """
    _check(landing, must_have=every is None)
    began = time.monotonic()
    known = ingested_already(landing, output) if every is None else None
    if known is not None:
        say("ingest: nothing new has landed")
        folder, root = (as_spark_spells(files, files.root) for files in map(ArrowFiles, (landing, output)))
        return finish(launch, began, facts_of(folder, root, Totals(), known))
    with launch.spark("ingest", short=every is None and has_landed_little(landing)) as spark:
        landed = Files(spark, landing)
        if not landed.is_folder(landing):
            raise click.UsageError(f"{landing}: there is no such folder")
        store = DatasetStore(spark, output)
        home = store.folder(JOURNAL.name)
        place = checkpoint or f"{home}/_checkpoint"
        with exclusive_lock(store.files, store.lock("ingest"), "ingest"):
            job = _FolderJob(store, landed, landed.qualified(landing), place, max_files, committed)
            facts = job.run(every)
    return finish(launch, began, facts)


def finish(launch: Launch, began: float, facts: dict[str, Any]) -> dict[str, Any]:
    """Print the result, and write and return its ``facts``. ``began``: by the monotonic clock."""
    facts["seconds"] = round(time.monotonic() - began, 3)
    launch.summarize(facts)
    _print_result(facts)
    return facts


def facts_of(landing: str, root: str, totals: Totals, known: IngestedState) -> dict[str, Any]:
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


class IngestJob(ABC):
    """What both kinds of ``ingest`` share: how they go on after a failure, and what follows a batch.

    ``place``: where the records come from, without passwords. The caller owns the lock of ``ingest``.
    """

    def __init__(self, store: DatasetStore, place: str, committed: Callable[[], object] | None) -> None:
        self._store = store
        self._place = place
        self._committed = committed
        self._ingest = BatchWriter(store)
        self._service: Service | None = None
        self._is_behind = False
        self._has_failed = False

    @abstractmethod
    def _read(self, is_stopping: Callable[[], bool]) -> bool:
        """Read what there is, and in an endless run what comes, until ``is_stopping``. Returns whether all was read."""

    @abstractmethod
    def _check_places(self) -> None:
        """Raise JobFailed if what the job reads or writes is gone."""

    def run(self, every: Continuous | None) -> dict[str, Any]:
        """Read what there is, or with ``every`` what comes until a stop signal. Returns the facts of the summary.

        Raises as :meth:`serve`, and JobFailed if without ``every`` a stop signal came before all was read.
        """
        if every is None:
            with progress(self._store.spark, "ingest"):
                self._read_all()
        else:
            with serving("ingest", every) as service:
                self.serve(service)
        return self._finish()

    def _read_all(self) -> None:
        with stop_signals() as stop:
            if not self._read(stop.is_set):
                raise JobFailed("Stopped before everything was read. Start the same command again to continue.")

    def serve(self, service: Service) -> None:
        """Read what is new until a stop signal. Raises as :meth:`Service.repeat`, and SparkEnded."""
        self._service = service
        # A process that was killed may have left out what follows its last batch.
        self._is_behind = True
        service.repeat(self._attempt, lambda: check_running(self._store.spark))

    def _attempt(self) -> None:
        has_failed, self._has_failed = self._has_failed, True
        self._check_places()
        if has_failed:
            # A batch may have been committed although it failed, so what is known is read again.
            totals, self._ingest = self._ingest.totals, BatchWriter(self._store)
            self._ingest.totals, self._is_behind = totals, True
        assert self._service is not None
        service = self._service
        self._read(lambda: service.is_stopping)
        self._has_failed = False

    def _catch_up(self) -> None:
        """Do what follows batches, if a former attempt or process may have left it out."""
        if self._is_behind:
            self._follow()
        self._is_behind = False

    def _follow(self) -> None:
        """Make ``journal_gaps`` and what ``committed`` does follow the batches."""
        publish_gaps(self._store, self._ingest.known)
        if self._committed is not None:
            self._committed()

    def _batch_done(self, service: Service, name: str, made: Totals) -> None:
        """Do what follows the batch ``name`` of an endless run."""
        self._follow()
        service.round_done()
        say(f"ingest: batch {name}: {totals_text(made)}")

    def _finish(self) -> dict[str, Any]:
        """Publish ``journal_gaps``, unless an endless run was stopped after a failure; the facts of the summary."""
        if not self._has_failed:
            publish_gaps(self._store, self._ingest.known)
        return facts_of(self._place, self._store.root, self._ingest.totals, self._ingest.known)


class _FolderJob(IngestJob):
    def __init__(
        self,
        store: DatasetStore,
        landed: Files,
        landing: str,
        checkpoint: str,
        max_files: int,
        committed: Callable[[], object] | None,
    ) -> None:
        super().__init__(store, landing, committed)
        self._landed = landed
        self._spark: SparkSession = store.spark
        self._checkpoint = checkpoint
        self._max_files = max_files
        self._query: str | None = None
        self._error: BaseException | None = None

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

    def _read(self, is_stopping: Callable[[], bool]) -> bool:
        """Read until the present end, or in an endless run until a stop signal. If a batch fails, the stream ends."""
        self._error = None
        self.reread_damaged()
        self._catch_up()
        if self._service is None:
            return self._stream({"availableNow": True}, is_stopping)
        return self._stream({"processingTime": f"{self._service.interval_seconds} seconds"}, is_stopping)

    def _stream(self, trigger: dict[str, Any], is_stopping: Callable[[], bool]) -> bool:
        """Read new segments until the trigger has ended, or a stop signal came. Returns whether the trigger ended."""
        from babelgate.pipeline.spark.rounds import rounds_done

        files = (
            self._spark.readStream.format("binaryFile")
            .schema(_FILE)
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", _NAMES)
            .option("maxFilesPerTrigger", str(self._max_files))
            .option("maxFileAge", _FOREVER)
            .option("ignoreMissingFiles", "true")
            .load(escape_glob(self._place))
            .selectExpr(*_LISTED)
        )
        writer = files.writeStream.foreachBatch(self._batch).option("checkpointLocation", self._checkpoint)
        query = writer.trigger(**trigger).start()
        ended: bool | None = False
        try:
            with rounds_done(self._spark) as done:
                while not (ended := query.awaitTermination(1)) and not is_stopping():
                    # Where a listing takes longer than the interval, a trigger is active at nearly all times.
                    if self._service is not None and (done.is_set() or not query.status["isTriggerActive"]):
                        done.clear()
                        self._check_places()
                        self._service.round_done()
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            query.stop()
        return bool(ended)

    def _check_places(self) -> None:
        """Raise JobFailed if the landing folder or the lake is gone. To Spark the one would be empty, and it would make
        another lake."""
        if not self._landed.is_folder(self._place):
            raise JobFailed(f"{self._place}: there is no such folder")
        if not self._store.files.exists(self._store.lock("ingest")):
            raise JobFailed(f"{self._store.root} is gone")

    def _batch(self, listed: DataFrame, number: int) -> None:
        try:
            if self._service is not None:
                self._check_places()
            files = [LandedFile(row["path"], row["length"], row["modified_at"]) for row in listed.collect()]
            made = self._ingest.batch(f"{self._query_id()}-{number:08d}", files)
            if self._service is not None:
                self.reread_damaged()
                self._batch_done(self._service, str(number), made)
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


def publish_gaps(store: DatasetStore, known: IngestedState) -> None:
    """Publish ``journal_gaps``, if it has changed."""
    rows = list(gaps(known))
    run = run_id("gaps", rows, {})
    if store.completed([JOURNAL_GAPS.name], run) is None:
        frame = store.spark.createDataFrame(rows, JOURNAL_GAPS.ddl).coalesce(1)
        store.write(frame, JOURNAL_GAPS.name, run)
        store.publish([JOURNAL_GAPS.name], run, {"job": "ingest", "counts": _missing_counts(rows)})


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


def totals_text(made: Totals) -> str:
    """What a batch or a run has done, in words."""
    words = [f"{made.records} records of {made.files} files"]
    if made.duplicates or made.skipped_files:
        words.append(f"{made.duplicates} records and {made.skipped_files} files that were there already")
    if made.corrupt:
        words.append(f"{made.corrupt} that are no records")
    return ", ".join(words)


def _print_result(facts: dict[str, Any]) -> None:
    journal = facts["journal"]
    made = Totals(**{name: facts[name] for name in asdict(Totals())})
    click.echo(f"Ingested {totals_text(made)}, in {made.batches} batches.")
    at_least = "at least " if journal["at_least"] else ""
    click.echo(f"journal: {at_least}{journal['records']} records of {journal['processes']} processes")
    if journal["at_least"]:
        click.echo(f"  missing: {journal['lost']} that the gateway lost, {journal['in_holes']} that never landed")
    if journal["damaged_files"]:
        click.echo(f"  {journal['damaged_files']} files could not be read whole: see journal_corrupt")
