"""The data source ``babelgate``: queues and journals in Spark's own words, ``spark.read.format("babelgate")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from app.pipeline.source.journal import SCHEMA, JournalReader, JournalStream
from app.pipeline.source.options import parse_options
from app.pipeline.source.queue import PEEKED, QueueReader, QueueStreamWriter, QueueWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class BabelgateSource(DataSource):
    """A queue (``queue``), to look at and to write to; or a journal (``path``), to read at once or as a stream."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ValueError for options that are wrong, all of them in one sentence."""
        super().__init__(options)
        self._given = parse_options({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        """What ``format`` is told."""
        return "babelgate"

    def schema(self) -> str:
        """Of what is read."""
        return SCHEMA if self._given.queue is None else PEEKED

    def reader(self, schema: StructType) -> DataSourceReader:
        """A look at a queue, or a whole journal."""
        if self._given.path is None:
            return QueueReader(self._given)
        return JournalReader(self._given.path, self._given.skip_corrupt)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A journal. A queue is no stream: what a query repeats after a failure, a queue has handed out already."""
        if self._given.path is None:
            raise ValueError("a queue cannot be streamed from: give path, and read the journal")
        return JournalStream(self._given.path, self._given.max_segments, self._given.skip_corrupt)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A queue, in the mode append."""
        _only_appended(overwrite)
        return QueueWriter(self._given, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A queue, in the output mode append."""
        _only_appended(overwrite)
        return QueueStreamWriter(self._given, schema)


def register(spark: SparkSession) -> None:
    """Make the format ``babelgate`` known to a session. The executors, and for streams the driver's Python as Spark
    starts it, need this package installed."""
    spark.dataSource.register(BabelgateSource)


def _only_appended(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a queue can only be appended to: what lies on it is not replaced")
