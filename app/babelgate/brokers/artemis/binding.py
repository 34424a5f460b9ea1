"""The Apache ActiveMQ Artemis binding: anycast queues as the BabelQueue SDKs use them, over AMQP 1.0.

A delivery belongs to a link of this process, so the gateway keeps its lease. The broker counts the deliveries that were
given back as failed. https://activemq.apache.org/components/artemis/documentation/latest/amqp.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from babelgate.brokers.amqp import Malformed
from babelgate.brokers.artemis.client import ArtemisClient
from babelgate.brokers.artemis.dead_letters import ArtemisDeadLetters
from babelgate.brokers.artemis.errors import translate
from babelgate.brokers.artemis.links import LARGE_BYTES, Arrived
from babelgate.brokers.artemis.management import ArtemisManagement
from babelgate.brokers.artemis.message import encode, projected, read
from babelgate.brokers.artemis.url import ArtemisSettings, settings_of
from babelgate.brokers.batching import made_of_each
from babelgate.brokers.binding import (
    DeadRecord,
    Delivery,
    DeliveryLimit,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeked,
    QueueStats,
)
from babelgate.brokers.bounded import GRACE_SECONDS, PING_SECONDS, WARNINGS_SECONDS, answering, within
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, REPORTS, BrokerCapabilities
from babelgate.brokers.connect import ConnectPause
from babelgate.brokers.errors import too_large
from babelgate.brokers.held import HandleSettler
from babelgate.brokers.names import queue_names
from babelgate.brokers.options import OptionMap, timeout_of
from babelgate.brokers.projection import NativeWrite
from babelgate.clock import Clock
from babelgate.errors import BodyTooLarge, BrokerUnavailable
from babelgate.runtime import turns

_DEAD_SUFFIX = ".dlq"

_CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=MAX_DELAY_SECONDS,
    max_retry_delay_seconds=MAX_DELAY_SECONDS,
    max_lease_seconds=MAX_LEASE_SECONDS,
    ack_scope="owner",
    ordering="fifo",
    native_release=True,
    native_release_delays=False,
    delivery_count="zero_based",
    max_body_bytes=None,
    max_batch=500,
    headers=True,
    lease_bound_to="connection",
    priorities=True,
    reports=REPORTS - {"oldest_age_seconds"},
)


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> ArtemisBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return ArtemisBinding(name, settings_of(url, others), clock, timeout_seconds)


class ArtemisBinding:
    """One broker, and two connections: what a lost confirm does to one of them leaves the deliveries of the other.

    Also ConnectionBroker, Peeks, Purges, PublishesDeadLetters, DeadStore, Lists, LimitsDeliveries, WarnsOfQueues
    and Projects.
    """

    lists_foreign = True

    def __init__(self, name: str, settings: ArtemisSettings, clock: Clock, timeout_seconds: float) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        pause = ConnectPause()
        self._client = ArtemisClient(name, settings, timeout_seconds, pause)
        self._publishing = ArtemisClient(name, settings, timeout_seconds, pause)
        self._settler = HandleSettler(name, timeout_seconds, self._client.of_generation)
        self._dead_letters = ArtemisDeadLetters(self._client)
        self._management = ArtemisManagement(self._client)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """A queue has no options: it is an anycast address with a queue of the same name."""
        OptionMap(options).finish()
        return NativeQueue(name, None, name + _DEAD_SUFFIX)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """The same for all queues."""
        return _CAPABILITIES

    @property
    def server_version(self) -> str | None:
        return self._client.server_version

    async def open(self) -> None:
        """Connect twice; raises BrokerUnavailable."""
        await asyncio.gather(self._client.open(), self._publishing.open())

    async def close(self) -> None:
        """Disconnect; the broker takes back unsettled deliveries, uncounted."""
        await asyncio.gather(self._client.close(), self._publishing.close())

    async def ping(self) -> None:
        """A round trip on the connection."""
        try:
            await within(PING_SECONDS, self.name, self._client.ping())
        except BrokerUnavailable:
            self._client.mark_suspect()
            raise

    async def warnings(self) -> Sequence[str]:
        """Of a broker that keeps messages in memory only, or does not count the attempts of smaller messages than this
        binding expects, where it may be asked. See :meth:`delivery_limit`."""
        return await within(WARNINGS_SECONDS, self.name, self._management.broker_warnings())

    async def delivery_limit(self, queue: NativeQueue) -> DeliveryLimit | None:
        """``max-delivery-attempts`` and ``dead-letter-address`` of the queue, where the broker may be asked."""
        return await within(WARNINGS_SECONDS, self.name, self._management.delivery_limit(queue.name))

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Of the queue and its dead letters, where the broker may be asked. Any limit of time is warned of, because an
        address has none by itself."""

        async def asked() -> Sequence[str]:
            names = queue.name, queue.name + _DEAD_SUFFIX
            found = await asyncio.gather(*map(self._management.queue_warnings, names))
            return [text for each in found for text in each]

        return await within(WARNINGS_SECONDS, self.name, asked())

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Durable messages, sent without waiting for each other's confirm."""
        return await self._write(queue.name, messages, self._encode)

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """To ``<queue>.dlq``, with a message id of their own and without an expiry; otherwise like :meth:`publish`."""
        return await self._write(queue.name + _DEAD_SUFFIX, records, self._encode_dead)

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """Decoded from the message that :meth:`publish` would send."""
        (refused,), made = await made_of_each(self.name, [message], self._encode)
        if refused is not None:
            raise refused
        return [await turns.run(projected, queue.name, made[0], size=len(made[0]))]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """The ready messages; without any, the first one that comes."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds
        patience = self.timeout_seconds - GRACE_SECONDS
        async with (
            answering(patience, translate, self.name, reason="no answer in time") as bound,
            self._client.receiver(queue.name) as receiver,
        ):
            # A link that has to be attached first takes round trips of its own.
            bound.reschedule(max(until, clock()) + patience)
            generation, arrived = receiver.connection.generation, await receiver.pull(limit, until)
        # From here on the deliveries can be settled, even if this call is cancelled.
        return await turns.mapped(partial(_delivery, generation), arrived, size=lambda each: len(each.raw))

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether each delivery is unsettled, and its connection open."""
        return self._settler.outstanding(handles)

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By a round trip on the connection of the deliveries."""
        return await self._settler.prove(handles)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Accept; returns when the broker has stored it, OutcomeUnknown where that stays open."""
        return await self._settler.ack(handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Give back, as ``modified`` with delivery-failed, which the broker counts, or as ``released``.

        Raises ValueError for a delay: that is a copy, published by the gateway.
        """
        if delay_seconds:
            raise ValueError("a release with a delay is a copy, published by the gateway")
        return await self._settler.give_back(handles, failed=failed)

    async def queues(self) -> Sequence[str]:
        """The durable anycast queues, without those of dead letters; none where it is denied."""
        return queue_names(await self._management.queues(), _DEAD_SUFFIX)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts where the credentials may ask the broker's management address."""
        counts = await self._management.counts(queue.name)
        dead = None if counts is None else await self._management.counts(queue.name + _DEAD_SUFFIX)
        return QueueStats() if counts is None or dead is None else QueueStats(*counts, sum(dead))

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """A browser shows the ready messages."""
        found = await self._dead_letters.browse(queue.name, 0, limit)
        read_ones = await turns.mapped(lambda each: read(each.raw), found, lambda each: len(each.raw))
        return [Peeked(each.body, each.headers) for each in read_ones]

    async def purge(self, queue: NativeQueue) -> int:
        """Remove the ready and the delayed messages; only the ready ones where the management address is denied."""
        removed = await self._management.purge(queue.name)
        return await self._dead_letters.purge(queue.name) if removed is None else removed

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """Browsed; the cursor is a position."""
        return await self._dead_letters.read(queue.name + _DEAD_SUFFIX, cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Received by a selector, and accepted."""
        return await self._dead_letters.remove(queue.name + _DEAD_SUFFIX, records, cursor)

    async def purge_dead(self, queue: NativeQueue) -> int:
        """Remove all records."""
        return await self._dead_letters.purge(queue.name + _DEAD_SUFFIX)

    def _encode(self, message: Outgoing) -> bytes:
        return encode(message, self._clock())

    def _encode_dead(self, record: Outgoing) -> bytes:
        return encode(record, self._clock(), str(uuid4()))

    async def _write(
        self, queue: str, messages: Sequence[Outgoing], make: Callable[[Outgoing], bytes]
    ) -> Sequence[Outcome]:
        outcomes, made = await made_of_each(self.name, messages, make)
        if made:
            sent = await self._publishing.send(queue, [*made.values()])
            for position, outcome in zip(made, sent, strict=True):
                if isinstance(outcome, BodyTooLarge):
                    outcome = too_large(messages[position], outcome.actual - outcome.limit, self.name)
                outcomes[position] = outcome
        return outcomes


def _delivery(generation: str, arrived: Arrived) -> Delivery:
    handle = f"{generation}.{arrived.number}"
    try:
        found = read(arrived.raw)
    except Malformed:
        # No broker forwards such bytes; they are poison in any case.
        return Delivery(arrived.raw, handle, 0)
    return Delivery(
        found.body,
        handle,
        0,
        found.headers,
        found.count,
        found.count > 0,
        found.carried,
        unsupported_version=found.version,
        is_uncounted=len(arrived.raw) >= LARGE_BYTES,
    )
