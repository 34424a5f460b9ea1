"""The thread that owns a client of the consumer group, and reports events to the event loop in batches.

The client serialises its calls: one from another thread waits until a poll has ended. So everything is called from
this thread, whose polls are short while somebody waits for it. Where only a command can be next, it waits for that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from babelgate.brokers.kafka.errors import error_of
from babelgate.brokers.kafka.membership import STATISTICS_MS, Membership, generation_of
from babelgate.brokers.kafka.reader import Position
from babelgate.brokers.kafka.url import KafkaSettings

MOST_READY = 1_000
"""Records of a partition that wait in this process before it pauses."""

Event = tuple[str, Any]
"""What happened: ``assigned`` with [position, generation, offset or None, metadata], ``revoked`` with positions,
``answered`` with the topics whose subscription the group knows, ``records`` with messages, ``committed`` with
{position: error or None}, ``failed`` with an error."""

_NO_TOPIC = "^$"
"""The pattern of no topic. A static member that unsubscribes keeps its partitions from others until its session ends,
so it subscribes to this instead."""

_BATCH = 500
_SHORT_SECONDS = 0.002
_LONG_SECONDS = 0.05
_COMMAND_SECONDS = 0.02
"""How long the thread waits for a command before it polls: the most that records, or a revocation, are late."""

_FAST_SECONDS = 0.2
"""How long after records, or the last lease, commands are likely: a consumer takes one message after the other."""

_COMMITTED_SECONDS = 5.0
"""The longest wait for the committed offsets, in which the thread does nothing else, or the time-out of a call where
that is less. Then they are asked for again."""

_ANSWER_SECONDS = 5.0
"""A subscription also counts as answered when the client proves to be a member this long after it: a subscription that
is replaced at once is never sent."""


class _CommitAnswered(Exception):
    """Ends the poll that has called the callback of a commit: an exception in a callback does, and nothing else."""


class ConsumerThread:
    """One member of the group. ``settings`` are those of the client; ``hear`` is called in the event loop when there
    are events, once for many. ``incremental``: the group's protocol moves single partitions."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        incremental: bool,
        generations: Callable[[], int],
        hear: Callable[[], None],
    ) -> None:
        self.events: deque[Event] = deque()
        self.fast_polling = False
        """Leases are held, or acks under way: polls are short, because a command may follow soon."""
        self._incremental = incremental
        self._generations = generations
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._woken = False
        self._commands: deque[Callable[[], None]] = deque()
        self._commanded = threading.Event()
        self._fast_until = 0.0
        self._awaited = False
        self._committing = self._polling = False
        self._closing = False
        self._asked: tuple[int, float, Sequence[str]] | None = None
        """The last subscription, until it is answered: the generation of the group before, when, and its topics."""
        self._owned: dict[Position, int] = {}
        self.membership = Membership(time.monotonic, classic=not incremental)
        self._committed_seconds = min(settings["socket.timeout.ms"] / 1000, _COMMITTED_SECONDS)
        callbacks = {"on_commit": self._committed, "error_cb": self._error, "stats_cb": self.membership.measured}
        self._settings = {**settings, **callbacks}
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-consumer", daemon=True)
        self._thread.start()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Ask for partitions of exactly these topics."""
        self._command(lambda: self._subscribe(topics))

    def pause(self, generations: Mapping[Position, int], *, resume: bool = False) -> None:
        """Stop to fetch these partitions, each with its generation, or go on. One of an earlier generation is left."""

        def change() -> None:
            assert self._consumer is not None
            found = [TopicPartition(*each) for each, number in generations.items() if self._owned.get(each) == number]
            if found:
                (resumed if resume else Consumer.pause)(self._consumer, found)

        self._command(change)

    def commit(self, offsets: Mapping[Position, tuple[int, int, str]]) -> None:
        """Commit generation, offset and metadata of each partition; an event ``committed`` follows.

        A partition that was revoked meanwhile is left out, with the error ``_ASSIGNMENT_LOST``.
        """
        self._command(lambda: self._commit(offsets))

    def expect(self, *, records: bool) -> None:
        """Whether a receive waits for records. If none does, the thread waits for the next command instead."""
        before, self._awaited = self._awaited, records
        if records and not before:
            self._commanded.set()

    def close(self) -> None:
        """Leave the group and end, within a second or so. Does not wait."""
        self._closing = True
        self._commanded.set()

    def join(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the thread has ended."""
        self._thread.join(seconds)

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._commanded.set()

    def _run(self) -> None:
        try:
            consumer = self._consumer = Consumer(self._settings)
        except Exception as error:
            self._tell("failed", error)
            return
        try:
            while not self._closing:
                message = self._poll(consumer)
                self.membership.look(consumer)
                if message is not None:
                    self._tell("records", [message, *consumer.consume(_BATCH, 0)])
                    self._fast_until = time.monotonic() + _FAST_SECONDS
                while self._commands and not self._closing:
                    self._commands.popleft()()
                if self._asked is not None:
                    self._look_for_answer(consumer, *self._asked)
        except Exception as error:
            self._tell("failed", error)
        finally:
            self._owned.clear()
            consumer.close()

    def _poll(self, consumer: Consumer) -> Any:
        if self.fast_polling:
            self._fast_until = time.monotonic() + _FAST_SECONDS
        fast = time.monotonic() < self._fast_until
        asked = self._asked is not None and time.monotonic() - self._asked[1] < _ANSWER_SECONDS
        seconds = _SHORT_SECONDS if fast or asked else _LONG_SECONDS
        if fast and not self._awaited and not self._committing and not asked:
            self._commanded.wait(_COMMAND_SECONDS)
            seconds = 0
        self._commanded.clear()
        if self._commands:
            seconds = 0
        self._polling = True
        try:
            return consumer.poll(seconds)
        except _CommitAnswered:
            return None
        finally:
            self._polling = False

    def _tell(self, kind: str, what: Any) -> None:
        self.events.append((kind, what))
        with self._lock:
            woken, self._woken = self._woken, True
        if not woken:
            # The event loop may have ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            self._woken = False
        self._hear()

    def _subscribe(self, topics: Sequence[str]) -> None:
        assert self._consumer is not None
        self._asked = (generation_of(self._consumer), time.monotonic(), topics) if topics else None
        if topics or "group.instance.id" in self._settings:
            callbacks = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._revoked}
            self._consumer.subscribe(list(topics) or [_NO_TOPIC], **callbacks)
        else:
            self._consumer.unsubscribe()

    def _look_for_answer(self, consumer: Consumer, before: int, since: float, topics: Sequence[str]) -> None:
        """Each subscription changes the generation of the group, also where the member gets no partition."""
        is_new = before != generation_of(consumer) > 0
        if is_new:
            self.membership.prove()
        if is_new or self.membership.proven_at - since > _ANSWER_SECONDS:
            self._asked = None
            self._tell("answered", topics)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Read the committed offsets with their metadata, and begin there."""
        found = partitions
        while partitions and not self._closing:
            try:
                found = consumer.committed(partitions, timeout=self._committed_seconds)
                if not any(each.error for each in found):
                    break
            except KafkaException:
                pass
            time.sleep(_SHORT_SECONDS)
        assigned = []
        for each in found:
            position = (each.topic, each.partition)
            generation = self._owned[position] = self._generations()
            assigned.append((position, generation, each.offset if each.offset >= 0 else None, each.metadata))
        self.membership.prove()
        # It is known before its first record.
        self._tell("assigned", assigned)
        (consumer.incremental_assign if self._incremental else consumer.assign)(found)
        # The client keeps a pause of an earlier assignment.
        consumer.resume(found)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions = [(each.topic, each.partition) for each in partitions]
        for position in positions:
            self._owned.pop(position, None)
        self._tell("revoked", positions)

    def _commit(self, offsets: Mapping[Position, tuple[int, int, str]]) -> None:
        assert self._consumer is not None
        mine = {each: commit for each, commit in offsets.items() if self._owned.get(each) == commit[0]}
        lost = offsets.keys() - mine.keys()
        results: dict[Position, KafkaError | None] = {each: KafkaError(KafkaError._ASSIGNMENT_LOST) for each in lost}
        if mine:
            wanted = [TopicPartition(*each, offset, metadata) for each, (_, offset, metadata) in mine.items()]
            try:
                self._consumer.commit(offsets=wanted, asynchronous=True)
                self._committing = True
            except KafkaException as error:
                results |= dict.fromkeys(mine, error_of(error))
        if results:
            self._tell("committed", results)

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        self._committing = False
        if error is None:
            self.membership.prove()
        self._tell("committed", {(each.topic, each.partition): each.error or error for each in partitions})
        if self._polling:
            raise _CommitAnswered

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self._tell("failed", KafkaException(error))
            self._closing = True


def resumed(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Go on with paused partitions. librdkafka asks for their records a second later, but at once after a seek."""
    consumer.resume(partitions)
    for each in consumer.position(partitions):
        if each.offset >= 0:
            # Where the client is about to give it up, there is nothing to hurry.
            with suppress(KafkaException):
                consumer.seek(each)


def client_settings(settings: KafkaSettings, timeout_seconds: float) -> dict[str, Any]:
    """The configuration of a member of the group. Its answers come within ``timeout_seconds``."""
    made: dict[str, Any] = {
        **settings.client,
        "group.id": settings.group,
        "group.protocol": settings.group_protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "queued.min.messages": MOST_READY,
        "queued.max.messages.kbytes": 16_384,
        # A member that leaves, or gives a partition up, first waits for its fetches.
        "fetch.wait.max.ms": 100,
        # With the default, a second, a partition that is read fast comes in steps of MOST_READY.
        "fetch.queue.backoff.ms": 5,
        "socket.timeout.ms": max(int(timeout_seconds * 1000), 1000),
        # A member that lost the answer about its topics asks again after this time, and joins no earlier.
        "topic.metadata.refresh.interval.ms": 5_000,
        "statistics.interval.ms": STATISTICS_MS,
    }
    if settings.group_protocol == "classic":
        # The SDKs of BabelQueue have no other assignor.
        made["partition.assignment.strategy"] = "range"
    if settings.instance_id is not None:
        made["group.instance.id"] = settings.instance_id
    return made
