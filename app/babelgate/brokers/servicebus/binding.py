"""The Azure Service Bus binding: queues as the BabelQueue SDKs use them.

Service Bus locks a message for a time that its queue is configured with, and a lock belongs to its token. The process
that received a message keeps the lease: it renews the lock until the lease ends, and then gives the message up. Any
process completes and abandons by the token. https://learn.microsoft.com/azure/service-bus-messaging/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from babelgate.brokers.batching import made_of_each
from babelgate.brokers.binding import (
    DeadLetterRequest,
    DeadRecord,
    Delivery,
    DeliveryLimit,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeked,
    QueueStats,
)
from babelgate.brokers.bounded import OPEN_SECONDS, PING_SECONDS, WARNINGS_SECONDS, within
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, REPORTS, BrokerCapabilities
from babelgate.brokers.errors import translating
from babelgate.brokers.names import queue_names
from babelgate.brokers.options import timeout_of
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.servicebus.admin import ServiceBusAdmin
from babelgate.brokers.servicebus.client import ServiceBusConnections, check_credentials
from babelgate.brokers.servicebus.dead_letters import MAX_PEEKED, ServiceBusDeadLetters, details_of
from babelgate.brokers.servicebus.errors import translate
from babelgate.brokers.servicebus.locks import QueueLocks
from babelgate.brokers.servicebus.message import HEADER_RULES, SCHEDULED, Fields, dead_fields, fields_of
from babelgate.brokers.servicebus.properties import PROPERTIES
from babelgate.brokers.servicebus.publish import publish
from babelgate.brokers.servicebus.queue import DEAD_SUFFIX, NATIVE_DEAD, ServiceBusQueue, queue_of
from babelgate.brokers.servicebus.sessions import QueueSessions
from babelgate.brokers.servicebus.url import ServiceBusSettings, settings_of
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerUnavailable, UnsupportedByBroker
from babelgate.runtime.cache import Cache, Recent

_MAX_BODY_BYTES = 104_792_064
"""100 MiB of a large message of the tier Premium, less 64 KiB for its properties. The tier and the queue decide what is
accepted: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""

_MAX_BATCH = 500
_MAX_QUEUES = 1_000
"""Queues whose locks or sessions are remembered, beyond those of which this process has one."""

_UNCONFIRMED_BYTES = 32 * 1024 * 1024
"""Of the locks whose settle had no answer: about 120,000 are remembered."""

_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
"""Every server of AMQP 1.0 answers it: section 5.3.2 of the specification."""


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> ServiceBusBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    check_credentials(settings := settings_of(url, others))
    return ServiceBusBinding(name, settings, clock, timeout_seconds)


def _queue(queue: NativeQueue) -> ServiceBusQueue:
    return queue.options_as(ServiceBusQueue)


