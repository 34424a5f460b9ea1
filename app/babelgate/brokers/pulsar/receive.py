"""Receives the messages of one queue for concurrent callers.

A consumer has permits only while somebody waits, and as few as possible: they cannot be taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from babelgate.brokers.binding import Delivery
from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.pulsar.client import PARTITION
from babelgate.brokers.pulsar.consumer import Entry, Taken, TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError, translate
from babelgate.brokers.pulsar.message import EXPIRED, ReadMessage
from babelgate.brokers.pulsar.readable import ReadableBacklogs
from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.runtime import turns

_PROBES = 5
"""How often a reserve that does not wait asks the broker what it has, with pauses, while the backlog has messages that
do not come: the backlog also counts those that are delayed, or leased by others."""

_QUIET_SECONDS = 0.02
"""How long to wait for a message that was just counted; another consumer may have received it."""


class PermitReceiver:
    """Receives by ``consumers``."""

    def __init__(self, consumers: QueueConsumers) -> None:
        self._consumers = consumers
        self._readable = ReadableBacklogs(consumers)
        self._generous = False
        """Whether the last reserve got as many messages as it might."""

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.binding.Binding.reserve`. Tries once more when a consumer has ended."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        self._consumers.waiting += 1
        taken: list[Taken] = []
        deliveries: list[Delivery] = []
        patience = self._consumers.client.timeout_seconds - GRACE_SECONDS
        try:
            # Consumers that have to be made first take round trips of their own.
            with suppress(ConnectionEnded, PulsarError):
                async with asyncio.timeout(patience):
                    await self._consumers.listen()
            async with asyncio.timeout_at(max(until, loop.time()) + patience):
                try:
                    await self._take(taken, limit, until)
                except (ConnectionEnded, PulsarError):
                    if not taken:
                        await self._take(taken, limit, until)
                deliveries = await self._deliveries(taken)
                while taken and not deliveries and loop.time() < until:
                    # They were gone before they were read.
                    taken.clear()
                    await self._take(taken, limit, until)
                    deliveries = await self._deliveries(taken)
                return deliveries
        except TimeoutError:
            if deliveries := await self._deliveries(taken):
                # What came in time is enough.
                return deliveries
            raise BrokerUnavailable(broker=self._consumers.client.broker, reason="no answer in time") from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(error, self._consumers.client.broker, written=False) from error
        finally:
            if not deliveries:
                self._consumers.ready.extendleft(reversed(taken))
            self._consumers.waiting -= 1

    async def _take(self, taken: list[Taken], limit: int, until: float) -> None:
        """Take at least one message, unless the queue is empty, or nothing comes until the loop's time ``until``."""
        loop = asyncio.get_running_loop()
        self._consumers.pop(taken, limit)
        if not taken:
            await self._consumers.listen()
            if self._generous:
                self._generous = False
                await self._fill(taken, limit)
        while not taken:
            await self._consumers.listen()
            for listener in self._consumers.listeners.values():
                if listener.permits < self._consumers.waiting:
                    listener.flow(self._consumers.waiting - listener.permits)
            if until > loop.time() and not self._consumers.closed:
                await self._consumers.wait(until)
                if not self._consumers.ready and loop.time() < until and not self._consumers.closed:
                    continue
                # The round trip distinguishes an empty queue from a broker that does not answer.
                if not self._consumers.ready:
                    await self._readable.prove(await self._undelivered())
            else:
                await self._probe()
            self._consumers.pop(taken, limit)
            if not taken and (until <= loop.time() or self._consumers.closed):
                return
        if len(taken) < limit:
            await self._fill(taken, limit)
        else:
            self._generous = limit > 1

    async def _probe(self) -> None:
        """Wait until a message is ready, or the broker says that there is none to come."""
        for _ in range(_PROBES):
            if self._consumers.ready:
                return
            left = await self._undelivered()
            if self._consumers.ready or not left:
                return
            await self._consumers.wait(asyncio.get_running_loop().time() + _QUIET_SECONDS)
        if not self._consumers.ready:
            await self._readable.prove(left)

    async def _undelivered(self) -> list[TopicConsumer]:
        """The listeners whose backlog has messages that are not held here."""
        return [
            consumer
            for consumer, counts in await self._consumers.counts()
            if counts.backlog > self._consumers.held(consumer.topic)
        ]

    async def _fill(self, taken: list[Taken], limit: int) -> None:
        """Take more messages that the broker has, in growing steps: permits that are left over bring messages
        without a receive."""
        step = max(len(taken), 1) if taken else limit
        while len(taken) < limit:
            asked = 0
            for consumer, counts in await self._consumers.counts():
                free = counts.backlog - self._consumers.held(consumer.topic) - max(consumer.permits, 0)
                count = min(free, limit - len(taken) - len(self._consumers.ready) - asked, step)
                if count > 0 and consumer.is_open:
                    consumer.flow(count)
                    asked += count
            if asked:
                await self._arrivals(asked)
            if not self._consumers.ready:
                return
            self._consumers.pop(taken, limit)
            step *= 2
        self._generous = limit > 1

    async def _arrivals(self, count: int) -> None:
        """Wait until ``count`` messages are ready, or none comes for a while."""
        loop = asyncio.get_running_loop()
        while (before := len(self._consumers.ready)) < count:
            await self._consumers.wait(loop.time() + _QUIET_SECONDS)
            if len(self._consumers.ready) == before:
                await self._consumers.counts()
                if len(self._consumers.ready) == before:
                    return

    async def _deliveries(self, taken: Sequence[Taken]) -> list[Delivery]:
        entries = list({each.entry.place: each.entry for each in taken}.values())
        await turns.mapped(Entry.messages, entries, size=lambda entry: entry.bytes)
        made = []
        for each in taken:
            if not each.is_held:
                continue
            message = each.entry.messages()[each.position]
            if message is None:
                # A compaction has removed it.
                each.entry.left.discard(each.position)
                continue
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
        f"{place.ledger}-{place.entry}-{position}-{partition}-{consumers.process}-{entry.consumer.number}-{entry.number}",
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
