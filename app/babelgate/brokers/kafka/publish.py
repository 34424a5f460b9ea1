"""Writes records with one idempotent producer, whose results wake the event loop up once for many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from babelgate.brokers.batching import Batch, made_of_each
from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.connect import CONNECT_SECONDS, ConnectPause, SharedConnect
from babelgate.brokers.errors import too_large
from babelgate.brokers.kafka.admin import KEEP, TIER, KafkaAdmin, Topic
from babelgate.brokers.kafka.errors import translate
from babelgate.brokers.kafka.message import Written, parked, record_of, room_of, unparked
from babelgate.brokers.kafka.url import KafkaQueue
from babelgate.clock import Clock
from babelgate.errors import (
    BabelgateError,
    BrokerRejected,
    BrokerUnavailable,
    OutcomeUnknown,
    UnsupportedByBroker,
)

_MAX_CLIENT_BYTES = 1_000_000_000
"""The client refuses no message that a broker may take:
https://kafka.apache.org/documentation/#brokerconfigs_message.max.bytes"""

_BATCH_BYTES = 1_000_000
"""The most bytes of records that are written at once: the default of librdkafka. Those of a topic that takes less are
written in parts, because its limit counts for all records of a request together:
https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes"""

_REPORTS_SECONDS = 0.001
"""How long after a look for reports the next one follows; an event loop counts in milliseconds."""

COPY_SECONDS = 40.0
"""How long the client goes on to write a copy without an answer. It is less than the session of a member lasts by
default, 45 s: after that others may have the original.
https://kafka.apache.org/documentation/#brokerconfigs_group.consumer.session.timeout.ms"""

_CLOSE_SECONDS = 2.0
_LEAST_SECONDS = 0.05


_UNREPORTED = OutcomeUnknown("", "no report")


class _Batch(Batch[KafkaError | BabelgateError | None]):
    """The records of one call."""

    def __init__(self, broker: str, count: int) -> None:
        super().__init__(count, _UNREPORTED)
        self._broker = broker
        self._later: dict[int, asyncio.Future[Outcome]] = {}

    def report(self, position: int, error: KafkaError | BabelgateError | None, _: object = None) -> None:
        """Note the result of a record; librdkafka passes the record, too."""
        self.settle(position, error)
        if (later := self._later.pop(position, None)) is not None:
            later.set_result(None if error is None else translate(error, self._broker, written=True))

    def unknown(self, reason: str, *, goes_on: bool) -> None:
        """Give the records without a report an error. ``goes_on``: the client still writes them, and it has the
        outcome at last."""
        for position, result in enumerate(self.results):
            if result is self.pending:
                error = self.results[position] = OutcomeUnknown(self._broker, reason)
                if goes_on:
                    error.later = self._later[position] = self.done.get_loop().create_future()


class _Client:
    """A producer of librdkafka. The event loop looks for its reports, because a thread that waited for them would need
    the interpreter once for each record, while the loop works."""

    def __init__(
        self, settings: Mapping[str, Any], batch_bytes: int, failed: Callable[[_Client, KafkaError], None]
    ) -> None:
        """``failed``: called with each error that is not of a record."""
        self.batch_bytes = batch_bytes
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = None
        self._expired = False
        self._ended: asyncio.Task[None] | None = None
        self._producer: Any = Producer(dict(settings) | {"batch.size": batch_bytes, "error_cb": partial(failed, self)})

    def write(self, batch: _Batch, position: int, record: Written) -> None:
        """Hand the record to librdkafka. Raises KafkaException or BufferError when it does not take it."""
        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            headers=record.headers,
            timestamp=record.timestamp,
            on_delivery=partial(batch.report, position),
        )

    def watch(self) -> None:
        """Look for reports until every record has one."""
        if self._next is None:
            self._next = self._loop.call_later(_REPORTS_SECONDS, self._look)

    def serve(self) -> None:
        """Pass on the reports and the errors that there are."""
        self._producer.poll(0)

    def expire(self) -> None:
        """End the producer once every record has its report."""
        self._expired = True
        self.watch()

    async def close(self) -> None:
        """End the producer within 2 s, or in the background. Records without a report are given up."""
        if self._next is not None:
            self._next.cancel()
        last, self._producer = [self._producer], None
        # Its end blocks.
        await asyncio.wait((asyncio.ensure_future(asyncio.to_thread(last.clear)),), timeout=_CLOSE_SECONDS)

    def _look(self) -> None:
        self._next = None
        self.serve()
        if len(self._producer):
            self.watch()
        elif self._expired:
            self._ended = asyncio.create_task(self.close())


