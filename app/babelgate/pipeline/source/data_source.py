"""The Spark data source ``babelgate`` for queues and journals: ``spark.read.format("babelgate")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from babelgate.pipeline.source.journal import SCHEMA, JournalReader, JournalStream
from babelgate.pipeline.source.options import parse_options
from babelgate.pipeline.source.queue import PEEKED, QueueReader, QueueStreamWriter, QueueWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class BabelgateSource(DataSource):
    """A queue (option ``queue``), to peek into and write to; or a journal (option ``path``), to read or stream."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ValueError that names all wrong options."""
        super().__init__(options)
        self._parsed = parse_options({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "babelgate"

    def schema(self) -> str:
        """The schema of the rows read, as DDL."""
        return SCHEMA if self._parsed.queue is None else PEEKED

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader that peeks into a queue, or reads a whole journal."""
        if self._parsed.path is None:
            return QueueReader(self._parsed)
        return JournalReader(self._parsed.path, self._parsed.skip_corrupt)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of a journal. Raises ValueError for a queue, which cannot repeat a batch after a failure."""
        if self._parsed.path is None:
            raise ValueError("a queue cannot be streamed from: set path to stream a journal")
        return JournalStream(self._parsed.path, self._parsed.max_segments, self._parsed.skip_corrupt)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer to a queue. Raises ValueError for other modes than append."""
        _only_appended(overwrite)
        return QueueWriter(self._parsed, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A stream writer to a queue. Raises ValueError for other output modes than append."""
        _only_appended(overwrite)
        return QueueStreamWriter(self._parsed, schema)


def register(spark: SparkSession) -> None:
    """Register the format ``babelgate`` with a session. This package must be installed in the Python of the executors,
    and for streams in the Python that Spark starts on the driver."""
    spark.dataSource.register(BabelgateSource)


def _only_appended(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a queue can only be appended to: its messages are not replaced")
