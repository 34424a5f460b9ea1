"""Client libraries by themselves: what publishing one message costs without a gateway, with the same guarantees."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import aio_pika
import aioboto3
import redis.asyncio
from aiobotocore.config import AioConfig
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.servicebus.message import fields_of
from babelgate.brokers.servicebus.queue import ServiceBusQueue
from babelgate.brokers.sqs.message import entry
from babelgate.brokers.sqs.queue import SqsQueue
from bench import raw_streams
from bench.calls import ENVELOPE, queue
from bench.load import Measured
from bench.timing import BODY, per_message, timed


async def redis_py(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """RPUSH over so many connections."""
    key = queue()
    clients = [redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(at_a_time)]
    await asyncio.gather(*(client.ping() for client in clients))

    def publishing(client: redis.asyncio.Redis) -> Callable[[], Awaitable[object]]:
        return lambda: client.rpush(key, ENVELOPE)

    measured = await timed([publishing(client) for client in clients], operations)
    await asyncio.gather(*(client.aclose() for client in clients))
    return measured


async def sqlite3_(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """INSERT, each committed and synced to the write-ahead log, one at a time on one connection."""
    with tempfile.TemporaryDirectory() as directory, closing(sqlite3.connect(f"{directory}/raw.db")) as connection:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE message (body BLOB)")

        async def insert() -> None:
            connection.execute("INSERT INTO message VALUES (?)", (ENVELOPE,))

        return await timed([insert], operations)


async def aio_pika_get(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """``basic.get`` of messages that wait, so many at a time on one channel."""
    key = queue()
    message = aio_pika.Message(ENVELOPE, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(key, durable=True)
        for _ in range(operations + at_a_time):
            await channel.default_exchange.publish(message, key)
        return await timed([declared.get] * at_a_time, operations)


async def aio_pika_(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Persistent, mandatory and confirmed, so many at a time on one channel."""
    key = queue()
    mode = aio_pika.DeliveryMode.PERSISTENT
    message = aio_pika.Message(ENVELOPE, content_type="application/json", delivery_mode=mode)
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.declare_queue(key, durable=True)
        exchange = channel.default_exchange
        return await timed([lambda: exchange.publish(message, key, mandatory=True)] * at_a_time, operations)


