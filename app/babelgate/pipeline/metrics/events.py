"""Counts, rates and sizes of events, by minute and by day. A late event changes only the rows of its own day.

Every function takes records of the journal and returns the rows of a dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.histogram import bucket_of, percentiles
from babelgate.pipeline.metrics.missing_spans import MissingSpans, overlaps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_MS = 60_000
KEYS = ("queue", "job", "lang", "broker")
PLAIN = ("accepted", "delivered", "acked", "nacked", "rejected", "redriven", "lease_expired", "poison")
"""Events that are counted in a column of the same name."""


def grains(at: str) -> Column:
    """Two rows (grain, at) for the time ``at``: the beginnings of its minute and of its day."""
    from pyspark.sql import functions as f

    def floored(grain: str, ms: int) -> Column:
        # Rounded down, also before 1970.
        return f.struct(f.lit(grain).alias("grain"), (f.col(at) - f.pmod(f.col(at), f.lit(ms))).alias("at"))

    return f.inline(f.array(floored("minute", MINUTE_MS), floored("day", DAY_MS)))


def lasts() -> Column:
    """The last ms of the minute or day of a row."""
    from pyspark.sql import functions as f

    return f.col("at") + f.when(f.col("grain") == "day", DAY_MS).otherwise(MINUTE_MS) - 1


def throughput(journal: DataFrame, missing_spans: MissingSpans) -> DataFrame:
    """Rows of ``throughput``: counts of each event, and of the reasons of dead-lettering.

    ``dead_lettered_by`` has poison bodies as the reason ``poison``, so that its counts add up to ``dead_lettered``.
    """
    from pyspark.sql import functions as f

    event, minute = f.col("event"), (f.col("at") - f.pmod(f.col("at"), f.lit(MINUTE_MS))).alias("minute")
    is_dead = event.isin("dead_lettered", "poison")
    # Tasks first reduce events to one row per key, event and reason, so that skewed queues shuffle little data. The few
    # rows are then brought together once, by what all further steps have in common.
    few = (
        journal.where(event.isin(*PLAIN, "dead_lettered"))
        .withColumn("reason", f.when(is_dead, f.coalesce("outcome", f.lit("unknown"))))
        .withColumn("retried", (event == "delivered") & (f.coalesce("attempts", f.lit(0)) > 0))
        .groupBy("date", minute, *KEYS, "event", "reason", "retried")
        .agg(f.count("*").alias("n"))
        .repartition("date", *KEYS)
        .select("date", grains("minute"), *KEYS, "event", "reason", "retried", "n")
    )

    def total(of: Column) -> Column:
        return f.coalesce(f.sum(f.when(of, f.col("n"))), f.lit(0))

    by_reason = few.groupBy("date", "grain", "at", *KEYS, "event", "reason").agg(
        f.sum("n").alias("n"), total(f.col("retried")).alias("retried")
    )
    entry = f.struct("reason", "n")
    return (
        by_reason.groupBy("date", "grain", "at", *KEYS)
        .agg(
            *(total(event == name).alias(name) for name in PLAIN),
            f.sum("retried").alias("retried"),
            total(is_dead).alias("dead_lettered"),
            _map(f.when(event == "dead_lettered", entry)).alias("dead_lettered_by"),
            _map(f.when(event == "poison", entry)).alias("poison_by"),
        )
        .withColumn("dead_lettered_by", _with("dead_lettered_by", "poison"))
        .withColumn("at_least", overlaps(missing_spans, f.col("at"), lasts()))
    )


def _map(entry: Column) -> Column:
    from pyspark.sql import functions as f

    return f.map_from_entries(f.sort_array(f.collect_list(entry)))


def _with(counts: str, name: str) -> Column:
    """The map ``counts`` with the count of the column ``name``, if that is not 0. A reason may have the same name."""
    from pyspark.sql import functions as f

    more = f.map_filter(f.create_map(f.lit(name), f.col(name)), lambda _, n: n > 0)
    zero = f.lit(0)
    return f.map_zip_with(counts, more, lambda _, one, other: f.coalesce(one, zero) + f.coalesce(other, zero))


def rates(throughput: DataFrame) -> DataFrame:
    """Rows of ``rates``: ratios of the counts of ``throughput``; null if the denominator is 0."""
    from pyspark.sql import functions as f

    ended = f.col("acked") + f.col("dead_lettered")
    return throughput.select(
        "date",
        "grain",
        "at",
        *KEYS,
        "delivered",
        "retried",
        ended.alias("ended"),
        "dead_lettered",
        f.try_divide("retried", "delivered").alias("retry_rate"),
        f.try_divide("dead_lettered", ended).alias("dead_letter_rate"),
        "at_least",
    )


def payload(journal: DataFrame, missing_spans: MissingSpans) -> DataFrame:
    """Rows of ``payload``: sizes of accepted and of delivered bodies, in bytes."""
    from pyspark.sql import functions as f

    minute = (f.col("at") - f.pmod(f.col("at"), f.lit(MINUTE_MS))).alias("minute")
    keys = ("date", "grain", "at", "event", *KEYS)
    value = f.col("bytes")
    histogram = (
        journal.where(f.col("event").isin("accepted", "delivered") & value.isNotNull())
        .groupBy("date", minute, "event", *KEYS, bucket_of(value).alias("bucket"))
        .agg(f.count("*").alias("n"), f.sum(value).alias("sum"), f.max(value).alias("max"))
        .repartition("date", *KEYS)
        .select("date", grains("minute"), "event", *KEYS, "bucket", "n", "sum", "max")
    )
    return percentiles(histogram, keys).select(
        *keys,
        "n",
        f.col("sum").alias("sum_bytes"),
        f.col("max").alias("max_bytes"),
        *(f.col(name).alias(f"{name}_bytes") for name in ("p50", "p95", "p99")),
        "buckets",
        overlaps(missing_spans, f.col("at"), lasts()).alias("at_least"),
    )
