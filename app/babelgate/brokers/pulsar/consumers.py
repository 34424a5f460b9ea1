"""The consumers of one queue in this process, and the messages that have arrived and are not handed out."""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections import deque
from collections.abc import Callable

from babelgate.brokers.bounded import signalled
from babelgate.brokers.pulsar.client import PARTITION, PulsarClient
from babelgate.brokers.pulsar.consumer import Counts, Entry, Handle, Taken, TopicConsumer
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BrokerUnavailable

_CROSSING_SECONDS = 5.0
"""How long after an acknowledgement its message may still arrive. A consumer of another process that ends makes the
broker read its messages again, and it sends all that it has read, even if acknowledged meanwhile."""


class QueueConsumers:
    """Consumers of one queue: a listener for each of its topics, which gets permits, and those that hold deliveries
    from before. Their handles are those of no other consumers.

    ``ready``: messages that have arrived and are not handed out. ``waiting``: how many callers wait for one.
    ``latest``: by topic, the entry that has arrived last. ``changed`` is called when a message arrives.
    """

    def __init__(self, client: PulsarClient, queue: PulsarQueue, changed: Callable[[], None]) -> None:
        self.client = client
        self.queue = queue
        self.process = secrets.token_hex(8)
        self.listeners: dict[str, TopicConsumer] = {}
        self.by_number: dict[int, TopicConsumer] = {}
        self.ready: deque[Taken] = deque()
        self.latest: dict[str, EntryId] = {}
        self.waiting = 0
        self.closed = False
        self._changed = changed
        self._numbers = itertools.count(1)
        self._woken = asyncio.Event()
        self._listening = asyncio.Lock()
        self._acked_for_others = client.acked_for_others

    async def listen(self) -> None:
        """Have a consumer of each topic of the queue, or of the one that is to be read."""
        alone = self.queue.partition
        topics = [alone] if alone is not None else await self.client.partitions(self.queue.topic, create=True)
        if all((found := self.listeners.get(topic)) is not None and found.is_open for topic in topics):
            return
        async with self._listening:
            await asyncio.gather(*(self.listener(topic) for topic in topics))

    async def listener(self, topic: str) -> TopicConsumer:
        """The listener of ``topic``. Raises PulsarError, ConnectionEnded and BabelgateError."""
        found = self.listeners.get(topic)
        if found is not None and found.is_open:
            return found
        if self.closed:
            raise BrokerUnavailable(self.client.broker, "the gateway disconnects")
        connection = await self.client.owner(topic)
        consumer = TopicConsumer(connection, topic, next(self._numbers), self._arrived, self._ended)
        try:
            await consumer.open(key_shared=self.queue.key_shared)
        except BaseException:
            self.client.forget(topic)
            raise
        self.by_number[consumer.number] = self.listeners[topic] = consumer
        return consumer

    async def ask_again(self, listener: TopicConsumer) -> None:
        """Have the broker look for messages of a topic at once, which it does when it gets a permit. Another listener
        replaces ``listener``, with whose permits it ends; one that holds deliveries stays with its permits.

        Raises PulsarError, ConnectionEnded and BabelgateError.
        """
        topic = listener.topic
        if self.queue.key_shared:
            # A change of the consumers would give keys to others. One permit more than waits is as many as may be lost.
            if listener.permits <= self.waiting:
                listener.flow(1)
            return
        if self.listeners.get(topic) is listener:
            if listener.entries:
                del self.listeners[topic]
            else:
                self.forget(listener)
                await listener.close()
        made = await self.listener(topic)
        if made.permits < self.waiting:
            made.flow(self.waiting - made.permits)

    async def counts(self) -> list[tuple[TopicConsumer, Counts]]:
        """What the broker says of each listener. Raises PulsarError and ConnectionEnded."""
        listeners = [listener for listener in self.listeners.values() if listener.is_open]
        if len(listeners) == 1:
            return [(listeners[0], await listeners[0].counts())]
        return list(zip(listeners, await asyncio.gather(*(listener.counts() for listener in listeners)), strict=True))

    def held(self, topic: str) -> int:
        """How many entries of ``topic`` this process holds."""
        return sum(len(consumer.entries) for consumer in self.by_number.values() if consumer.topic == topic)

    def topic(self, handle: Handle) -> str:
        """The topic of a delivery, a partition where there are some."""
        topic = self.queue.topic
        return topic if handle.partition is None else f"{topic}{PARTITION}{handle.partition}"

    def entry(self, handle: Handle | None) -> Entry | None:
        """The entry of ``handle``, where a consumer here has it."""
        if handle is None or handle.process != self.process:
            return None
        consumer = self.by_number.get(handle.consumer)
        entry = None if consumer is None else consumer.entries.get(handle.place)
        return entry if entry is not None and entry.number == handle.number else None

    def found(self, handle: Handle | None) -> Taken | None:
        """The message of ``handle``, where a consumer here holds it."""
        entry = self.entry(handle)
        taken = None if entry is None or handle is None else Taken(entry, handle.position or 0)
        return taken if taken is not None and taken.is_held else None

    def pop(self, taken: list[Taken], limit: int) -> None:
        """Move messages that are ready to ``taken``, which then has at most ``limit``."""
        while self.ready and len(taken) < limit:
            each = self.ready.popleft()
            if each.is_held:
                taken.append(each)

    async def wait(self, until: float) -> None:
        """Wait for a message, or the end of a consumer, until the loop's time ``until``."""
        if not self.ready:
            self._woken.clear()
            await signalled(self._woken, until - asyncio.get_running_loop().time())

    def wake(self) -> None:
        """End the waits."""
        self._woken.set()

    def _ended(self, consumer: TopicConsumer) -> None:
        self.forget(consumer)
        self.client.forget(consumer.topic)
        self.wake()

    def forget(self, consumer: TopicConsumer) -> None:
        """Give ``consumer`` neither permits nor calls any more."""
        self.by_number.pop(consumer.number, None)
        if self.listeners.get(consumer.topic) is consumer:
            del self.listeners[consumer.topic]

    async def close(self) -> None:
        """End all consumers: what they hold is delivered again, uncounted. Waits end."""
        self.closed = True
        self.wake()
        self.ready.clear()
        consumers, self.by_number = list(self.by_number.values()), {}
        self.listeners.clear()
        # A caller that is cancelled now would leave consumers, with the messages that they hold, at the broker.
        await asyncio.shield(asyncio.gather(*(consumer.close() for consumer in consumers)))

    def acknowledging(self, topic: str, place: EntryId) -> None:
        """Hand out no message of an entry that another process received, from now on."""
        self._acked_for_others.keep((topic, place), math.inf)

    def acknowledged(self, topic: str, place: EntryId, *, done: bool) -> None:
        """Drop what has arrived of the entry meanwhile; hand it out if it was not ``done``."""
        if done and (topic, place) in self._acked_for_others:
            self._acked_for_others.keep((topic, place), asyncio.get_running_loop().time() + _CROSSING_SECONDS)
        else:
            self._acked_for_others.forget((topic, place))
        for consumer in self.by_number.values():
            if consumer.topic == topic and (entry := consumer.entries.get(place)) is not None:
                if done:
                    consumer.settled(place)
                else:
                    self._arrived(entry)

    def _arrived(self, entry: Entry) -> None:
        consumer = entry.consumer
        self.latest[consumer.topic] = entry.place
        until = self._acked_for_others.get((consumer.topic, entry.place)) or 0.0
        if until > asyncio.get_running_loop().time():
            if until < math.inf:
                consumer.acked_before(entry.place)
            return
        self.ready.extend(Taken(entry, position) for position in sorted(entry.left))
        self.wake()
        self._changed()