class ServiceBusBinding:
    """One namespace. Also ConnectionBroker, LeasingBroker, Peeks, Purges, DeadLetters, PublishesDeadLetters,
    DeadStore, Lists, LimitsDeliveries, WarnsOfQueues and Projects."""

    lists_foreign = True

    def __init__(
        self,
        name: str,
        settings: ServiceBusSettings,
        clock: Clock,
        timeout_seconds: float,
        max_queues: int = _MAX_QUEUES,
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._clock = clock
        self._connections = ServiceBusConnections(name, settings, timeout_seconds)
        self._admin = ServiceBusAdmin(self._connections)
        self._unconfirmed: Cache[bytes, None] = Cache(_UNCONFIRMED_BYTES)
        self._locks: Recent[str, QueueLocks] = Recent(max_queues, lambda each: each.busy, QueueLocks.close)
        self._sessions: Recent[str, QueueSessions] = Recent(max_queues, lambda each: each.busy, QueueSessions.close)
        self._dead_letters = ServiceBusDeadLetters(self._connections, self._unconfirmed)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`babelgate.brokers.servicebus.queue.queue_of`."""
        queue = queue_of(name, options)
        return NativeQueue(queue.name, queue, queue.dead, {"sessions": "yes"} if queue.sessions else {})

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """A queue with sessions keeps the order of each session, whose messages belong to the process that has it."""
        target = _queue(queue)
        return BrokerCapabilities(
            max_delay_seconds=MAX_DELAY_SECONDS,
            max_retry_delay_seconds=MAX_DELAY_SECONDS,
            max_lease_seconds=MAX_LEASE_SECONDS,
            ack_scope="owner" if target.sessions else "anywhere",
            ordering="key" if target.sessions else "none",
            native_release=True,
            native_release_delays=False,
            delivery_count="zero_based",
            max_body_bytes=_MAX_BODY_BYTES,
            max_batch=_MAX_BATCH,
            headers=True,
            header_rules=HEADER_RULES,
            lease_bound_to="connection" if target.sessions else "lock",
            native_dead_letter=target.native_dead,
            broker_properties=PROPERTIES,
            # Its count of active messages contains the leased ones.
            counted_as={"in_flight": "depth"},
            reports=REPORTS - {"in_flight", "oldest_age_seconds"},
        )

    async def open(self) -> None:
        """Raises BrokerUnavailable when the namespace does not answer. Credentials are used at the first call."""
        self._connections.closed = False
        await within(OPEN_SECONDS, self.name, self._probe())

    async def close(self) -> None:
        """Disconnect. The locks last until they expire, and any other process settles by their tokens; sessions
        are given back."""
        keepers: list[QueueLocks | QueueSessions] = [*self._locks.values(), *self._sessions.values()]
        for keeper in keepers:
            keeper.close()
        for keeper in keepers:
            await keeper.idle()
        self._locks.clear()
        self._sessions.clear()
        await self._connections.close()
        await self._admin.close()

    async def ping(self) -> None:
        """A new connection, as far as the first answer of the protocol."""
        await within(PING_SECONDS, self.name, self._probe())

    async def warnings(self) -> Sequence[str]:
        """None: the service keeps every message on several disks. See :meth:`queue_warnings`."""
        return ()

    async def delivery_limit(self, queue: NativeQueue) -> DeliveryLimit | None:
        """``MaxDeliveryCount`` of the queue, where the credentials may read it."""
        target = _queue(queue)
        count = await within(WARNINGS_SECONDS, self.name, self._admin.delivery_limit(target.name))
        return None if count is None else DeliveryLimit(count, target.name + NATIVE_DEAD)

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Of the queue and of its dead letters, where the credentials may read their settings: what keeps messages for
        less than ``kept_seconds``."""
        target = _queue(queue)
        names = target.name, target.name + DEAD_SUFFIX

        async def asked() -> Sequence[str]:
            found = await asyncio.gather(*(self._admin.warnings(name, kept_seconds) for name in names))
            return [text for each in found for text in each]

        return await within(WARNINGS_SECONDS, self.name, asked())

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Batches, as many messages in each as its link takes."""
        target = _queue(queue)
        return await publish(self._connections, target.name, messages, partial(self._fields, target))

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """To ``<queue>.dlq``; otherwise like :meth:`publish`."""
        target = _queue(queue)
        dead = ServiceBusQueue(target.name + DEAD_SUFFIX)
        return await publish(
            self._connections, dead.name, records, lambda record: dead_fields(dead, record, self._clock())
        )

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The message of :meth:`publish`, by the names of Microsoft's message page."""
        target = _queue(queue)
        (refused,), made = await made_of_each(self.name, [message], partial(self._fields, target))
        if refused is not None:
            raise refused
        return [_projected(target, message, made[0])]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """One receive of a queue at a time, which takes its credit back when it ends."""
        return await self._keeper(queue).reserve(limit, wait_seconds)

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether the lock of each delivery is not known to be over."""
        keeper = self._keeper(queue)
        return [keeper.holds(handle) for handle in handles]

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By a renewal of the locks, which the service refuses for one that is over."""
        return await self._keeper(queue).prove(handles)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Complete, by the lock tokens."""
        return await self._keeper(queue).settle(handles, "completed")

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Abandon, which counts; a message that was not attempted is released on its link, where this process has it,
        which does not count."""
        keeper = self._keeper(queue)
        return await (keeper.settle(handles, "abandoned") if failed else keeper.give_back(handles))

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """Renew each lock once, for the time that the queue is configured with, whatever ``lease_seconds`` is. For the
        deliveries of a process that has ended."""
        return await self._locks_of(_queue(queue).name).renew(handles)

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Move to ``$DeadLetterQueue``, with the block as reason and description; the body stays as it is."""
        keeper = self._keeper(queue)
        outcomes: list[Outcome] = []
        for letter in letters:
            outcomes += await keeper.settle([letter.handle], "suspended", details_of(letter.block))
        return outcomes

    async def queues(self) -> Sequence[str]:
        """The queues of the namespace, at most 10,000, without those of dead letters; none where it is denied."""
        return queue_names(await self._admin.queues() or (), DEAD_SUFFIX)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts where the credentials have the right Manage; ``depth`` has the leased messages in it, too."""
        target = _queue(queue)
        counts = await self._admin.counts(target.name)
        if counts is None:
            return QueueStats()
        dead = counts.dead
        if not target.native_dead and (others := await self._admin.counts(target.dead)) is not None:
            dead += others.active
        return QueueStats(counts.active, None, counts.scheduled, dead)

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """Service Bus shows leased messages, too. A queue with sessions shows none to whom has no session."""
        target = _queue(queue)
        if target.sessions:
            reason = f"The queue {target.name!r} has sessions, so that it shows no messages without leasing a session."
            raise UnsupportedByBroker(code="unsupported_by_broker", pointer="", reason=reason)
        found = await self._dead_letters.peek(target.name, min(limit, MAX_PEEKED), 1)
        return [Peeked(each.body, each.headers) for each in found if not each.state]

    async def purge(self, queue: NativeQueue) -> int:
        """Cancel the scheduled messages, then receive and delete the ready ones. Of a queue with sessions: the ready
        ones of the sessions that are free."""
        target = _queue(queue)
        if target.sessions:
            return await self._sessions_of(target.name).purge()
        cancelled = await self._cancel_scheduled(target.name)
        return cancelled + await self._dead_letters.purge(target.name)

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """From the queue of dead letters, then from ``$DeadLetterQueue``, where Service Bus itself moves messages."""
        return await self._dead_letters.read(_queue(queue), cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """By sequence number, so the cursor stays as it is."""
        return await self._dead_letters.remove(records), cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        """In both places."""
        return sum([await self._dead_letters.purge(entity) for entity in _queue(queue).dead_queues])

    def _fields(self, queue: ServiceBusQueue, message: Outgoing) -> Fields:
        return fields_of(queue, message, self._clock())

    def _locks_of(self, entity: str) -> QueueLocks:
        return self._locks.obtain(entity, lambda: QueueLocks(self._connections, entity, self._clock, self._unconfirmed))

    def _sessions_of(self, entity: str) -> QueueSessions:
        return self._sessions.obtain(entity, lambda: QueueSessions(self._connections, entity, self._clock))

    def _keeper(self, queue: NativeQueue) -> QueueLocks | QueueSessions:
        target = _queue(queue)
        return self._sessions_of(target.name) if target.sessions else self._locks_of(target.name)

    async def _cancel_scheduled(self, entity: str) -> int:
        count = 0
        start = 1
        while found := await self._dead_letters.peek(entity, MAX_PEEKED, start):
            start = found[-1].sequence + 1
            scheduled = [each.sequence for each in found if each.state == SCHEDULED]
            if scheduled:

                async def cancel(sender: Any, numbers: list[int] = scheduled) -> None:
                    await sender.cancel_scheduled_messages(numbers)

                await self._connections.call("send", entity, cancel, writes=True)
                count += len(scheduled)
        return count

    async def _probe(self) -> None:
        """Connect, send the first bytes of the protocol, and wait for the first byte of the answer."""
        settings = self._settings
        host, port = settings.address
        hello = _SASL_HEADER
        if settings.websocket:
            hello = f"HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        writer = None
        try:
            with translating(translate, self.name):
                context = None if settings.tls is None else settings.tls.context()
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(hello)
                if not await reader.read(1):
                    raise BrokerUnavailable(self.name, "it closed the connection at once")
        finally:
            if writer is not None:
                writer.transport.abort()


def _projected(queue: ServiceBusQueue, message: Outgoing, fields: Fields) -> NativeWrite:
    """The native form of a message, in Microsoft's words."""
    shown: dict[str, Any] = {}
    headers: dict[str, NativeHeader] = {}
    for name, value in fields.items():
        if name == "application_properties":
            headers = {each: _header(found) for each, found in value.items()}
        elif name == "scheduled_enqueue_time_utc":
            shown["ScheduledEnqueueTimeUtc"] = value
        elif name == "time_to_live":
            shown["TimeToLive"] = value / 1000
        else:
            shown["".join(part.capitalize() for part in name.split("_"))] = value
    assigned = []
    if message.delay_seconds > 0:
        assigned.append("ScheduledEnqueueTimeUtc")
    if message.dedup_id is None and "MessageId" in shown:
        assigned.append("MessageId")
    return NativeWrite("send", {"queue": queue.name}, shown, headers, message.body, assigned)


def _header(value: Any) -> NativeHeader:
    if isinstance(value, dict):
        return NativeHeader(value["TYPE"].lower(), value["VALUE"])
    kinds = {str: "string", bool: "boolean", int: "int", float: "double"}
    return NativeHeader(kinds.get(type(value), type(value).__name__), value)
