"""Views for DuckDB over the files of one moment. They need no extension of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from babelgate.pipeline.storage.duckdb_sql import quoted, select_files
from babelgate.pipeline.storage.schemas import DATASETS

if TYPE_CHECKING:
    from deltalake import DeltaTable


def duckdb_views(tables: Mapping[str, DeltaTable]) -> Iterator[str]:
    """Yields a statement ``create or replace view`` for each of ``tables``, by name."""
    for name, table in sorted(tables.items()):
        rows = select_files(DATASETS[name], [_local(each) for each in table.file_uris()])
        yield f"create or replace view {quoted(name)} as\n{rows};\n"


def _local(uri: str) -> str:
    # Paths of local files are percent-encoded, with a scheme or without. Keys of an object store are left as they are.
    is_file = uri.startswith("file://") or "://" not in uri
    return unquote(uri.removeprefix("file://")) if is_file else uri
