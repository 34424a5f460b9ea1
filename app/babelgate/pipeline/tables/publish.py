"""Commits the files of the current runs to the logs of Delta Lake tables, one table for each dataset.

The log of a table is in the folder of its dataset and names files of its runs, so nothing is copied. Manifests decide
what is current; a log follows them, and a commit that a killed process left out is made by the next one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, create_table_with_add_actions

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.locks import waiting_lock
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.current_files import TABLES, TableFile, current_folders, files_in, stats_of
from babelgate.pipeline.tables.moment import TableVersion, save_moment
from babelgate.pipeline.tables.types import delta_schema

_ATTEMPTS = 5
_CONFIGURATION = {
    # Files of older versions are removed after --retain-hours (24), so older versions are of no use.
    "delta.logRetentionDuration": "interval 2 days",
    "delta.checkpointInterval": "20",
}


class Published(NamedTuple):
    """A table after its commit. ``changed``: whether a new version was made; ``files``, ``rows``: what it has now."""

    name: str
    version: int
    changed: bool
    files: int
    rows: int


def publish_tables(root: str, names: Iterable[str] = TABLES) -> list[Published]:
    """Make the tables ``names`` (those that have data) equal to the current runs, and record one moment of them all.

    Reads the footers of new files; blocks for one commit a table, and while another process does the same on a local
    lake. Raises JobFailed.
    """
    try:
        files = ArrowFiles(root)
        with waiting_lock(f"{files.root}/_tables.lock") if files.is_local else nullcontext():
            reader = DatasetReader(files, files.root)
            made = [each for name in names if (each := _Table(reader, files, name).publish()) is not None]
            save_moment(files, [TableVersion(each.name, _path(each.name), each.version) for each in made])
    except (OSError, ValueError, DeltaError) as error:
        raise JobFailed(f"The tables of {root} could not be written: {error}") from error
    return made


def table_url(root: str, name: str) -> str:
    """The URL of a table, as the libraries of Delta Lake take it."""
    url = f"{root.rstrip('/')}/{_path(name)}"
    return url.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)


def _path(name: str) -> str:
    return f"{name}/v={DATASETS[name].version}"


class _Table:
    def __init__(self, reader: DatasetReader, files: ArrowFiles, name: str) -> None:
        self._reader = reader
        self._files = files
        self._dataset = DATASETS[name]
        self._home = reader.folder(name)
        self._url = table_url(files.root, name)

    def publish(self) -> Published | None:
        """Commit what has changed. Returns None if the dataset has no data. Raises CommitFailedError, OSError."""
        for attempt in range(_ATTEMPTS):
            table = self._open()
            # Read after the log: whatever another process makes current later is committed by that process.
            folders = current_folders(self._reader, self._dataset.name)
            if folders is None:
                return None
            try:
                return self._commit(table, folders)
            except CommitFailedError:
                # Another process committed meanwhile, so this difference is of no worth.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._url)
        except TableNotFoundError:
            return None

    def _commit(self, table: DeltaTable | None, folders: Sequence[str]) -> Published:
        known = {} if table is None else _files_of(table)
        current = {each.path: each for each in self._current(known, folders)}
        added = [file for path, file in current.items() if known.get(path, (None, 0))[0] != file.size]
        removed = [TableFile(path, size, 0) for path, (size, _) in known.items() if path not in current]
        adds = [self._add(file) for file in added]
        if table is None:
            self._create(adds)
        else:
            self._add_columns(table)
            if adds or removed:
                self._swap(table, adds, removed)
        table = DeltaTable(self._url)
        rows = sum(count for _, count in _files_of(table).values())
        return Published(self._dataset.name, table.version(), bool(adds or removed), len(current), rows)

    def _current(self, known: Mapping[str, tuple[int, int]], folders: Iterable[str]) -> Iterator[TableFile]:
        """The files of ``folders``. Those that the log has, ``known``, are not listed again, as they never change."""
        listed: defaultdict[str, list[TableFile]] = defaultdict(list)
        for path, (size, _) in known.items():
            listed[path.rpartition("/")[0]].append(TableFile(path, size, 0))
        for folder in folders:
            # A whole run may have been repeated in its place (``validate --force``).
            is_run = folder.startswith("run=") and "/" not in folder
            files = None if is_run else listed.get(folder)
            yield from files_in(self._files, self._home, folder) if files is None else files

    def _create(self, adds: list[AddAction]) -> None:
        create_table_with_add_actions(
            self._url,
            delta_schema(self._dataset),
            adds,
            partition_by=list(self._dataset.partitions),
            name=self._dataset.name,
            configuration=_CONFIGURATION,
        )

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

    def _add_columns(self, table: DeltaTable) -> None:
        """Add the columns that the dataset got since the table was made."""
        known = {field.name for field in table.schema().fields}
        added = [field for field in delta_schema(self._dataset).fields if field.name not in known]
        if added:
            table.alter.add_columns(added)
            table.update_incremental()

    def _add(self, file: TableFile) -> AddAction:
        stats = stats_of(self._files, self._home, file)
        return AddAction(file.path, file.size, self._partition(file), file.modified_at, True, stats)

    def _partition(self, file: TableFile) -> dict[str, str | None]:
        found = file.partition
        return {name: found.get(name) for name in self._dataset.partitions}


def _files_of(table: DeltaTable) -> dict[str, tuple[int, int]]:
    """The size in bytes and the number of rows of each file of a table, by path."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    return {path: (size, rows or 0) for path, size, rows in zip(*columns, strict=True)}
