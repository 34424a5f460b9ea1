"""Receives and settles the messages of all topics in use, as one member of the consumer group."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.bounded import signalled, within
from babelgate.brokers.kafka.admin import KafkaAdmin
from babelgate.brokers.kafka.commits import AckCommit, Committer
from babelgate.brokers.kafka.consumer_thread import MOST_READY, ConsumerThread, client_settings
from babelgate.brokers.kafka.emptiness import Emptiness
from babelgate.brokers.kafka.membership import ABSENT_SECONDS, ENDS_MEMBERS, Failure, failure_of, guard
from babelgate.brokers.kafka.message import delivery_of
from babelgate.brokers.kafka.partitions import HIDING_SECONDS, LINGER_SECONDS, Partition, TopicInUse
from babelgate.brokers.kafka.reader import KafkaReader, Position
from babelgate.brokers.kafka.url import KafkaQueue, KafkaSettings
from babelgate.errors import LeaseLost
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

_SPARE_SECONDS = 0.1
_FEW_READY = 500
_CLOSE_SECONDS = 3.0
_RECHECK_SECONDS = 0.02

_HANDLE = re.compile(r"([0-9a-f]+)\.([0-9a-f]+)\.([0-9]+)\.([0-9]+)")
"""Of a delivery: the process, the generation of the partition's assignment, its number, and the offset."""

_CUT = "the log of the partition {number} of the topic {topic} has lost records that were handed out"

_throttled = LogThrottle(get_logger(__name__))


