"""Reads the records of one message, or of all messages of a trace, with Spark or DuckDB: the same rows in one order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from babelgate.pipeline.duckdb_engine.lake import DuckDBLake, duckdb_reader, is_small, opened
from babelgate.pipeline.find.search import MAX_EVENTS
from babelgate.pipeline.journal.reader import Snapshot, existing, existing_in, has_few_records
from babelgate.pipeline.spark.console import progress
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.duckdb_sql import literal, quoted
from babelgate.pipeline.storage.schemas import JOURNAL

if TYPE_CHECKING:
    from pyspark.sql import Column

Kind = Literal["message", "trace"]
_ORDER = ("at", "node", "epoch", "seq")
_COLUMNS = (
    *_ORDER,
    "message_id",
    "trace_id",
    "job",
    "lang",
    "created_at",
    "bytes",
    "event",
    "queue",
    "broker",
    "attempts",
    "lease_seconds",
    "outcome",
    "to_queue",
)


class Records(Protocol):
    """The journal at one moment, and a search in it."""

    @property
    def journal(self) -> Snapshot: ...

    def find(self, kind: Kind, sought: str, dates: Collection[str] | None) -> list[dict[str, Any]]:
        """The first :data:`MAX_EVENTS` records on ``dates`` (ISO 8601; None: all), and the next one if there is one."""
        ...


@contextmanager
def records(launch: Launch, kind: Kind, root: str) -> Iterator[Records]:
    """The journal of the lake at ``root``, by the engine that ``launch`` asks for. Raises JobFailed without one."""
    reader = duckdb_reader(launch, root)
    journal = None if reader is None else existing_in(reader)
    if reader is not None and journal is not None and is_small(launch, reader, journal.folders()):
        with opened(reader) as lake:
            yield _DuckDBRecords(journal, lake)
    else:
        with launch.spark(kind, short=has_few_records(root)) as spark, progress(spark, kind):
            yield _SparkRecords(existing(spark, root))


class _SparkRecords:
    def __init__(self, journal: Snapshot) -> None:
        self.journal = journal

    def find(self, kind: Kind, sought: str, dates: Collection[str] | None) -> list[dict[str, Any]]:
        found = self.journal.records(dates).where(self._condition(kind, sought, dates)).select(*_COLUMNS)
        return [row.asDict() for row in found.orderBy(*_ORDER).limit(MAX_EVENTS + 1).collect()]

    def _condition(self, kind: Kind, sought: str, dates: Collection[str] | None) -> Column:
        from pyspark.sql import functions as f

        if kind == "message":
            return f.col("message_id") == sought
        of_trace = f.col("trace_id") == sought
        rows = self.journal.records(dates).where(of_trace & f.col("message_id").isNotNull())
        ids = [row["message_id"] for row in rows.select("message_id").distinct().limit(MAX_EVENTS).collect()]
        # Some events have the message id, but not the trace id.
        return of_trace | (f.col("trace_id").isNull() & f.col("message_id").isin(ids))


class _DuckDBRecords:
    def __init__(self, journal: Snapshot, lake: DuckDBLake) -> None:
        self.journal = journal
        self._lake = lake

    def find(self, kind: Kind, sought: str, dates: Collection[str] | None) -> list[dict[str, Any]]:
        rows = self._lake.select(JOURNAL.name, self.journal.folders(dates))
        # Batches may also have records of other dates.
        days = "true" if dates is None else f"list_contains([{', '.join(map(literal, dates))}]::date[], date)"
        self._lake.view("journal", f"select * from ({rows}) where {days}")
        condition = "message_id = $sought"
        if kind == "trace":
            ids = "select message_id from journal where trace_id = $sought and message_id is not null"
            # Some events have the message id, but not the trace id.
            condition = f"trace_id = $sought or (trace_id is null and message_id in ({ids}))"
        columns, order = (", ".join(map(quoted, names)) for names in (_COLUMNS, _ORDER))
        return self._lake.rows(
            f"select {columns} from journal where {condition} order by {order} limit {MAX_EVENTS + 1}",
            {"sought": sought},
        )
