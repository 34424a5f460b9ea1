"""DuckDB, Polars and Spark read a lake as ``docs/pipeline/tables.md`` says, and compute the same figures of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.pipeline.lakes import ROWS, blocks

Figures = dict[str, float | str | None]


class Question(NamedTuple):
    """Figures of the rows of ``tables`` (the second joined by ``trace_id``), of all of them and of each value of a key.

    ``figures``: by name, an expression in SQL and one of Polars. ``where``: a column and the value that it must have.
    """

    tables: tuple[str, ...]
    keys: tuple[str, ...]
    figures: Mapping[str, tuple[str, Any]]
    where: Mapping[str, str] = {}

    def sql(self) -> str:
        """One query for all keys."""
        columns = [f"grouping({key}) as other_{key}, cast({key} as string) as key_{key}" for key in self.keys]
        columns += [f"{expression} as {name}" for name, (expression, _) in self.figures.items()]
        joined = "".join(f" join {name} using (trace_id)" for name in self.tables[1:])
        chosen = " and ".join(f"{column} = '{value}'" for column, value in self.where.items()) or "true"
        sets = ", ".join(["()", *(f"({key})" for key in self.keys)])
        return (
            f"select {', '.join(columns)} from {self.tables[0]}{joined} where {chosen} group by grouping sets ({sets})"
        )

    def of_sql(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The names and values of the rows that :meth:`sql` gives."""
        for row in rows:
            group = next((f"{key}={row[f'key_{key}']}" for key in self.keys if not row[f"other_{key}"]), "all")
            yield from self._named(group, row)

    def of_polars(self, polars: Any, read: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """The names and values by Polars; ``read`` scans a table."""
        rows = read(self.tables[0])
        for other in self.tables[1:]:
            rows = rows.join(read(other), on="trace_id", suffix="_joined")
        for column, value in self.where.items():
            rows = rows.filter(polars.col(column) == value)
        expressions = [expression.alias(name) for name, (_, expression) in self.figures.items()]
        yield from self._named("all", rows.select(expressions).collect().row(0, named=True))
        for key in self.keys:
            grouped = rows.group_by(polars.col(key).cast(polars.String).alias("key")).agg(expressions)
            for row in grouped.collect().iter_rows(named=True):
                yield from self._named(f"{key}={row['key']}", row)

    def _named(self, group: str, row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name in self.figures:
            value = row[name]
            # Engines add and interpolate in another order.
            yield f"{'+'.join(self.tables)} {group}: {name}", round(value, 6) if isinstance(value, float) else value


def questions(pl: Any) -> list[Question]:
    """The questions; ``pl`` is the module of Polars."""
    count = "count(*)", pl.len()

    def total(column: str) -> tuple[str, Any]:
        return f"coalesce(sum({column}), 0)", pl.col(column).sum()

    def most(column: str) -> tuple[str, Any]:
        return f"max({column})", pl.col(column).max()

    def distinct(column: str) -> tuple[str, Any]:
        return f"count(distinct {column})", pl.col(column).drop_nulls().n_unique()

    def percentile(column: str, share: float) -> tuple[str, Any]:
        return f"percentile_cont({share}) within group (order by {column})", pl.col(column).quantile(share, "linear")

    def items(column: str) -> tuple[str, Any]:
        return f"sum(size({column}))", pl.col(column).list.len().sum()

    failed = "coalesce(sum(dead_lettered_by['failed']), 0)", pl.col("dead_lettered_by").map.get("failed").sum()
    return [
        Question(
            ("journal",),
            ("date", "event", "queue", "node"),
            {
                "records": count,
                "messages": distinct("message_id"),
                "bytes": total("bytes"),
                "attempts": most("attempts"),
            },
        ),
        Question(
            ("lifecycle",),
            ("date", "outcome", "queue", "lang"),
            {
                "messages": count,
                "traces": distinct("trace_id"),
                "deliveries": total("deliveries"),
                "hops": items("hops"),
                "wait_p50": percentile("wait_ms", 0.5),
                "wait_p95": percentile("wait_ms", 0.95),
                "e2e_p99": percentile("e2e_ms", 0.99),
            },
        ),
        Question(
            ("lifecycle", "traces"),
            ("complete", "outcome"),
            {
                "messages": count,
                "of_traces": total("messages"),
                "queues": items("queues"),
                "trace_p95": percentile("trace_ms", 0.95),
                "e2e": total("e2e_ms"),
            },
        ),
        Question(
            ("throughput",),
            ("date", "queue"),
            {each: total(each) for each in ("accepted", "delivered", "acked", "retried")} | {"failed": failed},
            {"grain": "day"},
        ),
        Question(
            ("payload",),
            ("date", "event"),
            {"bodies": total("n"), "bytes": total("sum_bytes"), "p99": most("p99_bytes"), "buckets": items("buckets")},
            {"grain": "day"},
        ),
        Question(
            ("latency",),
            ("kind", "queue"),
            {"n": total("n"), "p50": most("p50_ms"), "p99": most("p99_ms"), "sum": total("sum_ms")},
            {"grain": "day"},
        ),
        Question(
            ("quarantined",), ("reason", "lang"), {"bodies": count, "bytes": total("body_bytes"), "job": most("job")}
        ),
    ]


def test_three_engines_compute_the_same_figures(spark, folder, monkeypatch):
    # It starts threads, which forks of the process that collects the tests have not.
    import polars

    monkeypatch.chdir(folder)
    of_duckdb, of_polars, _, of_spark, _ = blocks("tables.md", "python")
    made: dict[str, Any] = {}
    exec(of_duckdb, made)
    connection = made["connection"]
    connection.execute("create macro size(items) as len(items)")
    exec(of_spark.partition("\nlifecycle =")[0], made)

    def scan(name: str) -> Any:
        page: dict[str, Any] = {}
        exec(of_polars.partition("\nprint(")[0].replace("lifecycle", name), page)
        return page[name]

    found: dict[str, Figures] = {"DuckDB": {}, "Polars": {}, "Spark": {}}
    asked = questions(polars)
    for name in {name for each in asked for name in each.tables}:
        made["read"](name).createOrReplaceTempView(name)
    for question in asked:
        rows = connection.sql(question.sql()).to_arrow_table().to_pylist()
        found["DuckDB"].update(question.of_sql(rows))
        found["Polars"].update(question.of_polars(polars, scan))
        found["Spark"].update(question.of_sql(each.asDict() for each in spark.sql(question.sql()).collect()))

    names = {name for figures in found.values() for name in figures}
    differ = {
        name: values
        for name in sorted(names)
        if len(set((values := {engine: found[engine].get(name, "missing") for engine in found}).values())) > 1
    }
    assert not differ, "\n".join(f"{name}: {values}" for name, values in differ.items())
    assert len([name for name in names if found["DuckDB"][name]]) >= 100, "figures that are neither null nor 0"
    # Another module may have added records before.
    records = found["DuckDB"]["journal all: records"]
    assert isinstance(records, int | float)
    assert records >= len(ROWS)
