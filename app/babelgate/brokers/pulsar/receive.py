"""Receives the messages of one queue for concurrent callers.

A consumer has permits only while a receive waits, and as few as possible: they cannot be taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from babelgate.brokers.binding import Delivery
from babelgate.brokers.bounded import GRACE_SECONDS, within
from babelgate.brokers.pulsar.client import PARTITION
from babelgate.brokers.pulsar.consumer import Taken, TopicConsumer, read_entries, read_messages
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError, error_reason, translate
from babelgate.brokers.pulsar.message import EXPIRED, ReadMessage
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable

_PROBES = 5
"""How often a reserve that does not wait, or has just given a permit, asks the broker what it has, with pauses, while
the backlog has messages that do not come: the backlog also counts those that are delayed, or leased by others."""

_QUIET_SECONDS = 0.02
"""How long to wait for a message that was just counted, or asked for once more; another consumer may have it."""

_BELIEVED_SECONDS = 1.0
"""How long a topic counts as readable after it was read, because others may hold its messages through many receives."""

_DELIVERED_SECONDS = 3.0
"""How long to wait for what the broker delivers after it was asked once more, if it could not read before."""

_NUMBERS = 1 << 64
"""How many numbers a field of the protocol can have."""


class PermitReceiver:
    """Receives by ``consumers``."""

    def __init__(self, consumers: QueueConsumers) -> None:
        self._consumers = consumers
        self._readable = ReadableBacklogs(consumers)
        self._generous = False
        """Whether the last reserve got as many messages as it might."""

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.binding.Binding.reserve`. Tries once more when a consumer has ended."""
        consumers, client = self._consumers, self._consumers.client
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        patience = client.timeout_seconds - GRACE_SECONDS
        taken: list[Taken] = []
        deliveries: list[Delivery] = []
        consumers.waiting += 1
        try:
            # Consumers that have to be made first take round trips of their own.
            with suppress(ConnectionEnded, PulsarError):
                async with asyncio.timeout(patience):
                    await consumers.listen()
            async with asyncio.timeout_at(max(until, loop.time()) + patience):
                while True:
                    try:
                        await self._take(taken, limit, until)
                    except (ConnectionEnded, PulsarError):
                        if not taken:
                            await self._take(taken, limit, until)
                    deliveries = await self._deliveries(taken)
                    if deliveries or not taken:
                        return deliveries
                    # They were gone before they were read: that is no answer of the broker.
                    taken.clear()
        except TimeoutError:
            # What came in time is enough.
            deliveries = await self._deliveries(taken)
            if not deliveries:
                raise BrokerUnavailable(broker=client.broker, reason="no answer in time") from None
            return deliveries
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(error, client.broker, written=False) from error
        finally:
            if not deliveries:
                consumers.put_back(taken)
            consumers.waiting -= 1

    async def _take(self, taken: list[Taken], limit: int, until: float) -> None:
        """Take at least one message, unless the queue is empty, or nothing comes until the loop's time ``until``."""
        consumers, loop = self._consumers, asyncio.get_running_loop()
        consumers.pop(taken, limit)
        if not taken and self._generous:
            self._generous = False
            await self._fill(taken, limit)
        probes = 1 if until > loop.time() else _PROBES
        is_last = False
        while not taken and not is_last:
            await consumers.listen()
            for consumer in consumers.by_topic.values():
                if consumer.permits < 1:
                    consumer.flow(1 - consumer.permits)
            if until > loop.time() and not consumers.closed:
                await consumers.wait(until)
            is_last = until <= loop.time() or consumers.closed
            if is_last:
                await self._probe(probes)
            consumers.pop(taken, limit)
        if taken and len(taken) < limit:
            await self._fill(taken, limit)
        elif taken:
            self._generous = limit > 1

    async def _probe(self, count: int) -> None:
        """Wait until a message is ready, or the broker says that there is none to come. Asks up to ``count`` times, or
        ``_PROBES`` times since it last gave a permit."""
        consumers = self._consumers
        left: list[TopicConsumer] = []
        while count > 0 and not consumers.has_ready:
            left = [consumer for consumer, entries in await consumers.undelivered() if entries > 0]
            if consumers.has_ready or not left:
                return
            for consumer in left:
                if consumer.permits < 1 and consumer.is_open:
                    # Another receive has taken what came for the permit, or the consumer is a new one.
                    consumer.flow(1 - consumer.permits)
                    count = _PROBES
            count -= 1
            await consumers.wait(asyncio.get_running_loop().time() + _QUIET_SECONDS)
        if not consumers.has_ready:
            await self._readable.prove(left)

    async def _fill(self, taken: list[Taken], limit: int) -> None:
        """Take more messages that the broker has, in growing steps: permits that are left over bring messages
        without a receive."""
        step = max(len(taken), 1) if taken else limit
        while len(taken) < limit:
            asked = 0
            for consumer, left in await self._consumers.undelivered():
                free = left - max(consumer.permits, 0)
                count = min(free, limit - len(taken) - self._consumers.ready_count - asked, step)
                if count > 0 and consumer.is_open:
                    consumer.flow(count)
                    asked += count
            if asked:
                await self._arrivals(asked)
            if not self._consumers.has_ready:
                return
            self._consumers.pop(taken, limit)
            step *= 2
        self._generous = limit > 1

    async def _arrivals(self, count: int) -> None:
        """Wait until ``count`` messages are ready, or none comes for a while."""
        loop = asyncio.get_running_loop()
        while (before := self._consumers.ready_count) < count:
            await self._consumers.wait(loop.time() + _QUIET_SECONDS)
            if self._consumers.ready_count == before:
                await self._consumers.undelivered()
                if self._consumers.ready_count == before:
                    return

    async def _deliveries(self, taken: Sequence[Taken]) -> list[Delivery]:
        await read_messages(taken)
        made = []
        for each in taken:
            message = each.entry.message(each.position)
            if message is not None and each.is_held:
                made.append(delivery_of(self._consumers, each, message))
        return made


