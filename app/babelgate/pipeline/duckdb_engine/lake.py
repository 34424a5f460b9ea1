"""Reads and writes the datasets of a lake with DuckDB, and decides whether to. Of an object store it reads and
writes local copies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.extras import how_to_install, missing
from babelgate.pipeline.errors import ExtraMissing, JobFailed, require_spark
from babelgate.pipeline.spark.console import say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.duckdb_sql import duckdb_type, literal, quoted, select_files
from babelgate.pipeline.storage.schemas import DATASETS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from babelgate.pipeline.storage.arrow_files import ArrowFiles

Row = dict[str, Any]
_MIB = 1024 * 1024
_COPIES = 8
"""Files of an object store that are copied at a time."""


class DuckDBLake:
    """The rows of datasets, read by DuckDB. Only below :func:`opened`."""

    def __init__(self, reader: DatasetReader, connection: DuckDBPyConnection, folder: str) -> None:
        """``folder``: where copies of files in an object store are kept."""
        self.reader = reader
        self._connection = connection
        self._folder = Path(folder)

    def select(self, dataset: str, folders: Sequence[str]) -> str:
        """SQL of the rows in ``folders`` (URLs), with the columns of ``dataset``. Raises JobFailed if one is gone."""
        files = [url for url, _ in parquet_files(self.reader, folders)]
        return select_files(DATASETS[dataset], files if self.reader.files.is_local else self._copies(files))

    def current(self, dataset: str) -> str:
        """SQL of the rows of the current run of ``dataset``. Raises JobFailed without one."""
        return self.select(dataset, self.reader.current_folders(dataset))

    def parts(self, dataset: str, parts: Mapping[str, str]) -> str:
        """SQL of the rows of the dates in ``parts``, which maps each ISO date, or slice of one, to its run."""
        home = self.reader.folder(dataset)
        return self.select(dataset, [f"{home}/run={run}/date={day}" for day, run in sorted(parts.items())])

    def typed(self, sql: str, dataset: str) -> str:
        """The rows of a query in the columns of ``dataset``, as wide as its schema."""
        # DuckDB makes sums of integers wider, and writes those as floating-point numbers.
        columns = DATASETS[dataset].columns.items()
        listed = ", ".join(f"{quoted(name)}::{duckdb_type(of)} as {quoted(name)}" for name, of in columns)
        return f"select {listed} from ({sql})"

    def write(self, sql: str, dataset: str, run: str) -> None:
        """Write the rows of a query as those of a run, in the columns of ``dataset``. Replaces an earlier attempt.

        Those of an object store are written to local files, which are then copied and kept for :meth:`select`. Raises
        JobFailed.
        """
        files, url = self.reader.files, self.reader.folder(dataset, run)
        files.remove(url)
        folder = url if files.is_local else str(self._copy_of(url))
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir(parents=True)
        self.copy(self.typed(sql, dataset), folder, DATASETS[dataset].partitions)
        if not files.is_local:
            made = [file for file in Path(folder).rglob("*") if file.is_file()]
            with ThreadPoolExecutor(_COPIES) as pool:
                for _ in pool.map(lambda file: self._send(file, f"{url}/{file.relative_to(folder)}"), made):
                    pass

    def copy(self, sql: str, folder: str, partitions: Sequence[str]) -> None:
        """Write the rows of a query below a folder, by ``partitions``."""
        by = f", partition_by ({', '.join(map(quoted, partitions))})" if partitions else ""
        self.run(f"copy ({sql}) to {literal(folder)} (format parquet, compression zstd, overwrite_or_ignore{by})")

    def forget(self, folders: Sequence[str]) -> None:
        """Remove the local copies of what is in ``folders`` (URLs), and will not be read again."""
        for url in folders:
            shutil.rmtree(self._copy_of(url), ignore_errors=True)

    def _send(self, file: Path, url: str) -> None:
        try:
            self._files.send(str(file), url)
        except OSError as error:
            raise JobFailed(f"{url} could not be written: {error}") from error

    @property
    def _files(self) -> ArrowFiles:
        from babelgate.pipeline.storage.arrow_files import ArrowFiles

        assert isinstance(self.reader.files, ArrowFiles)
        return self.reader.files

    def _copy_of(self, url: str) -> Path:
        """Where the copy of a file or folder is. The folders above are kept: some have the value of a column."""
        return self._folder / "copies" / url.removeprefix(self.reader.root).lstrip("/")

    def _copies(self, urls: Sequence[str]) -> list[str]:
        """The paths of local copies of files in an object store, each made once; DuckDB's own client is an extension,
        which would have to be downloaded. Raises JobFailed."""
        with ThreadPoolExecutor(_COPIES) as pool:
            return list(pool.map(self._copy, urls))

    def _copy(self, url: str) -> str:
        path = self._copy_of(url)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._files.fetch(url, str(path))
            except OSError as error:
                raise JobFailed(f"{url} could not be read: {error}") from error
        return str(path)

    def run(self, sql: str) -> None:
        """Run a statement."""
        self._connection.execute(sql)

    def view(self, name: str, sql: str) -> None:
        """Call the rows of ``sql`` ``name`` in later statements."""
        self.run(f"create or replace temporary view {quoted(name)} as {sql}")

    def table(self, name: str, sql: str) -> None:
        """Keep the rows of ``sql`` as the table ``name``."""
        self.run(f"create or replace temporary table {quoted(name)} as {sql}")

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows to a table."""
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            # One statement: executemany runs one for each row.
            self._connection.execute(
                f"insert into {quoted(table)} select {', '.join(['unnest(?)'] * len(columns))}", columns
            )

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """The rows of a query, by column."""
        found = self._connection.execute(sql, parameters)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def duckdb_reader(launch: Launch, root: str) -> DatasetReader | None:
    """A reader of the lake at ``root`` if DuckDB is to read it, unless it is large: see :func:`is_small`. None: Spark.

    An object store is read by DuckDB only if that was asked for. Raises ExtraMissing, or UsageError for another remote
    lake, if DuckDB was asked for.
    """
    is_asked = launch.engine == "duckdb"
    asks_for_spark = launch.master is not None or launch.conf or "PYSPARK_GATEWAY_PORT" in os.environ
    if launch.engine == "spark" or (asks_for_spark and not is_asked):
        return None
    if lacking := missing(("duckdb", "pyarrow")):
        if is_asked:
            raise ExtraMissing(f"not installed here: {lacking}; {how_to_install('spark')}")
        require_spark()
        say(f"{lacking} is not installed, so Spark is used")
        return None
    try:
        reader = DatasetReader.without_spark(root)
    except (OSError, ValueError):
        reader = None
    if reader is not None and (reader.files.is_local or is_asked):
        return reader
    if is_asked:
        raise click.UsageError(f"{root}: DuckDB reads local folders, s3:// and gs:// only; use --engine spark")
    return None