class GroupConsumer:
    """One member of the group, for all topics; it joins with the first reserve.

    Acks of all callers that come while a commit is under way share the next one. One commit is under way at a time, so
    that no later one is overtaken.
    """

    def __init__(
        self, broker: str, settings: KafkaSettings, admin: KafkaAdmin, reader: KafkaReader, timeout_seconds: float
    ) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._admin = admin
        self._incremental = settings.group_protocol == "consumer"
        self._settings = client_settings(settings, timeout_seconds)
        self._incarnation = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._topics: dict[str, TopicInUse] = {}
        self._waiting = 0
        self._leasing: dict[TopicInUse, None] = {}
        """The topics with leases, and some that had them."""
        self._emptiness = Emptiness(broker, settings.group, admin, reader, timeout_seconds)
        self._guarding: asyncio.Task[None] | None = None
        self._thread: ConsumerThread | None = None
        self._failure: Failure | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._commits = Committer(broker, timeout_seconds, self._make_room)

    async def close(self) -> None:
        """Leave the group: other members get the partitions, with all that was not acked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._guarding is not None:
            self._guarding.cancel()
            self._guarding = None
        thread, self._thread = self._thread, None
        self._commits.thread = None
        for topic in self._topics.values():
            topic.partitions.clear()
            topic.changed.set()
        self._topics.clear()
        self._leasing.clear()
        self._commits.fail()
        if thread is not None:
            thread.close()
            await asyncio.to_thread(thread.join, _CLOSE_SECONDS)

    async def reserve(self, queue: KafkaQueue, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.binding.Binding.reserve`."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        until = since + wait_seconds
        last = until + self._timeout_seconds - _SPARE_SECONDS
        if not self._admin.knows(queue.name):
            await within(max(last - since, 0.5), self._broker, self._admin.ensured(queue, queue.name))
        topic = self._topic_of(queue)
        topic.waiting += 1
        self._waiting += 1
        self._poll_soon()
        before = self._failure
        try:
            while True:
                if self._failure is not None and self._failure is not before:
                    raise self._failure.error(self._broker)
                topic = self._topic_of(queue, topic)
                if taken := self._take(topic, limit):
                    return taken
                topic.changed.clear()
                left = until - loop.time()
                if left <= 0:
                    break
                await signalled(topic.changed, left)
            return await self._final_poll(topic, limit, since, last)
        finally:
            topic.waiting -= 1
            self._waiting -= 1
            topic.used_at = loop.time()
            if not topic.waiting and self._timer is not None:
                self._unsubscribe_idle_in(HIDING_SECONDS)
            self._poll_soon()

    async def ack(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """Commit, once for all callers; LeaseLost for a delivery of an earlier assignment."""
        outcomes: list[Outcome] = [None] * len(handles)
        waiting: list[tuple[int, AckCommit, Position]] = []
        for index, handle in enumerate(handles):
            position, offset, partition = self._find(queue, handle)
            under_way = self._commits.under_way
            if partition is None:
                outcomes[index] = LeaseLost()
            elif under_way is not None and offset in under_way.offsets.get(position, ()):
                waiting.append((index, under_way, position))
            elif partition.begin(offset):
                waiting.append((index, self._commits.record(position, partition, offset), position))
            elif not partition.was_acked(offset):
                outcomes[index] = LeaseLost()
        await self._committed(waiting)
        for index, commit, position in waiting:
            outcomes[index] = self._commits.outcome(commit, position)
        return outcomes

    def release(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """Make the records ready again, in their places, for the receives of this process."""
        outcomes: list[Outcome] = []
        for handle in handles:
            _, offset, partition = self._find(queue, handle)
            done = partition is not None and partition.give_back(offset)
            outcomes.append(None if done else LeaseLost())
        if (topic := self._topics.get(queue.name)) is not None:
            topic.changed.set()
        self._poll_soon()
        return outcomes

    def outstanding(self, queue: KafkaQueue, handles: Sequence[str]) -> list[bool]:
        """Whether each record is leased, and its partition still assigned."""
        found = []
        for handle in handles:
            _, offset, partition = self._find(queue, handle)
            found.append(partition is not None and offset in partition.leased)
        return found

    async def prove(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """Repeat the last commit: the group refuses one from a member that it has replaced."""
        outcomes: list[Outcome] = [LeaseLost()] * len(handles)
        waiting: list[tuple[int, AckCommit, Position]] = []
        for index, handle in enumerate(handles):
            position, offset, partition = self._find(queue, handle)
            if partition is not None and offset in partition.leased:
                waiting.append((index, self._commits.record(position, partition), position))
        await self._committed(waiting)
        for index, commit, position in waiting:
            outcomes[index] = self._commits.proof(commit, position)
        return outcomes

    def leased(self, name: str) -> Mapping[int, Collection[int]]:
        """The offsets of the topic ``name`` that this process has leased, by partition."""
        topic = self._topics.get(name)
        return {} if topic is None else {number: each.leased for number, each in topic.partitions.items()}

    def drop_ready(self, name: str, ends: Mapping[int, int]) -> None:
        """Forget ready records before these offsets of the topic's partitions, which were deleted."""
        topic = self._topics.get(name)
        for number, partition in topic.partitions.items() if topic is not None else ():
            partition.drop_ready(ends.get(number, 0))

    # Reserving

    def _topic_of(self, queue: KafkaQueue, topic: TopicInUse | None = None) -> TopicInUse:
        """The topic, in the subscription; ``topic`` is what the caller had before. Raises BrokerUnavailable."""
        self._admin.check_open()
        found = self._topics.get(queue.name)
        if found is None or self._thread is None:
            found = self._topics[queue.name] = topic or found or TopicInUse(queue)
            self._subscribe()
            found.moved_at = asyncio.get_running_loop().time()
        found.used_at = asyncio.get_running_loop().time()
        self._unsubscribe_idle_in(LINGER_SECONDS)
        return found

    def _take(self, topic: TopicInUse, limit: int) -> list[Delivery]:
        taken: list[Delivery] = []
        resumed = {}
        for number, partition in topic.partitions.items():
            prefix = f"{self._incarnation}.{partition.generation:x}.{number}."
            for offset, leased, message in partition.take(limit - len(taken)):
                taken.append(delivery_of(message, f"{prefix}{offset}", redelivered=leased))
            if number in topic.paused and self._has_room(partition):
                resumed[topic.queue.name, number] = partition.generation
            if len(taken) == limit:
                break
        self._resume(topic, resumed)
        if taken:
            self._leasing[topic] = None
        if len(topic.partitions) > 1 and taken:
            # The next call begins with another partition.
            number = next(iter(topic.partitions))
            topic.partitions[number] = topic.partitions.pop(number)
        return taken

    async def _final_poll(self, topic: TopicInUse, limit: int, since: float, until: float) -> list[Delivery]:
        """What arrives until it is known that nothing more is there. Raises BrokerUnavailable where it is not."""
        loop = asyncio.get_running_loop()
        waiting = (each.queue.name for each in self._topics.values() if each.waiting)
        look = await self._emptiness.look(topic, since, until, waiting)
        while True:
            topic = self._topic_of(topic.queue, topic)
            if taken := self._take(topic, limit):
                return taken
            is_member = self._thread is not None and self._thread.membership.is_proven()
            doubt = look.doubt(topic, loop.time(), is_member=is_member)
            left = until - loop.time()
            if doubt is None or (left <= 0 and not doubt.reason):
                return []
            if left <= 0 or not doubt.may_pass:
                raise doubt.error(self._broker)
            topic.changed.clear()
            await signalled(topic.changed, min(left, _RECHECK_SECONDS))

    def _is_healthy(self) -> bool:
        return not self._topics or (self._thread is not None and self._thread.membership.is_healthy())

    def _subscribe(self) -> None:
        if self._thread is None:
            if self._failure is not None and self._failure.until > asyncio.get_running_loop().time():
                raise self._failure.error(self._broker)
            thread = ConsumerThread(self._settings, self._incremental, lambda: next(self._numbers), self._hear)
            self._thread = self._commits.thread = thread
            if self._guarding is None:
                has_group = partial(self._admin.commits.is_answered, self._settings["group.id"])
                lost = partial(self._failed, TimeoutError(f"it had no group for {ABSENT_SECONDS:g} s"))
                self._guarding = asyncio.create_task(guard(self._is_healthy, has_group, lost))
        self._thread.subscribe(sorted(self._topics))

    def _unsubscribe_idle_in(self, seconds: float) -> None:
        """Unsubscribe from idle topics after ``seconds``, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._unsubscribe_idle)

    def _unsubscribe_idle(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        idle = [name for name, topic in self._topics.items() if topic.is_idle(now)]
        for name in idle:
            del self._topics[name]
        if idle and self._thread is not None:
            self._subscribe()
        self._commits.give_signs(self._topics.values())
        if self._topics:
            everywhere = all(topic.waiting for topic in self._topics.values())
            self._unsubscribe_idle_in(LINGER_SECONDS if everywhere else HIDING_SECONDS)

    def _poll_soon(self) -> None:
        """Let the thread look for commands often while any may follow soon."""
        if self._thread is not None:
            busy = self._commits.pending is not None or self._commits.under_way is not None
            while self._leasing and not (topic := next(iter(self._leasing))).leases:
                del self._leasing[topic]
            self._thread.fast_polling = busy or bool(self._leasing)
            self._thread.expect(records=self._waiting > 0)

    def _has_room(self, partition: Partition) -> bool:
        return len(partition) <= _FEW_READY and partition.span <= partition.max_held

    def _resume(self, topic: TopicInUse, generations: Mapping[Position, int]) -> None:
        if generations and self._thread is not None:
            topic.paused.difference_update(number for _, number in generations)
            self._thread.pause(generations, resume=True)

    # Settling

    def _find(self, queue: KafkaQueue, handle: str) -> tuple[Position, int, Partition | None]:
        """The place of the partition, the offset, and the partition if it is still the one of the delivery."""
        found = _HANDLE.fullmatch(handle)
        if found is None or found[1] != self._incarnation:
            return (queue.name, 0), 0, None
        number, topic = int(found[3]), self._topics.get(queue.name)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is not None and partition.generation != int(found[2], 16):
            partition = None
        return (queue.name, number), int(found[4]), partition

    async def _committed(self, waiting: Sequence[tuple[int, AckCommit, Position]]) -> None:
        """Send the pending commit, and wait until these commits have their answers, or the time is over."""
        if waiting:
            self._commits.send()
            self._poll_soon()
            await asyncio.wait({commit.done for _, commit, _ in waiting}, timeout=self._timeout_seconds)

    def _make_room(self, position: Position, partition: Partition) -> None:
        topic = self._topics.get(position[0])
        if topic is not None and topic.partitions.get(position[1]) is partition:
            topic.changed.set()
            topic.used_at = asyncio.get_running_loop().time()
            if position[1] in topic.paused and self._has_room(partition):
                self._resume(topic, {position: partition.generation})

    # Events of the thread

    def _hear(self) -> None:
        thread = self._thread
        while thread is not None and thread is self._thread and thread.events:
            kind, what = thread.events.popleft()
            if kind == "records":
                self._arrive(what)
            elif kind == "assigned":
                self._assigned(what)
            elif kind == "revoked":
                for name, number in what:
                    if (topic := self._topics.get(name)) is not None:
                        topic.partitions.pop(number, None)
                        topic.paused.discard(number)
                        topic.moved_at = asyncio.get_running_loop().time()
                        topic.changed.set()
            elif kind == "answered":
                for topic in filter(None, map(self._topics.get, what)):
                    topic.answered = True
                    topic.changed.set()
            elif kind == "committed":
                self._commits.ended(what)
                self._poll_soon()
            else:
                self._failed(what)

    def _assigned(self, assigned: Sequence[Any]) -> None:
        for (name, number), generation, offset, metadata in assigned:
            topic = self._topics.get(name)
            if topic is not None:
                topic.answered = True
                topic.partitions[number] = Partition(generation, offset, metadata, topic.queue.max_held)
                topic.paused.discard(number)
                topic.changed.set()

    def _arrive(self, messages: Sequence[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and error.code() in ENDS_MEMBERS:
                self._failed(KafkaException(error))
                return
            topic = self._topics.get(message.topic())
            partition = None if topic is None else topic.partitions.get(message.partition())
            if topic is None or partition is None:
                continue
            if error is None:
                if partition.was_cut(message.offset()):
                    # Another member reads from the new beginning. The leases are of records that are gone.
                    self._failed(RuntimeError(_CUT.format(topic=topic.queue.name, number=message.partition())))
                    return
                if partition.arrive(message.offset(), message):
                    topic.changed.set()
            elif error.code() == KafkaError._PARTITION_EOF:
                partition.reached(message.offset())
                topic.changed.set()
                continue
            number = message.partition()
            if number not in topic.paused and (len(partition) >= MOST_READY or partition.span > partition.max_held):
                topic.paused.add(number)
                if self._thread is not None:
                    self._thread.pause({(topic.queue.name, number): partition.generation})

    def _failed(self, error: BaseException) -> None:
        """The client is useless, for example fenced: all leases are lost, and the next reserve makes another one."""
        self._failure = failure_of(error, self._settings["group.id"], asyncio.get_running_loop().time())
        _throttled.warning("the member of the consumer group has failed", broker=self._broker, error=self._failure.text)
        if self._thread is not None:
            self._thread.close()
        self._thread = self._commits.thread = None
        for topic in self._topics.values():
            topic.partitions.clear()
            topic.paused.clear()
            topic.answered = False
            topic.changed.set()
        self._commits.fail()
