"""Writes the datasets of ``metrics``, each from the ones before it.

A dataset has one folder per date. A run writes the dates that it recomputes. For the other dates its manifest names the
run that wrote them (``parts``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from babelgate.pipeline.journal.reader import Snapshot
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.metrics.events import payload, rates, throughput
from babelgate.pipeline.metrics.lifecycles import (
    Survey,
    completed,
    is_at_least,
    lifecycle,
    lifecycle_at,
    survey,
    with_message_dates,
    without_created_at,
)
from babelgate.pipeline.metrics.messages import latency, latency_hist, open_messages, traces
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.metrics.parts import Parts, days_of, parts_of_days
from babelgate.pipeline.storage.datasets import DatasetStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATASETS = ("throughput", "rates", "payload", "lifecycle", "latency_hist", "latency", "traces", "open")


class StageWriter(Protocol):
    """Writes one run of ``metrics``, step by step in this order."""

    parts: Parts

    def events(self, days: Collection[date]) -> None:
        """Recompute ``throughput``, ``rates`` and ``payload`` of ``days``."""
        ...

    def touched(self, days: Collection[date]) -> set[date]:
        """The dates of the messages that have an event on ``days``."""
        ...

    def outdated(self, days: Collection[date]) -> dict[date, int]:
        """Those of ``days`` with messages whose ``at_least`` is not that of the missing spans, and the first event of
        these, Unix ms."""
        ...

    def messages(self, days: Collection[date]) -> None:
        """Recompute ``lifecycle``, latencies and traces of the messages of ``days``."""
        ...

    def last_at(self, day: date) -> int:
        """The time of the last record of a day of the journal, Unix ms. Known after :meth:`touched`."""
        ...

    def still_open(self, days: Collection[date], latest: date) -> None:
        """Recompute ``open`` of ``days``. ``latest``: the last day of the journal."""
        ...

    def totals(self, days: Collection[date], names: Sequence[str]) -> dict[str, int]:
        """The number of each event of ``names`` on ``days``."""
        ...

    def days(self, dataset: str) -> list[date]:
        """The dates that ``dataset`` has."""
        ...


class MetricsWriter:
    """A :class:`StageWriter` by Spark. ``dates``: of the records that the run needs, ISO 8601; ``parts``: those of the
    former run."""

    def __init__(
        self,
        store: DatasetStore,
        journal: Snapshot,
        run: str,
        dates: Collection[str],
        missing_spans: MissingSpans,
        parts: Parts,
    ) -> None:
        self.parts: Parts = {name: dict(parts.get(name, {})) for name in DATASETS}
        self._store = store
        self._run = run
        self._journal = journal.records(dates)
        self._missing_spans = missing_spans
        self._survey = Survey()

    def events(self, days: Collection[date]) -> None:
        """Recompute ``throughput``, ``rates`` and ``payload`` of ``days``."""
        of_days = self._journal.where(_is_in("date", days))
        self._write("throughput", throughput(of_days, self._missing_spans), days)
        self._write("rates", rates(self._read("throughput", days)), days)
        self._write("payload", payload(of_days, self._missing_spans), days)

    def touched(self, days: Collection[date]) -> set[date]:
        """The dates of the messages that have an event on ``days``."""
        self._survey = survey(self._journal, _is_in("date", days))
        touched = set(self._survey.days)
        if self._survey.lacks_created_at:
            found = completed(self._journal).where(_is_in("date", days)).select("day").distinct().collect()
            touched |= {row.day for row in found} | self._moved(days)
        return touched

    def _moved(self, days: Collection[date]) -> set[date]:
        """The dates of messages whose events may now be combined differently: an event on ``days`` has their id, and an
        event of that id takes its ``created_at`` from other events."""
        if not self.parts["lifecycle"]:
            return set()
        ids = self._journal.where(_is_in("date", days)).select("message_id")
        blank = without_created_at(self._journal).select("message_id").distinct()
        moved = blank.join(ids, "message_id", "left_semi")
        found = self._read("lifecycle").join(moved, "message_id", "left_semi").select("date").distinct().collect()
        return {row.date for row in found}

    def outdated(self, days: Collection[date]) -> dict[date, int]:
        """Those of ``days`` with messages whose ``at_least`` is not that of the missing spans, and the first event of
        these, Unix ms."""
        from pyspark.sql import functions as f

        lives = self._read("lifecycle", days).where(f.col("at_least") != is_at_least(self._missing_spans))
        found = lives.groupBy("date").agg(f.min("first_at").alias("first_at")).collect()
        return {row.date: row.first_at for row in found}

    def messages(self, days: Collection[date]) -> None:
        """Recompute ``lifecycle``, latencies and traces of the messages of ``days``."""
        if not days:
            return
        former = self._read("lifecycle", days).select("trace_id")
        window = midnight(min(days)), midnight(max(days)) + DAY_MS - 1
        lacks_created_at, has_moves = self._survey.lacks_created_at, self._survey.has_moves
        dated = with_message_dates(self._journal, window, lacks_created_at=lacks_created_at)
        of_days = dated.where(_is_in("day", days))
        # ``former`` was read before this write: its files stay, but ``parts`` then names the new ones.
        self._write("lifecycle", lifecycle(of_days, self._missing_spans, has_moves=has_moves), days)
        now = self._read("lifecycle", days)
        self._write("latency_hist", latency_hist(now), days)
        self._write("latency", latency(self._read("latency_hist", days)), days)
        if set(days) >= set(self.days("lifecycle")) and not self.parts["traces"]:
            # All traces are new, and none is kept.
            self._write("traces", traces(now), ())
            return
        self._traces(former.union(now.select("trace_id")).where("trace_id is not null").distinct())

    def _traces(self, touched: DataFrame) -> None:
        """Recompute the ``touched`` traces, and write the other traces of their dates again."""
        kept = self._read("traces")
        old = kept.join(touched, "trace_id", "left_semi").select("date")
        new = traces(self._read("lifecycle").join(touched, "trace_id", "left_semi"))
        self._store.write(new, "traces", self._run)
        written = self._written("traces")
        days = {row.date for row in old.distinct().collect()} | set(written)
        others = kept.where(_is_in("date", days)).join(touched, "trace_id", "left_anti")
        if self.parts["traces"]:
            self._store.write(others, "traces", self._run, append=True)
        self._keep("traces", days)

    def last_at(self, day: date) -> int:
        """The time of the last record of a day of the journal, Unix ms. Known after :meth:`touched`."""
        return self._survey.last_at[day]

    def still_open(self, days: Collection[date], latest: date) -> None:
        """Recompute ``open`` of ``days``. ``latest``: the last day of the journal."""
        lives = self._read("lifecycle")
        ends = {day: self.last_at(day) for day in days}
        frames = [open_messages(lives if day == latest else lifecycle_at(lives, at), at) for day, at in ends.items()]
        self._write("open", reduce(lambda one, other: one.unionByName(other), frames), ends)

    def totals(self, days: Collection[date], names: Sequence[str]) -> dict[str, int]:
        """The number of each event of ``names`` on ``days``."""
        from pyspark.sql import functions as f

        of_days = self._read("throughput", days).where("grain = 'day'")
        row = of_days.agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names)).first()
        assert row is not None
        return {name: int(row[name]) for name in names}

    def days(self, dataset: str) -> list[date]:
        """The dates that ``dataset`` has."""
        return days_of(self.parts[dataset])

    def _write(self, dataset: str, frame: DataFrame, days: Collection[date]) -> None:
        self._store.write(frame, dataset, self._run)
        self._keep(dataset, days)

    def _keep(self, dataset: str, days: Collection[date]) -> None:
        parts = self.parts[dataset]
        for part in parts_of_days(parts, [*days, *self._written(dataset)]):
            del parts[part]
        parts.update((day.isoformat(), self._run) for day in self._written(dataset))

    def _written(self, dataset: str) -> list[date]:
        folder = self._store.folder(dataset, self._run)
        return [date.fromisoformat(day) for day in self._store.files.folders(folder, "date=")]

    def _read(self, dataset: str, days: Collection[date] | None = None) -> DataFrame:
        parts = self.parts[dataset]
        return self._store.read_parts(dataset, parts if days is None else parts_of_days(parts, days))


def _is_in(column: str, days: Collection[date]) -> Any:
    from pyspark.sql import functions as f

    return f.col(column).isin(sorted(days))
