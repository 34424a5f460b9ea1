"""Reads and removes dead letters. To read a message SQS must hide it, so it is hidden and shown again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from babelgate.brokers.batching import batches, send_batches
from babelgate.brokers.binding import DeadRecord, Outcome
from babelgate.brokers.held_letters import LINGER_SECONDS, MAX_SEARCHED, PAGE, HeldLetters
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.errors import translate
from babelgate.brokers.sqs.message import SYSTEM_ATTRIBUTES, Read, numbered, read, record
from babelgate.brokers.sqs.publish import MAX_CALLS, MAX_ENTRIES, outcomes_of
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

_OTHERS_SECONDS = 2.0
"""How long the end of a queue waits for messages that another reader has hidden, and then removes or shows again."""


class _Hidden:
    """The messages of one dead-letter queue that this process has hidden: a
    :class:`babelgate.brokers.held_letters.Hold`."""

    def __init__(self, client: SqsClient, url: str) -> None:
        self.at_end = False
        self.hidden: dict[str, Read] = {}
        self.since = 0.0
        self._client = client
        self._url = url
        self._hidden_seconds = 2 * math.ceil(client.timeout_seconds + LINGER_SECONDS)
        """Longer than any operation, and short after a crash."""

    def __len__(self) -> int:
        return len(self.hidden)

    async def page(self, start: int, limit: int) -> list[Read]:
        self.at_end = await self._grow(start + limit)
        return list(self.hidden.values())[start : start + limit]

    async def remove(self, letters: Sequence[Read]) -> list[bool]:
        removed = [False] * len(letters)
        wanted = {each.message_id: position for position, each in enumerate(letters)}
        self.at_end = False
        while wanted.keys() - self.hidden.keys() and not self.at_end and len(self) < MAX_SEARCHED:
            self.at_end = await self._grow(len(self) + PAGE)
        found = [each for each in wanted if each in self.hidden]
        outcomes = await self._delete([self.hidden[each] for each in found])
        for message_id, outcome in zip(found, outcomes, strict=True):
            if outcome is None:
                del self.hidden[message_id]
                removed[wanted[message_id]] = True
        return removed

    async def put_back(self) -> None:
        several, self.hidden = list(self.hidden.values()), {}
        await self._hide_for(several, 0, max_calls=1)

    async def end(self) -> None:
        await self.put_back()

    async def _grow(self, count: int) -> bool:
        """Hide messages until ``count`` are hidden or the queue ends; whether it has ended.

        Messages of earlier pages are hidden for longer when half of their time is over.
        """
        loop = asyncio.get_running_loop()
        if not self.hidden:
            self.since = loop.time()
        elif loop.time() - self.since > self._hidden_seconds / 2:
            self.since = loop.time()
            several = list(self.hidden.values())
            outcomes = await self._hide_for(several, self._hidden_seconds)
            lost = {each.message_id for each, outcome in zip(several, outcomes, strict=True) if outcome is not None}
            self.hidden = {key: each for key, each in self.hidden.items() if key not in lost}
        patience = loop.time() + _OTHERS_SECONDS
        ready, elsewhere = await self._left()
        while len(self.hidden) < count:
            # A short poll asks only some of the servers, so one that must find something is a long one.
            wait_seconds = 1 if ready or elsewhere else 0
            answer = await self._client.call(
                "ReceiveMessage",
                seconds=self._client.timeout_seconds + wait_seconds,
                QueueUrl=self._url,
                MaxNumberOfMessages=min(MAX_ENTRIES, count - len(self.hidden)),
                VisibilityTimeout=self._hidden_seconds,
                WaitTimeSeconds=wait_seconds,
                MessageAttributeNames=["All"],
                AttributeNames=SYSTEM_ATTRIBUTES,
            )
            found = await turns.mapped(read, answer.get("Messages") or ())
            for each in sorted(found, key=lambda one: one.sent_at):
                self.hidden[each.message_id] = each
            ready -= len(found)
            if not found and not (elsewhere and loop.time() < patience):
                return True
            if not found or ready <= 0:
                ready, elsewhere = await self._left()
                if not found and not ready and not elsewhere:
                    return True
        return not ready and not elsewhere

    async def _left(self) -> tuple[int, int]:
        """The messages that are visible, and those that another reader has hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = await self._client.call("GetQueueAttributes", writes=False, QueueUrl=self._url, AttributeNames=names)
        ready, hidden = (int(answer.get("Attributes", {}).get(name, 0)) for name in names)
        return ready, max(0, hidden - len(self.hidden))

    async def _hide_for(self, several: Sequence[Read], seconds: int, max_calls: int = MAX_CALLS) -> list[Outcome]:
        """Hide messages for ``seconds`` from now; 0 shows them."""

        async def hide(batch: Sequence[Read]) -> list[Outcome]:
            entries = numbered([{"ReceiptHandle": each.receipt, "VisibilityTimeout": seconds} for each in batch])
            answer = await self._client.call("ChangeMessageVisibilityBatch", QueueUrl=self._url, Entries=entries)
            return outcomes_of(self._client.broker, answer, len(batch))

        return await send_batches(list(batches(several, MAX_ENTRIES)), hide, max_calls)

    async def _delete(self, several: Sequence[Read]) -> list[Outcome]:
        async def delete(batch: Sequence[Read]) -> list[Outcome]:
            entries = numbered([{"ReceiptHandle": each.receipt} for each in batch])
            answer = await self._client.call("DeleteMessageBatch", QueueUrl=self._url, Entries=entries)
            return outcomes_of(self._client.broker, answer, len(batch))

        return await send_batches(list(batches(several, MAX_ENTRIES)), delete, MAX_CALLS)


class SqsDeadLetters:
    """The dead-letter queues of one broker."""

    def __init__(self, client: SqsClient) -> None:
        self._client = client
        self._ending: BackgroundTasks[None] = BackgroundTasks()
        self._reading: BackgroundTasks[tuple[Sequence[Read], str | None]] = BackgroundTasks()
        self._held: HeldLetters[SqsQueue, Read] = HeldLetters(
            client.broker,
            client.timeout_seconds,
            translate,
            self._resumed,
            self._ending.start,
            lambda queue: queue.key,
        )
        self.remove = self._held.remove
        self.put_back = self._held.end

    async def read(self, queue: SqsQueue, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page of records and the next cursor, a position. Raises InvalidParameter for a bad cursor.

        A read whose caller is cancelled goes on, because only the answer of SQS says which messages it has hidden.
        """
        page, cursor = await asyncio.shield(self._reading.start(self._held.read(queue, cursor, limit)))
        return [record(found, found) for found in page], cursor

    async def close(self) -> None:
        """Show all messages again."""
        await self._reading.cancel()
        await self._ending.cancel()
        await self._held.close()

    async def _resumed(self, queue: SqsQueue, last: _Hidden | None) -> _Hidden | None:
        url = await self._client.existing_url(queue)
        return None if url is None else last or _Hidden(self._client, url)
