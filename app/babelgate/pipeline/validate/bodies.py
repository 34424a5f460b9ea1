"""Reads the bodies in a file: NDJSON, Parquet, or an export of dead letters.

Damaged content raises nothing: it yields faults, each a place where no body could be read, and the reason. Memory is
bounded by the largest body, a row group of Parquet, or a page of an export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from babelgate.pipeline.storage.input_files import locate
from babelgate.pipeline.storage.inputs import Body, ReadOptions, Split, fault_at, first_line, truncated
from babelgate.pipeline.storage.lines import LineReader
from babelgate.pipeline.validate.exports import MAX_PAGE_BYTES, is_export, records

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET = b"PAR1"
_NEVER_EMPTY = (".gz", ".zst", ".parquet")
_HEAD_BYTES = 256
_ROWS = 64
"""Rows of a Parquet file read at once, because each may be large."""
_KINDS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)


def is_divisible(url: str, form: str) -> bool:
    """Whether several tasks can read parts of the file. ``form``: as ``--format``. Raises OSError."""
    head = _head(partial(_open, url))
    return form != "dead-letters" and _codec(head) is None and not is_export(head)


def bodies(split: Split, reading: ReadOptions) -> Iterator[Body]:
    """Yields the bodies and faults of ``split``. Raises nothing for unreadable content."""
    if not split.is_regular:
        yield fault_at("unreadable_file", "It is no regular file.")
        return
    try:
        yield from _of_file(partial(_open, split.url), split, reading)
    except OSError as error:
        yield fault_at("unreadable_file", f"It cannot be read: {first_line(error)}.", split.start)


def _open(url: str) -> Any:
    system, path = locate(url)
    return system.open_input_file(path)


def _head(opened: Callable[[], Any]) -> bytes:
    with opened() as file:
        return bytes(file.read(_HEAD_BYTES))


def _of_file(opened: Callable[[], Any], split: Split, reading: ReadOptions) -> Iterator[Body]:
    form = reading.form
    head = _head(opened)
    if not head and split.url.endswith(_NEVER_EMPTY):
        yield fault_at("truncated_file", "It is empty.")
        return
    if form == "parquet" or (form == "auto" and head.startswith(_PARQUET)):
        with opened() as file:
            yield from _rows(file, split, reading)
        return
    lines = LineReader(opened, _codec(head), split, reading)
    if form == "dead-letters" or (form == "auto" and not split.start and is_export(lines.peek())):
        # A line may be a page of many bodies.
        pages = LineReader(
            opened, _codec(head), split, reading._replace(max_bytes=max(MAX_PAGE_BYTES, reading.max_bytes))
        )
        for row, (content, wrong) in enumerate(records(pages)):
            yield truncated(Body(row, content, len(content), fault=wrong), reading.max_bytes)
    else:
        yield from lines


def _codec(head: bytes) -> str | None:
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


def _rows(file: Any, split: Split, reading: ReadOptions) -> Iterator[Body]:
    row = 0
    try:
        table = parquet.ParquetFile(file)
        name = _column(table.schema_arrow, reading.column)
        for group in range(table.num_row_groups):
            described = table.metadata.row_group(group)
            if _begins_in(described.column(0), split):
                at = row
                for batch in table.iter_batches(batch_size=_ROWS, row_groups=[group], columns=[name]):
                    for value in batch.column(0).cast(pa.large_binary()).to_pylist():
                        absent = ("no_body", "The column is null here.") if value is None else None
                        content = value or b""
                        yield truncated(Body(at, content, len(content), fault=absent), reading.max_bytes)
                        at += 1
            row += described.num_rows
    except LookupError as error:
        yield fault_at("unreadable_file", str(error.args[0]))
    except Exception as error:
        # Damaged metadata raises other errors than Arrow's own, too.
        yield fault_at("unreadable_file", f"It cannot be read as Parquet past row {row}: {first_line(error)}.", row)


def _begins_in(chunk: Any, split: Split) -> bool:
    first = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    return bool(split.start <= first and (split.end is None or first < split.end))


def _column(schema: Any, wanted: str | None) -> str:
    fitting = [field.name for field in schema if any(is_kind(field.type) for is_kind in _KINDS)]
    name = wanted or ("body" if "body" in fitting else fitting[0] if len(fitting) == 1 else None)
    if name is None or name not in fitting:
        problem = "Which column holds the bodies?" if name is None else f"It has no column {name} of text or bytes."
        raise LookupError(f"{problem} Columns of text or bytes: {', '.join(fitting) or 'none'}.")
    return name
