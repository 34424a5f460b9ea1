"""A member of the group of re-injectors: reads the retry tiers, and moves each record when it is due."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from babelgate.brokers.kafka.consumer_thread import resumed
from babelgate.brokers.kafka.errors import MISSING_TOPIC, translate
from babelgate.brokers.kafka.membership import ABSENT_SECONDS, STATISTICS_MS, Membership
from babelgate.brokers.kafka.message import Identity, Written, identity, reinjected
from babelgate.brokers.kafka.reader import Position
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerRejected
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.cache import Recent

_POLL_SECONDS = 0.2
"""The longest wait of the thread, and so the most that a record is late; but a record that arrives while its partition
is paused is read up to a second after that, so that a delay below a second may take a second more."""

_AGAIN_SECONDS = 1.0
"""The pause after what failed: a write, a commit, the client itself."""

_CLOSE_SECONDS = 4.0
_BATCH = 500

_MOST_KNOWN = 10_000
"""How many written records of a partition are known again, while their offsets cannot be committed."""

_throttled = LogThrottle(get_logger(__name__))

Move = Callable[[Sequence[Written]], Coroutine[Any, Any, Sequence[BabelgateError | None]]]
"""Writes records to their topics; returns the error of each, None once it is confirmed."""


class _Waiting(Struct):
    """A record on a retry tier. ``due``: by the steady clock. ``moved``: it is written, and waits for one before it."""

    due: int
    record: Any
    moved: bool = False


class TierMember:
    """A consumer in the group, and its thread. ``tiers``: each topic, and its delay in seconds.

    Whatever fails, the client itself included, the thread begins again with another client, until it is closed.
    """

    def __init__(
        self,
        broker: str,
        settings: Mapping[str, Any],
        tiers: Mapping[str, float],
        move: Move,
        clock: Clock,
        steady_clock: Clock,
    ) -> None:
        """``clock``: Unix ms, like the dates of records. ``steady_clock``: ms of a clock that no one sets."""
        self.tiers = tiers
        self.subscribed: Mapping[str, float] = {}
        """Those of them that the group knows."""
        self._membership = Membership(time.monotonic, classic=True)
        callbacks = {"error_cb": self._failed, "stats_cb": self._membership.measured}
        self._settings = {**settings, **callbacks, "statistics.interval.ms": STATISTICS_MS}
        self._broker = broker
        self._move = move
        self._clock = clock
        self._steady_clock = steady_clock
        self._loop = asyncio.get_running_loop()
        self._ending = threading.Event()
        self._fatal: KafkaError | None = None
        self._useless = False
        self._held: dict[Position, deque[_Waiting]] = {}
        """The records that a partition waits with; it is paused."""
        self._assignment: list[TopicPartition] = []
        """New partitions, which may still be paused from an earlier time here."""
        self._moved: dict[Position, int] = {}
        """The offset to commit of each partition: the first that was not moved."""
        self._written: dict[Position, Recent[int, Identity]] = {}
        """The records that are written, by their offsets, until these are committed."""
        self._again: dict[Position, int] = {}
        """When a partition is tried again, a record of which could not be written."""
        self._commit_at = 0
        self._thread = threading.Thread(target=self._run, name="kafka-reinjector", daemon=True)

    def start(self) -> None:
        """Begin the thread."""
        self._thread.start()

    def is_healthy(self) -> bool:
        """Whether the member has its group, or needs none."""
        return not self.subscribed or self._membership.is_healthy()

    def replace(self) -> None:
        """Begin again with another client."""
        self._useless = True

    async def close(self) -> None:
        """End the thread."""
        self._ending.set()
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._serve()
            except Exception:
                if self._loop.is_closed():
                    break
                _throttled.warning("the re-injector of retry tiers has failed, and begins again", exc_info=True)
                self._ending.wait(_AGAIN_SECONDS)

    def _serve(self) -> None:
        """Move records with one client until the end. Raises the error after which it cannot continue."""
        self._fatal, self._useless = None, False
        for state in (self._held, self._moved, self._again, self._assignment):
            state.clear()
        consumer: Any = Consumer(self._settings)
        self.subscribed = {}
        try:
            while not self._ending.is_set():
                if self.subscribed != (tiers := self.tiers):
                    if self.subscribed.keys() != tiers.keys():
                        self._subscribe(consumer, sorted(tiers))
                    self.subscribed = tiers
                if self._assignment:
                    consumer.resume(self._assignment)
                    self._assignment = []
                for record in consumer.consume(_BATCH, self._wait()):
                    error = record.error()
                    if error is None:
                        self._hold(consumer, record, self.subscribed.get(record.topic(), 0.0))
                    else:
                        self._unreadable(error, record.topic())
                self._membership.look(consumer)
                if self._fatal is not None:
                    raise KafkaException(self._fatal)
                if self._useless:
                    raise TimeoutError(f"it had no group for {ABSENT_SECONDS:g} s although the cluster answered")
                self._send_due(consumer)
                self._commit(consumer)
        finally:
            consumer.close()

    def _subscribe(self, consumer: Any, topics: list[str]) -> None:
        if topics:
            consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        else:
            # The last tier was deleted.
            consumer.unsubscribe()

    def _failed(self, error: KafkaError) -> None:
        """An error of the client, which connects again by itself unless the error is fatal."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error

    def _unreadable(self, error: KafkaError, topic: str | None) -> None:
        self._failed(error)
        reason = translate(error, self._broker, written=False)
        if isinstance(reason, BrokerRejected):
            _throttled.warning("a retry tier cannot be read", queue=topic or "", error=str(reason))

    def _wait(self) -> float:
        """Seconds until the next record is due, within the bounds of one wait."""
        times = (max(held[0].due, self._again.get(position, 0)) for position, held in self._held.items())
        next_ms = min(times, default=None)
        if next_ms is None:
            return _POLL_SECONDS
        return min(max((next_ms - self._steady_clock()) / 1000, 0.0), _POLL_SECONDS)

    def _hold(self, consumer: Any, record: Any, seconds: float) -> None:
        now, delay = self._steady_clock(), round(seconds * 1000)
        kind, timestamp = record.timestamp()
        # Without a date, a full delay from now. A clock that is wrong makes a record neither early nor later than that.
        age = max(self._clock() - timestamp, 0) if kind and timestamp >= 0 else 0
        due = now + max(delay - age, 0)
        position = (record.topic(), record.partition())
        held = self._held.get(position)
        if held is None:
            held = self._held[position] = deque()
            consumer.pause([TopicPartition(*position)])
        known = self._written.get(position)
        held.append(_Waiting(due, record, known is not None and known.get(record.offset()) == identity(record)))

    def _send_due(self, consumer: Any) -> None:
        """Write the due records, the earliest first, and resume reading partitions without a waiting record."""
        now = self._steady_clock()
        due: list[list[tuple[Position, _Waiting]]] = []
        for position, held in self._held.items():
            if now < max(held[0].due, self._again.get(position, 0)):
                continue
            first = self._first_offset(consumer, position)
            while held and held[0].record.offset() < first:
                # A purge has deleted it meanwhile.
                self._pop(position, held)
            due.append([(position, each) for each in _before(held, now) if not each.moved])
        # The order within a partition stays, also where a record is due before the one in front of it.
        in_order = merge(*due, key=lambda waiting: waiting[1].due)
        self._send([*islice(in_order, _BATCH)], now)
        read_on = []
        for position, held in list(self._held.items()):
            while held and held[0].moved:
                self._pop(position, held)
            if not held:
                del self._held[position]
                self._again.pop(position, None)
                read_on.append(TopicPartition(*position))
        if read_on:
            resumed(consumer, read_on)

    def _send(self, due: Sequence[tuple[Position, _Waiting]], now: int) -> None:
        if not due:
            return
        written = [reinjected(each.record, each.record.topic().rpartition(".retry.")[0]) for _, each in due]
        moving = asyncio.run_coroutine_threadsafe(self._move(written), self._loop)
        try:
            results = moving.result()
        except BabelgateError as error:
            results = [error] * len(due)
        for position in {position for position, _ in due}:
            self._again.pop(position, None)
        for (position, each), target, failure in zip(due, written, results, strict=True):
            if failure is None:
                each.moved = True
                known = self._written.setdefault(position, Recent(_MOST_KNOWN))
                known[each.record.offset()] = identity(each.record)
            elif position not in self._again:
                self._again[position] = now + round(_AGAIN_SECONDS * 1000)
                _throttled.warning(
                    "a retry tier waits: its record cannot be moved back",
                    queue=position[0],
                    partition=position[1],
                    offset=each.record.offset(),
                    topic=target.topic,
                    error=str(failure),
                )

    def _pop(self, position: Position, held: deque[_Waiting]) -> None:
        self._moved[position] = held.popleft().record.offset() + 1

    def _first_offset(self, consumer: Any, position: Position) -> int:
        try:
            first: int = consumer.get_watermark_offsets(TopicPartition(*position), timeout=_AGAIN_SECONDS)[0]
        except KafkaException:
            return 0
        return first

    def _commit(self, consumer: Any) -> None:
        """Commit the moved records. A failed commit is tried again until the partition has another member."""
        now = self._steady_clock()
        if not self._moved or now < self._commit_at:
            return
        try:
            answers = consumer.commit(
                offsets=[TopicPartition(*position, offset) for position, offset in self._moved.items()],
                asynchronous=False,
            )
            errors = [each.error for each in answers if each.error is not None]
            for each in answers:
                if each.error is None or each.error.code() in MISSING_TOPIC:
                    self._committed((each.topic, each.partition))
        except KafkaException as error:
            errors = [error]
        if errors:
            self._commit_at = now + round(_AGAIN_SECONDS * 1000)
            _throttled.warning("the re-injector of retry tiers cannot commit", error=str(errors[0]))

    def _committed(self, position: Position) -> None:
        end = self._moved.pop(position, 0)
        if known := self._written.get(position):
            for offset in [each for each in known if each < end]:
                del known[offset]
            if not known:
                del self._written[position]

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._assignment += partitions

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        """The next owner of the partitions moves the uncommitted records; this member knows which it wrote itself."""
        gone = {(each.topic, each.partition) for each in partitions}
        for each in gone:
            self._held.pop(each, None)
            self._moved.pop(each, None)
            self._again.pop(each, None)
        self._assignment = [each for each in self._assignment if (each.topic, each.partition) not in gone]


def _before(held: Iterable[_Waiting], now: int) -> Iterable[_Waiting]:
    """The first records of ``held`` that are due: none overtakes the one before it."""
    return takewhile(lambda each: each.due <= now, held)
