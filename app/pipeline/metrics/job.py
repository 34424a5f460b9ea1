"""The job ``metrics``: the journal becomes answers. New events restate the dates that they touch, and no others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import click

from app import __version__
from app.pipeline.errors import JobFailed
from app.pipeline.journal.reader import Snapshot, existing, now_ms
from app.pipeline.metrics.dates import DateRange, State, changed, dates_with_other_gaps, days_before, state_of
from app.pipeline.metrics.missing_spans import missing_spans_of
from app.pipeline.metrics.stages import DATASETS, MetricsWriter
from app.pipeline.spark.console import progress, say, summarize
from app.pipeline.spark.launch import Launch
from app.pipeline.storage.datasets import DatasetStore, Manifest, run_id
from app.pipeline.storage.locks import exclusive_lock

_TOTALS = ("accepted", "delivered", "acked", "nacked", "rejected", "dead_lettered", "redriven", "lease_expired")


def metrics(launch: Launch, root: str, within: DateRange, force: bool = False, retain_hours: float = 24.0) -> Manifest:
    """Run the job and tell its result; the manifest of the run. Raises JobFailed."""
    with launch.spark("metrics") as spark:
        store = DatasetStore(spark, root)
        journal = existing(spark, root)
        with exclusive_lock(store.files, f"{store.folder(DATASETS[0])}/_metrics.lock", "metrics"):
            job = _MetricsJob(store, journal, within)
            removed = job.tidy(now_ms() - int(retain_hours * 3_600_000))
            manifest, unchanged = job.run(force)
        places = {name: store.folder(name, manifest["run_id"]) for name in DATASETS}
    told = {name: value for name, value in manifest.items() if name not in ("state", "parts")}
    summarize(launch.summary, {**told, "unchanged": unchanged, "removed": removed, "paths": places})
    _print_result(told, root, unchanged, len(removed))
    return manifest


class _MetricsJob:
    def __init__(self, store: DatasetStore, journal: Snapshot, within: DateRange) -> None:
        self._store = store
        self._journal = journal
        self._within = within
        self._missing_spans = missing_spans_of(journal.missing())
        self._now = state_of(journal.dates(), self._missing_spans)
        self._former = self._read()
        # What another version has stated stays, until it is stated again: as soon as it is asked for.
        is_own = self._former.get("code_version") == __version__
        self._measured_state: State = self._former.get("state", {}) if is_own else {}

    def tidy(self, until: int) -> list[str]:
        """Remove what nobody reads since ``until``, Unix ms; what was removed, below the root."""
        return remove_superseded(self._store, DATASETS, self._former, until) if self._former else []

    def run(self, force: bool) -> tuple[Manifest, bool]:
        """The manifest, and whether it was there already."""
        days = changed(self._measured_state, self._now, self._within, everything=force)
        if not days and self._former:
            return self._former, True
        if not days:
            raise JobFailed(f"{self._store.root} has no journal of these dates")
        state = {**self._measured_state, **{day.isoformat(): self._now[day.isoformat()] for day in days}}
        # What is stated again must not be written over what is read meanwhile.
        run = run_id("metrics", sorted(state.items()), {"after": self._former.get("run_id")})
        say(f"metrics: {len(days)} of {len(self._now)} dates, run {run}")
        began = time.monotonic()
        with progress(self._store.spark, "metrics"):
            facts = self._measure(days, run)
        facts |= {"job": "metrics", "state": state, "seconds": round(time.monotonic() - began, 3)}
        return self._store.publish(DATASETS, run, facts), False

    def _read(self) -> Manifest:
        """The manifest of the run that readers read; empty before the first.

        Of one that was killed while it let readers read its datasets, they read all from now on.
        """
        run = self._store.current(DATASETS[0])
        return {} if run is None else self._store.already(DATASETS, run) or {}

    def _measure(self, days: list[date], run: str) -> dict[str, Any]:
        followed = days_before(days[0], self._within.lookback_days)
        # Where its producer's clock is ahead, a message was seen on the day before its own.
        window = [iso for iso in self._now if date.fromisoformat(iso) >= days_before(followed, 1)]
        records = self._journal.records(window)
        measuring = MetricsWriter(self._store, run, records, self._missing_spans, self._former.get("parts", {}))
        measuring.events(days)
        touched = measuring.touched(days)
        for day in dates_with_other_gaps(self._measured_state, self._now, days):
            # Whatever was open then has lost something, perhaps.
            touched |= {
                each
                for each in measuring.days("lifecycle")
                if days_before(day, self._within.lookback_days) <= each <= day
            }
        measuring.messages(sorted(day for day in touched if day >= followed))
        last = self._last()
        # Of some days it was told before what is open, as far as was known then.
        told = [day for day in measuring.days("open") if day >= days[0] and day.isoformat() in self._now]
        ends = {day: self._last_at(day) for day in {last, *told}}
        measuring.still_open(ends, date.fromisoformat(max(self._now)))
        return {
            "parts": measuring.parts,
            "counts": measuring.totals(days, _TOTALS),
            "dates": [day.isoformat() for day in days],
            "message_dates": sorted(day.isoformat() for day in touched if day >= followed),
            "not_followed": sorted(day.isoformat() for day in touched if day < followed),
            "as_of": ends[last],
            "at_least": bool(self._missing_spans),
            "options": {
                "from": self._within.first and self._within.first.isoformat(),
                "to": self._within.last and self._within.last.isoformat(),
                "lookback_days": self._within.lookback_days,
            },
        }

    def _last(self) -> date:
        """The last day of the range of which there is a journal."""
        return max(
            day for day in map(date.fromisoformat, self._now) if self._within.last is None or day <= self._within.last
        )

    def _last_at(self, day: date) -> int:
        """When the last record of a day was made, Unix ms."""
        row = self._journal.records([day.isoformat()]).agg({"at": "max"}).first()
        assert row is not None
        return int(row[0])


def remove_superseded(store: DatasetStore, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove what no reader has begun to read since ``until`` (Unix ms), and what killed runs left; ``current`` is the
    manifest that readers read. What was removed, below the root. The caller holds the lock of those who write."""
    removed: list[str] = []
    for dataset in datasets:
        removed += _DatasetRuns(store, dataset, current, until).remove()
    return removed


