"""The Apache Pulsar binding: topics as the BabelQueue SDKs use them, with a shared subscription.

A delivery belongs to its consumer as long as that is open, so this process keeps its lease. Any consumer of the
subscription acknowledges a message that stands alone, by its id. https://pulsar.apache.org/docs/4.0.x/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from babelgate.brokers.binding import DeadRecord, Delivery, NativeQueue, Outcome, Outgoing, Peeked, QueueStats
from babelgate.brokers.bounded import OPEN_SECONDS, PING_SECONDS, WARNINGS_SECONDS, finished, within
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, BrokerCapabilities
from babelgate.brokers.errors import translating
from babelgate.brokers.names import queue_names
from babelgate.brokers.options import timeout_of
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.pulsar.admin import PulsarAdmin, TopicLosses
from babelgate.brokers.pulsar.browse import PulsarBrowser
from babelgate.brokers.pulsar.client import PARTITION, PulsarClient
from babelgate.brokers.pulsar.consumer import Handle
from babelgate.brokers.pulsar.errors import translate
from babelgate.brokers.pulsar.message import key_text, native
from babelgate.brokers.pulsar.publish import PulsarPublisher
from babelgate.brokers.pulsar.queue import ReceivingQueue
from babelgate.brokers.pulsar.url import DEAD_SUFFIX, PulsarQueue, PulsarSettings, queue_of, settings_of
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerRejected
from babelgate.runtime import turns
from babelgate.runtime.cache import Recent

_CLOSE_SECONDS = 2.0

_MAX_BATCH = 1000
_MAX_QUEUES = 10_000


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> PulsarBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return PulsarBinding(name, settings_of(url, others), clock, timeout_seconds)


def _queue(queue: NativeQueue) -> PulsarQueue:
    return queue.options_as(PulsarQueue)


def _warnings(topic: str, losses: TopicLosses) -> Iterator[str]:
    if losses.ttl_seconds:
        yield f"The topic {topic} drops messages that are not acknowledged after {losses.ttl_seconds} s (message TTL)."
    for quota in losses.evicting_quotas:
        why = f"({quota}, consumer_backlog_eviction)"
        yield f"The topic {topic} drops its oldest messages beyond its backlog quota {why}."
    if losses.subscription_seconds:
        seconds = f"{losses.subscription_seconds} s"
        yield f"A subscription of the topic {topic} is deleted with its messages after {seconds} without a consumer."


class PulsarBinding:
    """One namespace. Also ConnectionBroker, LeasingBroker, BindsSomeDeliveries, Peeks, Purges,
    PublishesDeadLetters, DeadStore, Lists and Projects."""

    lists_foreign = True

    def __init__(self, name: str, settings: PulsarSettings, clock: Clock, timeout_seconds: float) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._clock = clock
        # A connection to which a publish has no answer is dropped, and takes no delivery with it.
        self._publishing = PulsarClient(name, settings, timeout_seconds)
        self._receiving = PulsarClient(name, settings, timeout_seconds)
        self._publisher = PulsarPublisher(self._publishing, clock)
        self._queues: Recent[str, ReceivingQueue] = Recent(_MAX_QUEUES, lambda each: not each.is_idle)
        self._admin = PulsarAdmin(self._receiving)
        self._browser = PulsarBrowser(self._receiving, self._consumers, clock)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`babelgate.brokers.pulsar.url.queue_of`. The name is that in the namespace."""
        queue = queue_of(self._settings, name, options)
        return NativeQueue(name, queue, name + DEAD_SUFFIX, {"subscription": "key_shared"} if queue.key_shared else {})

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """A queue that is shared by key keeps the order of each key, and its messages belong to their consumer."""
        target = _queue(queue)
        return BrokerCapabilities(
            max_delay_seconds=MAX_DELAY_SECONDS,
            max_retry_delay_seconds=MAX_DELAY_SECONDS,
            max_lease_seconds=MAX_LEASE_SECONDS,
            ack_scope="owner" if target.key_shared else "anywhere",
            ordering="key" if target.key_shared else "none",
            native_release=False,
            delivery_count="zero_based",
            max_body_bytes=None,
            max_batch=_MAX_BATCH,
            headers=True,
            lease_bound_to="connection",
            # Until a consumer waits for messages: the broker then learns which ones are due.
            counted_as={"delayed": "depth"},
        )

    @property
    def server_version(self) -> str | None:
        return self._publishing.server_version

    async def open(self) -> None:
        """Raises BrokerUnavailable when no broker answers, or it refuses the credentials."""
        self._publishing.closed = self._receiving.closed = False
        await within(OPEN_SECONDS, self.name, self._publishing.service())
        await within(OPEN_SECONDS, self.name, self._receiving.service())

    async def close(self) -> None:
        """End all consumers, which gives their messages back uncounted, and disconnect."""
        queues = list(self._queues.values())
        self._queues.clear()
        ending = asyncio.gather(*(queue.close() for queue in queues))
        await finished(ending, _CLOSE_SECONDS)
        await self._publisher.close()
        # A broker that has not answered by now gives the messages back when their connection ends.
        await asyncio.gather(self._publishing.close(), self._receiving.close())
        await ending
        await self._admin.close()

    async def ping(self) -> None:
        """The protocol's own."""
        with translating(translate, self.name):
            try:
                await within(PING_SECONDS, self.name, self._receiving.ping())
            except BabelgateError:
                self._receiving.mark_suspect()
                raise

    async def warnings(self) -> Sequence[str]:
        """None: a broker confirms what its bookies have stored. See :meth:`queue_warnings`."""
        return ()

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Of the topic and its dead letters, by the admin interface. Any limit of time is warned of, as a namespace has
        none by itself."""
        target = _queue(queue)
        topics = target.topic, target.dead.topic
        with translating(translate, self.name):
            found = await within(WARNINGS_SECONDS, self.name, asyncio.gather(*map(self._admin.losses, topics)))
        return [text for topic, each in zip(topics, found, strict=True) if each for text in _warnings(topic, each)]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Each message by itself, all in flight together."""
        return await self._publisher.publish(_queue(queue).topic, messages)

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """To ``<topic>.dlq``; otherwise like :meth:`publish`."""
        return await self._publisher.publish(_queue(queue).dead.topic, records)

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The message of :meth:`publish`, by the names of Pulsar's clients."""
        target = _queue(queue)
        try:
            made = await turns.run(native, message, self._clock(), size=len(message.body))
        except ValueError as error:
            raise BrokerRejected(self.name, str(error)) from error
        fields: dict[str, Any] = {}
        if made.HasField("partition_key"):
            key = made.partition_key.decode()
            fields["partition_key"] = key_text(key, is_base64=made.partition_key_b64_encoded)
        if made.event_time:
            fields["event_timestamp"] = made.event_time
        if made.deliver_at_time:
            fields["deliver_at"] = made.deliver_at_time
        headers = {each.key.decode(): NativeHeader("string", each.value.decode()) for each in made.properties}
        assigned = ("deliver_at",) if made.deliver_at_time else ()
        return [NativeWrite("send", {"topic": target.topic}, fields, headers, message.body, assigned)]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """Gives permits for the messages that receives wait for; they end with their consumer when no receive waits."""
        return await self._queue(queue).reserve(min(limit, _MAX_BATCH), wait_seconds)

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether the consumer of each delivery is open, and holds it."""
        consumers = self._queue(queue)
        return [consumers.holds(handle) for handle in handles]

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By the broker's answer on the consumer of each delivery, which holds it as long as it is open."""
        return await self._queue(queue).proofs(handles)

    def acks_anywhere(self, queue: NativeQueue, handle: str) -> bool:
        """Whether the message stands alone: one of a producer's batch is acknowledged by its consumer."""
        found = Handle.read(handle)
        return found is not None and found.position is None

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """By the ids, on any consumer of the topic; returns after the broker's receipt.

        A repeated ack of a delivery of this process is LeaseLost here: the leases of the gateway, which remember what
        they have acked, send none.
        """
        return await self._queue(queue).ack(handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Give back, uncounted, by the end of the consumer, or by a copy."""
        return await self._queue(queue).give_back(handles)

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """Prove that no process has acknowledged the messages. A delivery of a process that has ended is lost: its
        consumer has ended, too."""
        deadline = self._clock() + round(lease_seconds * 1000)
        proofs = await self._queue(queue).proofs(handles, acked=False)
        return [deadline if proof is None else proof for proof in proofs]

    async def queues(self) -> Sequence[str]:
        """The topics of the namespace, without those of dead letters."""
        prefix = f"persistent://{self._settings.namespace}/"
        found = await within(self.timeout_seconds, self.name, self._receiving.topics())
        return queue_names((topic.removeprefix(prefix).partition(PARTITION)[0] for topic in found), DEAD_SUFFIX)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts of the admin interface, where there is one. A delayed message counts as such only while a consumer
        waits, and a producer's batch counts as one message."""
        target = _queue(queue)
        topics = target.topic, target.dead.topic
        with translating(translate, self.name):
            asked = asyncio.gather(*map(self._admin.counts, topics))
            counts, dead = await within(self.timeout_seconds, self.name, asked)
        if counts is None or dead is None:
            return QueueStats()
        age = max(self._clock() - counts.oldest_ms, 0) / 1000 if counts.backlog and counts.oldest_ms else None
        # Seen with Pulsar 4.0: what was acknowledged while its consumer ended may be counted as held by the next one.
        held = counts.unacked if counts.backlog else 0
        out = max(counts.backlog - held, 0)
        # A delayed message that is acknowledged counts as delayed until it is due.
        delayed = min(counts.delayed, out)
        return QueueStats(out - delayed, held, delayed, dead.backlog, age)

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """By a consumer that takes the messages and ends."""
        found = await self._browser.peek(_queue(queue), limit)
        return [Peeked(each.body, each.headers) for each in found]

    async def purge(self, queue: NativeQueue) -> int:
        """Acknowledge the ready and the delayed messages."""
        return await self._browser.purge(_queue(queue))

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """The records that the subscription of the SDKs has not acknowledged."""
        return await self._browser.read_dead(_queue(queue).dead, cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Acknowledge records. A cursor is a position in the topic, so it stays as it is."""
        return await self._browser.remove_dead(_queue(queue).dead, records), cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        """Acknowledge all records."""
        return await self._browser.purge(_queue(queue).dead)

    def _queue(self, queue: NativeQueue) -> ReceivingQueue:
        target = _queue(queue)
        return self._queues.obtain(target.topic, lambda: self._consumers(target))

    def _consumers(self, queue: PulsarQueue) -> ReceivingQueue:
        return ReceivingQueue(self._receiving, queue, self._publisher.publish)
