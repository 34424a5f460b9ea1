"""Sources of messages to send: rows with ``message_id``, ``queue``, ``created_at``, ``body``, and more columns for
``--select``.

A row with a non-null ``unread`` is a file that could not be read completely, or a message whose body cannot be
decrypted. ``unread`` is then the reason, ``message_id`` the place or the message, and ``body`` the error text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from babelgate.envelope.options import MAX_ORDERING_KEY
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import FEW_RECORDS, snapshot
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore
from babelgate.pipeline.storage.input_files import are_small, contents
from babelgate.pipeline.storage.inputs import ReadOptions
from babelgate.pipeline.storage.schemas import ddl
from babelgate.terminal import printable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from babelgate.privacy.ciphers import BodyCipher, BodyKey

_IN_FILES = "source_file", "source_at"
_IN_JOURNAL = "at", "node", "epoch", "seq"
ENCRYPTED = "encrypted_body"
"""Why a row is ``unread`` whose body cannot be decrypted."""
_BODIES = "body", "envelope_encrypted", "headers", "ordering_key", "headers_encrypted"
"""Columns that come from one row of a message."""
_CARRIED = "headers", "ordering_key"
_UNREAD = "unreadable_file", "truncated_file"


class Source(NamedTuple):
    """Rows to send. ``order``: columns; of several rows of one message the greatest is sent. ``inputs``: JSON values
    that identify the content, and so the run. ``places``: URLs of the inputs, independent of their content.
    """

    rows: DataFrame
    order: tuple[str, ...]
    inputs: list[Any]
    places: list[str]


class SendOrigin(NamedTuple):
    """Where the messages are. ``read``: makes the source. Without Spark, ``inputs``: its ``inputs``; ``is_small``:
    whether Spark costs less with the settings of a short job."""

    read: Callable[[SparkSession], Source]
    inputs: Callable[[DatasetReader], list[Any]]
    is_small: Callable[[], bool]


class Unread(NamedTuple):
    """The number of files that could not be read completely, and of messages that could not be decrypted. ``at``: place
    and reason of one of them."""

    files: int
    at: str

    @classmethod
    def of(cls, found: Iterable[Any]) -> Unread:
        """From rows of ``n`` and :meth:`example`."""
        rows = list(found)
        return cls(sum(row["n"] for row in rows), min((row["example"] for row in rows), default=""))

    @staticmethod
    def example() -> Column:
        """An aggregate column: one of the unread places of a group, with its reason."""
        from pyspark.sql import functions as f

        place = f.concat_ws(": ", "message_id", f.col("body").cast("string"))
        return f.min(f.when(f.col("unread").isNotNull(), place)).alias("example")

    def text(self) -> str:
        """The message for people."""
        return f"{self.files} files or bodies could not be read completely, such as {printable(self.at)}"


class LongKeys(NamedTuple):
    """The number of messages whose ordering key is longer than a gateway takes, and the least id of them.

    Such a key has come from a program that wrote to the broker itself.
    """

    messages: int
    first: str

    @classmethod
    def of(cls, found: Iterable[Any]) -> LongKeys:
        """From rows of :meth:`columns`."""
        rows = [row for row in found if row["long_keys"]]
        return cls(sum(row["long_keys"] for row in rows), min((row["long_key"] for row in rows), default=""))

    @staticmethod
    def columns() -> tuple[Column, Column]:
        """Aggregate columns."""
        from pyspark.sql import functions as f

        is_long = f.length("ordering_key") > MAX_ORDERING_KEY
        return f.count_if(is_long).alias("long_keys"), f.min(f.when(is_long, f.col("message_id"))).alias("long_key")

    def refuse(self) -> None:
        """Raise UsageError, with the remedy, if there are any."""
        if self.messages:
            raise click.UsageError(
                f"{self.messages} of the selected messages, such as {printable(self.first)}, have an ordering key of "
                f"more than {MAX_ORDERING_KEY:,} characters, which no gateway takes. Leave these messages out: "
                f'--select "coalesce(length(ordering_key), 0) <= {MAX_ORDERING_KEY}"; or send them in a run of their '
                f'own without the key: --select "length(ordering_key) > {MAX_ORDERING_KEY}" --without ordering_key'
            )


def counted(rows: DataFrame) -> tuple[list[Any], Unread]:
    """Counts ``n`` and ``duplicates`` of the messages in ``rows``, by target_queue and pending, and the unread ones.

    Raises UsageError if the ordering key of a pending one is too long for a gateway.
    """
    from pyspark.sql import functions as f

    grouped = rows.groupBy("target_queue", "pending", f.col("unread").isNotNull().alias("unread"))
    duplicates = f.sum(f.col("copies") - 1).alias("duplicates")
    found = grouped.agg(f.count("*").alias("n"), duplicates, Unread.example(), *LongKeys.columns()).collect()
    LongKeys.of(row for row in found if row["pending"]).refuse()
    return [row for row in found if not row["unread"]], Unread.of(row for row in found if row["unread"])


def inputs_of_dataset(reader: DatasetReader, dataset: str) -> list[Any]:
    """What identifies the current run of ``dataset``. Raises JobFailed if there is none."""
    run = reader.current(dataset)
    if run is None:
        raise JobFailed(f"{reader.root} has no dataset {dataset}")
    home = reader.folder(dataset)
    # Spark spells a local path with a scheme and without "..". The run stays the same when bodies are erased, so that
    # nothing is sent twice.
    place = f"file:{os.path.normpath(home)}" if home.startswith("/") else home
    return [[place, (reader.manifest(dataset, run) or {}).get("run_id", run)]]


def inputs_of_journal(reader: DatasetReader) -> list[Any]:
    """What identifies the records of the journal."""
    return [snapshot(reader).known().content().processes]


def inputs_of_files(urls: Sequence[str]) -> list[Any]:
    """What identifies the content of files. Raises UsageError, JobFailed."""
    from babelgate.pipeline.validate.job import list_input_files

    return contents(list_input_files(urls))


def has_few_bodies(root: str, dataset: str) -> bool:
    """Whether the run of ``validate`` that is current in ``dataset``, below the local folder ``root``, read at most
    :data:`FEW_RECORDS` bodies."""
    reader = DatasetReader.of_local(root)
    manifest = None if reader is None else reader.manifest(dataset)
    return manifest is not None and manifest["counts"]["rows"] <= FEW_RECORDS


def has_small_files(urls: Sequence[str]) -> bool:
    """Whether files have few bytes: see :func:`are_small`. Raises UsageError, JobFailed."""
    from babelgate.pipeline.validate.job import list_input_files

    return are_small(file.size for file in list_input_files(urls))


def from_dataset(spark: SparkSession, root: str, dataset: str) -> Source:
    """The current run of ``accepted`` or ``quarantined`` below ``root``. Raises JobFailed if there is none."""
    store = DatasetStore(spark, root)
    inputs = inputs_of_dataset(store, dataset)
    rows = store.read(dataset)
    # Rows without a body, such as unreadable files, are no messages.
    rows = rows.where("length(body) > 0")
    return Source(_all_read(rows), _IN_FILES, inputs, [store.folder(dataset)])


def from_files(spark: SparkSession, urls: Sequence[str], reading: ReadOptions) -> Source:
    """The bodies in files, read and classified as by ``validate``. Raises UsageError, JobFailed."""
    from pyspark.sql import functions as f

    from babelgate.pipeline.validate.job import list_input_files
    from babelgate.pipeline.validate.validation_task import COLUMNS, plan_tasks, validate_batches

    files = list_input_files(urls)
    tasks = plan_tasks(files, reading.form)
    task = partial(validate_batches, tasks=tasks, reading=reading, run="")
    rows = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(task, ddl(COLUMNS))
    unread = f.col("reason").isin(*_UNREAD)
    replaced = {
        "message_id": f.concat_ws("@", *_IN_FILES),
        "queue": f.lit(None),
        "body": f.col("detail").cast("binary"),
    }
    rows = rows.withColumns({name: f.when(unread, value).otherwise(f.col(name)) for name, value in replaced.items()})
    places = [Path(url).absolute().as_uri() if "://" not in url else url.rstrip("/") for url in urls]
    rows = _all_read(rows).withColumn("unread", f.when(unread, f.col("reason")))
    return Source(rows, _IN_FILES, contents(files), places)


def from_journal(spark: SparkSession, root: str, dead: bool, keys: Sequence[BodyKey] = ()) -> Source:
    """The messages of the journal below ``root``, one row each: the row of its acceptance, else of its first delivery.
    Encrypted bodies are decrypted with ``keys``.

    With ``dead``: only messages that are in a dead-letter queue according to the journal, with the row of their last
    dead-lettering. ``body`` is null if the journal has none. Raises JobFailed if nothing was ingested.
    """
    from pyspark.sql import functions as f

    from babelgate.pipeline.journal.reader import existing

    snapshot = existing(spark, root)
    records = snapshot.records().withColumnRenamed("envelope", "body")
    # A record without a readable id counts as a separate message.
    one = f.coalesce(f.col("message_id"), f.concat_ws("/", "node", "epoch", "seq"))
    at = f.struct(*_IN_JOURNAL)
    has_body = f.col("body").isNotNull() | f.col("envelope_encrypted").isNotNull()
    whole = f.struct(*records.columns)
    if dead:
        is_end = f.col("event").isin("dead_lettered", "poison", "redriven")
        # max_by ignores rows with a null order.
        body = f.max_by(f.struct(*_BODIES), f.when(has_body, f.struct(is_end, at)))
        last = f.max_by(whole, f.when(is_end, at))
        found = (
            records.where(f.col("event") != "gap")
            .groupBy("queue", one.alias("one"))
            .agg(last.alias("last"), body.alias("kept"))
        )
        rows = found.where(f.col("last.event").isin("dead_lettered", "poison")).select(
            *(f.col(f"kept.{name}" if name in _BODIES else f"last.{name}") for name in records.columns)
        )
    else:
        rank = f.struct(f.col("event") == "accepted", has_body, -f.col("at"), "node", "epoch", -f.col("seq"))
        begun = records.where(f.col("event").isin("accepted", "delivered"))
        rows = begun.groupBy("queue", one.alias("one")).agg(f.max_by(whole, rank).alias("first")).select("first.*")
    places = [DatasetStore(spark, root).folder("journal")]
    return Source(decrypted(rows, keys), _IN_JOURNAL, [snapshot.known().content().processes], places)


def decrypted(rows: DataFrame, keys: Sequence[BodyKey]) -> DataFrame:
    """``rows`` with ``unread``, and with body, headers and ordering key of each row that has only encrypted ones."""
    from pyspark.sql import functions as f

    known = tuple((key.id, key.secret) for key in keys)
    # PySpark reads the annotations of what it is given, and does not know these.
    kind = "struct<body:binary,headers:string,ordering_key:string,why:string>"
    opening = f.udf(lambda stored, headers, queue: _opened(stored, headers, queue, known), kind)
    is_encrypted = f.col("body").isNull() & f.col("envelope_encrypted").isNotNull()
    stored = f.when(is_encrypted, f.col("envelope_encrypted"))
    found = rows.withColumn("opened", opening(stored, "headers_encrypted", "queue"))
    body = f.coalesce(f.col("body"), f.col("opened.body"), f.col("opened.why").cast("binary"))
    unread = f.when(f.col("opened.why").isNotNull(), f.lit(ENCRYPTED))
    carried = {name: f.coalesce(f.col(name), f.col(f"opened.{name}")) for name in _CARRIED}
    return found.withColumns({"body": body, "unread": unread, **carried}).drop("opened")


def _opened(
    stored: Any, headers: Any, queue: str | None, keys: tuple[tuple[str, bytes], ...]
) -> tuple[bytes | None, str | None, str | None, str | None]:
    """In a worker of Spark: the body that was encrypted, its headers and ordering key, or why it cannot be read;
    nothing where there is none."""
    from babelgate.privacy.body_keys import opened, opened_headers, why
    from babelgate.privacy.ciphers import BodyUnreadable

    if stored is None:
        return None, None, None, None
    try:
        cipher = _cipher(keys)
        carried = (None, None) if headers is None else opened_headers(bytes(headers), queue or "", cipher)
        return opened(bytes(stored), queue or "", cipher), *carried, None
    except BodyUnreadable as error:
        return None, None, None, why(error)


@cache
def _cipher(keys: tuple[tuple[str, bytes], ...]) -> BodyCipher:
    from babelgate.privacy.ciphers import BodyCipher, BodyKey

    return BodyCipher([BodyKey(id, secret) for id, secret in keys])


def _all_read(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.withColumns({name: f.lit(None).cast("string") for name in ("unread", *_CARRIED)})


def select_rows(source: Source, select: str | None) -> DataFrame:
    """The rows that match the SQL condition ``select``, and all unread files.

    Raises UsageError if ``select`` is no condition on the columns.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as f

    if select is None:
        return source.rows
    try:
        return source.rows.where(f.col("unread").isin(*_UNREAD) | f.expr(select))
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise click.UsageError(f"--select: {reason}. Columns: {', '.join(source.rows.columns)}") from None