async def aioboto3_single(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """``SendMessage`` with the attributes of the contract, so many at a time."""
    async with _sqs(port, at_a_time) as (client, url):
        return await timed([lambda: client.send_message(QueueUrl=url, **_ENTRY)] * at_a_time, operations)


async def aioboto3_batch(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """``SendMessageBatch`` of ten messages, so many at a time."""
    entries = [{"Id": str(n), **_ENTRY} for n in range(10)]
    async with _sqs(port, at_a_time) as (client, url):
        send = [lambda: client.send_message_batch(QueueUrl=url, Entries=entries)] * at_a_time
        return per_message(10, await timed(send, operations // 10))


async def aioboto3_consume(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """``ReceiveMessage`` of ten, then ``DeleteMessageBatch``, so many at a time."""
    entries = [{"Id": str(n), **_ENTRY} for n in range(10)]
    async with _sqs(port, at_a_time) as (client, url):
        for _ in range(operations // 10 + at_a_time):
            await client.send_message_batch(QueueUrl=url, Entries=entries)

        async def consume() -> None:
            answer = await client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                AttributeNames=["ApproximateReceiveCount"],
            )
            handles = [each["ReceiptHandle"] for each in answer["Messages"]]
            done = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
            await client.delete_message_batch(QueueUrl=url, Entries=done)

        return per_message(10, await timed([consume] * at_a_time, operations // 10))


async def servicebus_single(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Messages sent one by one, each by one of so many senders."""
    async with _servicebus(port) as client:
        name = queue()
        senders = [client.get_queue_sender(name) for _ in range(at_a_time)]
        await asyncio.gather(*(sender.__aenter__() for sender in senders))

        def sending(sender: Any) -> Callable[[], Awaitable[object]]:
            return lambda: sender.send_messages(_message())

        measured = await timed([sending(sender) for sender in senders], operations)
        await asyncio.gather(*(sender.close() for sender in senders))
        return measured


async def servicebus_batch(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Lists of a hundred messages, one after the other: a sender takes one at a time."""
    async with _servicebus(port) as client, client.get_queue_sender(queue()) as sender:

        async def send() -> None:
            await sender.send_messages([_message() for _ in range(100)])

        return per_message(100, await timed([send], max(operations // 100, 3)))


async def servicebus_consume(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Receive fifty and complete each, as the client library has it."""
    name, count = queue(), max(operations // 50, 3)
    async with _servicebus(port) as client:
        async with client.get_queue_sender(name) as sender:
            for _ in range(count):
                await sender.send_messages([_message() for _ in range(50)])
        async with client.get_queue_receiver(name) as receiver:

            async def consume() -> None:
                left = 50
                while left:
                    for message in await receiver.receive_messages(left, max_wait_time=5):
                        await receiver.complete_message(message)
                        left -= 1

            return per_message(50, await timed([consume], count))


def _message() -> ServiceBusMessage:
    return ServiceBusMessage(BODY, **_FIELDS)


_ENTRY: dict[str, Any] = entry(SqsQueue("bench"), Outgoing(BODY))
"""What the gateway sends for the same draft, with the attributes of the contract."""
_FIELDS = fields_of(ServiceBusQueue("bench"), Outgoing(BODY, dedup_id="bench"), 0)
"""The same for Azure Service Bus."""


@asynccontextmanager
async def _servicebus(port: int) -> AsyncIterator[ServiceBusClient]:
    keys = "SharedAccessKeyName=R;SharedAccessKey=K;UseDevelopmentEmulator=true"
    async with ServiceBusClient.from_connection_string(f"Endpoint=sb://127.0.0.1:{port};{keys}") as client:
        yield client


@asynccontextmanager
async def _sqs(port: int, at_a_time: int) -> AsyncIterator[tuple[Any, str]]:
    config = AioConfig(max_pool_connections=at_a_time)
    address = f"http://127.0.0.1:{port}"
    async with aioboto3.Session().client("sqs", "us-east-1", endpoint_url=address, config=config) as client:
        yield client, (await client.create_queue(QueueName=queue()))["QueueUrl"]


LIBRARIES: Mapping[str, tuple[str, Callable[[int, int, int], Awaitable[tuple[Measured, float]]]]] = {
    "raw redis-py: RPUSH": ("redis-server", redis_py),
    "raw sqlite3: INSERT": ("sqlite-server", sqlite3_),
    "raw aio-pika: publish": ("rabbitmq-server", aio_pika_),
    "raw aio-pika: get": ("rabbitmq-server", aio_pika_get),
    "raw aioboto3: SendMessage": ("sqs-server", aioboto3_single),
    "raw aioboto3: SendMessageBatch of ten": ("sqs-server", aioboto3_batch),
    "raw aioboto3: receive ten + delete batch": ("sqs-server", aioboto3_consume),
    "raw confluent-kafka: produce one": ("kafka-server", raw_streams.kafka_single),
    "raw confluent-kafka: produce a hundred": ("kafka-server", raw_streams.kafka_batch),
    "raw confluent-kafka: consume a hundred + commit": ("kafka-server", raw_streams.kafka_consume),
    "raw pulsar-client: send one": ("pulsar-server", raw_streams.pulsar_single),
    "raw pulsar-client: send a hundred": ("pulsar-server", raw_streams.pulsar_batch),
    "raw pulsar-client: receive a hundred + acknowledge each": ("pulsar-server", raw_streams.pulsar_consume),
    "raw python-qpid-proton: send": ("artemis-server", raw_streams.proton_single),
    "raw python-qpid-proton: send, a hundred unsettled": ("artemis-server", raw_streams.proton_batch),
    "raw python-qpid-proton: receive + accept": ("artemis-server", raw_streams.proton_consume),
    "raw azure-servicebus: send one": ("servicebus-server", servicebus_single),
    "raw azure-servicebus: send a hundred": ("servicebus-server", servicebus_batch),
    "raw azure-servicebus: receive fifty + complete each": ("servicebus-server", servicebus_consume),
}
"""By the name of the case: the server, and what publishes to it."""
