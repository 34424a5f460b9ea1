"""Streams the messages of a queue: a batch is received, and acked after Spark has committed it.

So a message is in at least one batch. It is in two if its lease ended before the batch was committed, or if the query
was killed before the ack.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from babelgate.pipeline.source.messages import MessageRow, row_of
from babelgate.pipeline.source.options import SourceOptions

_MOST_RECEIVED = 100
"""The API's own maximum of one receive; that of an ack is 1,000."""
_MOST_ACKED = 1000
_ANSWER_SECONDS = 60.0
_SHARE = 100
"""Messages of one task."""

Offset = dict[str, Any]


class _StreamedMessage(msgspec.Struct):
    ack_token: str
    attempts: int
    headers: dict[str, str]
    envelope: msgspec.Raw


class _ReceivedMessages(msgspec.Struct):
    messages: list[_StreamedMessage]


class _AckResult(msgspec.Struct):
    index: int
    status: int


class _AckAnswer(msgspec.Struct):
    results: list[_AckResult] = []


class MessagePartition(InputPartition):
    """The rows of one task."""

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        self.rows = list(rows)


class _StreamBatch(NamedTuple):
    rows: Sequence[MessageRow]
    tokens: list[str]


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams a queue. Batches are kept in memory until they are committed; no token is written to the checkpoint.

    An offset names this reader and counts its batches. A batch of a former reader, which Spark repeats after a restart,
    is empty: its messages were not acked, and are delivered again after their leases.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = uuid.uuid4().hex
        self._batches: dict[int, _StreamBatch] = {}
        self._count = 0
        self._unacked: list[str] = []
        self._until_empty = False
        self._was_empty = False

    def initialOffset(self) -> Offset:
        """The offset before the first batch."""
        return {"reader": "", "batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``max_messages`` per batch."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """End this query when the queue was found empty."""
        self._until_empty = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Receive the next batch; ``start`` if there is none. Blocks for ``wait_seconds``, and for at most 60 s for
        each request. Raises RuntimeError with the answer of the gateway if it is not 200, and as :meth:`commit`."""
        # Those that the gateway did not take may have no batch to go with for long.
        self._ack()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable)
        found = [] if self._until_empty and self._was_empty else self._receive(most)
        if not found:
            self._was_empty = True
            if not any(batch.tokens for batch in self._batches.values()):
                return start
        # Spark commits a batch when it begins the next one: an empty one ends the last leases.
        self._count += 1
        rows = [row_of(bytes(each.envelope), each.headers, each.attempts) for each in found]
        self._batches[self._count] = _StreamBatch(rows, [each.ack_token for each in found])
        return {"reader": self._reader, "batch": self._count}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The messages after ``start`` up to ``end``."""
        if end["reader"] != self._reader:
            return []
        first = start["batch"] + 1 if start["reader"] == self._reader else 1
        rows = [row for number in range(first, end["batch"] + 1) for row in self._batches[number].rows]
        return [MessagePartition(rows[at : at + _SHARE]) for at in range(0, len(rows), _SHARE)]

    def read(self, partition: InputPartition) -> Iterator[MessageRow]:
        """The rows of ``partition``."""
        assert isinstance(partition, MessagePartition)
        yield from partition.rows

    def commit(self, end: Offset) -> None:
        """Ack the messages up to ``end``. A lost lease is no error: its message is delivered again.

        While the gateway cannot be reached the tokens are kept, and sent before the next receive. Raises RuntimeError
        if the gateway refuses the acks.
        """
        if end["reader"] == self._reader:
            for number in [each for each in self._batches if each <= end["batch"]]:
                self._unacked += self._batches.pop(number).tokens
        self._ack()

    def stop(self) -> None:
        """Try once more to ack what was committed."""
        self._ack()

    def _receive(self, most: int) -> list[_StreamedMessage]:
        found: list[_StreamedMessage] = []
        wait = self._options.wait_seconds
        while len(found) < most:
            wanted = {"max_messages": min(_MOST_RECEIVED, most - len(found)), "wait_seconds": wait}
            if self._options.lease_seconds is not None:
                wanted["lease_seconds"] = self._options.lease_seconds
            try:
                answer = self._post("receive", wanted)
            except httpx.TransportError:
                if found:
                    break
                raise
            if answer.status_code != 200:
                if found:
                    break
                raise RuntimeError(f"the gateway answers {answer.status_code}: {answer.text[:500]}")
            messages = msgspec.json.decode(answer.content, type=_ReceivedMessages).messages
            if not messages:
                break
            found += messages
            wait = 0.0
        return found

    def _ack(self) -> None:
        while self._unacked:
            tokens = self._unacked[:_MOST_ACKED]
            try:
                answer = self._post("ack", {"ack_tokens": tokens})
            except httpx.TransportError:
                return
            if answer.status_code >= 500 or answer.status_code == 429:
                return
            if answer.status_code not in (200, 207, 409):
                raise RuntimeError(f"the gateway refuses acks: {answer.status_code}: {answer.text[:500]}")
            again: list[str] = []
            if answer.status_code == 207:
                results = msgspec.json.decode(answer.content, type=_AckAnswer).results
                again = [tokens[each.index] for each in results if each.status >= 500 or each.status == 429]
            self._unacked = [*self._unacked[len(tokens) :], *again]
            if again:
                return

    def _post(self, verb: str, content: Mapping[str, Any]) -> httpx.Response:
        target = self._options.target
        headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
        path = f"{target.url.rstrip('/')}/queues/{quote(self._options.queue or '', safe='')}/messages:{verb}"
        return httpx.post(path, json=content, headers=headers, timeout=_ANSWER_SECONDS)