class KafkaProducer:
    """Writes to one cluster. Within the time-out the client itself repeats what the broker has not answered; the broker
    knows a repetition by its sequence number, and drops it.

    ``write_seconds``: how long the client goes on with a write; None: as long as a call waits for it.
    """

    def __init__(
        self,
        broker: str,
        client: Mapping[str, Any],
        timeout_seconds: float,
        admin: KafkaAdmin,
        write_seconds: float | None = None,
    ) -> None:
        self._broker = broker
        self._goes_on = write_seconds is not None
        write_seconds = max(write_seconds or 0, timeout_seconds - _LEAST_SECONDS)
        self._seconds = timeout_seconds
        self._admin = admin
        self._settings = dict(client) | {
            "enable.idempotence": True,
            "acks": "all",
            # With 0, nearly each record is sent by itself, while the next ones of its batch are still handed over.
            "linger.ms": 0.5,
            "message.timeout.ms": max(int(write_seconds * 1000), 100),
            "message.max.bytes": _MAX_CLIENT_BYTES,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.propagation.max.ms": 2000,
        }
        self._client: _Client | None = None
        self._doubt: str | None = "it was not reached yet"
        """Why the next write asks first whether the broker answers: an idle broker is not noticed to be gone."""
        self._connect = SharedConnect(broker, self._reach, ConnectPause())

    async def connect(self) -> None:
        """Raises BrokerUnavailable where the broker does not answer within 4 s, or the time-out if that is less, and
        once the binding is closed."""
        self._admin.check_open()
        if self._client is not None:
            self._client.serve()
        if self._doubt is not None or self._client is None:
            await self._connect.connected()

    async def close(self) -> None:
        """End the producer."""
        await self._connect.cancel(1)
        client, self._client = self._client, None
        self._doubt = "the gateway has disconnected"
        if client is not None:
            await client.close()

    async def send(self, records: Sequence[Written]) -> list[KafkaError | BabelgateError | None]:
        """Write the records, in order; return the result of each. Raises BrokerUnavailable when nothing was written."""
        until = asyncio.get_running_loop().time() + self._seconds
        await self.connect()
        client = self._client
        if client is not None and client.batch_bytes > self._admin.least_max_bytes:
            client.expire()
            client = None
        if client is None:
            client = self._client = self._started()
        batch = _Batch(self._broker, len(records))
        for position, record in enumerate(records):
            try:
                client.write(batch, position, record)
            except (KafkaException, BufferError, ValueError, TypeError) as error:
                batch.report(position, translate(error, self._broker, written=False))
        client.watch()
        if not await batch.wait(until):
            self._doubt = f"no answer within {self._seconds:g} s"
            batch.unknown(self._doubt, goes_on=self._goes_on)
        return batch.results

    async def _reach(self) -> _Client:
        """Begin a producer, unless there is one, and ask the broker for a sign of life."""
        if self._client is None:
            self._client = self._started()
        client, self._doubt = self._client, None
        try:
            await self._admin.probe(min(CONNECT_SECONDS, self._seconds))
        except BabelgateError as error:
            self._doubt = str(error)
            raise
        return client

    def _started(self) -> _Client:
        self._admin.check_open()
        return _Client(self._settings, min(self._admin.least_max_bytes, _BATCH_BYTES), self._failed)

    def _failed(self, client: _Client, error: KafkaError) -> None:
        """An error of the client itself, not of a record."""
        if client is not self._client:
            return
        self._doubt = error.str()
        if error.fatal():
            # It writes nothing any more, and reports that for each record.
            self._client = None
            client.expire()


