"""The client libraries of Kafka, Pulsar and Artemis by themselves, with the guarantees of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pulsar
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container

from bench.calls import queue
from bench.load import Measured
from bench.timing import BODY, cpu_seconds, per_message, timed

_PROPERTIES = {
    "bq-job": "urn:babel:orders:created",
    "bq-trace-id": "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
    "bq-message-id": "00000000-0000-4000-8000-000000000000",
    "bq-schema-version": "1",
    "bq-source-lang": "python",
    "bq-attempts": "0",
}
"""What the gateway sends for the same envelope to Apache Pulsar."""
_HEADERS: list[tuple[str, str | bytes | None]] = [(name, value.encode()) for name, value in _PROPERTIES.items()]
"""The same for Apache Kafka."""
_CONSUMER: dict[str, Any] = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


async def pulsar_single(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Without batches, so many at a time; each receipt wakes the loop."""
    with _pulsar_producer(port) as (_, producer, _):
        loop = asyncio.get_running_loop()

        def confirm(done: asyncio.Future[None], result: object, message_id: object) -> None:
            loop.call_soon_threadsafe(done.set_result, None)

        async def send() -> None:
            done = loop.create_future()
            producer.send_async(BODY, partial(confirm, done), properties=_PROPERTIES)
            await done

        return await timed([send] * at_a_time, operations)


async def pulsar_batch(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """A hundred messages without batches and one flush in a thread, one after the other."""
    with _pulsar_producer(port) as (_, producer, _):

        async def send() -> None:
            for _ in range(100):
                producer.send_async(BODY, None, properties=_PROPERTIES)
            await asyncio.to_thread(producer.flush)

        return per_message(100, await timed([send], max(operations // 100, 3)))


async def pulsar_consume(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Receive and acknowledge a hundred, in a thread."""
    with _pulsar_producer(port) as (client, producer, topic):
        consumer = client.subscribe(topic, "babelqueue", pulsar.ConsumerType.Shared)
        count = max(operations // 100, 3)
        for _ in range(count * 100):
            producer.send_async(BODY, None, properties=_PROPERTIES)
        producer.flush()

        def consume() -> None:
            for _ in range(100):
                consumer.acknowledge(consumer.receive(30_000))

        return per_message(100, await timed([lambda: asyncio.to_thread(consume)], count))


async def kafka_single(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Idempotent, so many at a time; a thread polls, and each report wakes the loop."""
    with _kafka_producer(port) as (producer, topic):
        loop = asyncio.get_running_loop()
        ending = threading.Event()

        def poll() -> None:
            while not ending.is_set():
                producer.poll(0.1)

        def confirm(done: asyncio.Future[None], error: object, message: object) -> None:
            loop.call_soon_threadsafe(done.set_result, None)

        async def send() -> None:
            done = loop.create_future()
            producer.produce(topic, BODY, headers=_HEADERS, on_delivery=partial(confirm, done))
            await done

        polling = asyncio.create_task(asyncio.to_thread(poll))
        try:
            return await timed([send] * at_a_time, operations)
        finally:
            ending.set()
            await polling


async def kafka_batch(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """A hundred at once and one flush in a thread, one after the other."""
    with _kafka_producer(port) as (producer, topic):

        async def send() -> None:
            for _ in range(100):
                producer.produce(topic, BODY, headers=_HEADERS)
            await asyncio.to_thread(producer.flush)

        return per_message(100, await timed([send], max(operations // 100, 3)))


async def kafka_consume(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Consume a hundred and commit, in a thread."""
    with _kafka_producer(port) as (producer, topic):
        count = max(operations // 100, 3)
        for _ in range(count * 100):
            producer.produce(topic, BODY, headers=_HEADERS)
        producer.flush()
        consumer = Consumer(_kafka(port) | _CONSUMER | {"group.id": topic})
        consumer.subscribe([topic])

        def consume() -> None:
            left = 100
            while left:
                left -= len(consumer.consume(left, 30))
            consumer.commit(asynchronous=False)

        try:
            return per_message(100, await timed([lambda: asyncio.to_thread(consume)], count))
        finally:
            consumer.close()


class _Amqp(MessagingHandler):
    """Sends ``count`` messages, at most ``window`` unsettled, or receives and accepts so many."""

    def __init__(self, address: str, count: int, window: int, *, receives: bool) -> None:
        super().__init__(prefetch=window if receives else 0, auto_accept=True)
        self.measured = Measured()
        self._address, self._window, self._receives = address, window, receives
        self._left = range(count).__iter__()
        self._sent: dict[Any, float] = {}
        self._count = count
        self._message = Message(
            BODY,
            inferred=True,
            durable=True,
            correlation_id="7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
            creation_time=1,
            annotations={symbol("x-opt-jms-type"): "urn:babel:orders:created"},
            properties={name.replace("-", "_"): value for name, value in _PROPERTIES.items()},
        )

    def on_start(self, event: Any) -> None:
        url, _, queue = self._address.rpartition("/")
        connection = event.container.connect(url, sasl_enabled=False)
        create = event.container.create_receiver if self._receives else event.container.create_sender
        create(connection, queue, options=AtLeastOnce())

    def on_sendable(self, event: Any) -> None:
        for _ in islice(self._left, min(event.sender.credit, self._window - len(self._sent))):
            self._sent[event.sender.send(self._message).tag] = time.perf_counter()

    def on_accepted(self, event: Any) -> None:
        self.measured.latencies.append(time.perf_counter() - self._sent.pop(event.delivery.tag))
        self._step(event)
        self.on_sendable(event)

    def on_message(self, event: Any) -> None:
        self._step(event)

    def _step(self, event: Any) -> None:
        self.measured.operations += 1
        if self.measured.operations == self._count:
            event.connection.close()


async def proton_single(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Durable, so many unsettled at a time."""
    return await _proton(port, at_a_time, operations)


async def proton_batch(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Durable, a hundred unsettled at a time."""
    return await _proton(port, 100, operations)


async def proton_consume(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Receive and accept, with a credit of a hundred."""
    name = queue()
    await asyncio.to_thread(Container(_Amqp(f"127.0.0.1:{port}/{name}", operations, 100, receives=False)).run)
    return await _proton(port, 100, operations, name)


async def _proton(port: int, window: int, operations: int, received: str | None = None) -> tuple[Measured, float]:
    address = f"127.0.0.1:{port}/{received or queue()}"
    handler = _Amqp(address, operations, window, receives=received is not None)
    before, started = cpu_seconds(), time.perf_counter()
    await asyncio.to_thread(Container(handler).run)
    handler.measured.seconds = time.perf_counter() - started
    handler.measured.latencies = handler.measured.latencies or [handler.measured.seconds]
    return handler.measured, cpu_seconds() - before


@contextlib.contextmanager
def _pulsar_producer(port: int) -> Iterator[tuple[pulsar.Client, pulsar.Producer, str]]:
    client = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = queue()
    yield client, client.create_producer(topic, batching_enabled=False, block_if_queue_full=True), topic
    client.close()


def _kafka(port: int) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}


@contextlib.contextmanager
def _kafka_producer(port: int) -> Iterator[tuple[Producer, str]]:
    topic = queue()
    admin = AdminClient(_kafka(port))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer(_kafka(port) | {"enable.idempotence": True, "linger.ms": 0.5})
    # The first write looks for the leader of the new topic.
    producer.produce(topic, BODY)
    producer.flush()
    yield producer, topic
    producer.flush()
