"""The binding of RabbitMQ over AMQP 0-9-1.

Deliveries belong to channels of this process, so the gateway keeps their leases. The binding uses two connections,
because a broker that is short of memory or disk stops reading from connections that publish; settling continues on the
other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from aiormq.exceptions import ChannelNotFoundEntity

from babelgate.brokers.batching import made_of_each
from babelgate.brokers.binding import DeadRecord, Delivery, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.bounded import PING_SECONDS, WARNINGS_SECONDS, within
from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
from babelgate.brokers.connect import ConnectPause
from babelgate.brokers.cursor import moved_back
from babelgate.brokers.errors import translating
from babelgate.brokers.header_rules import HeaderRules
from babelgate.brokers.held import HandleSettler
from babelgate.brokers.held_letters import HeldLetters
from babelgate.brokers.options import TIMEOUT_SECONDS, timeout_of
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.rabbitmq import frames
from babelgate.brokers.rabbitmq.channel_pool import ChannelPool
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.dead_letters import QueueBrowser, TakenLetter
from babelgate.brokers.rabbitmq.delays import MAX_DELAY_SECONDS
from babelgate.brokers.rabbitmq.errors import reason_of, translate
from babelgate.brokers.rabbitmq.isolation import IsolatedChannels, StatsChannel, purged
from babelgate.brokers.rabbitmq.management import ManagementClient
from babelgate.brokers.rabbitmq.options import RabbitQueue, queue_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage, Topology
from babelgate.brokers.rabbitmq.publish import ConfirmedPublisher, NackErrors
from babelgate.brokers.rabbitmq.receive import QueueReceivers, size_of_body
from babelgate.brokers.rabbitmq.tables import SHORT_BYTES
from babelgate.brokers.rabbitmq.topology import DECLARE_SECONDS, Declare, Declarer
from babelgate.brokers.rabbitmq.url import ConnectionParameters, parameters_of
from babelgate.brokers.rabbitmq.warnings import queue_warnings, warnings_of
from babelgate.clock import Clock
from babelgate.errors import BrokerRejected, BrokerUnavailable, UnsupportedByBroker
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

MAX_BODY_BYTES = 16_777_216
"""The default max_message_size of RabbitMQ since 4.0: https://www.rabbitmq.com/docs/limits#message-size"""

MAX_LEASE_SECONDS = 1500
"""Below the time after which the broker closes a channel with an unsettled delivery, 30 minutes by default:
https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout"""

_CLOSE_SECONDS = 0.5

_SEARCHES_AFTER_SECONDS = (0.0, 0.1, 0.3)
"""Pauses between searches for dead letters: another reader may have taken a record for a moment."""

_HEADER_RULES = HeaderRules(SHORT_BYTES, reserved=frozenset(frames.COPIES))
"""How many bytes all headers may have is known of a connection: its ``frame_max``."""

_CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=MAX_DELAY_SECONDS,
    max_retry_delay_seconds=MAX_DELAY_SECONDS,
    max_lease_seconds=MAX_LEASE_SECONDS,
    ack_scope="owner",
    ordering="fifo",
    native_release=False,
    delivery_count="zero_based",
    max_body_bytes=MAX_BODY_BYTES,
    max_batch=500,
    headers=True,
    header_rules=_HEADER_RULES,
    lease_bound_to="connection",
    max_property_bytes=SHORT_BYTES,
    purges=("depth",),
    reports=REPORTS - {"in_flight", "delayed", "oldest_age_seconds", "queues"},
)

_UNORDERED = replace(_CAPABILITIES, ordering="none", priorities=True)


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> RabbitBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return RabbitBinding(name, parameters_of(url, others), timeout_seconds)


def _queue(queue: NativeQueue) -> RabbitQueue:
    return queue.options_as(RabbitQueue)


