"""Peeks into and writes to a queue of the gateway, as a Spark data source."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from babelgate.envelope.options import IDEMPOTENCY_KEY
from babelgate.pipeline.send.bodies import Changes, Unsendable, entry, key_of, outgoing
from babelgate.pipeline.send.gateway import Outcome
from babelgate.pipeline.send.sender import Sender, StoredMessage
from babelgate.pipeline.source.messages import MessageRow, row_of
from babelgate.pipeline.source.options import SourceOptions
from babelgate.pipeline.storage.inputs import Body
from babelgate.pipeline.validate.classify import classify

_ANSWER_SECONDS = 60.0
_NO_CHANGES = Changes()


_NULL = msgspec.Raw(b"null")


class _Peeked(msgspec.Struct):
    headers: dict[str, str]
    envelope: msgspec.Raw = _NULL
    envelope_base64: bytes | None = None


class _Page(msgspec.Struct):
    messages: list[_Peeked]


class QueueReader(DataSourceReader):
    """Reads the oldest ready messages without reserving them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[MessageRow]:
        """Makes one request, of at most 60 s. Raises RuntimeError with the answer of the gateway if it is not 200."""
        queue, target = self._options.queue or "", self._options.target
        headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
        answer = httpx.get(
            f"{target.url.rstrip('/')}/queues/{quote(queue, safe='')}/messages:peek",
            params={"limit": self._options.limit},
            headers=headers,
            timeout=_ANSWER_SECONDS,
        )
        if answer.status_code != 200:
            raise RuntimeError(f"the gateway answers {answer.status_code}: {answer.text[:500]}")
        for message in msgspec.json.decode(answer.content, type=_Page).messages:
            body = bytes(message.envelope) if message.envelope_base64 is None else message.envelope_base64
            yield row_of(body, message.headers)


@dataclass
class WriteResult(WriterCommitMessage):
    """The number of rows that one task published, and that had been published before."""

    accepted: int
    replayed: int


class QueueWriter(DataSourceArrowWriter):
    """Publishes every row once, however often its task runs. Raises ValueError for unsuitable columns."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options
        # Made once on the driver, so that all attempts of all tasks share it.
        self._run = options.run_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriteResult:
        """Send the rows of one task. Raises RuntimeError if some were not published."""
        return _write(self._options, self._run, iterator)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Publishes every row of every batch once, also if a batch is repeated after a restart."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriteResult:
        """As :meth:`QueueWriter.write`. The run id is made of the query id and the batch id."""
        context = TaskContext.get()
        assert context is not None
        run = self._options.run_id or context.getLocalProperty("sql.streaming.queryId")
        return _write(self._options, f"{run}.{context.getLocalProperty('streaming.sql.batchId')}", iterator)


def _check(options: SourceOptions, schema: StructType) -> None:
    if options.queue is None:
        raise ValueError("set queue, because rows can only be written to a queue")
    kinds = {field.name: field.dataType for field in schema.fields}
    for name, allowed in ((options.body_column, (BinaryType, StringType)), (options.key_column, (StringType,))):
        if name is not None and not isinstance(kinds.get(name), allowed):
            expected = " or ".join(each.typeName() for each in allowed)
            raise ValueError(f"there must be a column {name} of type {expected}; there are {', '.join(kinds)}")


def _write(options: SourceOptions, run: str, batches: Iterator[Any]) -> WriteResult:
    counts: Counter[str] = Counter()
    codes: Counter[str] = Counter()

    def settled(message: StoredMessage, outcome: Outcome) -> None:
        counts[outcome.status] += 1
        if outcome.code is not None:
            codes[outcome.code] += 1

    queue = options.queue or ""
    sender = Sender(options.target, settled, rate=options.max_rate, give_up_seconds=options.give_up_seconds)
    try:
        for batch in batches:
            bodies = batch.column(batch.schema.names.index(options.body_column)).cast(pa.binary()).to_pylist()
            keys: list[str | None] = [None] * len(bodies)
            if options.key_column is not None:
                keys = batch.column(batch.schema.names.index(options.key_column)).to_pylist()
            for body, key in zip(bodies, keys, strict=True):
                try:
                    sender.add(_message(body, key, queue, run))
                except Unsendable as error:
                    counts["rejected"] += 1
                    codes[error.code] += 1
        sender.finish()
    finally:
        sender.close()
    if sender.refused is not None:
        status, code, detail = sender.refused
        raise RuntimeError(f"the gateway refuses: {status} {code}: {detail}")
    failed = counts["rejected"] + counts["unknown"] + counts["left"]
    if failed:
        reasons = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        raise RuntimeError(f"{failed} of {sum(counts.values())} rows of this task were not published: {reasons}")
    return WriteResult(counts["accepted"], counts["replayed"])


def _message(body: bytes | None, key: str | None, queue: str, run: str) -> StoredMessage:
    text = outgoing(body, queue, _NO_CHANGES)
    if key is None:
        identity = classify(Body(0, text, len(text)), "", "").message_id or f"sha256:{hashlib.sha256(text).hexdigest()}"
        key = key_of(run, queue, identity)
    elif not IDEMPOTENCY_KEY.fullmatch(key) or '"' in key or "\\" in key:
        raise Unsendable("invalid_idempotency_key")
    return StoredMessage(key, queue, key, entry(text, key))
