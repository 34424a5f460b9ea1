"""Plans and runs the tasks of ``validate``: parts of files in, rows of both datasets out.

Spark's Python workers import this module, so it imports neither Spark nor click.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.pipeline.storage.input_files import InputFile
from app.pipeline.storage.inputs import ReadOptions, Split
from app.pipeline.storage.schemas import ACCEPTED, QUARANTINED, arrow_schema
from app.pipeline.validate.bodies import bodies, is_divisible
from app.pipeline.validate.classify import ValidatedRow, classify

COLUMNS: Mapping[str, str] = {"verdict": "string", **ACCEPTED.columns, **QUARANTINED.columns}
"""The columns of both datasets, and ``verdict``, the name of the dataset of a row."""

_SCHEMA = arrow_schema(COLUMNS)
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 * 1024 * 1024
_SHARE_BYTES = 16 * 1024 * 1024
"""Bytes per task: small enough to show progress, large enough to outweigh the start of a task."""
_MOST_TASKS = 10_000
_OPENING_BYTES = 256 * 1024
"""The cost of opening a file, counted as bytes."""


def plan_tasks(files: Sequence[InputFile], form: str) -> list[list[Split]]:
    """The tasks, each a list of parts of files. Large files are divided, small ones share a task."""
    share = max(_SHARE_BYTES, sum(file.size for file in files) // _MOST_TASKS)
    tasks: list[list[Split]] = []
    left = 0
    for split, size in (each for file in files for each in _parts(file, share, form)):
        if not tasks or left < size:
            tasks.append([])
            left = share + _OPENING_BYTES
        tasks[-1].append(split)
        left -= size + _OPENING_BYTES
    return tasks


def _parts(file: InputFile, share: int, form: str) -> Iterator[tuple[Split, int]]:
    if file.size <= share or not _is_divisible(file, form):
        yield Split(file.url, 0, None, file.is_regular), file.size
        return
    starts: Iterable[int] = range(0, file.size, share)
    for start in starts:
        end = start + share
        yield Split(file.url, start, end if end < file.size else None, True), min(share, file.size - start)


def _is_divisible(file: InputFile, form: str) -> bool:
    try:
        return file.is_regular and is_divisible(file.url, form)
    except OSError:
        return False


def validate_batches(
    batches: Iterable[Any], tasks: Sequence[Sequence[Split]], reading: ReadOptions, run: str
) -> Iterator[Any]:
    """For ``mapInArrow``: each row of ``batches`` is an index into ``tasks``; yields batches of at most 8 MiB."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _batched(_rows(tasks[number], reading, run))


def _rows(splits: Sequence[Split], reading: ReadOptions, run: str) -> Iterator[ValidatedRow]:
    for split in splits:
        for body in bodies(split, reading):
            yield classify(body, split.url, run)


def _batched(rows: Iterator[ValidatedRow]) -> Iterator[Any]:
    pending: list[ValidatedRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.body)
        if len(pending) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(pending)
            pending, size = [], 0
    if pending:
        yield _batch(pending)


def _batch(rows: list[ValidatedRow]) -> Any:
    columns = zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in columns], schema=_SCHEMA)
