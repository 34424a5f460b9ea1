"""Takes the letters of a dead-letter queue: to read a message AMQP must take it. They are removed or requeued."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from babelgate.brokers.held_letters import MAX_SEARCHED, PAGE
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.profile import NativeMessage
from babelgate.brokers.rabbitmq.receive import TemporaryConsumer

_REMEMBERED = 300
"""Taken messages kept in memory; of earlier ones only the tags are kept."""

_IN_ORDER = 32
"""Messages that a quorum queue keeps in order when they are requeued at once. More than a small map of Erlang has
(https://www.erlang.org/doc/system/maps.html) come back in any order."""

_SEEN_AFTER_SECONDS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between counts: a quorum queue shows requeued messages only when its replicas agree. Messages missing after
all of these were taken by another consumer, or the queue is slow: the next read counts on."""

_COUNT_SECONDS = 0.05
"""The pause between two counts of a read that waits for requeued messages."""


class TakenLetter(Struct, frozen=True):
    """A taken message, and the generation of its channel."""

    generation: str
    arrived: NativeMessage

    @property
    def identity(self) -> tuple[str | None, bytes]:
        """Message id and body, which identify the message after it was requeued."""
        return self.arrived.properties.message_id, self.arrived.body


class QueueBrowser:
    """Takes messages from the head of ``queue`` on a connection of its own, by short-lived consumers.

    Requeued messages return to their places, except on a quorum queue without a delivery limit, which puts them behind
    the others (https://www.rabbitmq.com/docs/quorum-queues#repeated-requeues).

    Do not close the channel soon after :meth:`remove`: the broker keeps some of many acks for a quorum queue on the
    channel until the replicas agree on earlier ones, and drops them with the channel.
    """

    def __init__(
        self, channel: Channel, queue: str, patience_seconds: float, ready_elsewhere: Callable[[str], Awaitable[int]]
    ) -> None:
        """``patience_seconds``: the time limit for requeueing messages in order, and for messages that are counted or
        were requeued, and do not come. ``ready_elsewhere``: counts the ready messages of a queue on another channel."""
        self.channel = channel
        self._patience_seconds = patience_seconds
        self._ready_elsewhere = ready_elsewhere
        self.at_end = False
        """Whether the last attempt to take more reached the end of the queue."""
        self._queue = queue
        self._taken: dict[int, TakenLetter | None] = {}
        self._forgotten = 0
        self._runs: list[list[int]] = []
        self._expected = 0
        """The number of ready messages once the queue shows all that were requeued; 0 when it has shown them."""

    def __len__(self) -> int:
        return len(self._taken)

    async def page(self, start: int, limit: int) -> list[TakenLetter]:
        """At most ``limit`` messages from position ``start`` on. Raises ChannelGone."""
        if start < self._forgotten:
            await self.put_back()
        await self.grow(start + limit)
        return [found for found in list(self._taken.values())[start : start + limit] if found is not None]

    async def grow(self, count: int) -> bool:
        """Take messages until ``count`` are taken or the queue ends; whether any arrived. Raises ChannelGone."""
        before = len(self._taken)
        self.at_end = False
        while len(self._taken) < count and not self.at_end:
            await self._take(min(PAGE, count - len(self._taken)))
        return len(self._taken) > before

    async def search(self, wanted: Mapping[int, TakenLetter], bound: int) -> dict[int, int]:
        """The tags of the ``wanted`` letters, by the same keys; searches at most ``bound`` messages."""
        found = {
            key: each.arrived.tag
            for key, each in wanted.items()
            if each.generation == self.channel.generation and each.arrived.tag in self._taken
        }
        missing: dict[object, list[int]] = {}
        for key in wanted.keys() - found.keys():
            missing.setdefault(wanted[key].identity, []).append(key)
        matched = set(found.values())
        looked = 0
        while missing:
            for each in list(self._taken.values())[looked:]:
                if each is None or each.arrived.tag in matched or each.identity not in missing:
                    continue
                keys = missing[each.identity]
                found[keys.pop()] = each.arrived.tag
                if not keys:
                    del missing[each.identity]
            looked = len(self._taken)
            if not missing or looked >= bound or not await self.grow(looked + PAGE):
                break
        return found

    async def remove(self, letters: Sequence[TakenLetter]) -> list[bool]:
        """Ack messages, and wait until the broker has read the acks. Raises ChannelGone."""
        found = await self.search(dict(enumerate(letters)), MAX_SEARCHED)
        if found:
            self.channel.accept(list(found.values()))
            for tag in found.values():
                self._forgotten -= self._taken.pop(tag) is None
            await self.channel.barrier()
        return [index in found for index in range(len(letters))]

    async def end(self) -> None:
        """Requeue all messages, in any order, and wait until they are ready, like the next read."""
        loop = asyncio.get_running_loop()
        try:
            expected = await self.channel.ready(self._queue) + len(self._taken) if self._taken else self._expected
        finally:
            await self.channel.close()
        until = loop.time() + self._patience_seconds
        while expected:
            if await self._ready_elsewhere(self._queue) >= expected or loop.time() >= until:
                break
            await asyncio.sleep(_COUNT_SECONDS)

    async def put_back(self) -> None:
        """Requeue all messages in order, and wait until they are ready; not much longer than ``patience_seconds``.

        Raises ChannelGone. Each part must be ready before the next is written, because a slow quorum queue collects
        commands by consumer and executes them in another order (unsent commands of ``rabbit_fifo_client``).
        """
        if not self._taken:
            return
        runs = [[tag for tag in run if tag in self._taken] for run in self._runs]
        parts = deque(run[start : start + _IN_ORDER] for run in runs for start in range(0, len(run), _IN_ORDER))
        self._taken.clear()
        self._runs.clear()
        self._forgotten = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_seconds
        ready = 0
        try:
            ready = await self.channel.ready(self._queue)
            while parts and loop.time() < until:
                ready += len(parts[0])
                self.channel.give_back(parts.popleft())
                if not await self._sees(ready):
                    self._expected = ready
                    break
        finally:
            for part in parts:
                self._expected = ready = ready + len(part)
                self.channel.give_back(part)

    async def _sees(self, count: int) -> bool:
        """Wait until ``count`` messages are ready; False when they are not, after the last pause."""
        for pause in _SEEN_AFTER_SECONDS:
            await asyncio.sleep(pause)
            if await self.channel.ready(self._queue) >= count:
                return True
        return False

    async def counted(self) -> int:
        """The number of ready messages, with all that were requeued: a slow queue is waited for. Not longer than
        ``patience_seconds``, and not where another consumer may have taken some."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_seconds
        while True:
            declared = await self.channel.rpc.queue_declare(self._queue, passive=True)
            ready = declared.message_count or 0
            if ready >= self._expected or declared.consumer_count or loop.time() >= until:
                self._expected = 0
                return ready
            await asyncio.sleep(_COUNT_SECONDS)

    async def _take(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        ready = await self.counted()
        until = loop.time() + self._patience_seconds
        arrived: list[NativeMessage] = []
        while ready:
            consumer = TemporaryConsumer(self.channel, self._queue, min(ready, count))
            try:
                await consumer.fill(until)
            finally:
                # They are taken even if the caller is cancelled, and only recorded messages are requeued.
                arrived = await consumer.stop()
                self._record(arrived)
            if arrived or loop.time() >= until:
                break
            # Another consumer has received them, or the queue is slow.
            ready = await self.channel.ready(self._queue)
        self.at_end = not arrived or len(arrived) >= ready

    def _record(self, arrived: Sequence[NativeMessage]) -> None:
        self._taken.update((each.tag, TakenLetter(self.channel.generation, each)) for each in arrived)
        self._runs.append([each.tag for each in arrived])
        for tag in list(self._taken)[self._forgotten : -_REMEMBERED]:
            self._taken[tag] = None
            self._forgotten += 1
