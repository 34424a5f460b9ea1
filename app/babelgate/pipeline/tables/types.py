"""The columns of a dataset in the words of Delta Lake."""

from __future__ import annotations

import json
from typing import Any

from deltalake import Schema

from babelgate.pipeline.storage.duckdb_sql import members, parse_type
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


def delta_schema(dataset: Dataset) -> Schema:
    """The schema of ``dataset``; every column may be null."""
    fields = [_field(name, delta_type(kind)) for name, kind in dataset.columns.items()]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def delta_type(kind: str) -> Any:
    """A Spark SQL type as the Delta protocol writes it in JSON:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format"""
    outer, inner = parse_type(kind)
    match outer:
        case "array":
            return {"type": "array", "elementType": delta_type(inner[0]), "containsNull": True}
        case "map":
            key, value = map(delta_type, inner)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct":
            return {"type": "struct", "fields": [_field(name, delta_type(of)) for name, of in members(inner)]}
    return _DELTA[outer]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
