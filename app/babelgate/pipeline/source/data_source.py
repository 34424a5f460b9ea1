"""The Spark data source ``babelgate`` for queues and journals: ``spark.read.format("babelgate")``."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from babelgate.pipeline.source.journal import SCHEMA, JournalReader, JournalStream, RecordReading
from babelgate.pipeline.source.messages import COLUMNS
from babelgate.pipeline.source.options import parse_options
from babelgate.pipeline.source.queue import QueueReader, QueueStreamWriter, QueueWriter
from babelgate.pipeline.source.queue_stream import QueueStream

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_LIBRARIES = ("pyspark", "pyarrow", "httpx", "msgspec")
_LACKING = (
    "import sys; from importlib.util import find_spec; print('%d.%d' % sys.version_info[:2], "
    f"*(name for name in {_LIBRARIES!r} if find_spec(name) is None))"
)
"""A program that prints its version of Python, and which libraries it lacks."""


class BabelgateSource(DataSource):
    """A queue (option ``queue``), to peek into, stream, or write to; or a journal (``path``), to read or stream."""

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
        return SCHEMA if self._parsed.queue is None else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader that peeks into a queue, or reads a whole journal."""
        if self._parsed.path is None:
            return QueueReader(self._parsed)
        return JournalReader(self._parsed.path, self._reading())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of a journal, each record once; or of a queue, each message at least once."""
        if self._parsed.path is None:
            return QueueStream(self._parsed)
        return JournalStream(self._parsed.path, self._parsed.max_segments, self._reading())

    def _reading(self) -> RecordReading:
        return RecordReading(self._parsed.skip_corrupt, self._parsed.body_keys)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer to a queue. Raises ValueError for other modes than append."""
        _only_appended(overwrite)
        return QueueWriter(self._parsed, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A stream writer to a queue. Raises ValueError for other output modes than append."""
        _only_appended(overwrite)
        return QueueStreamWriter(self._parsed, schema)


def register(spark: SparkSession) -> None:
    """Register the format ``babelgate`` with a session.

    Spark's Python processes then have this package. On one machine they run this Python, unless PYSPARK_PYTHON or
    ``spark.pyspark.python`` names another one; on a cluster they run what these name, by default ``python3``. Raises
    RuntimeError if that Python, on one machine, is of another version or lacks a library.
    """
    context = spark.sparkContext
    known = context.pythonExec
    named = context.getConf().get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    is_local = str(context.master).startswith("local")
    python = named or sys.executable
    if is_local:
        _check_python(python)
    if not is_local or python != sys.executable:
        _ship(context)
    try:
        if is_local:
            # PySpark copies it into the source: other programs of this session keep theirs.
            context.pythonExec = python
        spark.dataSource.register(BabelgateSource)
    finally:
        context.pythonExec = known


def _check_python(python: str) -> None:
    if python == sys.executable:
        return
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        told = subprocess.run([python, "-c", _LACKING], capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        told = []
    place = f"{python}, which PYSPARK_PYTHON or spark.pyspark.python names,"
    if not told:
        raise RuntimeError(f"{place} does not run: unset it, or name a Python {wanted}")
    if told[0] != wanted:
        raise RuntimeError(
            f"{place} is of version {told[0]}, and this is Python {wanted}: unset it, or name such a one"
        )
    if told[1:]:
        raise RuntimeError(f"{place} lacks {', '.join(told[1:])}: install babelgate[spark] there, or unset it")


def _ship(context: SparkContext) -> None:
    """Give this package to the workers. Later calls for the same context do nothing."""
    # Workers import this module, and not what starts sessions.
    from babelgate.pipeline.spark.session import PACKAGE, packed

    if PACKAGE in (context._python_includes or ()):
        return
    # Executors that start later read it, too.
    folder = tempfile.mkdtemp(prefix="babelgate-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = packed(Path(folder))
    if package is not None:
        context.addPyFile(str(package))


def _only_appended(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a queue can only be appended to: its messages are not replaced")
