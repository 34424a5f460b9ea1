"""Moves records from retry tiers back to their topics when they are due: one group of consumers with the SDKs' own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from app.brokers.bounded import signalled
from app.brokers.kafka.admin import KafkaAdmin, Position, Topic
from app.brokers.kafka.consumer_thread import resumed
from app.brokers.kafka.errors import MISSING_TOPIC, translate
from app.brokers.kafka.message import Identity, Written, identity, reinjected, room_of
from app.brokers.kafka.options import KafkaQueue
from app.brokers.kafka.publish import KafkaProducer
from app.brokers.kafka.url import KafkaSettings
from app.clock import Clock
from app.errors import BabelgateError, BodyTooLarge, BrokerRejected, BrokerUnavailable
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

GROUP = "babelqueue-retry-reinject"
"""The group of the SDKs of BabelQueue: each tier is served by one member, theirs or ours."""

_REFRESH_SECONDS = 30.0
"""How often topics are looked for that another process has created."""

_POLL_SECONDS = 0.2
"""The longest wait of the thread, and so the most that a record is late; but a record that arrives while its partition
is paused is read up to a second after that, so that a delay below a second may take a second more."""

_AGAIN_SECONDS = 1.0
"""The pause after what failed: a write, a commit, the client itself."""

_CLOSE_SECONDS = 4.0
_BATCH = 500

_MOST_KNOWN = 10_000
"""How many written records of a partition are known again, while their offsets cannot be committed."""

_throttled = LogThrottle(get_logger("babelgate.kafka"))


class KafkaReinjector:
    """The member of this process, which begins with the first retry tier of a queue in use, and ends with the binding.

    A tier waits for its own records only. The offset is committed after the write is confirmed, so that a process that
    stops in between leaves a record twice; it is never lost. One that has only lost its place in the group in between,
    as in a restart of the broker, knows what it has written. A record that cannot be written, because its topic does
    not exist any more or takes no message of its size, stays on its tier: it is tried again and again, with warnings,
    and what comes after it in its partition waits, too, until the topic is there, or takes it, or a purge deletes it.

    ``moved``: how many records this process has moved.
    """

    def __init__(self, settings: KafkaSettings, admin: KafkaAdmin, producer: KafkaProducer, clock: Clock) -> None:
        self.broker = admin.broker
        self.moved = 0
        self._enabled = settings.reinject
        self._settings = dict(settings.client) | {
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # A member that subscribes while an answer about its topics is lost joins the group after the next look at
            # them only, and that is five minutes later by default.
            "topic.metadata.refresh.interval.ms": 5_000,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
        }
        self._admin = admin
        self._producer = producer
        self._clock = clock
        self._watched: dict[str, KafkaQueue] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._member: _Member | None = None

    def watch(self, queue: KafkaQueue, *, again: bool = False) -> None:
        """Serve the retry tiers of ``queue`` from now on; ``again``: it may have a new one. No I/O."""
        if not self._enabled or (self._watched.get(queue.name) == queue and not again):
            return
        if queue.retry_delays_seconds:
            self._watched[queue.name] = queue
            self._changed.set()
            if self._task is None:
                self._task = asyncio.ensure_future(self._refresh())

    async def close(self) -> None:
        """Leave the group."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._watched.clear()
        member, self._member = self._member, None
        if member is not None:
            await member.close()

    async def move(self, records: Sequence[Written]) -> list[BabelgateError | None]:
        """Write records that are due to their topics; return the error of each, None once it is confirmed.

        Raises BrokerUnavailable when nothing was written.
        """
        topics = {name: await self._topic(name) for name in dict.fromkeys(each.topic for each in records)}
        results = [self._refusal(each, topics[each.topic]) for each in records]
        ready = [index for index, refusal in enumerate(results) if refusal is None]
        errors = await self._producer.send([records[index] for index in ready]) if ready else ()
        for index, error in zip(ready, errors, strict=True):
            if error is None:
                self.moved += 1
            else:
                self._admin.forget(records[index].topic)
                results[index] = translate(error, self.broker, written=True)
        return results

    async def _topic(self, name: str) -> Topic | BabelgateError:
        """The topic, or why it takes no records. The producer would wait for seconds for one that does not exist."""
        try:
            topic = await self._admin.topic(name)
        except Exception as error:
            # A header of another program may name what can be no topic.
            refusal = translate(error, self.broker, written=False)
            if isinstance(refusal, BrokerUnavailable):
                raise refusal from None
            return refusal
        return topic or BrokerRejected(self.broker, f"the topic {name} does not exist")

    def _refusal(self, record: Written, topic: Topic | BabelgateError) -> BabelgateError | None:
        """Why the record cannot be written; None if it may be."""
        if isinstance(topic, BabelgateError):
            return topic
        if topic.max_bytes is not None and len(record.value or b"") > (room := room_of(record, topic.max_bytes)):
            # It may take more by now.
            self._admin.forget(record.topic)
            return BodyTooLarge(actual=len(record.value or b""), limit=room)
        return None

    async def _refresh(self) -> None:
        """Look for the tiers of the watched queues, again and again."""
        while True:
            self._changed.clear()
            try:
                existing = await self._admin.all_names()
            except BabelgateError:
                # The broker is down, and the next look is soon enough.
                existing = None
            if existing is not None:
                tiers = {
                    queue.tier(index): seconds
                    for queue in self._watched.values()
                    for index, seconds in enumerate(queue.retry_delays_seconds)
                    if queue.tier(index) in existing
                }
                if self._member is not None:
                    self._member.tiers = tiers
                elif tiers:
                    self._member = _Member(self._settings, tiers, self, self._clock)
                    self._member.start()
            await signalled(self._changed, _REFRESH_SECONDS if existing is not None else _AGAIN_SECONDS)