class RabbitBinding:
    """A virtual host. Also ConnectionBroker, PublishesDeadLetters, Purges, DeadStore, Lists and WarnsOfQueues.

    Not Peeks: AMQP cannot read a message without taking it. Dead letters are taken when listed, and requeued.
    """

    lists_foreign = True

    def __init__(self, name: str, parameters: ConnectionParameters, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._background: BackgroundTasks[None] = BackgroundTasks()
        pause = ConnectPause()
        publishing = AmqpConnection(name, parameters, "publish", pause, timeout_seconds)
        consuming = AmqpConnection(name, parameters, "consume", pause, timeout_seconds)
        self._publish_connection, self._consume_connection = publishing, consuming

        def isolated() -> AmqpConnection:
            return AmqpConnection(name, parameters, "isolated", timeout_seconds=timeout_seconds)

        self._isolated = IsolatedChannels(consuming, isolated)
        self._channels = ChannelPool(consuming, self._isolated)
        # Each connection declares what it uses: neither waits for the other, and in a cluster the node that declares a
        # queue is the one that uses it first.
        locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        answer_seconds = max(DECLARE_SECONDS, timeout_seconds)
        self._declarers = (
            Declarer(consuming, locks, answer_seconds=answer_seconds),
            Declarer(publishing, locks, answer_seconds=answer_seconds),
        )
        consumer, publisher = self._declarers
        self._receivers = QueueReceivers(consuming, consumer, self._channels, self._background.start)
        self._settler = HandleSettler(name, timeout_seconds, self._channels.of_generation)
        self._stats = StatsChannel(consuming, self._isolated)
        self._dead_letters: HeldLetters[str, TakenLetter] = HeldLetters(
            name, timeout_seconds, translate, self._browser, self._background.start
        )
        endpoint = parameters.management
        self._management = None if endpoint is None else ManagementClient(name, endpoint, parameters.vhost)
        nacks = NackErrors(name, self._management)
        self._publisher = ConfirmedPublisher(publishing, publisher, nacks)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`babelgate.brokers.rabbitmq.options.queue_of`."""
        queue = queue_of(name, options)
        profile = queue.profile
        destination = ":".join(filter(None, (profile.exchange, profile.routing_key)))
        traced = {"messaging.destination.name": destination, "rabbitmq.destination.routing_key": profile.routing_key}
        return NativeQueue(profile.queue, queue, profile.dead_queue, queue.stored_as, lambda kind, handle: traced)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """The same for all queues, except that a queue with priorities keeps no order. The management API reports what
        a channel does not."""
        found = _UNORDERED if _queue(queue).prioritized else _CAPABILITIES
        return found if self._management is None else replace(found, reports=found.reports | {"in_flight", "queues"})

    @property
    def server_version(self) -> str | None:
        version = self._publish_connection.server_version
        return f"RabbitMQ {'.'.join(map(str, version))}" if version else None

    async def open(self) -> None:
        """Connect twice; raises BrokerUnavailable."""
        await asyncio.gather(self._consume_connection.open(), self._publish_connection.open())

    async def close(self) -> None:
        """Disconnect; the broker requeues unsettled deliveries."""
        self._receivers.close()
        self._dead_letters.stop()
        await self._channels.flush()
        connections = self._publish_connection, self._consume_connection, self._isolated
        await asyncio.gather(*(each.close() for each in connections))
        await asyncio.gather(self._channels.close(), *(each.close() for each in self._declarers))
        await self._background.wait(_CLOSE_SECONDS)
        if self._management is not None:
            await self._management.close()

    async def ping(self) -> None:
        """A round trip on a channel."""
        try:
            await self._stats.ping(PING_SECONDS)
        except BrokerUnavailable:
            self._consume_connection.mark_suspect()
            raise

    async def warnings(self) -> Sequence[str]:
        """Warnings about the server."""
        return await warnings_of(self._publish_connection)

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Warnings about the arguments and policies of the queue and of its dead letters; none without the management
        API. Any limit of time is warned of, because a queue has none by itself."""
        if self._management is None:
            return ()
        self._consume_connection.check_open()
        profile, version = _queue(queue).profile, self._publish_connection.server_version
        warnings = queue_warnings(self._management, [profile.queue, profile.dead_queue], version)
        return await within(WARNINGS_SECONDS, self.name, warnings)

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Publish persistent, mandatory messages in one write, and wait for their confirms."""
        target = _queue(queue)
        return await self._write(messages, target.profile.message, target.profile.topology, target.declare)

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """Decoded from the frames that :meth:`publish` would write."""
        profile, frame_max = _queue(queue).profile, self._publish_connection.frame_max
        with translating(translate, self.name):
            made = await turns.run(self._writable(profile.message), message, size=len(message.body))
            return [await turns.run(frames.projection, made, profile.assigned, frame_max, size=len(made.body))]

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Publish to the dead-letter queue; otherwise like :meth:`publish`."""
        target = _queue(queue)
        return await self._write(records, target.profile.dead, target.profile.dead_topology, target.declare)

    def _writable(self, make: Callable[[Outgoing], AddressedMessage]) -> Callable[[Outgoing], AddressedMessage]:
        def made(message: Outgoing) -> AddressedMessage:
            try:
                return make(message)
            except Exception as error:
                # Any error is the outcome of this message; the others are written.
                reason = f"the profile of the queue cannot write the message: {reason_of(error)}"
                raise BrokerRejected(self.name, reason) from error

        return made

    async def _write(
        self,
        messages: Sequence[Outgoing],
        make: Callable[[Outgoing], AddressedMessage],
        topology: Topology,
        declare: Declare,
    ) -> Sequence[Outcome]:
        outcomes, ready = await made_of_each(self.name, messages, self._writable(make))
        if ready:
            written = await self._publisher.publish([*ready.values()], topology, declare)
            for position, outcome in zip(ready, written, strict=True):
                if isinstance(outcome, UnsupportedByBroker) and messages[position].is_copy:
                    # The headers of a delivery are not the caller's.
                    outcome = BrokerRejected(self.name, outcome.reason.rstrip("."))
                outcomes[position] = outcome
        return outcomes

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """The ready messages; without any, a consumer waits, and ends shortly after the last waiting caller."""
        return await self._receivers.reserve(_queue(queue), limit, wait_seconds)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Ack in one write; returns when the broker has read it, OutcomeUnknown where that stays open."""
        return await self._settler.ack(handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Return messages to their places. Raises ValueError for ``failed`` or a delay, which AMQP cannot do."""
        if failed or delay_seconds:
            raise ValueError("a release that is counted or delayed is a copy, published by the gateway")
        return await self._settler.give_back(handles)

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By a round trip on the channels of the deliveries."""
        return await self._settler.prove(handles)

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Decided by the tags handed out on open channels."""
        return self._settler.outstanding(handles)

    async def queues(self) -> Sequence[str]:
        """All queues of the virtual host; none without the management API, or without its answer within 2 s."""
        self._consume_connection.check_open()
        listed = None if self._management is None else await self._management.queues()
        return listed or ()

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Ready messages and dead letters; in flight only with the management API, up to 5 s late.

        Delayed messages are not counted: they are in queues that all queues share.
        """
        profile = _queue(queue).profile
        depth, dead = await self._stats.ready(profile.queue, profile.dead_queue)
        counts = await self._management.counts(profile.queue) if self._management is not None else None
        in_flight = counts.messages_unacknowledged if counts is not None else None
        return QueueStats(depth, in_flight, None, dead + self._dead_letters.held(profile.dead_queue))

    async def purge(self, queue: NativeQueue) -> int:
        """Remove the ready messages. Delayed ones stay: they are in queues that all queues share.

        Raises UnsupportedByBroker for a stream.
        """
        return await self._stats.purge(_queue(queue).profile.queue)

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page; the cursor is a position. Between pages, other consumers do not see the records that were read."""
        profile = _queue(queue).profile
        page, cursor = await self._dead_letters.read(profile.dead_queue, cursor, limit)
        records = await turns.mapped(
            lambda found: profile.read_dead(found.arrived, found), page, size=lambda found: size_of_body(found.arrived)
        )
        return records, cursor

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Remove each record once, also when it was requeued in between, searching for those that are not taken. The
        cursor moves back by the number removed."""
        dead_queue, removed = _queue(queue).profile.dead_queue, [False] * len(records)
        for pause in _SEARCHES_AFTER_SECONDS:
            await asyncio.sleep(pause)
            left = [index for index, done in enumerate(removed) if not done]
            gone, _ = await self._dead_letters.remove(dead_queue, [records[index] for index in left], None)
            for index, done in zip(left, gone, strict=True):
                removed[index] = done
            if all(removed):
                break
        return removed, moved_back(cursor, sum(removed))

    async def purge_dead(self, queue: NativeQueue) -> int:
        """Remove all records that no other consumer has taken."""
        dead_queue = _queue(queue).profile.dead_queue
        async with self._dead_letters.using(dead_queue, writes=True) as browser:
            if not isinstance(browser, QueueBrowser):
                return 0
            await browser.put_back()
            await browser.counted()
            return await purged(await self._isolated.channel(), dead_queue)

    async def _browser(self, queue: str, browser: QueueBrowser | None) -> QueueBrowser | None:
        """The browser of the queue; None for a missing queue, or one that was empty without a browser."""
        isolated = self._isolated
        try:
            if browser is None or not browser.channel.is_open:
                if not await isolated.ready(queue):
                    return None
                return QueueBrowser(await isolated.channel(), queue, self.timeout_seconds / 2, isolated.ready)
            if not len(browser):
                await browser.channel.ready(queue)
        except ChannelNotFoundEntity:
            return None
        return browser
