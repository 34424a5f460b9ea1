"""The rows of a report, read by DuckDB: the same as by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from babelgate.pipeline.duckdb_engine.lake import DuckDBLake
from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.duckdb_events import one_of
from babelgate.pipeline.metrics.duckdb_histogram import define_functions, percentiles
from babelgate.pipeline.report.load import COUNTS, DIMENSIONS, ERRORS, EXAMPLES, HOUR_MS, REASONED, Row, Span
from babelgate.pipeline.storage.duckdb_sql import quoted

DATASETS = ("throughput", "latency_hist", "lifecycle", "open")
"""What is read of ``metrics``."""


class DuckDBRows:
    """Implements :class:`~babelgate.pipeline.report.load.FigureRows`."""

    def __init__(self, lake: DuckDBLake) -> None:
        self.reader = lake.reader
        self._lake = lake
        define_functions(lake)
        for name in DATASETS:
            lake.view(name, lake.current(name))

    def extent(self, first: date | None, last: date | None) -> tuple[date, date, int] | None:
        (row,) = self._lake.rows(
            """
            select min(date) as first, max(date) as last, max("at") as last_at from throughput
            where grain = 'minute' and date >= coalesce($first::date, date) and date <= coalesce($last::date, date)
            """,
            {"first": first, "last": last},
        )
        return None if row["first"] is None else (row["first"], row["last"], row["last_at"])

    def counts(self, span: Span, unit: str) -> Iterable[Row]:
        sums = ", ".join(f"sum({name})::bigint as {name}" for name in COUNTS)
        return self._lake.rows(
            f"select dimension, name, {sums}, bool_or(at_least) as at_least from ({_spread('throughput', unit)}) "
            "group by dimension, name",
            _of(span, unit),
        )

    def times(self, span: Span, unit: str) -> Iterable[Row]:
        spread = f"select *, max_ms as max from ({_spread('latency_hist', unit)})"
        return self._lake.rows(percentiles(spread, ["dimension", "name", "kind"]), _of(span, unit))

    def reasons(self, span: Span, unit: str, column: str) -> Iterable[Row]:
        return self._lake.rows(
            f"""
            select entry.key as key, queue, sum(entry.value)::bigint as n
            from (select queue, unnest(map_entries({quoted(column)})) as entry from throughput where {_CONDITION})
            group by all
            """,
            _of(span, unit),
        )

    def errors(self, span: Span) -> Iterable[Row]:
        return self._lake.rows(
            f"""
            with hop as (
                select message_id, job, unnest(hops) as hop from lifecycle where date between $first and $last
            ),
            failed as (
                select hop.event as event, case when {one_of("hop.event", REASONED)} then hop.outcome end as reason,
                    hop.queue as queue, job, message_id, max(hop."at") as last_at
                from hop where {one_of("hop.event", ERRORS)} group by all
            ),
            ranked as (
                select *, row_number() over (partition by event, reason, queue, job
                    order by last_at desc, message_id) as number
                from failed
            )
            select event, reason, queue, job, count(*) as messages,
                list(message_id order by number) filter (number <= {EXAMPLES}) as examples
            from ranked group by event, reason, queue, job
            """,
            {"first": span[0], "last": span[1]},
        )

    def open(self, day: date) -> Iterable[Row]:
        return self._lake.rows("select * from open where date = $day", {"day": day})

    def bodies(self, dataset: str) -> Iterable[Row]:
        columns = "lang, reason" if dataset == "quarantined" else "lang"
        return self._lake.rows(
            f"select {columns}, count(*) as count from ({self._lake.current(dataset)}) group by {columns}"
        )


_CONDITION = "grain = $grain and date between $first and $last"


def _of(span: Span, unit: str) -> Row:
    return {"grain": "minute" if unit == "hour" else "day", "first": span[0], "last": span[1]}


def _spread(table: str, unit: str) -> str:
    """Repeats every row for each of its dimensions, as ``dimension`` and ``name``."""
    day = f"(date '1970-01-01' + floor(\"at\" / {DAY_MS})::integer)::varchar"
    # The remainder is negative before 1970.
    hour = f"lpad((((\"at\" % {DAY_MS} + {DAY_MS}) % {DAY_MS}) // {HOUR_MS})::varchar, 2, '0')"
    names = [f"('{name}', {name})" for name in DIMENSIONS]
    trend = f"{day} || 'T' || {hour}" if unit == "hour" else day
    return f"""
        select rows.*, each.dimension, each.name from {table} as rows,
            lateral (values {", ".join(names)}, ('trend', {trend}), ('total', null)) as each(dimension, name)
        where {_CONDITION}
    """
