"""The rows of a report, read by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.histogram import percentiles
from babelgate.pipeline.report.load import COUNTS, DIMENSIONS, ERRORS, EXAMPLES, HOUR_MS, REASONED, Row, Span
from babelgate.pipeline.storage.datasets import DatasetStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class SparkRows:
    """Implements :class:`~babelgate.pipeline.report.load.FigureRows`."""

    def __init__(self, store: DatasetStore) -> None:
        self.reader = store
        self._store = store

    def extent(self, first: date | None, last: date | None) -> tuple[date, date, int] | None:
        from pyspark.sql import functions as f

        minutes = self._store.read("throughput").where("grain = 'minute'")
        if first is not None:
            minutes = minutes.where(f.col("date") >= first)
        if last is not None:
            minutes = minutes.where(f.col("date") <= last)
        found = minutes.agg(f.min("date"), f.max("date"), f.max("at")).first()
        return None if found is None or found[0] is None else (found[0], found[1], found[2])

    def counts(self, span: Span, unit: str) -> Iterable[Row]:
        from pyspark.sql import functions as f

        sums = [f.sum(name).alias(name) for name in COUNTS]
        spread = _spread(self._of("throughput", span, unit), unit).groupBy("dimension", "name")
        return _rows(spread.agg(*sums, f.bool_or("at_least").alias("at_least")))

    def times(self, span: Span, unit: str) -> Iterable[Row]:
        renamed = self._of("latency_hist", span, unit).withColumnsRenamed({"sum_ms": "sum", "max_ms": "max"})
        return _rows(percentiles(_spread(renamed, unit), ["dimension", "name", "kind"]))

    def reasons(self, span: Span, unit: str, column: str) -> Iterable[Row]:
        from pyspark.sql import functions as f

        exploded = self._of("throughput", span, unit).select("queue", f.explode(column))
        return _rows(exploded.groupBy("key", "queue").agg(f.sum("value").alias("n")))

    def errors(self, span: Span) -> Iterable[Row]:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        lives = self._store.read("lifecycle").where(f.col("date").between(*span))
        hops = lives.select("message_id", "job", f.explode("hops").alias("hop"))
        event = f.col("hop.event")
        of = ["event", "reason", "queue", "job"]
        failed = hops.where(event.isin(*ERRORS)).select(
            event.alias("event"),
            f.when(event.isin(*REASONED), f.col("hop.outcome")).alias("reason"),
            f.col("hop.queue").alias("queue"),
            "job",
            "message_id",
            f.col("hop.at").alias("at"),
        )
        latest = failed.groupBy(*of, "message_id").agg(f.max("at").alias("last_at"))
        number = f.row_number().over(Window.partitionBy(*of).orderBy(f.desc("last_at"), "message_id"))
        ranked = latest.withColumn("number", number)
        few = f.collect_list(f.when(f.col("number") <= EXAMPLES, f.struct("number", "message_id")))
        examples = f.sort_array(few)["message_id"]
        return _rows(ranked.groupBy(*of).agg(f.count("*").alias("messages"), examples.alias("examples")))

    def open(self, day: date) -> Iterable[Row]:
        from pyspark.sql import functions as f

        return _rows(self._store.read("open").where(f.col("date") == f.lit(day)))

    def bodies(self, dataset: str) -> Iterable[Row]:
        columns = ["lang", "reason"] if dataset == "quarantined" else ["lang"]
        return _rows(self._store.read(dataset).groupBy(*columns).count())

    def _of(self, dataset: str, span: Span, unit: str) -> DataFrame:
        from pyspark.sql import functions as f

        rows = self._store.read(dataset).where(f.col("grain") == ("minute" if unit == "hour" else "day"))
        return rows.where(f.col("date").between(*span))


def _rows(frame: DataFrame) -> Iterable[Row]:
    return [row.asDict() for row in frame.collect()]


def _spread(frame: DataFrame, unit: str) -> DataFrame:
    """Repeats every row for each of its dimensions, as ``dimension`` and ``name``."""
    from pyspark.sql import functions as f

    day = f.date_from_unix_date(f.floor(f.col("at") / DAY_MS).cast("int")).cast("string")
    hour = f.lpad(f.floor(f.pmod("at", f.lit(DAY_MS)) / HOUR_MS).cast("string"), 2, "0")

    def entry(dimension: str, name: Column) -> Column:
        return f.struct(f.lit(dimension).alias("dimension"), name.cast("string").alias("name"))

    entries = [entry(name, f.col(name)) for name in DIMENSIONS]
    entries += [entry("trend", f.concat_ws("T", day, hour) if unit == "hour" else day), entry("total", f.lit(None))]
    return frame.select("*", f.inline(f.array(*entries)))
