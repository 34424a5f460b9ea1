"""Where messages to send come from: each source as rows with ``message_id``, ``queue``, ``created_at``, ``body``, and
what else is known of them, for ``--select``.

A source also tells its ``order``: of rows that are the same message, the greatest is sent. A row whose ``unread`` is
not null is no message: a file could not be read, or not read on, for that reason. Its ``message_id`` is the place, its
``body`` says what was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from app.pipeline.formatting import printable
from app.pipeline.storage.datasets import DatasetStore
from app.pipeline.storage.inputs import ReadOptions
from app.pipeline.storage.schemas import ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_IN_FILES = "source_file", "source_at"
_IN_JOURNAL = "at", "node", "epoch", "seq"
_UNREAD = "unreadable_file", "truncated_file"


class Source(NamedTuple):
    """``inputs``: what the rows are made of, anything that JSON holds; other inputs are another run. ``places``: the
    URLs where they lie, also when something else lies there.
    """

    rows: DataFrame
    order: tuple[str, ...]
    inputs: list[Any]
    places: list[str]


class Unread(NamedTuple):
    """How many files could not be read, or not to their end, and where, and why, one of them could not."""

    files: int
    at: str

    @classmethod
    def of(cls, found: Iterable[Any]) -> Unread:
        """From rows of ``n`` and :meth:`example`."""
        rows = list(found)
        return cls(sum(row["n"] for row in rows), min((row["example"] for row in rows), default=""))

    @staticmethod
    def example() -> Column:
        """Of a group of rows that are no messages."""
        from pyspark.sql import functions as f

        told = f.concat_ws(": ", "message_id", f.col("body").cast("string"))
        return f.min(f.when(f.col("unread").isNotNull(), told)).alias("example")

    def told(self) -> str:
        """In words."""
        return f"{self.files} files could not be read, or not to their end, such as {printable(self.at)}"


def from_dataset(spark: SparkSession, root: str, dataset: str) -> Source:
    """The current run of ``accepted`` or ``quarantined`` below ``root``. Raises JobFailed where there is none."""
    store = DatasetStore(spark, root)
    run = store.current(dataset)
    rows = store.read(dataset, run)
    # What names no body, such as a file that could not be read, is no message.
    rows = rows.where("length(body) > 0")
    return Source(_all_read(rows), _IN_FILES, [[store.folder(dataset), run]], [store.folder(dataset)])


def from_files(spark: SparkSession, urls: Sequence[str], reading: ReadOptions) -> Source:
    """The bodies in files, read and judged as ``validate`` does. Raises UsageError, JobFailed."""
    from pyspark.sql import functions as f

    from app.pipeline.validate.job import list_input_files
    from app.pipeline.validate.validation_task import COLUMNS, plan_tasks, validate_batches

    files = list_input_files(urls)
    tasks = plan_tasks(files, reading.form)
    judging = partial(validate_batches, tasks=tasks, reading=reading, run="")
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(judging, ddl(COLUMNS))
    inputs: list[Any] = [[file.url, file.size, file.modified_ns] for file in files]
    unread = f.col("reason").isin(*_UNREAD)
    told = {
        "message_id": f.concat_ws("@", *_IN_FILES),
        "queue": f.lit(None),
        "body": f.col("detail").cast("binary"),
    }
    rows = rows.withColumns({name: f.when(unread, value).otherwise(f.col(name)) for name, value in told.items()})
    places = [Path(url).absolute().as_uri() if "://" not in url else url.rstrip("/") for url in urls]
    return Source(rows.withColumn("unread", f.when(unread, f.col("reason"))), _IN_FILES, inputs, places)


def from_journal(spark: SparkSession, root: str, dead: bool) -> Source:
    """The messages of the journal below ``root``: one row each, that of its acceptance, else of its first delivery; or,
    ``dead``, those that lie in a dead-letter queue as far as the journal knows, one row each.

    ``body`` is null where the journal has none. Raises JobFailed where nothing was ingested.
    """
    from pyspark.sql import functions as f

    from app.pipeline.journal.reader import existing

    snapshot = existing(spark, root)
    records = snapshot.records().withColumnRenamed("envelope", "body")
    # What has no id that could be read is a message of its own.
    one = f.coalesce(f.col("message_id"), f.concat_ws("/", "node", "epoch", "seq"))
    at = f.struct(*_IN_JOURNAL)
    whole = f.struct(*records.columns)
    if dead:
        is_fate = f.col("event").isin("dead_lettered", "poison", "redriven")
        # Rows without an order do not count.
        body = f.max_by("body", f.when(f.col("body").isNotNull(), f.struct(is_fate, at)))
        last = f.max_by(whole, f.when(is_fate, at))
        found = (
            records.where(f.col("event") != "gap")
            .groupBy("queue", one.alias("one"))
            .agg(last.alias("last"), body.alias("kept"))
        )
        rows = found.where(f.col("last.event").isin("dead_lettered", "poison")).select(
            *(f.col(f"last.{name}") if name != "body" else f.col("kept").alias("body") for name in records.columns)
        )
    else:
        rank = f.struct(
            f.col("event") == "accepted", f.col("body").isNotNull(), -f.col("at"), "node", "epoch", -f.col("seq")
        )
        begun = records.where(f.col("event").isin("accepted", "delivered"))
        rows = begun.groupBy("queue", one.alias("one")).agg(f.max_by(whole, rank).alias("first")).select("first.*")
    places = [DatasetStore(spark, root).folder("journal")]
    return Source(_all_read(rows), _IN_JOURNAL, [snapshot.known().content().processes], places)


def _all_read(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.withColumn("unread", f.lit(None).cast("string"))


def select_rows(source: Source, select: str | None) -> DataFrame:
    """The rows that ``select`` chooses, and whatever it says those that tell what could not be read.

    Raises UsageError for what is no condition on their columns.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as f

    if select is None:
        return source.rows
    try:
        return source.rows.where(f.col("unread").isNotNull() | f.expr(select))
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise click.UsageError(f"--select: {reason}. Columns: {', '.join(source.rows.columns)}") from None


def distinct_messages(rows: DataFrame, order: Sequence[str], to_queue: str | None, limit: int | None) -> DataFrame:
    """Every message once: (message_id, target_queue, created_at, copies, body, unread); the oldest ``limit`` by
    ``created_at``, what could not be read before them.

    A message is one by its id; without one, by its bytes. ``copies`` counts the rows it had.
    """
    from pyspark.sql import functions as f

    has_id = f.trim(f.col("message_id")) != ""
    digest: Column = f.concat(f.lit("sha256:"), f.sha2(f.coalesce("body", f.lit(b"")), 256))
    named = f.coalesce(f.lit(to_queue).cast("string"), f.col("queue"), f.lit(""))
    target = f.when(f.col("unread").isNull(), named).otherwise("")
    once = (
        rows.select(
            f.when(has_id, f.col("message_id")).otherwise(digest).alias("message_id"),
            target.alias("target_queue"),
            f.struct("created_at", "body", "unread").alias("kept"),
            f.struct(*order, f.sha2(f.coalesce("body", f.lit(b"")), 256)).alias("order"),
        )
        .groupBy("message_id", "target_queue")
        .agg(f.max_by("kept", "order").alias("kept"), f.count("*").alias("copies"))
        .select("message_id", "target_queue", "kept.created_at", "copies", "kept.body", "kept.unread")
    )
    if limit is None:
        return once
    oldest = f.col("created_at").asc_nulls_last(), "message_id", "target_queue"
    return once.orderBy(f.col("unread").asc_nulls_last(), *oldest).limit(limit)
