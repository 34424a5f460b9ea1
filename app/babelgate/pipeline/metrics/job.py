"""The job ``metrics``: computes eight datasets from the journal, for the dates that new events touch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import click

from babelgate import __version__
from babelgate.pipeline.duckdb_engine.lake import duckdb_reader, is_small, opened
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import (
    Snapshot,
    existing,
    existing_in,
    gaps,
    has_few_records,
    now_ms,
    require_journal,
    snapshot,
)
from babelgate.pipeline.metrics.dates import DateRange, State, changed, dates_with_other_gaps, days_before, state_of
from babelgate.pipeline.metrics.missing_spans import MissingSpans, missing_spans_of
from babelgate.pipeline.metrics.stages import DATASETS, MetricsWriter, Parts, StageWriter
from babelgate.pipeline.spark.console import progress, say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, Manifest, folder, run_id, unchanged
from babelgate.pipeline.storage.locks import exclusive_lock

_TOTALS = ("accepted", "delivered", "acked", "nacked", "rejected", "dead_lettered", "redriven", "lease_expired")


class Done(NamedTuple):
    """What a run of the job came to: its manifest, whether nothing had changed, the folders that it removed (paths
    below the root), and the root."""

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
    done = None if force else _without_spark(root, within, until)
    if done is not None:
        return done
    with _engine(launch, root) as (store, journal, make_writer):
        with exclusive_lock(store.files, store.lock("metrics"), "metrics"):
            job = _MetricsJob(store, journal, within, make_writer)
            removed = job.tidy(until)
            manifest, is_old = job.run(force)
        return Done(manifest, is_old, removed, store.root)


def summary_of(done: Done) -> dict[str, Any]:
    """The facts of the summary."""
    places = {name: folder(done.root, name, done.manifest["run_id"]) for name in DATASETS}
    facts = {name: value for name, value in done.manifest.items() if name not in ("state", "parts")}
    return {**facts, "unchanged": done.is_old, "removed": done.removed, "paths": places}


MakeWriter = Callable[[str, Sequence[str], MissingSpans, Parts], StageWriter]
"""Makes the writer of a run, from the run id, the dates of the journal to read (ISO 8601), what is missing, and the
parts of the former run."""


@contextmanager
def _engine(launch: Launch, root: str) -> Iterator[tuple[DatasetReader, Snapshot, MakeWriter]]:
    """The lake and its journal, by the engine that ``launch`` asks for."""
    reader = duckdb_reader(launch, root, writes=True)
    journal = None if reader is None else existing_in(reader)
    if reader is not None and journal is not None and is_small(launch, reader, _folders(reader, journal)):
        from babelgate.pipeline.metrics.duckdb_stages import DuckDBMetricsWriter

        with opened(reader) as lake:
            yield reader, journal, partial(DuckDBMetricsWriter, lake, journal)
    else:
        with launch.spark("metrics", short=has_few_records(root)) as spark, progress(spark, "metrics"):
            store, journal = DatasetStore(spark, root), existing(spark, root)
            yield store, journal, partial(MetricsWriter, store, journal)


def _folders(reader: DatasetReader, journal: Snapshot) -> list[str]:
    """What a run may read."""
    measured = [name for name in DATASETS if reader.current(name) is not None]
    return [*journal.folders(), *(url for name in measured for url in reader.current_folders(name))]


def _without_spark(root: str, within: DateRange, until: int) -> Done | None:
    """The current run if nothing has changed; None otherwise, or if ``root`` is not local."""
    store = DatasetReader.of_local(root)
    if store is None:
        return None
    with exclusive_lock(store.files, store.lock("metrics"), "metrics"):
        run = store.current(DATASETS[0])
        former = None if run is None else unchanged(store.root, DATASETS, run)
        if former is None or former["code_version"] != __version__:
            return None
        journal = snapshot(store)
        now = state_of(journal.dates(), missing_spans_of(gaps(journal.known())))
        if changed(former["state"], now, within):
            return None
        return Done(former, True, remove_superseded(store, DATASETS, former, until), store.root)


class _MetricsJob:
    def __init__(self, store: DatasetReader, journal: Snapshot, within: DateRange, make_writer: MakeWriter) -> None:
        self._store = store
        self._make_writer = make_writer
        self._journal = journal
        self._within = within
        self._missing_spans = missing_spans_of(gaps(journal.known()))
        self._now = state_of(journal.dates(), self._missing_spans)
        self._former = self._read()
        # Results of another program version are recomputed when a run includes their dates.
        is_own = self._former.get("code_version") == __version__
        self._measured_state: State = self._former.get("state", {}) if is_own else {}

    def tidy(self, until: int) -> list[str]:
        """Remove superseded folders unused since ``until``, Unix ms. Returns their paths below the root."""
        return remove_superseded(self._store, DATASETS, self._former, until) if self._former else []

    def run(self, force: bool) -> tuple[Manifest, bool]:
        """Recompute changed dates. Returns the manifest, and whether nothing had changed."""
        days = changed(self._measured_state, self._now, self._within, everything=force)
        if not days and self._former:
            return self._former, True
        if not days:
            raise JobFailed(f"{self._store.root} has no journal of these dates")
        state = {**self._measured_state, **{day.isoformat(): self._now[day.isoformat()] for day in days}}
        # A new run id, because the former run must not be overwritten while it is read.
        run = run_id("metrics", sorted(state.items()), {"after": self._former.get("run_id")})
        say(f"metrics: {len(days)} of {len(self._now)} dates, run {run}")
        began = time.monotonic()
        facts = self._measure(days, run)
        facts |= {"job": "metrics", "state": state, "seconds": round(time.monotonic() - began, 3)}
        return self._store.publish(DATASETS, run, facts), False

    def _read(self) -> Manifest:
        """The manifest of the current run; empty before the first.

        If that run was killed while it published its datasets, the rest of them is published now.
        """
        run = self._store.current(DATASETS[0])
        return {} if run is None else self._store.completed(DATASETS, run) or {}

    def _measure(self, days: list[date], run: str) -> dict[str, Any]:
        followed = days_before(days[0], self._within.lookback_days)
        # If a producer's clock is ahead, events of a message may be dated one day before the message.
        window = [iso for iso in self._now if date.fromisoformat(iso) >= days_before(followed, 1)]
        writer = self._make_writer(run, window, self._missing_spans, self._former.get("parts", {}))
        writer.events(days)
        touched = writer.touched(days)
        for day in dates_with_other_gaps(self._measured_state, self._now, days):
            # Messages that were open on that day may have lost events.
            touched |= {
                each for each in writer.days("lifecycle") if days_before(day, self._within.lookback_days) <= each <= day
            }
        writer.messages(sorted(day for day in touched if day >= followed))
        last = self._last()
        # Earlier runs computed ``open`` for some of these days with fewer records.
        reopened = [day for day in writer.days("open") if day >= days[0] and day.isoformat() in self._now]
        writer.still_open({last, *reopened}, date.fromisoformat(max(self._now)))
        return {
            "parts": writer.parts,
            "counts": writer.totals(days, _TOTALS),
            "dates": [day.isoformat() for day in days],
            "message_dates": sorted(day.isoformat() for day in touched if day >= followed),
            "not_followed": sorted(day.isoformat() for day in touched if day < followed),
            "as_of": writer.last_at(last),
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


def remove_superseded(store: DatasetReader, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove dates superseded at ``until`` (Unix ms) or before, and leftovers of killed runs.

    ``current``: the manifest of the current run. Returns the removed paths below the root. The caller owns the lock of
    ``metrics``.
    """
    removed: list[str] = []
    for dataset in datasets:
        removed += _DatasetRuns(store, dataset, current, until).remove()
    return removed