def is_small(launch: Launch, reader: DatasetReader, folders: Sequence[str]) -> bool:
    """Whether DuckDB is to read these folders: it was asked for, or they have at most ``launch.duckdb_max_mib``."""
    if launch.engine == "duckdb":
        return True
    return sum(size for _, size in parquet_files(reader, folders)) <= launch.duckdb_max_mib * _MIB


def parquet_files(reader: DatasetReader, folders: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields the path and size in bytes of each Parquet file in ``folders``. Raises JobFailed if a folder is gone."""
    for folder in folders:
        if not reader.files.exists(folder):
            raise JobFailed(f"{folder} is gone: another job has removed it meanwhile. Start the same command again.")
        for each in reader.files.walk(folder):
            inner = each.url.removeprefix(folder)
            if (
                inner.endswith(".parquet")
                and each.size
                and not any(part[:1] in ("_", ".") for part in inner.split("/"))
            ):
                yield each.url, each.size


@contextmanager
def opened(reader: DatasetReader) -> Iterator[DuckDBLake]:
    """DuckDB for the lake of ``reader``. Its errors in the block are raised as JobFailed."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="babelgate-") as folder:
        config: dict[str, str | bool | int | float | list[str]] = {
            # Otherwise what exceeds the memory is written to the current folder.
            "temp_directory": folder,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        connection = duckdb.connect(config=config)
        try:
            yield DuckDBLake(reader, connection, folder)
        except duckdb.Error as error:
            raise JobFailed(f"DuckDB failed: {str(error).partition(chr(10))[0]}. Try --engine spark.") from error
        finally:
            connection.close()