class _DatasetRuns:
    """Those of one dataset. A date of a run is out of use since the run that states it now was complete."""

    def __init__(self, store: DatasetStore, dataset: str, current: Manifest, until: int) -> None:
        self._store = store
        self._home = store.folder(dataset)
        self._current: str = current["run_id"]
        self._current_run_of: dict[str, str] = current["parts"][dataset]
        self._until = until
        self._completed = {run: self._completed_at(dataset, run) for run in store.files.folders(self._home, "run=")}

    def remove(self) -> list[str]:
        """Remove them; what was removed."""
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
        stated_by = self._current_run_of.get(day, self._current)
        return stated_by != run and self._is_past(stated_by)

    def _is_past(self, run: str) -> bool:
        completed_at = self._completed.get(run)
        return completed_at is not None and completed_at <= self._until

    def _completed_at(self, dataset: str, run: str) -> int | None:
        manifest = self._store.manifest(dataset, run)
        return None if manifest is None else int(manifest["completed_at"])


def _print_result(told: Mapping[str, Any], root: str, unchanged: bool, removed: int) -> None:
    if unchanged:
        say(f"Nothing has changed since run {told['run_id']}; --force does it again.")
    at_least = "at least " if told["at_least"] else ""
    counts = ", ".join(f"{count} {name.replace('_', '-')}" for name, count in told["counts"].items() if count)
    click.echo(f"{len(told['dates'])} dates, messages of {len(told['message_dates'])}: {at_least}{counts or 'nothing'}")
    if told["not_followed"]:
        click.echo(
            f"Left as they were, because they are further back than --lookback-days: messages of "
            f"{told['not_followed'][0]} to {told['not_followed'][-1]}"
        )
    click.echo(f"In {root}: {', '.join(DATASETS)}")
    if removed:
        click.echo(f"Removed what was stated again: {removed} folders.")
