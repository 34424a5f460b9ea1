"""Views for DuckDB over the files of one moment. They need no extension of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from babelgate.pipeline.storage.schemas import DATASETS, Dataset
from babelgate.pipeline.tables.types import duckdb_type, quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable


def duckdb_views(tables: Mapping[str, DeltaTable]) -> Iterator[str]:
    """Yields a statement ``create or replace view`` for each of ``tables``, by name."""
    for name, table in sorted(tables.items()):
        yield f"create or replace view {quoted(name)} as\n{_select(DATASETS[name], table.file_uris())};\n"


def _select(dataset: Dataset, files: Sequence[str]) -> str:
    columns = ", ".join(map(quoted, dataset.columns))
    # Older files lack newer columns, which are null there. This row, which is none, states all columns and their types.
    typed = ", ".join(f"null::{duckdb_type(kind)} as {quoted(name)}" for name, kind in dataset.columns.items())
    nothing = f"select {typed} where false"
    if not files:
        return nothing
    listed = ",\n    ".join("'" + _local(each).replace("'", "''") + "'" for each in files)
    options = f"union_by_name => true, hive_partitioning => {str(bool(dataset.partitions)).lower()}"
    read = f"select * from read_parquet([\n    {listed}\n  ], {options})"
    return f"select {columns} from (\n  {nothing}\n  union all by name\n  {read}\n)"


def _local(uri: str) -> str:
    # Paths of local files are percent-encoded, with a scheme or without. Keys of an object store are left as they are.
    is_file = uri.startswith("file://") or "://" not in uri
    return unquote(uri.removeprefix("file://")) if is_file else uri
