"""The Apache Kafka binding: topics as the BabelQueue SDKs use them, with leases, acks in any order, and delays.

All processes are members of one consumer group. A partition belongs to one process at a time, which keeps the leases
of its messages and commits the settled ones. https://kafka.apache.org/documentation/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from babelgate.brokers.binding import DeadRecord, Delivery, NativeQueue, Outcome, Outgoing, Peeked, QueueStats
from babelgate.brokers.bounded import OPEN_SECONDS, PING_SECONDS, WARNINGS_SECONDS, within
from babelgate.brokers.capabilities import MAX_LEASE_SECONDS, BrokerCapabilities
from babelgate.brokers.connect import disconnecting
from babelgate.brokers.header_rules import HeaderRules
from babelgate.brokers.kafka.admin import KafkaAdmin, Topic, deletes, kept_ms
from babelgate.brokers.kafka.consumer import GroupConsumer
from babelgate.brokers.kafka.dead_letters import KafkaDeadLetters
from babelgate.brokers.kafka.message import CarriedRecord, delivery_of, projected, timestamp_of
from babelgate.brokers.kafka.partitions import AckedOffsets, ReadyRange
from babelgate.brokers.kafka.publish import COPY_SECONDS, KafkaProducer, KafkaPublisher, written_of
from babelgate.brokers.kafka.reader import KafkaReader, Position
from babelgate.brokers.kafka.retry import GROUP as RETRY_GROUP
from babelgate.brokers.kafka.retry import KafkaReinjector
from babelgate.brokers.kafka.url import KafkaQueue, KafkaSettings, queue_of, settings_of
from babelgate.brokers.options import timeout_of
from babelgate.brokers.projection import NativeWrite
from babelgate.clock import Clock, steady_ms
from babelgate.errors import BrokerRejected
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

_MAX_BATCH = 500

_CLOSE_SECONDS = 5.0
"""How long a close waits. See :meth:`babelgate.brokers.binding.Binding.close`."""

_throttled = LogThrottle(get_logger(__name__))


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> KafkaBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return KafkaBinding(name, settings_of(url, others), clock, timeout_seconds)


def _queue(queue: NativeQueue) -> KafkaQueue:
    return queue.options_as(KafkaQueue)


def _traced(group: str, kind: str, handle: str | None) -> Mapping[str, str | int]:
    """The attributes of a span: the consumer group, but not of a send, and where the record of ``handle`` is.

    https://opentelemetry.io/docs/specs/semconv/messaging/kafka/ (release 1.45).
    """
    traced: dict[str, str | int] = {} if kind == "send" else {"messaging.consumer.group.name": group}
    # A token may be older than the route to this broker, and have the handle of another one.
    *_, partition, offset = ("", "", *(handle or "").split("."))
    if partition.isdecimal() and offset.isdecimal():
        traced["messaging.destination.partition.id"] = partition
        traced["messaging.kafka.offset"] = int(offset)
    return traced


class KafkaBinding:
    """One cluster. Also ConnectionBroker, Peeks, Purges, PublishesDeadLetters, DeadStore, Lists, WarnsOfQueues,
    Projects, Reinjects and RestoresCarried."""

    lists_foreign = True
    carried_type = CarriedRecord

    def __init__(
        self, name: str, settings: KafkaSettings, clock: Clock, timeout_seconds: float, steady_clock: Clock = steady_ms
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._group = settings.group
        self._admin = KafkaAdmin(name, settings.client, timeout_seconds)
        self._producer = KafkaProducer(name, settings.client, timeout_seconds, self._admin)
        self._copier = KafkaProducer(name, settings.client, timeout_seconds, self._admin, COPY_SECONDS)
        self._reader = KafkaReader(name, settings.client, timeout_seconds, self._admin.check_open)
        self._consumer = GroupConsumer(name, settings, self._admin, self._reader, timeout_seconds)
        self._reinjector = KafkaReinjector(settings, self._admin, self._producer, clock, steady_clock)
        self._publisher = KafkaPublisher(self._producer, self._copier, self._admin, clock, self._reinjector.watch)
        self._dead_letters = KafkaDeadLetters(self._admin, self._producer, self._reader)
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    @property
    def reinjected(self) -> int:
        """The records that this process has moved back from retry tiers."""
        return self._reinjector.moved

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`babelgate.brokers.kafka.url.queue_of`."""
        queue = queue_of(name, options)
        return NativeQueue(queue.name, queue, queue.dead, traced=partial(_traced, self._group), delayed=queue.tiers)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """The longest delay is that of the last retry tier of the route."""
        delays = _queue(queue).retry_delays_seconds
        longest = delays[-1] if delays else 0
        return BrokerCapabilities(
            max_delay_seconds=longest,
            max_retry_delay_seconds=longest,
            max_lease_seconds=MAX_LEASE_SECONDS,
            ack_scope="owner",
            ordering="key",
            native_release=False,
            delivery_count="none",
            max_body_bytes=None,
            max_batch=_MAX_BATCH,
            headers=True,
            # librdkafka takes a name up to its first U+0000.
            header_rules=HeaderRules(nul_in_names=False),
            lease_bound_to="partition",
        )

    async def open(self) -> None:
        """Raises BrokerUnavailable when the cluster does not answer, or a part of this has not ended since the last
        close. The group is joined with the first reserve."""
        loop = asyncio.get_running_loop()
        until = loop.time() + OPEN_SECONDS - 0.5
        # A part that ends would take clients that calls begin meanwhile.
        await self._closing.wait(until - loop.time())
        if self._closing:
            raise disconnecting(self.name)
        self._admin.closed = False
        await self._admin.probe(until - loop.time())
        await self._admin.commits.is_answered(self._group, until - loop.time())

    async def close(self) -> None:
        """Leave the groups: other members get the partitions, with all that was not acked; at most 5 s. A part that
        needs longer ends in the background."""
        self._admin.closed = True
        loop = asyncio.get_running_loop()
        until = loop.time() + _CLOSE_SECONDS
        # The re-injector writes with the producer until it has ended.
        for parts in ((self._consumer, self._reinjector), (self._producer, self._copier)):
            for each in parts:
                self._closing.start(self._end(each))
            await self._closing.wait(until - loop.time())
        await self._reader.close()
        self._admin.close()

    async def _end(self, part: GroupConsumer | KafkaReinjector | KafkaProducer) -> None:
        """Close a part, also after :meth:`close` has returned."""
        try:
            await part.close()
        except Exception as error:
            _throttled.warning("a client of Kafka did not end", broker=self.name, error=str(error))

    async def ping(self) -> None:
        """One round trip: the metadata of one topic."""
        await self._admin.probe(PING_SECONDS)

    async def warnings(self) -> Sequence[str]:
        """None: what a broker may lose depends on its topics."""
        return ()

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Of the topic, its retry tiers and its dead letters. A retention is warned of below ``kept_seconds`` only, as
        Kafka deletes records after seven days by default."""
        return await within(WARNINGS_SECONDS, self.name, _queue_warnings(self._admin, _queue(queue), kept_seconds))

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write to the topic, or to the smallest retry tier that is long enough; confirmed by all replicas in sync."""
        return await self._publisher.publish(self._watched(queue), messages)

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write to ``<topic>.dlq``; otherwise like :meth:`publish`."""
        return await self._publisher.publish_dead(self._watched(queue), records)

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The record that :meth:`publish` would produce."""
        try:
            made = await turns.run(written_of, _queue(queue), message, self._clock(), size=len(message.body))
        except ValueError as error:
            raise BrokerRejected(self.name, str(error)) from error
        return [projected(made, self._clock())]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """From the partitions that this process has; the topic stays subscribed for a second, if nothing is ready."""
        return await self._consumer.reserve(self._watched(queue), limit, wait_seconds)

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether this process still has the partition of each delivery, and the delivery is not settled."""
        return self._consumer.outstanding(_queue(queue), handles)

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By a commit that changes nothing, which the group takes of its members only."""
        return await self._consumer.prove(_queue(queue), handles)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Commit the offset of the first unacked message, and in its metadata the acks behind it."""
        return await self._consumer.ack(_queue(queue), handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Return messages to their places. Raises ValueError for ``failed`` or a delay, which Kafka cannot do."""
        if failed or delay_seconds:
            raise ValueError("a release that is counted or delayed is a copy, published by the gateway")
        return self._consumer.release(_queue(queue), handles)

    async def queues(self) -> Sequence[str]:
        """The topics of the cluster, without retry tiers, dead letters and Kafka's own."""
        return await self._admin.names()

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts by offsets. ``in_flight`` are the leases of this process; those of others count as ready, because only
        they know them. The retry tiers are served from then on."""
        target = self._watched(queue)
        ranges, tiers, dead = await asyncio.gather(
            self._ranges(target), self._delayed(target), self._dead_letters.count(target)
        )
        oldest = await asyncio.gather(*(self._oldest(position, left) for position, left in ranges.items()))
        times = [at for at in oldest if at is not None]
        return QueueStats(
            depth=sum(map(len, ranges.values())),
            in_flight=sum(map(len, self._consumer.leased(target.name).values())),
            delayed=_count(tiers),
            dead=dead,
            oldest_age_seconds=max(self._clock() - min(times), 0) / 1000 if times else None,
        )

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """Read behind the committed offsets, without the acked messages and the leases of this process, by their
        dates."""
        found: list[Any] = []
        for position, left in (await self._ranges(_queue(queue))).items():
            at, several = left.first(), list[Any]()
            while at is not None and at < left.end and len(several) < limit:
                records, at = await self._reader.read(position, at, limit)
                several += [each for each in records if each.offset() in left]
            found += several[:limit]
        found.sort(key=lambda each: timestamp_of(each) or 0)
        return [Peeked(each.body, each.headers) for each in map(delivery_of, found[:limit])]

    async def purge(self, queue: NativeQueue) -> int:
        """Delete the ready and the delayed records, up to the ends of the topic and its retry tiers. A leased one is in
        the memory of its process, which can still settle it."""
        target = _queue(queue)
        ranges, tiers = await asyncio.gather(self._ranges(target), self._delayed(target))
        ends = {position: left.end for position, left in ranges.items() if left.end > left.start}
        ends |= {position: end for position, (start, end) in tiers.items() if end > start}
        if ends:
            await self._admin.delete_before(ends)
        self._consumer.drop_ready(target.name, {number: left.end for (_, number), left in ranges.items()})
        return sum(map(len, ranges.values())) + _count(tiers)

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """By partition and offset, without the removed ones."""
        return await self._dead_letters.read(_queue(queue), cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Mark as removed; offsets do not move, so the cursor stays as it is."""
        return await self._dead_letters.remove(_queue(queue), records), cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        """Delete all records of ``<topic>.dlq``."""
        return await self._dead_letters.purge(_queue(queue))

    async def _ranges(self, queue: KafkaQueue) -> dict[Position, ReadyRange]:
        """What is ready, by partition."""
        bounds, committed = await self._admin.bounds(self._group, await self._admin.positions(queue.name))
        leased = self._consumer.leased(queue.name)
        return {
            each: ReadyRange(start, end, AckedOffsets(*committed.get(each, (start, ""))), leased.get(each[1], ()))
            for each, (start, end) in bounds.items()
        }

    async def _delayed(self, queue: KafkaQueue) -> dict[Position, tuple[int, int]]:
        """The offsets of the retry tiers that are not moved back yet."""
        bounds, _ = await self._admin.bounds(RETRY_GROUP, await self._admin.positions(*queue.tiers))
        return {position: (start, max(start, end)) for position, (start, end) in bounds.items()}

    async def _oldest(self, position: Position, left: ReadyRange) -> int | None:
        first = left.first()
        if first is None:
            return None
        records, _ = await self._reader.read(position, first, 1)
        return timestamp_of(records[0]) if records else None

    def _watched(self, queue: NativeQueue) -> KafkaQueue:
        target = _queue(queue)
        self._reinjector.watch(target)
        return target


