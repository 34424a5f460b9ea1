"""The consumers of one queue in this process, and the messages that have arrived and are not handed out."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from babelgate.brokers.bounded import signalled
from babelgate.brokers.connect import Closable
from babelgate.brokers.pulsar.client import PARTITION, PulsarClient
from babelgate.brokers.pulsar.consumer import Entry, Handle, Taken, TopicConsumer
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.brokers.pulsar.wire import EntryId

_CROSSING_SECONDS = 5.0
"""How long after an acknowledgement its message may still arrive. A consumer of another process that ends makes the
broker read its messages again, and it sends all that it has read, even if acknowledged meanwhile."""


class QueueConsumers(Closable):
    """Open consumers of one queue: one for each of its topics, which gets permits, and ``former`` ones that hold
    deliveries. Their handles are those of no other consumers.

    ``ready``: entries with messages that no receive has taken. ``waiting``: how many calls wait for one.
    ``latest``: by topic, the entry that has arrived last. ``changed`` is called when a message arrives.
    """

    def __init__(self, client: PulsarClient, queue: PulsarQueue, changed: Callable[[], None]) -> None:
        self.broker = client.broker
        self.client = client
        self.queue = queue
        self.process = secrets.token_hex(8)
        self.by_topic: dict[str, TopicConsumer] = {}
        self.former: list[TopicConsumer] = []
        self.ready: deque[Entry] = deque()
        self.latest: dict[str, EntryId] = {}
        self.waiting = 0
        self._changed = changed
        self._woken = asyncio.Event()
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By topic, held while its consumer is being made."""
        self._acked_for_others = client.acked_for_others

    async def listen(self) -> None:
        """Have a consumer of each topic of the queue, or of the one that is to be read."""
        alone = self.queue.partition
        topics = [alone] if alone is not None else await self.client.partitions(self.queue.topic, create=True)
        if not all(topic in self.by_topic for topic in topics):
            await self.open(topics)

    async def open(self, topics: Sequence[str]) -> list[TopicConsumer]:
        """The consumers of ``topics``, made where there are none. Raises PulsarError, ConnectionEnded and
        BabelgateError."""
        made = []
        # No consumer is being made any more for this call when the first error is raised.
        for each in await asyncio.gather(*map(self._open, topics), return_exceptions=True):
            if isinstance(each, BaseException):
                raise each
            made.append(each)
        return made

    async def _open(self, topic: str) -> TopicConsumer:
        async with self._opening[topic]:
            if (found := self.by_topic.get(topic)) is not None:
                return found
            self.check_open()
            consumer = TopicConsumer(await self.client.owner(topic), topic, self._arrived, self._ended)
            try:
                await consumer.open(key_shared=self.queue.key_shared)
            except BaseException:
                self.client.forget(topic)
                raise
            self.by_topic[topic] = consumer
            return consumer

    async def ask_again(self, consumer: TopicConsumer) -> None:
        """Have the broker look for messages of a topic at once, which it does when it gets a permit. Another consumer
        replaces ``consumer``, with whose permits it ends; one that holds deliveries stays with its permits.

        Raises PulsarError, ConnectionEnded and BabelgateError.
        """
        if self.queue.key_shared:
            # A change of the consumers would give keys to others. One permit more than needed is what may be lost.
            if consumer.permits <= 1:
                consumer.flow(1)
            return
        self.forget(consumer)
        if consumer.entries:
            self.former.append(consumer)
        else:
            await consumer.close()
        (made,) = await self.open([consumer.topic])
        if made.permits < 1:
            made.flow(1)

    async def undelivered(self) -> list[tuple[TopicConsumer, int]]:
        """How many entries of the backlog of each topic are not held here, as the broker says. What it had sent before
        has arrived then. Raises PulsarError, ConnectionEnded and BabelgateError."""
        await self.listen()
        consumers = list(self.by_topic.values())
        if len(consumers) == 1:
            counts = [await consumers[0].counts()]
        else:
            counts = await asyncio.gather(*(each.counts() for each in consumers))
        return [(each, its.msgBacklog - self._held(each.topic)) for each, its in zip(consumers, counts, strict=True)]

    def _held(self, topic: str) -> int:
        return sum(len(each.entries) for each in self.all() if each.topic == topic)

    def all(self) -> list[TopicConsumer]:
        """The consumers that are open."""
        return [*self.by_topic.values(), *self.former]

    def topic(self, handle: Handle) -> str:
        """The topic of a delivery, a partition where there are some."""
        topic = self.queue.topic
        return topic if handle.partition is None else f"{topic}{PARTITION}{handle.partition}"

    def entry(self, topic: str, place: EntryId) -> Entry | None:
        """The entry at ``place``, where a consumer here holds it."""
        for consumer in (self.by_topic.get(topic), *self.former):
            if consumer is not None and consumer.topic == topic and place in consumer.entries:
                return consumer.entries[place]
        return None

    def found(self, handle: Handle | None) -> Taken | None:
        """The message of ``handle``, where a consumer here holds it."""
        if handle is None or handle.process != self.process:
            return None
        entry = self.entry(self.topic(handle), handle.place)
        if entry is None or entry.number != handle.number:
            return None
        taken = Taken(entry, handle.position or 0)
        return taken if taken.is_held else None

    @property
    def has_ready(self) -> bool:
        """Whether one of the messages that are ready can still be handed out. Drops those before it."""
        while self.ready and not self.ready[0].is_ready:
            self.ready.popleft()
        return bool(self.ready)

    @property
    def ready_count(self) -> int:
        """How many messages are ready, with those that cannot be handed out any more."""
        return sum(len(entry.untaken) for entry in self.ready)

    def pop(self, taken: list[Taken], limit: int) -> None:
        """Move messages that are ready to ``taken``, which then has at most ``limit``."""
        while len(taken) < limit and self.has_ready:
            entry = self.ready[0]
            taken.append(Taken(entry, entry.untaken.popleft()))
            if not entry.untaken:
                self.ready.popleft()

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Make messages ready that were taken, before the others."""
        for each in reversed(taken):
            each.entry.untaken.appendleft(each.position)
            if not self.ready or self.ready[0] is not each.entry:
                self.ready.appendleft(each.entry)

    def withdraw(self, consumer: TopicConsumer) -> list[Entry]:
        """The entries of ``consumer`` that are ready, of which no receive gets a message any more."""
        mine = [entry for entry in self.ready if entry.consumer is consumer]
        self.ready = deque(entry for entry in self.ready if entry.consumer is not consumer)
        return mine

    async def wait(self, until: float) -> None:
        """Wait for a message, or the end of a consumer, until the loop's time ``until``."""
        if not self.has_ready:
            self._woken.clear()
            await signalled(self._woken, until - asyncio.get_running_loop().time())

    def forget(self, consumer: TopicConsumer) -> None:
        """Give ``consumer``, which ends, neither permits nor calls any more. A receive that waits makes another one."""
        if self.by_topic.get(consumer.topic) is consumer:
            del self.by_topic[consumer.topic]
        elif consumer in self.former:
            self.former.remove(consumer)
        self._woken.set()

    async def close(self) -> None:
        """End all consumers: what they hold is delivered again, uncounted. Waits end."""
        self.closed = True
        self._woken.set()
        self.ready.clear()
        consumers, self.by_topic, self.former = self.all(), {}, []
        # A caller that is cancelled now would leave consumers, with the messages that they hold, at the broker.
        await asyncio.shield(asyncio.gather(*(consumer.close() for consumer in consumers)))

    def acknowledging(self, topic: str, place: EntryId) -> None:
        """Hand out no message of an entry that another process received, from now on."""
        self._acked_for_others.keep((topic, place), math.inf)

    def acknowledged(self, topic: str, place: EntryId, *, done: bool) -> None:
        """Drop what has arrived of the entry meanwhile; hand it out if it was not ``done``."""
        entry = self.entry(topic, place)
        if done:
            self._acked_for_others.keep((topic, place), asyncio.get_running_loop().time() + _CROSSING_SECONDS)
            if entry is not None:
                entry.consumer.settled(place)
        elif (topic, place) in self._acked_for_others:
            self._acked_for_others.forget((topic, place))
            if entry is not None:
                self._arrived(entry)

    def _ended(self, consumer: TopicConsumer) -> None:
        self.forget(consumer)
        self.client.forget(consumer.topic)

    def _arrived(self, entry: Entry) -> None:
        consumer = entry.consumer
        self.latest[consumer.topic] = entry.place
        until = self._acked_for_others.get((consumer.topic, entry.place)) or 0.0
        # It has taken a permit, and a receive that waits has to give another where it brings no message.
        self._woken.set()
        if until > asyncio.get_running_loop().time() or not entry.left:
            if until < math.inf:
                consumer.discard(entry.place)
            return
        self.ready.append(entry)
        self._changed()