class _DatasetRuns:
    """The runs of one dataset. A date of a run is unused since a later run that has this date was completed."""

    def __init__(self, store: DatasetReader, dataset: str, current: Manifest, until: int) -> None:
        self._store = store
        self._home = store.folder(dataset)
        self._current: str = current["run_id"]
        self._current_run_of: dict[str, str] = current["parts"][dataset]
        self._until = until
        self._completed = {run: self._completed_at(dataset, run) for run in store.files.folders(self._home, "run=")}

    def remove(self) -> list[str]:
        """Remove unused folders. Returns their paths below the root."""
        gone = []
        for run, completed_at in self._completed.items():
            if run == self._current:
                continue
            place = f"{self._home}/run={run}"
            days = self._store.files.folders(place, "date=")
            unused = [day for day in days if self._is_unused(run, day)]
            if completed_at is None or (len(unused) == len(days) and self._is_past(self._current)):
                gone.append(place)
            else:
                gone += [f"{place}/date={day}" for day in unused]
        for place in gone:
            self._store.files.remove(place)
        return [place.removeprefix(f"{self._store.root}/") for place in gone]

    def _is_unused(self, run: str, day: str) -> bool:
        current_run = self._current_run_of.get(day, self._current)
        return current_run != run and self._is_past(current_run)

    def _is_past(self, run: str) -> bool:
        completed_at = self._completed.get(run)
        return completed_at is not None and completed_at <= self._until

    def _completed_at(self, dataset: str, run: str) -> int | None:
        manifest = self._store.manifest(dataset, run)
        return None if manifest is None else int(manifest["completed_at"])


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
        click.echo(f"Removed superseded data: {len(done.removed)} folders.")
