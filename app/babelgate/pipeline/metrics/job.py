"""The job ``metrics``: computes eight datasets from the journal, for the dates that new events touch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import click

from babelgate import __version__
from babelgate.pipeline.duckdb_engine.lake import duckdb_reader, is_small, opened
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.commits import Commit
from babelgate.pipeline.journal.reader import (
    Snapshot,
    existing_in,
    gaps,
    has_few_records,
    now_ms,
    require_journal,
    snapshot,
)
from babelgate.pipeline.metrics.dates import (
    DAY_MS,
    DateRange,
    State,
    changed,
    dates_with_other_gaps,
    days_before,
    midnight,
    state_of,
)
from babelgate.pipeline.metrics.missing_spans import MissingSpans, missing_spans_of
from babelgate.pipeline.metrics.parts import Parts
from babelgate.pipeline.metrics.since import (
    Former,
    Made,
    WholeDatesNeeded,
    basis_of,
    has_other_gaps,
    since,
    unsure_dates,
    window_of,
)
from babelgate.pipeline.metrics.stages import DATASETS, MetricsWriter, StageWriter
from babelgate.pipeline.metrics.superseded import remove_superseded
from babelgate.pipeline.spark.console import progress, say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, Manifest, folder, run_id, unchanged
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.nothing_new import done_under_lock, without_spark
from babelgate.pipeline.storage.schemas import JOURNAL

_TOTALS = ("accepted", "delivered", "acked", "nacked", "rejected", "dead_lettered", "redriven", "lease_expired")

_OF_RUNS = ("state", "parts", "basis")
"""Members of a manifest that only the next run needs."""


class Done(NamedTuple):
    """What a run of the job came to: its manifest, whether nothing had changed, what it removed (paths below the
    root), and the root."""

    manifest: Manifest
    is_old: bool
    removed: list[str]
    root: str

    @property
    def text(self) -> str:
        """The dates and counts in a few words."""
        at_least = "at least " if self.manifest["at_least"] else ""
        counted = ((name.replace("_", "-"), count) for name, count in self.manifest["counts"].items() if count)
        counts = ", ".join(f"{count} {name}" for name, count in counted)
        dates, of_messages = len(self.manifest["dates"]), len(self.manifest["message_dates"])
        return f"{dates} dates, messages of {of_messages}: {at_least}{counts or 'nothing'}"


def metrics(launch: Launch, root: str, within: DateRange, force: bool = False, retain_hours: float = 24.0) -> Manifest:
    """Run the job and print its result. Returns the manifest of the run. Raises JobFailed."""
    require_journal(root)
    done = measure(launch, root, within, force=force, retain_hours=retain_hours)
    launch.summarize(summary_of(done))
    _print_result(done, root)
    return done.manifest


def measure(
    launch: Launch,
    root: str,
    within: DateRange,
    *,
    force: bool = False,
    retain_hours: float = 24.0,
) -> Done:
    """Run the job. Raises JobFailed."""
    until = now_ms() - int(retain_hours * 3_600_000)
    done = None if force else without_spark(root, lambda store: _nothing_new(store, within, until))
    if done is None:
        done = _by_duckdb(launch, root, within, force, until)
    if done is not None:
        return done
    with launch.spark("metrics", short=has_few_records(root)) as spark, progress(spark, "metrics"):
        store = DatasetStore(spark, root)
        with exclusive_lock(store.files, store.lock("metrics"), "metrics"):
            journal = existing_in(store)
            return _MetricsJob(store, journal, within).run(partial(MetricsWriter, store, journal), force, until)


def _by_duckdb(launch: Launch, root: str, within: DateRange, force: bool, until: int) -> Done | None:
    """Run the job by DuckDB: what is new, or else whole dates. None: that is for Spark."""
    store = duckdb_reader(launch, root)
    if store is None:
        return None
    with exclusive_lock(store.files, store.lock("metrics"), "metrics"):
        journal = existing_in(store)
        job = _MetricsJob(store, journal, within)
        # What is new is written into local folders only.
        new = job.new() if store.files.is_local and not force else None
        if new is not None and is_small(launch, store, [url for each in new.fresh for url in _folder_of(store, each)]):
            from babelgate.pipeline.metrics.duckdb_increment import DuckDBIncrement

            try:
                with opened(store) as lake:
                    return job.run(partial(DuckDBIncrement, lake, journal, new), force, until, is_whole=False)
            except WholeDatesNeeded as error:
                say(f"metrics: whole dates are computed: {error}")
        if not is_small(launch, store, _all_folders(store, journal)):
            return None
        from babelgate.pipeline.metrics.duckdb_stages import DuckDBMetricsWriter

        with opened(store) as lake:
            return job.run(partial(DuckDBMetricsWriter, lake, journal), force, until)


def summary_of(done: Done) -> dict[str, Any]:
    """The facts of the summary."""
    places = {name: folder(done.root, name, done.manifest["run_id"]) for name in DATASETS}
    facts = {name: value for name, value in done.manifest.items() if name not in _OF_RUNS}
    return {**facts, "unchanged": done.is_old, "removed": done.removed, "paths": places}


MakeWriter = Callable[[str, Sequence[str], MissingSpans, Parts], StageWriter]
"""Makes the writer of a run, from the run id, the dates of the journal to read (ISO 8601), what is missing, and the
parts of the former run."""


def _folder_of(store: DatasetReader, batch: Commit) -> list[str]:
    return [] if batch.folder is None else [f"{store.folder(JOURNAL.name)}/{batch.folder}"]


def _all_folders(reader: DatasetReader, journal: Snapshot) -> list[str]:
    """What a run of whole dates may read."""
    measured = [name for name in DATASETS if reader.current(name) is not None]
    return [*journal.folders(), *(url for name in measured for url in reader.current_folders(name))]


def _nothing_new(store: DatasetReader, within: DateRange, until: int) -> Done | None:
    """The current run if nothing has changed; None otherwise."""

    def tidied(store: DatasetReader, former: Manifest) -> Done:
        return Done(former, True, remove_superseded(store, DATASETS, former, until), store.root)

    return done_under_lock(store, "metrics", lambda store: _unchanged_run(store, within), tidied)


def _unchanged_run(store: DatasetReader, within: DateRange) -> Manifest | None:
    run = store.current(DATASETS[0])
    former = None if run is None else unchanged(store.root, DATASETS, run)
    if former is None or former["code_version"] != __version__:
        return None
    journal = snapshot(store)
    now = state_of(journal.dates(), missing_spans_of(gaps(journal.known())))
    return None if changed(former["state"], now, within) else former


class _MetricsJob:
    """One run. The caller owns the lock of ``metrics``."""

    def __init__(self, store: DatasetReader, journal: Snapshot, within: DateRange) -> None:
        self._store = store
        self._journal = journal
        self._within = within
        self._missing_spans = missing_spans_of(gaps(journal.known()))
        self._now = state_of(journal.dates(), self._missing_spans)
        self._former = self._read()
        # Results of another program version are recomputed when a run includes their dates.
        is_own = self._former.get("code_version") == __version__
        self._own_former: Manifest = self._former if is_own else {}
        self._measured_state: State = self._own_former.get("state", {})

    def new(self) -> Former | None:
        """What is new since the former run, if a run can compute that alone."""
        return since(self._former, self._journal, self._now, self._missing_spans, self._within, now_ms())

    def run(self, make_writer: MakeWriter, force: bool, until: int, *, is_whole: bool = True) -> Done:
        """Remove what was superseded at ``until`` (Unix ms), and recompute changed dates.

        ``is_whole``: the writer computes whole dates, not what is new. Raises WholeDatesNeeded if it should have.
        """
        removed = remove_superseded(self._store, DATASETS, self._former, until) if self._former else []
        days = changed(self._measured_state, self._now, self._within, everything=force)
        if not days and self._former:
            return Done(self._former, True, removed, self._store.root)
        if not days:
            raise JobFailed(f"{self._store.root} has no journal of these dates")
        state = {**self._measured_state, **{day.isoformat(): self._now[day.isoformat()] for day in days}}
        # A new run id, because the former run must not be overwritten while it is read.
        run = run_id("metrics", sorted(state.items()), {"after": self._former.get("run_id")})
        say(f"metrics: {len(days)} of {len(self._now)} dates, run {run}")
        began = time.monotonic()
        facts = self._measure(make_writer, days, run, self._parts(force), is_whole)
        facts |= {"job": "metrics", "state": state, "seconds": round(time.monotonic() - began, 3)}
        return Done(self._store.publish(DATASETS, run, facts), False, removed, self._store.root)

    def _parts(self, force: bool) -> Parts:
        """The parts of the former run that a run goes on from."""
        parts: Parts = self._former.get("parts", {})
        if force and not (self._within.first or self._within.last):
            # All is made again, and no slice is left over. Days of ``open`` are known from its parts alone.
            return {"open": parts.get("open", {})}
        return parts

    def _read(self) -> Manifest:
        """The manifest of the current run; empty before the first.

        If that run was killed while it published its datasets, the rest of them is published now.
        """
        run = self._store.current(DATASETS[0])
        return {} if run is None else self._store.completed(DATASETS, run) or {}

    def _measure(
        self, make_writer: MakeWriter, days: list[date], run: str, parts: Parts, is_whole: bool
    ) -> dict[str, Any]:
        followed = days_before(days[0], self._within.lookback_days)
        window = window_of(self._now, days, self._within)
        writer = make_writer(run, window, self._missing_spans, parts)
        writer.events(days)
        touched = writer.touched(days)
        for day in dates_with_other_gaps(self._measured_state, self._now, days):
            # Messages that were open on that day may have lost events.
            touched |= {
                each for each in writer.days("lifecycle") if days_before(day, self._within.lookback_days) <= each <= day
            }
        # Earlier runs computed ``open`` with fewer records, or of rows that change now, since this time.
        reopened_from = midnight(days[0])
        if has_other_gaps(self._own_former, self._missing_spans):
            # Others were open on a date without records, or began days before ``created_at``, which an event lacked.
            outdated = writer.outdated(writer.days("lifecycle"))
            touched |= outdated.keys()
            reopened_from = min([reopened_from, *(first for day, first in outdated.items() if day >= followed)])
        # Dates that were not followed when their rows became wrong, and now are.
        restored = {day for day in unsure_dates(self._own_former) if day >= followed}
        if restored:
            touched |= restored
            reopened_from = midnight(date.fromisoformat(window[0]))
        written, not_followed = ({day for day in touched if (day >= followed) is of} for of in (True, False))
        writer.messages(sorted(written))
        last = self._last()
        reopened = [
            day for day in writer.days("open") if midnight(day) + DAY_MS > reopened_from and day.isoformat() in window
        ]
        writer.still_open({last, *reopened}, date.fromisoformat(max(self._now)))
        last_at = {iso: writer.last_at(date.fromisoformat(iso)) for iso in window}
        made = Made(run, window[0], written, not_followed, is_whole, writer.parts, last_at, now_ms())
        return {
            "parts": writer.parts,
            "counts": writer.totals(days, _TOTALS),
            "dates": [day.isoformat() for day in days],
            "message_dates": sorted(day.isoformat() for day in written),
            "not_followed": sorted(day.isoformat() for day in not_followed),
            "as_of": writer.last_at(last),
            "basis": basis_of(self._own_former, self._journal, self._missing_spans, made),
            "at_least": bool(self._missing_spans),
            "options": {
                "from": self._within.first and self._within.first.isoformat(),
                "to": self._within.last and self._within.last.isoformat(),
                "lookback_days": self._within.lookback_days,
            },
        }

    def _last(self) -> date:
        """The last day in the range that has records."""
        return max(
            day for day in map(date.fromisoformat, self._now) if self._within.last is None or day <= self._within.last
        )


def _print_result(done: Done, root: str) -> None:
    facts = done.manifest
    if done.is_old:
        say(f"Nothing has changed since run {facts['run_id']}; use --force to repeat it.")
    click.echo(done.text)
    if facts["not_followed"]:
        click.echo(
            f"Not recomputed, because they are older than --lookback-days: messages of "
            f"{facts['not_followed'][0]} to {facts['not_followed'][-1]}"
        )
    click.echo(f"In {root}: {', '.join(DATASETS)}")
    if done.removed:
        click.echo(f"Removed superseded data: {len(done.removed)} folders and files.")