class KafkaPublisher:
    """Writes messages to the topics of queues, their retry tiers and their dead letters."""

    def __init__(
        self,
        producer: KafkaProducer,
        copier: KafkaProducer,
        admin: KafkaAdmin,
        clock: Clock,
        tier_used: Callable[[KafkaQueue, str], None],
    ) -> None:
        """``copier``: writes the copies of deliveries. ``tier_used``: called with each retry tier that is used, after
        its queue."""
        self._producer = producer
        self._copier = copier
        self._admin = admin
        self._broker = admin.broker
        self._clock = clock
        self._tier_used = tier_used

    async def publish(self, queue: KafkaQueue, messages: Sequence[Outgoing]) -> list[Outcome]:
        """Write the messages to the topic, or to the smallest tier that is long enough for their delays.

        One outcome each, in order. Raises BrokerUnavailable when nothing was written.
        """
        return await self._publish(messages, partial(written_of, queue), partial(self._work_topics, queue))

    async def publish_dead(self, queue: KafkaQueue, records: Sequence[Outgoing]) -> list[Outcome]:
        """Write the records to the topic of dead letters."""

        async def dead(name: str) -> Sequence[Topic]:
            return (await self._admin.ensured(queue, name, KEEP),)

        return await self._publish(records, lambda record, now: record_of(record, queue.dead, now), dead)

    async def _work_topics(self, queue: KafkaQueue, name: str) -> Sequence[Topic]:
        """The topic ``name``, and for a tier also the topic to which its records come back, whoever moves them."""
        work = await self._admin.ensured(queue, queue.name)
        if name == queue.name:
            return (work,)
        topic = await self._admin.ensured(queue, name, TIER)
        self._tier_used(queue, name)
        return topic, work

    async def _publish(
        self,
        messages: Sequence[Outgoing],
        make: Callable[[Outgoing, int], Written],
        ensured: Callable[[str], Awaitable[Sequence[Topic]]],
    ) -> list[Outcome]:
        now = self._clock()
        producer = self._copier if all(each.failure is not None for each in messages) else self._producer
        await producer.connect()
        topics: dict[str, Sequence[Topic] | BabelgateError] = {}
        ready: list[tuple[int, Written]] = []
        outcomes, made = await made_of_each(self._broker, messages, lambda message: make(message, now))
        for position, each in made.items():
            found = topics.get(each.topic)
            if found is None:
                try:
                    found = await ensured(each.topic)
                except BrokerRejected as error:
                    found = error.without_frames()
                topics[each.topic] = found
            if isinstance(found, BabelgateError):
                outcomes[position] = found
            elif (old := self._too_old(each, found, now)) is not None:
                outcomes[position] = old
            elif (limit := _limit(each, found)) is not None and len(each.value or b"") > limit:
                outcomes[position] = too_large(messages[position], len(each.value or b"") - limit, self._broker)
            else:
                ready.append((position, each))
        if ready:
            results = await producer.send([record for _, record in ready])
            for (position, record), result in zip(ready, results, strict=True):
                if result is not None:
                    found = topics[record.topic]
                    assert not isinstance(found, BabelgateError)
                    outcomes[position] = self._error(messages[position], record, found, result)
        return outcomes

    def _too_old(self, record: Written, topics: Sequence[Topic], now_ms: int) -> BabelgateError | None:
        """The error for a record that its topic would delete at its next clean-up, because of its date."""
        if not record.timestamp:
            return None
        kept = next((each.kept_ms for each in topics if each.name == record.topic), None)
        if kept is None or record.timestamp > now_ms - kept:
            return None
        reason = (
            f"The topic {record.topic} of the broker {self._broker!r} keeps messages for {kept / 1000:g} s after their "
            f"created_at (retention.ms), and this one is {(now_ms - record.timestamp) / 1000:g} s old."
        )
        return UnsupportedByBroker("message_too_old", "/meta/created_at", reason, maximum=kept / 1000)

    def _error(
        self, message: Outgoing, record: Written, topics: Sequence[Topic], error: KafkaError | BabelgateError
    ) -> BabelgateError:
        # It may have been deleted, or its settings have changed.
        self._admin.forget(record.topic)
        if isinstance(error, BabelgateError):
            return error
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and (limit := _limit(record, topics)) is not None:
            size = len(record.value or b"")
            if size <= limit:
                return BrokerUnavailable(self._broker, f"max.message.bytes of the topic {record.topic} is less by now")
            return too_large(message, size - limit, self._broker)
        return translate(error, self._broker, written=True)


def written_of(queue: KafkaQueue, message: Outgoing, now_ms: int) -> Written:
    """The record of a publish. Raises ValueError for a delay that is longer than the last tier."""
    record = record_of(message, queue.name, now_ms)
    if message.delay_seconds <= 0:
        return record
    for index, seconds in enumerate(queue.retry_delays_seconds):
        if seconds >= message.delay_seconds:
            return parked(record, queue.tier(index), round(message.delay_seconds * 1000))
    raise ValueError(f"no retry tier of the topic {queue.name} is as long as {message.delay_seconds:g} s")


def _limit(record: Written, topics: Sequence[Topic]) -> int | None:
    """The most bytes that the value may have in all of ``topics``: its own, and that to which it comes back; negative
    where key and headers are too large, None where it is not known."""
    room: int | None = None
    for topic in topics:
        if topic.max_bytes is not None:
            there = room_of(record if topic.name == record.topic else unparked(record, topic.name), topic.max_bytes)
            room = there if room is None else min(room, there)
    return room
