"""Finds the rows of messages in Parquet files, and writes files again without their bodies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import compute, parquet

from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.schemas import DATASETS, arrow_schema

_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 1024 * 1024
"""The mean size of a batch that is read, and the size of a row group that is written; one row may be larger. A body may
have 16 MiB."""
_READ_AHEAD_BYTES = 1024 * 1024
_SHORTEST_TEXT = 8
_IDS = ("message_id", "trace_id")


class Erased(NamedTuple):
    """The columns of a dataset that become null. ``body``: the one with the bytes; ``source``: with the input file."""

    body: str
    columns: tuple[str, ...]
    source: str


CARRIED = ("headers", "ordering_key", "headers_encrypted")
ERASED: Mapping[str, Erased] = {
    # A digest would confirm a guess of the body, a detail may quote it, and pointers have its keys.
    "journal": Erased("envelope", ("envelope", "envelope_encrypted", "meta", "extra", *CARRIED), "src_file"),
    "journal_corrupt": Erased("raw", ("raw", "raw_sha256", "detail"), "src_file"),
    "accepted": Erased("body", ("body", "body_sha256", "dropped"), "source_file"),
    "quarantined": Erased("body", ("body", "body_sha256", "detail", "reason_pointer", "violations"), "source_file"),
}


class Messages(NamedTuple):
    """The messages whose bodies are erased, by their ids and those of their traces."""

    ids: frozenset[str]
    traces: frozenset[str]

    @property
    def texts(self) -> list[str]:
        """What a body without a readable id is searched for. Shorter ids would be found in bodies of others."""
        return sorted(each for each in self.ids | self.traces if len(each) >= _SHORTEST_TEXT)


class Found(NamedTuple):
    """What a file has of the messages. ``rows``: those with something to erase; ``sources``: files they came from."""

    rows: int
    sources: frozenset[str]


class DatasetFiles:
    """The files of one dataset with bodies."""

    def __init__(self, files: ArrowFiles, dataset: str) -> None:
        self._files = files
        self._erased = ERASED[dataset]
        self._schema = arrow_schema(DATASETS[dataset].columns)

    def ids_of(self, url: str, traces: Collection[str]) -> set[str]:
        """The ids of the messages of ``traces`` in a file."""
        if not traces or "trace_id" not in self._schema.names:
            return set()
        found = self._files.parquet(url, _IDS)
        mask = compute.is_in(found.column("trace_id"), pa.array(sorted(traces), pa.string()))
        return {each for each in found.filter(mask).column("message_id").to_pylist() if each is not None}

    def find(self, url: str, messages: Messages) -> Found:
        """What the file ``url`` has of ``messages``. Reads bodies only if it has them, or rows without an id."""
        if not self._may_have(url, messages):
            return Found(0, frozenset())
        rows, sources = 0, set()
        for batch in self._batches(url):
            named = self._are_of(batch, messages)
            rows += compute.sum(compute.and_(named, self._have_bodies(batch))).as_py() or 0
            sources.update(compute.unique(batch.column(self._erased.source).filter(named)).to_pylist())
        return Found(rows, frozenset(sources - {None}))

    def write(self, urls: Sequence[str], target: str, messages: Messages, day: Any = None) -> None:
        """Write the rows of the files ``urls`` to the file ``target``, without the bodies of ``messages``.

        ``day``: only rows of this date; None: all.
        """
        plain = [name for name in self._schema.names if name not in (*self._erased.columns, *_IDS)]
        with (
            self._files.new_file(target) as file,
            parquet.ParquetWriter(file, self._schema, compression="zstd", use_dictionary=plain) as writer,
        ):
            for group in _groups(self._kept(urls, messages, day)):
                writer.write_table(group)

    def _kept(self, urls: Sequence[str], messages: Messages, day: Any) -> Iterator[Any]:
        for batch in (each for url in urls for each in self._batches(url)):
            kept = batch if day is None else batch.filter(compute.equal(batch.column("date"), day))
            if kept.num_rows:
                yield self._without_bodies(kept, messages)

    def _may_have(self, url: str, messages: Messages) -> bool:
        if "message_id" not in self._schema.names:
            return True
        table = self._files.parquet(url, _IDS)
        ids = table.column("message_id")
        return bool(ids.null_count or compute.any(self._named(table, messages)).as_py())

    def _batches(self, url: str) -> Iterator[Any]:
        """The rows of a file, with all columns of the dataset."""
        with self._files.open_parquet(url, _READ_AHEAD_BYTES) as file:
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                rows = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
                for batch in file.iter_batches(min(max(rows, 1), _BATCH_ROWS), row_groups=[number]):
                    yield self._whole(batch)

    def _whole(self, batch: Any) -> Any:
        has = set(batch.schema.names)
        columns = [
            batch.column(each.name).cast(each.type) if each.name in has else pa.nulls(len(batch), each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _named(self, rows: Any, messages: Messages) -> Any:
        ids = (("message_id", messages.ids), ("trace_id", messages.traces))
        one, other = (compute.is_in(rows.column(name), pa.array(sorted(of), pa.string())) for name, of in ids)
        return compute.or_(one, other)

    def _are_of(self, batch: Any, messages: Messages) -> Any:
        """Which rows are of ``messages``. One without an id is, if an id is in its body."""
        has_ids = "message_id" in self._schema.names
        if has_ids and not batch.column("message_id").null_count:
            return self._named(batch, messages)
        body = batch.column(self._erased.body)
        inside = _any_of(len(batch), (compute.match_substring(body, each) for each in messages.texts))
        if not has_ids:
            return inside
        blank = compute.and_(compute.is_null(batch.column("message_id")), inside)
        return compute.or_(self._named(batch, messages), blank)

    def _have_bodies(self, batch: Any) -> Any:
        return _any_of(len(batch), (compute.is_valid(batch.column(name)) for name in self._erased.columns))

    def _without_bodies(self, batch: Any, messages: Messages) -> Any:
        mask = self._are_of(batch, messages)
        for name in self._erased.columns:
            at = self._schema.names.index(name)
            kept = compute.if_else(mask, pa.scalar(None, self._schema.field(at).type), batch.column(at))
            batch = batch.set_column(at, self._schema.field(at), kept)
        return batch


def _groups(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields tables of some of ``batches``, in their order: what one row group of a file takes."""
    pending: list[Any] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= _BATCH_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _any_of(count: int, masks: Iterable[Any]) -> Any:
    found = pa.array([False] * count)
    for each in masks:
        found = compute.or_(found, compute.fill_null(each, False))
    return found
