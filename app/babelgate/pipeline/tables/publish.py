"""Commits the files of the current runs to the logs of Delta Lake tables, one table for each dataset.

The log of a table is in the folder of its dataset and names files of its runs, so nothing is copied. Manifests decide
what is current; a log follows them, and a commit that a killed process left out is made by the next one.
"""

from __future__ import annotations

import errno
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, create_table_with_add_actions

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.locks import waiting_lock
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.current_files import TABLES, TOGETHER, TableFile, current_folders, files_in, stats_of
from babelgate.pipeline.tables.moment import TableVersion, delta_url, save_moment
from babelgate.pipeline.tables.types import delta_schema

MAX_RETAIN_DAYS = 30
"""The logs of tables keep all versions for this long, unless ``maintain`` removes them."""
_ATTEMPTS = 5
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_CONFIGURATION = {
    # ``maintain`` removes the versions that are older than its retention. This is for lakes that it never sees.
    "delta.logRetentionDuration": f"interval {MAX_RETAIN_DAYS} days",
    "delta.checkpointInterval": "20",
}


class NotWritable(JobFailed):
    """The lake may only be read, so its tables were not updated."""


def publish_tables(root: str, names: Collection[str] = TABLES) -> list[TableVersion]:
    """Make the tables ``names`` (those that have data) equal to the current runs, and record one moment of them all.

    Reads the footers of new files; blocks for one commit a table, and while another process does the same on a local
    lake. Tables of a job whose datasets have no run in common stay as they are. Raises JobFailed.
    """
    try:
        files = ArrowFiles(root)
        reader = DatasetReader(files, files.root)
        if not any(files.exists(reader.folder(name)) for name in names):
            return []
        delta_url(files)
        with tables_lock(files):
            made = [each for datasets in TOGETHER for each in _publish(reader, files, datasets, names)]
            save_moment(files, made)
    except (OSError, ValueError, DeltaError) as error:
        raise JobFailed(f"The tables of {root} could not be written: {_plain(error)}") from error
    return made


@contextmanager
def tables_lock(files: ArrowFiles) -> Iterator[None]:
    """Be the only one who writes to the tables during the block; wait until then. Only on a local file system.

    Raises NotWritable, OSError.
    """
    with ExitStack() as held:
        if files.is_local:
            try:
                held.enter_context(waiting_lock(f"{files.root}/_tables.lock"))
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise NotWritable(f"{files.root} may only be read: {error.strerror}") from error
                raise
        yield


def _publish(
    reader: DatasetReader, files: ArrowFiles, datasets: Sequence[str], names: Collection[str]
) -> list[TableVersion]:
    """Commit what has changed in those of ``datasets`` that are in ``names`` and have data; one job makes them current.

    Raises CommitFailedError, OSError.
    """
    tables = {name: _Table(reader, files, name) for name in datasets if name in names}
    if not tables:
        return []
    for left in reversed(range(_ATTEMPTS * len(tables))):
        try:
            opened = {name: table.open() for name, table in tables.items()}
            # Read after the logs: whatever another process makes current later is committed by that process.
            folders = current_folders(reader, datasets) or {}
            return [tables[name].commit(opened[name], folders[name]) for name in tables if name in folders]
        except CommitFailedError:
            # Another process committed meanwhile, so these differences are of no worth.
            if not left:
                raise
    raise AssertionError("unreachable")


def table_url(root: str, name: str) -> str:
    """The URL of a table, as the libraries of Delta Lake take it."""
    return f"{delta_url(ArrowFiles(root))}/{_path(name)}"


def files_of(table: DeltaTable) -> dict[str, tuple[int, int]]:
    """The size in bytes and the number of rows of each file of a table, by path."""
    import pyarrow as pa

    # pa.table() would import pandas to ask whether this is one of its frames.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    return {path: (size, rows or 0) for path, size, rows in zip(*columns, strict=True)}


def _path(name: str) -> str:
    return f"{name}/v={DATASETS[name].version}"


def _plain(error: Exception) -> str:
    """The text of an error of a library, in one line and without colours."""
    return " ".join(_COLOURS.sub("", str(error)).split())


