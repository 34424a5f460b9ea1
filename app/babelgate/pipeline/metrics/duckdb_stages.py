"""The steps of ``metrics`` by DuckDB: the rows, files and parts of :mod:`babelgate.pipeline.metrics.stages`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from functools import reduce

from babelgate.pipeline.duckdb_engine.lake import DuckDBLake
from babelgate.pipeline.journal.reader import Snapshot
from babelgate.pipeline.metrics import duckdb_events as events_sql
from babelgate.pipeline.metrics import duckdb_lifecycles as lives_sql
from babelgate.pipeline.metrics import duckdb_messages as messages_sql
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.metrics.duckdb_histogram import define_functions
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.metrics.parts import Parts, days_of, parts_of_days
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.storage.duckdb_sql import literal, quoted
from babelgate.pipeline.storage.schemas import JOURNAL

_BODIES = ("envelope", "envelope_encrypted", "headers", "headers_encrypted")
"""Columns of ``journal`` that may be large, and that no figure is made of."""


class DuckDBMetricsWriter:
    """A :class:`~babelgate.pipeline.metrics.stages.StageWriter` by DuckDB. ``dates``: of the records that the run
    needs, ISO 8601; ``parts``: those of the former run."""

    def __init__(
        self,
        lake: DuckDBLake,
        journal: Snapshot,
        run: str,
        dates: Collection[str],
        missing_spans: MissingSpans,
        parts: Parts,
    ) -> None:
        self.parts: Parts = {name: dict(parts.get(name, {})) for name in DATASETS}
        self._lake = lake
        self._run = run
        self._missing_spans = missing_spans
        self._last_at: dict[date, int] = {}
        define_functions(lake)
        self._load(journal, dates)

    def _load(self, journal: Snapshot, dates: Collection[str]) -> None:
        # Read once. Copies of an object store have the bodies, too, so they are large.
        folders = journal.folders(dates)
        self._lake.table("journal", self._records(folders, dates))
        self._lake.forget(folders)

    def _records(self, folders: Sequence[str], dates: Collection[str]) -> str:
        """The records of ``dates`` in folders of the journal, without the bodies."""
        days = _list([date.fromisoformat(day) for day in dates])
        rows = self._lake.select(JOURNAL.name, folders)
        return f"select * exclude ({', '.join(_BODIES)}) from ({rows}) where list_contains({days}, date)"

    def events(self, days: Collection[date]) -> None:
        """Recompute ``throughput``, ``rates`` and ``payload`` of ``days``."""
        self._lake.view("of_days", f"select * from journal where {_is_in('date', days)}")
        self._write("throughput", events_sql.throughput("of_days", self._missing_spans), days)
        self._lake.view("counted", self._read("throughput", days))
        self._write("rates", events_sql.rates("counted"), days)
        self._write("payload", events_sql.payload(events_sql.sizes("of_days"), self._missing_spans), days)

    def touched(self, days: Collection[date]) -> set[date]:
        """The dates of the messages that have an event on ``days``."""
        found = self._lake.rows(lives_sql.survey("journal", _list(days)))
        self._last_at = {row["date"]: row["last_at"] for row in found}
        touched = {day for row in found for day in row["days"] or ()}
        if any(row["lacks"] for row in found):
            completed = f"select distinct day from ({lives_sql.completed('journal')}) where {_is_in('date', days)}"
            touched |= {row["day"] for row in self._lake.rows(completed)} | self._moved(days)
        return touched

    def _moved(self, days: Collection[date]) -> set[date]:
        if not self.parts["lifecycle"]:
            return set()
        rows = self._lake.rows(
            f"select distinct date from ({self._read('lifecycle')}) where message_id in "
            f"(select message_id from ({lives_sql.without_created_at('journal')})) and message_id in "
            f"(select message_id from journal where {_is_in('date', days)})"
        )
        return {row["date"] for row in rows}

    def outdated(self, days: Collection[date]) -> dict[date, int]:
        """Those of ``days`` with messages whose ``at_least`` is not that of the missing spans, and the first event of
        these, Unix ms."""
        wrong = f"at_least <> {lives_sql.is_at_least(self._missing_spans)}"
        lives = f"({self._read('lifecycle', days)})"
        rows = self._lake.rows(f"select date, min(first_at) as first_at from {lives} where {wrong} group by date")
        return {row["date"]: row["first_at"] for row in rows}

    def messages(self, days: Collection[date]) -> None:
        """Recompute ``lifecycle``, latencies and traces of the messages of ``days``."""
        if not days:
            return
        self._lake.table("former", f"select distinct trace_id from ({self._read('lifecycle', days)})")
        window = midnight(min(days)), midnight(max(days)) + DAY_MS - 1
        dated = lives_sql.with_message_dates("journal", window)
        self._lake.table("dated", f"select * from ({dated}) where {_is_in('day', days)}")
        self._find_homes()
        self._write("lifecycle", lives_sql.lifecycle("dated", "homes", self._missing_spans), days)
        self._lake.view("now", self._read("lifecycle", days))
        self._write("latency_hist", messages_sql.latency_hist("now"), days)
        self._lake.view("histogram", self._read("latency_hist", days))
        self._write("latency", messages_sql.latency("histogram"), days)
        self._traces()

    def _find_homes(self) -> None:
        """Keep the first queue of events that are on another one as the table ``homes``, by message and queue."""
        found = []
        for row in self._lake.rows(lives_sql.moves("dated")):
            home = row["queue"]
            # The latest move comes first, so this follows the moves back to the first queue.
            for move in row["moves"]:
                home = move["from"] if move["to"] == home else home
            if home != row["queue"]:
                found.append((row["message_id"], row["made"], row["queue"], home))
        columns = "message_id varchar, made bigint, queue varchar, home varchar"
        self._lake.run(f"create or replace temporary table homes ({columns})")
        self._lake.insert("homes", found)

    def _traces(self) -> None:
        """Recompute the traces of these messages, and write the other traces of their dates again."""
        named = "select trace_id from {} where trace_id is not null"
        self._lake.table("touched", f"{named.format('former')} union {named.format('now')}")
        self._lake.view("lives", self._read("lifecycle"))
        self._lake.view("kept", self._read("traces"))
        self._lake.view("touched_lives", "select * from lives where trace_id in (from touched)")
        self._lake.table("new_traces", messages_sql.traces("touched_lives"))
        old = self._lake.rows("select distinct date from kept where trace_id in (from touched)")
        days = {row["date"] for row in [*old, *self._lake.rows("select distinct date from new_traces")]}
        others = f"select * from kept where {_is_in('date', days)} and trace_id not in (from touched)"
        self._write("traces", f"select * from new_traces union all by name {others}", days)

    def last_at(self, day: date) -> int:
        """The time of the last record of a day of the journal, Unix ms. Known after :meth:`touched`."""
        return self._last_at[day]

    def still_open(self, days: Collection[date], latest: date) -> None:
        """Recompute ``open`` of ``days``. ``latest``: the last day of the journal."""
        ends = {day: self.last_at(day) for day in days}
        for day, at in ends.items():
            self._lake.view(f"lives_{day}", self._open_lives(day, at, latest))
        queries = (f"({messages_sql.open_messages(quoted(f'lives_{day}'), at)})" for day, at in ends.items())
        self._write("open", reduce(lambda one, other: f"{one} union all by name {other}", queries), ends)

    def _open_lives(self, day: date, at: int, latest: date) -> str:
        """The messages that may have been open at ``at``, Unix ms, the end of ``day``."""
        # A message that has ended by then, had ended then; for the others, large columns are read, too.
        lives = f"(select * from ({self._read('lifecycle')}) where ended_at is null or ended_at > {at})"
        return f"select * from {lives}" if day == latest else lives_sql.lifecycle_at(lives, at)

    def totals(self, days: Collection[date], names: Sequence[str]) -> dict[str, int]:
        """The number of each event of ``names`` on ``days``."""
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in names)
        (row,) = self._lake.rows(f"select {sums} from ({self._read('throughput', days)}) where grain = 'day'")
        return row

    def days(self, dataset: str) -> list[date]:
        """The dates that ``dataset`` has."""
        return days_of(self.parts[dataset])

    def _write(self, dataset: str, sql: str, days: Collection[date]) -> None:
        self._lake.write(sql, dataset, self._run)
        folder = self._lake.reader.folder(dataset, self._run)
        written = self._lake.reader.files.folders(folder, "date=")
        parts = self.parts[dataset]
        for part in parts_of_days(parts, [*days, *map(date.fromisoformat, written)]):
            del parts[part]
        parts.update((day, self._run) for day in written)

    def _read(self, dataset: str, days: Collection[date] | None = None) -> str:
        parts = self.parts[dataset]
        return self._lake.parts(dataset, parts if days is None else parts_of_days(parts, days))


def _list(days: Collection[date]) -> str:
    return f"[{', '.join(literal(day.isoformat()) for day in sorted(days))}]::date[]"


def _is_in(column: str, days: Collection[date]) -> str:
    return f"list_contains({_list(days)}, {column})"
