"""The files of a dataset as SQL for DuckDB. It needs no extension of DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from babelgate.pipeline.storage.schemas import Dataset

_DUCKDB = {
    "string": "varchar",
    "int": "integer",
    "bigint": "bigint",
    "double": "double",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
}


def select_files(dataset: Dataset, files: Sequence[str]) -> str:
    """A query of the rows in ``files``, paths or URLs of Parquet files, with the columns of ``dataset``."""
    columns = ", ".join(map(quoted, dataset.columns))
    # Older files lack newer columns, which are null there. This row, which is none, states all columns and their types.
    typed = ", ".join(f"null::{duckdb_type(kind)} as {quoted(name)}" for name, kind in dataset.columns.items())
    nothing = f"select {typed} where false"
    if not files:
        return nothing
    listed = ",\n    ".join(literal(_escape_glob(each)) for each in files)
    # DuckDB's own partitioning would take every folder NAME=VALUE for a column, also those above the lake. A condition
    # on ``filename`` is decided before files are opened, so other dates are not read.
    parts = "".join(f", {_partition(name, dataset.columns[name])}" for name in dataset.partitions)
    options = "union_by_name => true, hive_partitioning => false, filename => true"
    read = f"select * exclude (filename){parts} from read_parquet([\n    {listed}\n  ], {options})"
    return f"select {columns} from (\n  {nothing}\n  union all by name\n  {read}\n)"


def _partition(name: str, kind: str) -> str:
    """The column ``name`` from the last folder ``name=`` of a file's path."""
    last = literal(f".*/{name}=([^/]*)/")
    return f"cast(regexp_extract(filename, {last}, 1) as {duckdb_type(kind)}) as {quoted(name)}"


def literal(text: str) -> str:
    """``text`` as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _escape_glob(path: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", path)


def duckdb_type(kind: str) -> str:
    """A Spark SQL type in DuckDB's words."""
    outer, inner = parse_type(kind)
    match outer:
        case "array":
            return f"{duckdb_type(inner[0])}[]"
        case "map":
            return f"map({', '.join(map(duckdb_type, inner))})"
        case "struct":
            return f"struct({', '.join(f'{quoted(name)} {duckdb_type(of)}' for name, of in members(inner))})"
    return _DUCKDB[outer]


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def parse_type(kind: str) -> tuple[str, list[str]]:
    """A Spark SQL type's name, and what is in its angle brackets."""
    outer, _, inner = kind.partition("<")
    return outer, list(_split(inner[:-1])) if inner else []


def members(inner: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The names and types of the members of a struct."""
    for each in inner:
        name, _, kind = each.partition(":")
        yield name, kind


def _split(text: str) -> Iterator[str]:
    """The parts of ``text`` between the commas that are in no angle brackets."""
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]