def leaving_out(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """``rows``, in which these of ``headers`` and ``ordering_key`` are null."""
    from pyspark.sql import functions as f

    return rows.withColumns({name: f.lit(None).cast("string") for name in columns})


def distinct_messages(rows: DataFrame, order: Sequence[str], to_queue: str | None, limit: int | None) -> DataFrame:
    """Every message once: message_id, target_queue, created_at, place, copies, body, headers, ordering_key, unread.

    A message is identified by its id and queue; without an id, by its bytes. ``copies``: its number of rows.
    ``place``: that of its record in the journal, which orders messages; null elsewhere. With ``limit``, only the oldest
    by ``created_at``; ``unread`` rows come first.
    """
    from pyspark.sql import functions as f

    has_id = f.trim(f.col("message_id")) != ""
    digest: Column = f.concat(f.lit("sha256:"), f.sha2(f.coalesce("body", f.lit(b"")), 256))
    named = f.coalesce(f.lit(to_queue).cast("string"), f.col("queue"), f.lit(""))
    target = f.when(f.col("unread").isNull(), named).otherwise("")
    kept = *(f"kept.{name}" for name in _CARRIED), "kept.unread"
    place = f.struct(*order) if order == _IN_JOURNAL else f.lit(None).cast("string")
    once = (
        rows.select(
            f.when(has_id, f.col("message_id")).otherwise(digest).alias("message_id"),
            target.alias("target_queue"),
            f.struct("created_at", place.alias("place"), "body", *_CARRIED, "unread").alias("kept"),
            f.struct(*order, f.sha2(f.coalesce("body", f.lit(b"")), 256)).alias("order"),
        )
        .groupBy("message_id", "target_queue")
        .agg(f.max_by("kept", "order").alias("kept"), f.count("*").alias("copies"))
        .select("message_id", "target_queue", "kept.created_at", "kept.place", "copies", "kept.body", *kept)
    )
    if limit is None:
        return once
    oldest = f.col("created_at").asc_nulls_last(), "message_id", "target_queue"
    return once.orderBy(f.col("unread").asc_nulls_last(), *oldest).limit(limit)
