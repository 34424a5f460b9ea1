"""Plans and runs the tasks of ``validate``: parts of files in, rows or files of both datasets out.

Spark's Python workers import this module, so it imports neither Spark nor click.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from babelgate.envelope.contract import LANGS
from babelgate.extras import missing
from babelgate.pipeline.storage.input_files import InputFile
from babelgate.pipeline.storage.inputs import ReadOptions, Split
from babelgate.pipeline.storage.schemas import ACCEPTED, QUARANTINED, arrow_schema
from babelgate.pipeline.validate.bodies import bodies, is_divisible
from babelgate.pipeline.validate.classify import ValidatedRow, classify
from babelgate.schemas.job_schemas import LIBRARY, JobSchemas, compiled_bundle

COLUMNS: Mapping[str, str] = {"verdict": "string", **ACCEPTED.columns, **QUARANTINED.columns}
"""The columns of both datasets, and ``verdict``, the name of the dataset of a row."""

_SCHEMA = arrow_schema(COLUMNS)
_ALIKE = ["job", "queue", "lang", "source_file", "run_id", "reason", "reason_pointer", "detail"]
"""Columns with few values. A dictionary of the others would only cost memory."""
_MEASURED = ["created_at", "attempts", "body_bytes", "source_at", *_ALIKE]
"""Columns whose least and greatest value help a reader to skip rows."""
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 * 1024 * 1024
_SHARE_BYTES = 16 * 1024 * 1024
"""Bytes per task: small enough to show progress, large enough to outweigh the start of a task."""
_MOST_TASKS = 10_000
_OPENING_BYTES = 256 * 1024
"""The cost of opening a file, counted as bytes."""


class RowKind(msgspec.Struct, frozen=True):
    """The counted members of a row. ``lang`` is ``unknown`` if it is none of the contract."""

    verdict: str
    reason: str | None
    lang: str
    rewritten: bool | None
    has_dead_letter: bool | None


class TaskOutput(msgspec.Struct):
    """What a task wrote: the names of its ``files`` in the folders of the datasets, the number of rows of each kind,
    and the bytes of all bodies."""

    files: list[str]
    kinds: list[tuple[RowKind, int]]
    body_bytes: int


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
    batches: Iterable[Any],
    tasks: Sequence[Sequence[Split]],
    reading: ReadOptions,
    run: str,
    schemas: bytes | None = None,
) -> Iterator[Any]:
    """For ``mapInArrow``: each row of ``batches`` is an index into ``tasks``; yields batches of at most 8 MiB.

    ``schemas``: a bundle of those that are checked, or None."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from map(_batch, _chunks(_rows(tasks[number], reading, run, schemas)))


def write_files(
    splits: Sequence[Split], reading: ReadOptions, run: str, folder: str, schemas: bytes | None = None
) -> TaskOutput:
    """Write the rows of a task to a Parquet file for each dataset, in a folder ``verdict=`` of the local ``folder``.

    If a task is repeated, the files of its failed attempts stay, and no result names them.
    """
    kinds: Counter[tuple[Any, ...]] = Counter()
    size = 0
    with _TaskFiles(folder) as files:
        for chunk in _chunks(_rows(splits, reading, run, schemas)):
            kinds.update((row.verdict, row.reason, row.lang, row.rewritten, row.has_dead_letter) for row in chunk)
            size += sum(row.body_bytes for row in chunk)
            for dataset in (ACCEPTED, QUARANTINED):
                chosen = [row for row in chunk if row.verdict == dataset.name]
                if chosen:
                    files.write(dataset.name, _batch(chosen).select(list(dataset.columns)))
    counted = Counter[RowKind]()
    for (verdict, reason, lang, *flags), count in kinds.items():
        counted[RowKind(verdict, reason, lang if lang in LANGS else "unknown", *flags)] += count
    return TaskOutput([files.name] if kinds else [], list(counted.items()), size)


class _TaskFiles(ExitStack):
    """The files of a task, one for each dataset with rows; all have the same name."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.name = f"part-{uuid.uuid4()}.zstd.parquet"
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def write(self, dataset: str, rows: Any) -> None:
        if dataset not in self._writers:
            self._writers[dataset] = self.enter_context(self._opened(dataset, rows.schema))
        self._writers[dataset].write_batch(rows)

    def _opened(self, dataset: str, schema: Any) -> Any:
        folder = Path(self._folder, f"verdict={dataset}")
        folder.mkdir(parents=True, exist_ok=True)
        return parquet.ParquetWriter(
            folder / self.name,
            schema,
            compression="zstd",
            use_dictionary=[name for name in _ALIKE if name in schema.names],
            write_statistics=[name for name in _MEASURED if name in schema.names],
        )


@lru_cache(maxsize=1)
def schemas_of(bundle: bytes) -> JobSchemas:
    """The compiled schemas of ``bundle``, which has no faults. Compiles them at the first call in a process.

    Raises ModuleNotFoundError where the library is missing, as an import would.
    """
    if lacking := missing(LIBRARY):
        raise ModuleNotFoundError(f"No module named {lacking!r}")
    schemas, faults = compiled_bundle(bundle)
    assert not faults, "the driver has compiled them, too"
    return schemas


def _rows(splits: Sequence[Split], reading: ReadOptions, run: str, schemas: bytes | None) -> Iterator[ValidatedRow]:
    compiled = None if schemas is None else schemas_of(schemas)
    for split in splits:
        for body in bodies(split, reading):
            yield classify(body, split.url, run, compiled)


def _chunks(rows: Iterator[ValidatedRow]) -> Iterator[list[ValidatedRow]]:
    pending: list[ValidatedRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.body)
        if len(pending) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def _batch(rows: list[ValidatedRow]) -> Any:
    columns = zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in columns], schema=_SCHEMA)
