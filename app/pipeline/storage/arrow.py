"""The columns of datasets as Arrow knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "array<string>": pa.list_(pa.string()),
}


def schema(columns: Mapping[str, str]) -> Any:
    """The Arrow schema of ``columns``: names and Spark SQL types."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