def delivery_of(consumers: QueueConsumers, taken: Taken, message: ReadMessage) -> Delivery:
    """The delivery of a message. The gateway keeps its lease."""
    entry = taken.entry
    partition = entry.consumer.topic[len(consumers.queue.topic) :].removeprefix(PARTITION)
    position = taken.position if entry.is_batch else ""
    place = entry.place
    return Delivery(
        message.body,
        f"{place.ledger}-{place.entry}-{position}-{partition}-{consumers.process}-0-{entry.number}",
        0,
        message.headers,
        entry.redeliveries,
        entry.redeliveries > 0,
        message.carried,
        expired_before=message.carried is not None and EXPIRED in message.carried.contract,
        unsupported_version=message.version,
        declared_attempts=message.attempts,
        ordering_key=None if message.carried is None else message.carried.shared_by,
    )


class ReadableBacklogs:
    """Proves that a broker can read the messages of a backlog that it does not deliver; for one queue.

    A broker that cannot read its bookies delivers nothing, and tells its consumers nothing. It tries again after
    ``dispatcherReadFailureBackoffInitialTimeInMs``, 15 s, and up to 60 s later each time:
    https://pulsar.apache.org/reference/#/4.0.x/config/reference-configuration-broker
    """

    def __init__(self, consumers: QueueConsumers) -> None:
        self._consumers = consumers
        self._until: dict[str, float] = {}
        self._failed: set[str] = set()
        """Topics that could not be read when they were last asked for."""

    async def prove(self, consumers: Iterable[TopicConsumer]) -> None:
        """Read messages of the backlog of each consumer: the last one, the first one, and the one behind that which
        has arrived last. Then wait for what the broker delivers, which is asked once more.

        Raises BrokerUnavailable where the broker cannot read one of them, or not within half of ``timeout_seconds``;
        PulsarError and ConnectionEnded if a consumer ends.
        """
        loop = asyncio.get_running_loop()
        asked = [each for each in consumers if self._until.get(each.topic, 0.0) <= loop.time()]
        if not asked:
            return
        await asyncio.gather(*map(self._proven, asked))
        came_back = self._failed.intersection(each.topic for each in asked)
        self._failed -= came_back
        await self._consumers.wait(loop.time() + (_DELIVERED_SECONDS if came_back else _QUIET_SECONDS))

    async def _proven(self, consumer: TopicConsumer) -> None:
        client, topic = self._consumers.client, consumer.topic
        try:
            await within(client.timeout_seconds / 2, client.broker, self._read(consumer), _unreadable)
        except BrokerUnavailable:
            self._failed.add(topic)
            raise
        self._until[topic] = asyncio.get_running_loop().time() + _BELIEVED_SECONDS

    async def _read(self, consumer: TopicConsumer) -> None:
        broker = self._consumers.client.broker
        try:
            acked, last = await consumer.extent()
        except PulsarError as error:
            if not consumer.is_open:
                raise
            raise _unreadable(broker, error_reason(error)) from error
        # After a read that failed the broker waits, also when its bookies have come back.
        await self._consumers.ask_again(consumer)
        if acked is None:
            return
        for place in {acked, self._consumers.latest.get(consumer.topic, acked)}:
            if _order(place) < _order(last):
                try:
                    behind = EntryId(place.ledger, place.entry + 1)
                    async for _ in read_entries(consumer.connection, consumer.topic, behind, 1):
                        pass
                except PulsarError as error:
                    # A limit on subscriptions, or on their names, may refuse the reader. It says nothing of messages.
                    if not isinstance(translate(error, broker, written=False), BrokerRejected):
                        raise _unreadable(broker, error_reason(error)) from error


def _unreadable(broker: str, reason: str) -> BrokerUnavailable:
    return BrokerUnavailable(broker, f"it has messages that it does not deliver, and may not be able to read: {reason}")


def _order(place: EntryId) -> tuple[int, int]:
    """The place in the topic. -1, which comes before the first number, is read as the largest one."""
    return (place.ledger + 1) % _NUMBERS, (place.entry + 1) % _NUMBERS