def _count(ranges: Mapping[Position, tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges.values())


async def _queue_warnings(admin: KafkaAdmin, queue: KafkaQueue, kept_seconds: float) -> list[str]:
    """Sentences about the topic of ``queue``, its retry tiers and its dead letters, as far as they exist and their
    settings may be read. The publishes that follow use what was read, too."""
    names = queue.name, *queue.tiers, queue.dead
    admin.forget(queue.name)
    settings = await admin.settings_of(*names)
    found: list[str] = []
    if queue.name in settings and (topic := await admin.topic(queue.name)) is not None:
        found += _of_replicas(topic, settings[queue.name])
    for name in names:
        if name in settings:
            found += _of_retention(name, settings[name], kept_seconds)
    return found


def _of_replicas(topic: Topic, settings: Mapping[str, str]) -> Iterator[str]:
    if topic.copies == 1:
        yield f"The topic {topic.name} has one replica: the loss of one broker loses its messages."
    elif settings.get("min.insync.replicas") == "1":
        yield f"The topic {topic.name} has min.insync.replicas=1: a message may be confirmed by one broker alone."
    if "compact" in settings.get("cleanup.policy", ""):
        yield f"The topic {topic.name} is compacted: a message replaces the ones before with its key."


def _of_retention(name: str, settings: Mapping[str, str], kept_seconds: float) -> Iterator[str]:
    kept = kept_ms(settings)
    if kept is not None and kept < kept_seconds * 1000:
        yield (
            f"The topic {name} deletes messages after {kept / 1000:g} s (retention.ms), consumed or not: "
            f"they may have to wait there for {kept_seconds:g} s."
        )
    size = int(settings.get("retention.bytes", -1))
    if size >= 0 and deletes(settings):
        yield f"The topic {name} deletes its oldest messages beyond {size} bytes (retention.bytes), consumed or not."
