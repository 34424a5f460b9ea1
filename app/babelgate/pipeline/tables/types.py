"""The columns of a dataset in the words of Delta Lake and of DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from deltalake import Schema

from babelgate.pipeline.storage.schemas import Dataset

_DELTA = {
    "string": "string",
    "int": "integer",
    "bigint": "long",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
}
_DUCKDB = {**{name: name for name in _DELTA}, "string": "varchar", "int": "integer", "binary": "blob"}


def delta_schema(dataset: Dataset) -> Schema:
    """The schema of ``dataset``; every column may be null."""
    fields = [_field(name, delta_type(kind)) for name, kind in dataset.columns.items()]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def delta_type(kind: str) -> Any:
    """A Spark SQL type as the Delta protocol writes it in JSON:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format"""
    outer, inner = _parse(kind)
    match outer:
        case "array":
            return {"type": "array", "elementType": delta_type(inner[0]), "containsNull": True}
        case "map":
            key, value = map(delta_type, inner)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct":
            return {"type": "struct", "fields": [_field(name, delta_type(of)) for name, of in _members(inner)]}
    return _DELTA[outer]


def duckdb_type(kind: str) -> str:
    """A Spark SQL type in DuckDB's words."""
    outer, inner = _parse(kind)
    match outer:
        case "array":
            return f"{duckdb_type(inner[0])}[]"
        case "map":
            return f"map({', '.join(map(duckdb_type, inner))})"
        case "struct":
            return f"struct({', '.join(f'{quoted(name)} {duckdb_type(of)}' for name, of in _members(inner))})"
    return _DUCKDB[outer]


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _parse(kind: str) -> tuple[str, list[str]]:
    """A type's name, and what is in its angle brackets."""
    outer, _, inner = kind.partition("<")
    return outer, list(_split(inner[:-1])) if inner else []


def _members(inner: Iterable[str]) -> Iterator[tuple[str, str]]:
    for each in inner:
        name, _, kind = each.partition(":")
        yield name, kind


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _split(text: str) -> Iterator[str]:
    """The parts of ``text`` between the commas that are in no angle brackets."""
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]
