"""Reads a topic without settling its messages, and removes messages: for peeks, purges and dead letters.

Pulsar shows the unacknowledged messages of a subscription only to its consumers. So a consumer of its own takes them,
and ends, which gives them back uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from weakref import WeakValueDictionary

from babelgate.brokers.binding import DeadRecord, Delivery
from babelgate.brokers.bounded import answering, within
from babelgate.brokers.errors import translating
from babelgate.brokers.pulsar.client import PARTITION, PulsarClient
from babelgate.brokers.pulsar.consumer import Handle, TopicConsumer, read_entries
from babelgate.brokers.pulsar.errors import SUBSCRIBED, PulsarError, translate
from babelgate.brokers.pulsar.publish import SUBSCRIPTION
from babelgate.brokers.pulsar.queue import ReceivingQueue
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, InvalidParameter, LeaseLost
from babelgate.runtime.cache import Cache

_TAKEN = 500
"""Messages of one receive."""

_REMOVED_BYTES = 32 * 1024 * 1024
"""Of the names of removed dead letters that a process remembers, and of removed messages that a purge does: about
100,000."""

_READING = f"{SUBSCRIPTION}-reading"
"""The subscription of the one process that reads dead letters of a topic."""

_AGAIN_SECONDS = 0.02
"""How long to wait before the broker is asked again whether another reader has ended."""

Consumers = Callable[[PulsarQueue], ReceivingQueue]

_Page = dict[tuple[int, int, int, int], Delivery]
"""Deliveries by their places: see :func:`_place`."""


class PulsarBrowser:
    """Browses the topics of one binding. ``consumers`` makes consumers of a queue."""

    def __init__(self, client: PulsarClient, consumers: Consumers, clock: Clock) -> None:
        self._client = client
        self._consumers = consumers
        self._clock = clock
        self._others_seconds = client.timeout_seconds / 2
        self._removed: Cache[str, None] = Cache(_REMOVED_BYTES)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def peek(self, queue: PulsarQueue, limit: int) -> list[Delivery]:
        """The next messages, at most ``limit``."""
        taken: _Page = {}
        async with self._browsing(queue) as consumers:
            while len(taken) < limit and (found := await consumers.reserve(min(limit - len(taken), _TAKEN), 0)):
                _add(taken, found)
        return list(taken.values())

    async def purge(self, queue: PulsarQueue) -> int:
        """Remove the messages that are ready or delayed; return their number.

        Consumers get no delayed message, so a reader finds these, and their ids are acknowledged. What was acknowledged
        before is found, too, so that they are counted by the backlog.
        """
        count = 0
        counted: Cache[str, None] = Cache(_REMOVED_BYTES)
        async with self._browsing(queue) as consumers:
            while found := await consumers.reserve(_TAKEN, 0):
                for name in await _removed(consumers, found):
                    count += name not in counted
                    counted.keep(name, None)
            if before := await consumers.undelivered():
                delayed = await self._delayed(queue)
                for start in range(0, len(delayed), _TAKEN):
                    await _acknowledged(consumers, delayed[start : start + _TAKEN])
                count += max(before - await consumers.undelivered(), 0) if delayed else 0
        return count

    async def read_dead(
        self, queue: PulsarQueue, cursor: str | None, limit: int
    ) -> tuple[list[DeadRecord], str | None]:
        """A page of the records in ``queue``, and the cursor after it. Raises InvalidParameter.

        The page after a cursor is found by reading its partition from the beginning. The broker orders the records of
        one partition only, so the partitions are read one after the other.
        """
        after = _decode(cursor)
        page: _Page = {}
        topics = await self._topics(queue)
        for topic in topics[after[0] if after else 0 :]:
            if len(page) > limit:
                break
            async with self._reading(replace(queue, partition=topic)) as consumers:
                while len(page) <= limit and (found := await _next_dead(consumers, self._others_seconds)):
                    _add(page, [each for each in found if _place(each) > after])
        first = [page[place] for place in sorted(page)[:limit]]
        records = [DeadRecord(each.handle, each.body, each.headers, each.carried) for each in first]
        return records, _encode(first[-1]) if len(page) > limit else None

    async def remove_dead(self, queue: PulsarQueue, records: Sequence[DeadRecord]) -> list[bool]:
        """Remove records; per record whether this call has removed it, as far as this process knows."""
        wanted = {_name(record.key): position for position, record in enumerate(records)}
        done = [False] * len(records)
        left = {name for name in wanted if name not in self._removed}
        alone = {name for name in left if _handle(records[wanted[name]].key).position is None}
        async with self._reading(queue) as consumers:
            if alone:
                await _acknowledged(consumers, [records[wanted[name]].key for name in alone])
                for name in alone:
                    done[wanted[name]] = True
            left -= alone
            # What belongs to a producer's batch is removed by the consumer that has the batch.
            while left and (found := await _next_dead(consumers, self._others_seconds)):
                for name in await _removed(consumers, [each for each in found if _name(each.handle) in left]):
                    done[wanted[name]] = True
                    left.discard(name)
        for name, position in wanted.items():
            if done[position]:
                self._removed.keep(name, None)
        return done

    async def _delayed(self, queue: PulsarQueue) -> list[str]:
        """The handles of all messages that are not due."""
        client = self._client
        now = self._clock()
        found: list[str] = []
        for topic in await client.partitions(queue.topic, create=False):
            partition = topic[len(queue.topic) :].removeprefix(PARTITION)
            with translating(translate, client.broker):
                places = await within(client.timeout_seconds, client.broker, self._places(topic, now))
            found += [f"{place.ledger}-{place.entry}--{partition}-0-0-0" for place in places]
        return found

    async def _places(self, topic: str, now: int) -> list[EntryId]:
        entries = read_entries(await self._client.owner(topic), topic)
        return [entry.place async for entry in entries if entry.due > now]

    async def _topics(self, queue: PulsarQueue) -> list[str]:
        client = self._client
        return await within(client.timeout_seconds, client.broker, client.partitions(queue.topic, create=True))

    @asynccontextmanager
    async def _reading(self, queue: PulsarQueue) -> AsyncIterator[ReceivingQueue]:
        """Browse dead letters alone, of all processes: the broker divides the letters among those that read at once,
        so that each would miss some. Raises BrokerUnavailable when others do not end.

        A subscription that admits one consumer at a time is the lock. It ends with its consumer.
        """
        first, *_ = await self._topics(queue)
        turn = self._turns.setdefault(first, asyncio.Lock())
        broker, seconds = self._client.broker, self._others_seconds
        async with AsyncExitStack() as stack:
            async with answering(seconds, translate, broker, reason="another call reads the dead letters"):
                # Calls of one process take turns: a lock in the process is fair, and polling the broker is not.
                # Processes still poll, so a reader may wait for up to ``others_seconds``.
                await stack.enter_async_context(turn)
                lock = await self._locked(first)
            stack.push_async_callback(lock.close)
            yield await stack.enter_async_context(self._browsing(queue))

    async def _locked(self, topic: str) -> TopicConsumer:
        """The only consumer that reads dead letters of ``topic``, as soon as the one before has ended."""
        while True:
            consumer = TopicConsumer(await self._client.owner(topic), topic, lambda _: None, lambda _: None)
            try:
                await consumer.open_reader(_READING)
                return consumer
            except PulsarError as error:
                if error.code not in SUBSCRIBED:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    @asynccontextmanager
    async def _browsing(self, queue: PulsarQueue) -> AsyncIterator[ReceivingQueue]:
        consumers = self._consumers(queue)
        try:
            yield consumers
        finally:
            await consumers.close()


async def _next_dead(consumers: ReceivingQueue, others_seconds: float) -> list[Delivery]:
    """The next records. No record is delayed: those of the backlog that do not come are held by another reader, and are
    waited for up to ``others_seconds``."""
    loop = asyncio.get_running_loop()
    until = loop.time() + others_seconds
    while True:
        found = await consumers.reserve(_TAKEN, 0)
        if found or loop.time() >= until or await consumers.undelivered() <= 0:
            return found


async def _acknowledged(consumers: ReceivingQueue, handles: Sequence[str]) -> None:
    """Acknowledge deliveries. Raises the first error."""
    for outcome in await consumers.ack(handles):
        if isinstance(outcome, BabelgateError):
            raise outcome


async def _removed(consumers: ReceivingQueue, found: Sequence[Delivery]) -> list[str]:
    """Acknowledge what was found; the names of the removed messages. A message whose delivery is not held any more was
    sent again, and is found again. Raises the first other error."""
    page: _Page = {}
    _add(page, found)
    handles = [each.handle for each in page.values()]
    removed = []
    for handle, outcome in zip(handles, await consumers.ack(handles), strict=True):
        if outcome is None:
            removed.append(_name(handle))
        elif not isinstance(outcome, LeaseLost):
            raise outcome
    return removed


def _handle(text: str) -> Handle:
    handle = Handle.read(text)
    assert handle is not None
    return handle


def _place(delivery: Delivery) -> tuple[int, int, int, int]:
    """The order of the records: by partition, then as the broker has stored them."""
    handle = _handle(delivery.handle)
    return handle.partition or 0, handle.place.ledger, handle.place.entry, handle.position or 0


def _add(page: _Page, found: Sequence[Delivery]) -> None:
    """Add what was found. A broker sends messages twice that it was reading when the consumer that held them ended: the
    later delivery is the one that is held."""
    page.update((_place(each), each) for each in found)


def _name(key: str) -> str:
    """The message that ``key`` names, whichever consumer received it."""
    return "-".join(key.split("-")[:4])


def _encode(last: Delivery) -> str:
    partition, *place = _place(last)
    return ".".join(map(str, (*place, partition)))


def _decode(cursor: str | None) -> tuple[int, ...]:
    if cursor is None:
        return ()
    parts = cursor.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise InvalidParameter(name="cursor", reason="it is not one that this queue has given")
    *place, partition = map(int, parts)
    return partition, *place
