"""Reads, removes and purges dead letters. To read a message SQS must hide it, so it is hidden and shown again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from babelgate.brokers.batching import batches, send_batches
from babelgate.brokers.binding import DeadRecord, Outcome
from babelgate.brokers.cursor import decode, encode
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.message import SYSTEM_ATTRIBUTES, Read, numbered, read, record
from babelgate.brokers.sqs.publish import MAX_CALLS, MAX_ENTRIES, outcomes_of
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

_LINGER_SECONDS = 1.0
"""How long read messages stay hidden for the next page; other readers do not see them meanwhile."""

_OTHERS_SECONDS = 2.0
"""How long the end of a queue waits for messages that another reader has hidden, and then removes or shows again."""

_MAX_SEARCHED = 10_000
"""Messages searched for records in one call."""

_PAGE = 100


class _HiddenLetters:
    """The messages of one dead-letter queue that this process has hidden, oldest first, for one operation at a time."""

    def __init__(self, queue: SqsQueue) -> None:
        self.queue = queue
        self.lock = asyncio.Lock()
        self.hidden: dict[str, Read] = {}
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.users = 0


class SqsDeadLetters:
    """The dead-letter queues of one broker.

    All readers of a queue in this process share its hidden messages. They are shown again when a reader has reached
    the end, or when no reader continues for a second.
    """

    def __init__(self, client: SqsClient) -> None:
        self._client = client
        self._hidden_seconds = 2 * math.ceil(client.timeout_seconds + _LINGER_SECONDS)
        """Longer than any operation, and short after a crash."""
        self._queues: dict[str, _HiddenLetters] = {}
        self._ending: BackgroundTasks[None] = BackgroundTasks()
        self._reading: BackgroundTasks[tuple[list[DeadRecord], str | None]] = BackgroundTasks()

    async def read(self, queue: SqsQueue, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page of records and the next cursor, a position. Raises InvalidParameter for a bad cursor.

        A read whose caller is cancelled goes on, because only the answer of SQS says which messages it has hidden.
        """
        return await asyncio.shield(self._reading.start(self._read(queue, cursor, limit)))

    async def _read(self, queue: SqsQueue, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        start = decode(cursor)
        async with self._opened(queue) as state:
            url = await self._client.existing_url(queue)
            if url is None:
                return [], None
            at_end = await self._grow(url, state, start + limit)
            page = list(state.hidden.values())[start : start + limit]
            records = [record(found, found) for found in page]
            if at_end and len(state.hidden) <= start + limit:
                await self._show(url, state)
                return records, None
            return records, encode(start + len(page))

    async def remove(
        self, queue: SqsQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[list[bool], str | None]:
        """Remove ``records``, searching for those that are not hidden. The cursor moves back by the number removed."""
        removed = [False] * len(records)
        async with self._opened(queue, writes=True) as state:
            url = await self._client.existing_url(queue)
            wanted = {each.key.message_id: position for position, each in enumerate(records)}
            if url is not None:
                at_end = False
                while wanted.keys() - state.hidden.keys() and not at_end and len(state.hidden) < _MAX_SEARCHED:
                    at_end = await self._grow(url, state, len(state.hidden) + _PAGE)
                found = [each for each in wanted if each in state.hidden]
                outcomes = await self._delete(url, [state.hidden[each] for each in found])
                for message_id, outcome in zip(found, outcomes, strict=True):
                    if outcome is None:
                        del state.hidden[message_id]
                        removed[wanted[message_id]] = True
                if at_end:
                    await self._show(url, state)
        return removed, cursor if cursor is None else encode(max(0, decode(cursor) - sum(removed)))

    async def show_all(self, queue: SqsQueue) -> int:
        """Make hidden messages visible again before the queue is purged; their number."""
        async with self._opened(queue) as state:
            url, count = await self._client.existing_url(queue), len(state.hidden)
            if url is not None:
                await self._show(url, state)
            return count

    async def close(self) -> None:
        """Show all messages again."""
        await self._reading.cancel()
        for state in self._queues.values():
            if state.timer is not None:
                state.timer.cancel()
                state.timer = None
        await self._ending.cancel()
        for state in list(self._queues.values()):
            with contextlib.suppress(BabelgateError):
                await self.show_all(state.queue)

    async def _grow(self, url: str, state: _HiddenLetters, count: int) -> bool:
        """Hide messages until ``count`` are hidden or the queue ends; whether it has ended.

        Messages of earlier pages are hidden for longer when half of their time is over.
        """
        loop = asyncio.get_running_loop()
        if not state.hidden:
            state.since = loop.time()
        elif loop.time() - state.since > self._hidden_seconds / 2:
            state.since = loop.time()
            several = list(state.hidden.values())
            outcomes = await self._hide_for(url, several, self._hidden_seconds)
            lost = {each.message_id for each, outcome in zip(several, outcomes, strict=True) if outcome is not None}
            state.hidden = {key: each for key, each in state.hidden.items() if key not in lost}
        patience = loop.time() + _OTHERS_SECONDS
        ready, elsewhere = await self._left(url, state)
        while len(state.hidden) < count:
            # A short poll asks only some of the servers, so one that must find something is a long one.
            wait_seconds = 1 if ready or elsewhere else 0
            answer = await self._client.call(
                "ReceiveMessage",
                seconds=self._client.timeout_seconds + wait_seconds,
                QueueUrl=url,
                MaxNumberOfMessages=min(MAX_ENTRIES, count - len(state.hidden)),
                VisibilityTimeout=self._hidden_seconds,
                WaitTimeSeconds=wait_seconds,
                MessageAttributeNames=["All"],
                AttributeNames=SYSTEM_ATTRIBUTES,
            )
            found = await turns.mapped(read, answer.get("Messages") or ())
            for each in sorted(found, key=lambda one: one.sent_at):
                state.hidden[each.message_id] = each
            ready -= len(found)
            if not found and not (elsewhere and loop.time() < patience):
                return True
            if not found or ready <= 0:
                ready, elsewhere = await self._left(url, state)
                if not found and not ready and not elsewhere:
                    return True
        return not ready and not elsewhere

    async def _left(self, url: str, state: _HiddenLetters) -> tuple[int, int]:
        """The messages that are visible, and those that another reader has hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = await self._client.call("GetQueueAttributes", writes=False, QueueUrl=url, AttributeNames=names)
        ready, hidden = (int(answer.get("Attributes", {}).get(name, 0)) for name in names)
        return ready, max(0, hidden - len(state.hidden))

    async def _show(self, url: str, state: _HiddenLetters) -> None:
        """Show all hidden messages again, oldest first."""
        several, state.hidden = list(state.hidden.values()), {}
        await self._hide_for(url, several, 0, max_calls=1)

    async def _hide_for(
        self, url: str, several: Sequence[Read], seconds: int, max_calls: int = MAX_CALLS
    ) -> list[Outcome]:
        """Hide messages for ``seconds`` from now; 0 shows them."""

        async def hide(batch: Sequence[Read]) -> list[Outcome]:
            entries = numbered([{"ReceiptHandle": each.receipt, "VisibilityTimeout": seconds} for each in batch])
            answer = await self._client.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
            return outcomes_of(self._client.broker, answer, len(batch))

        return await send_batches(list(batches(several, MAX_ENTRIES)), hide, max_calls)

    async def _delete(self, url: str, several: Sequence[Read]) -> list[Outcome]:
        async def delete(batch: Sequence[Read]) -> list[Outcome]:
            entries = numbered([{"ReceiptHandle": each.receipt} for each in batch])
            answer = await self._client.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
            return outcomes_of(self._client.broker, answer, len(batch))

        return await send_batches(list(batches(several, MAX_ENTRIES)), delete, MAX_CALLS)

    @asynccontextmanager
    async def _opened(self, queue: SqsQueue, *, writes: bool = False) -> AsyncIterator[_HiddenLetters]:
        """The state of ``queue``, for one operation within the broker's time-out."""
        state = self._queues.setdefault(queue.key, _HiddenLetters(queue))
        state.users += 1
        seconds = self._client.timeout_seconds
        try:
            async with asyncio.timeout(seconds), state.lock:
                if state.timer is not None:
                    state.timer.cancel()
                    state.timer = None
                yield state
        except TimeoutError:
            kind = OutcomeUnknown if writes else BrokerUnavailable
            raise kind(self._client.broker, f"no answer within {seconds:g} s") from None
        finally:
            state.users -= 1
            if state.hidden:
                state.timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._end, queue)
            elif not state.users:
                self._queues.pop(queue.key, None)

    def _end(self, queue: SqsQueue) -> None:
        ending: Coroutine[Any, Any, None] = self._show_later(queue)
        self._ending.start(ending)

    async def _show_later(self, queue: SqsQueue) -> None:
        # Where it fails, the messages are visible again when their time is over.
        with contextlib.suppress(BabelgateError):
            await self.show_all(queue)