class _Waiting(Struct):
    """A record on a retry tier. ``due``: Unix ms. ``moved``: it is written, and waits for one before it."""

    due: int
    record: Any
    moved: bool = False


class _Member:
    """A consumer in the group, and its thread. ``tiers``: each topic, and its delay in seconds.

    Whatever fails, the client itself included, the thread begins again with another client, until it is closed.
    """

    def __init__(
        self, settings: Mapping[str, Any], tiers: Mapping[str, float], reinjector: KafkaReinjector, clock: Clock
    ) -> None:
        self.tiers = tiers
        self.subscribed: Mapping[str, float] = {}
        """Those of them that the group knows."""
        self._settings = dict(settings) | {"error_cb": self._failed}
        self._reinjector = reinjector
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ending = threading.Event()
        self._fatal: KafkaError | None = None
        self._held: dict[Position, deque[_Waiting]] = {}
        """The records that a partition waits with; it is paused."""
        self._assignment: list[TopicPartition] = []
        """New partitions, which may still be paused from an earlier time here."""
        self._moved: dict[Position, int] = {}
        """The offset to commit of each partition, behind what is moved."""
        self._written: dict[Position, dict[int, Identity]] = {}
        """The records that are written, by their offsets, until these are committed."""
        self._again: dict[Position, int] = {}
        """When a partition is tried again, a record of which could not be written."""
        self._commit_at = 0
        self._thread = threading.Thread(target=self._run, name="kafka-reinjector", daemon=True)

    def start(self) -> None:
        """Begin the thread."""
        self._thread.start()

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
        """Move records with one client until the end. Raises whatever it cannot go on after."""
        self._fatal = None
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
                if self._fatal is not None:
                    raise KafkaException(self._fatal)
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
        reason = translate(error, self._reinjector.broker, written=False)
        if isinstance(reason, BrokerRejected):
            _throttled.warning("a retry tier cannot be read", queue=topic or "", error=str(reason))

    def _wait(self) -> float:
        """Seconds until the next record is due, within the bounds of one wait."""
        times = (max(held[0].due, self._again.get(position, 0)) for position, held in self._held.items())
        next_ms = min(times, default=None)
        if next_ms is None:
            return _POLL_SECONDS
        return min(max((next_ms - self._clock()) / 1000, 0.0), _POLL_SECONDS)

    def _hold(self, consumer: Any, record: Any, seconds: float) -> None:
        now, delay = self._clock(), round(seconds * 1000)
        kind, timestamp = record.timestamp()
        # Without a date, a full delay from now. A clock that is wrong makes a record neither early nor later than that.
        due = now + delay if not kind or timestamp < 0 else min(max(timestamp + delay, now), now + delay)
        position = (record.topic(), record.partition())
        held = self._held.get(position)
        if held is None:
            held = self._held[position] = deque()
            consumer.pause([TopicPartition(*position)])
        known = self._written.get(position)
        held.append(_Waiting(due, record, known is not None and known.get(record.offset()) == identity(record)))

    def _send_due(self, consumer: Any) -> None:
        """Write what is due, and read on in the partitions of which nothing waits any more."""
        now = self._clock()
        due: list[tuple[Position, _Waiting]] = []
        for position, held in self._held.items():
            if now < max(held[0].due, self._again.get(position, 0)):
                continue
            first = self._first_offset(consumer, position)
            while held and held[0].record.offset() < first:
                # A purge has deleted it meanwhile.
                self._pop(position, held)
            due += [(position, each) for each in _before(held, now) if not each.moved]
        self._send(due[:_BATCH], now)
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
        moving = asyncio.run_coroutine_threadsafe(self._reinjector.move(written), self._loop)
        try:
            results = moving.result()
        except BabelgateError as error:
            results = [error] * len(due)
        for position in {position for position, _ in due}:
            self._again.pop(position, None)
        for (position, each), target, failure in zip(due, written, results, strict=True):
            if failure is None:
                each.moved = True
                known = self._written.setdefault(position, {})
                known[each.record.offset()] = identity(each.record)
                if len(known) > _MOST_KNOWN:
                    del known[next(iter(known))]
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
        """Commit what is moved. What fails is tried again, until the partition has another member."""
        now = self._clock()
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
        end, known = self._moved.pop(position, 0), self._written.pop(position, {})
        if left := {offset: each for offset, each in known.items() if offset >= end}:
            self._written[position] = left

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._assignment += partitions

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        """Whoever gets the partitions moves what is not committed; this member knows what it has written itself."""
        gone = {(each.topic, each.partition) for each in partitions}
        for each in gone:
            self._held.pop(each, None)
            self._moved.pop(each, None)
            self._again.pop(each, None)
        self._assignment = [each for each in self._assignment if (each.topic, each.partition) not in gone]


def _before(held: Iterable[_Waiting], now: int) -> Iterable[_Waiting]:
    """The first records of ``held`` that are due: none overtakes the one before it."""
    return takewhile(lambda each: each.due <= now, held)