class _Table:
    def __init__(self, reader: DatasetReader, files: ArrowFiles, name: str) -> None:
        self._files = files
        self._dataset = DATASETS[name]
        self._home = reader.folder(name)
        self._url = table_url(files.root, name)

    def open(self) -> DeltaTable | None:
        """The newest version, with all columns; None before the first. Raises CommitFailedError, OSError."""
        try:
            table = DeltaTable(self._url)
        except TableNotFoundError:
            return None
        # Opened again, as another process may have committed before the columns were added.
        return DeltaTable(self._url) if self._add_columns(table) or self._configure(table) else table

    def commit(self, table: DeltaTable | None, folders: Sequence[str]) -> TableVersion:
        """Commit how ``folders`` differ from ``table`` as it was opened. Raises CommitFailedError, OSError."""
        known = {} if table is None else files_of(table)
        current = {each.path: each for each in self._current(known, folders)}
        added = [file for path, file in current.items() if known.get(path, (None, 0))[0] != file.size]
        removed = [TableFile(path, size, 0) for path, (size, _) in known.items() if path not in current]
        adds = [self._add(file) for file in added]
        if table is None:
            self._create(adds)
        elif adds or removed:
            self._swap(table, adds, removed)
        return TableVersion(self._dataset.name, _path(self._dataset.name), DeltaTable(self._url).version())

    def _current(self, known: Mapping[str, tuple[int, int]], folders: Iterable[str]) -> Iterator[TableFile]:
        """The files of ``folders``. Those that the log has, ``known``, are not listed again, as they never change."""
        listed: defaultdict[str, list[TableFile]] = defaultdict(list)
        for path, (size, _) in known.items():
            listed[path.rpartition("/")[0]].append(TableFile(path, size, 0))
        for folder in folders:
            # An earlier version repeated a whole run in its place (``validate --force``).
            is_run = folder.startswith("run=") and "/" not in folder
            files = None if is_run else listed.get(folder)
            yield from files_in(self._files, self._home, folder) if files is None else files

    def _create(self, adds: list[AddAction]) -> None:
        try:
            create_table_with_add_actions(
                self._url,
                delta_schema(self._dataset),
                adds,
                partition_by=list(self._dataset.partitions),
                name=self._dataset.name,
                configuration=_CONFIGURATION,
            )
        except DeltaError as error:
            # The library has no type of its own for a table that another process has made meanwhile.
            if not DeltaTable.is_deltatable(self._url):
                raise
            raise CommitFailedError(str(error)) from error

    def _swap(self, table: DeltaTable, adds: list[AddAction], removed: Iterable[TableFile]) -> None:
        now = time.time_ns() // 1_000_000
        removes = [RemoveAction(file.path, True, now, file.size, self._partition(file)) for file in removed]
        table.create_write_transaction(
            [*adds, *removes],
            "append",
            delta_schema(self._dataset),
            list(self._dataset.partitions),
            # A library that commits again on top of another's commit would not see what that one removed.
            commit_properties=CommitProperties(max_commit_retries=0),
        )

    def _add_columns(self, table: DeltaTable) -> bool:
        """Add the columns that the dataset got since the table was made. Returns whether there were any."""
        known = {field.name for field in table.schema().fields}
        added = [field for field in delta_schema(self._dataset).fields if field.name not in known]
        if added:
            table.alter.add_columns(added)
        return bool(added)

    def _configure(self, table: DeltaTable) -> bool:
        """Set the properties that a table of an older version lacks. Returns whether there were any."""
        found = table.metadata().configuration
        lacking = {name: value for name, value in _CONFIGURATION.items() if found.get(name) != value}
        if lacking:
            table.alter.set_table_properties(lacking)
        return bool(lacking)

    def _add(self, file: TableFile) -> AddAction:
        stats = stats_of(self._files, self._home, file)
        return AddAction(file.path, file.size, self._partition(file), file.modified_at, True, stats)

    def _partition(self, file: TableFile) -> dict[str, str | None]:
        found = file.partition
        return {name: found.get(name) for name in self._dataset.partitions}
