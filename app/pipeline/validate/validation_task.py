"""The task of ``validate``: parts of files in, rows of verdicts out, as Arrow batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.pipeline.storage.inputs import Reading, Split
from app.pipeline.storage.schemas import ACCEPTED, QUARANTINED
from app.pipeline.validate.bodies import bodies
from app.pipeline.validate.verdicts import Row, judged

COLUMNS: Mapping[str, str] = {"verdict": "string", **ACCEPTED.columns, **QUARANTINED.columns}
"""The columns of both datasets, and the one that tells them apart."""

_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
}
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 * 1024 * 1024


def judge(batches: Iterable[Any], tasks: Sequence[Sequence[Split]], reading: Reading, run: str) -> Iterator[Any]:
    """For ``mapInArrow``: a row of ``batches`` holds the number of a task, which is the parts of files it reads."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _batched(_rows(tasks[number], reading, run))


def _rows(splits: Sequence[Split], reading: Reading, run: str) -> Iterator[Row]:
    for split in splits:
        for body in bodies(split, reading):
            yield judged(body, split.url, run)


def _batched(rows: Iterator[Row]) -> Iterator[Any]:
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.body)
        if len(held) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: list[Row]) -> Any:
    columns = zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in columns], schema=_SCHEMA)
