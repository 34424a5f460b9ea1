"""Latencies, open messages and traces, computed from ``lifecycle``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.events import KEYS, MINUTE_MS, grains
from babelgate.pipeline.metrics.histogram import bucket_of, percentiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_MESSAGES = 1000
"""The most messages kept per trace; all are counted."""
AGES_SECONDS = (0, 60, 600, 3_600, 21_600, 86_400, 604_800)
"""The lower bounds of the age classes."""
MEMBERS = (
    "message_id",
    "queue",
    "job",
    "lang",
    "created_at",
    "accepted_at",
    "first_delivered_at",
    "ended_at",
    "outcome",
    "deliveries",
)
"""The members of a message in ``hops`` of a trace."""
_LATENCY_KEYS = ("date", "grain", "at", "kind", *KEYS)


def latency_hist(lifecycle: DataFrame) -> DataFrame:
    """Rows of ``latency_hist``, by the minute and the day of ``created_at``."""
    from pyspark.sql import functions as f

    began = f.coalesce("created_at", "accepted_at", "first_at")
    minute = began - f.pmod(began, f.lit(MINUTE_MS))
    kinds = f.array(
        f.struct(f.lit("wait").alias("kind"), f.col("wait_ms").alias("ms")),
        f.struct(f.lit("end_to_end").alias("kind"), f.col("e2e_ms").alias("ms")),
    )
    few = (
        lifecycle.select("date", minute.alias("minute"), *KEYS, "skewed", "at_least", f.inline(kinds))
        .where("ms is not null")
        .groupBy("date", "minute", *KEYS, "kind", bucket_of(f.col("ms")).alias("bucket"))
        .agg(
            f.count("*").alias("n"),
            f.sum("ms").alias("sum_ms"),
            f.max("ms").alias("max_ms"),
            f.count_if("skewed").alias("skewed"),
            f.bool_or("at_least").alias("at_least"),
        )
    )
    return (
        few.repartition("date", *KEYS)
        .select("date", grains("minute"), "kind", *KEYS, "bucket", "n", "sum_ms", "max_ms", "skewed", "at_least")
        .groupBy(*_LATENCY_KEYS, "bucket")
        .agg(
            f.sum("n").alias("n"),
            f.sum("sum_ms").alias("sum_ms"),
            f.max("max_ms").alias("max_ms"),
            f.sum("skewed").alias("skewed"),
            f.bool_or("at_least").alias("at_least"),
        )
    )


def latency(histogram: DataFrame) -> DataFrame:
    """Rows of ``latency``: percentiles of ``latency_hist``."""
    from pyspark.sql import functions as f

    renamed = histogram.withColumnsRenamed({"sum_ms": "sum", "max_ms": "max"}).repartition("date", *KEYS)
    found = percentiles(renamed, _LATENCY_KEYS, {"skewed": f.sum, "at_least": f.bool_or})
    times = ("p50", "p95", "p99", "max", "sum")
    return found.drop("buckets").withColumnsRenamed({name: f"{name}_ms" for name in times})


def open_messages(lifecycle: DataFrame, as_of: int) -> DataFrame:
    """Rows of ``open``: messages that had not ended at ``as_of`` (Unix ms), by last queue, state and age."""
    from pyspark.sql import functions as f

    began = f.coalesce("created_at", "accepted_at", "first_at")
    is_open = (f.col("first_at") <= as_of) & (f.col("ended_at").isNull() | (f.col("ended_at") > as_of))
    age = f.greatest((f.lit(as_of) - began) / 1000, f.lit(0))
    bounds = f.array(*(f.lit(bound).cast("bigint") for bound in AGES_SECONDS))
    reached = f.size(f.filter(bounds, lambda bound: bound <= age))
    leased = f.when(f.col("last_event") == "delivered", "leased").otherwise("waiting")
    return (
        lifecycle.where(is_open)
        .groupBy(
            f.col("last_queue").alias("queue"),
            leased.alias("state"),
            f.element_at(bounds, reached).alias("from_seconds"),
            f.try_element_at(bounds, reached + 1).alias("below_seconds"),
        )
        .agg(f.count("*").alias("n"), f.min(began).alias("oldest_at"), f.bool_or("at_least").alias("at_least"))
        .withColumns({"as_of": f.lit(as_of), "date": f.date_from_unix_date(f.lit(as_of // DAY_MS))})
    )


def traces(lifecycle: DataFrame) -> DataFrame:
    """Rows of ``traces``: one per ``trace_id``, with its messages in the order of creation."""
    from pyspark.sql import functions as f

    hop = f.col("hop")
    began: Column = f.coalesce("created_at", "accepted_at", "first_at")
    of_trace = (
        lifecycle.where("trace_id is not null")
        .select(
            "trace_id",
            "date",
            "at_least",
            f.struct(began.alias("at"), *MEMBERS).alias("hop"),
            f.struct(began.alias("began"), "first_at", "message_id", "queue").alias("order"),
        )
        .repartition("trace_id")
        .groupBy(f.xxhash64("trace_id").alias("hash"), "trace_id")
        .agg(
            f.min("date").alias("date"),
            f.min(hop["at"]).alias("started_at"),
            f.max(hop["ended_at"]).alias("last_ended_at"),
            f.count("*").alias("messages"),
            f.count_if(hop["outcome"] == "open").alias("open"),
            f.count_if(hop["outcome"] == "dead_lettered").alias("dead_lettered"),
            f.min_by(hop, "order", MAX_MESSAGES).alias("hops"),
            f.bool_or("at_least").alias("at_least"),
        )
    )
    complete = f.col("open") == 0
    lasted = f.greatest(f.col("last_ended_at") - f.col("started_at"), f.lit(0))
    return of_trace.withColumns(
        {
            "complete": complete,
            "ended_at": f.when(complete, f.col("last_ended_at")),
            "trace_ms": f.when(complete, lasted),
            "queues": f.array_distinct(f.transform("hops", lambda hop: hop["queue"])),
        }
    ).drop("last_ended_at", "hash")
