"""Topics that other programs write with transactions, as Flink and Kafka Streams do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Producer

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.kafka.binding import KafkaBinding
from tests.brokers.kafka.harness import STANDARD, settings
from tests.brokers.kafka.server import KafkaServer
from tests.harness.world import until

pytestmark = pytest.mark.kafka


@pytest.fixture
async def writer(server: KafkaServer, queue: str) -> AsyncIterator[Producer]:
    """A producer with an open transaction, that has written a record to the queue and one to its dead letters."""
    producer = Producer(settings(server.port) | {"transactional.id": queue})
    await asyncio.to_thread(producer.init_transactions, 60)
    producer.begin_transaction()
    for topic in (queue, f"{queue}.dlq"):
        producer.produce(topic, b'{"n":"open"}')
    await asyncio.to_thread(producer.flush, 60)
    yield producer
    await asyncio.to_thread(producer.purge)


@pytest.fixture
async def native(one: KafkaBinding, queue: str) -> NativeQueue:
    """A queue with one message, received and acked, and a dead letter."""
    made = one.native_queue(queue, STANDARD)
    letter = Outgoing(b'{"n":1}', dedup_id="i")
    await one.publish(made, [letter])
    await one.publish_dead_letters(made, [letter])

    async def is_acked() -> bool:
        found = await one.reserve(made, 1, 5, 60)
        return bool(found) and await one.ack(made, [each.handle for each in found]) == [None]

    await until(is_acked)
    return made


async def test_an_open_transaction_is_no_failure(one: KafkaBinding, native: NativeQueue, writer: Producer) -> None:
    """What is written in it is not there yet: a receive is empty, and so is a peek."""
    for wait in (0, 0.3):
        assert await one.reserve(native, 1, wait, 60) == []
    stats = await one.stats(native)
    assert (stats.depth, stats.dead) == (0, 1)
    assert await one.peek(native, 10) == []
    page, cursor = await one.read_dead(native, None, 10)
    assert ([each.body for each in page], cursor) == ([b'{"n":1}'], None)
    await asyncio.to_thread(writer.commit_transaction, 60)

    async def has_come() -> bool:
        found = await one.reserve(native, 1, 5, 60)
        return [each.body for each in found] == [b'{"n":"open"}']

    await until(has_come)


async def test_an_aborted_transaction_leaves_nothing(one: KafkaBinding, native: NativeQueue, writer: Producer) -> None:
    await asyncio.to_thread(writer.abort_transaction, 60)

    async def is_over() -> bool:
        return await one.reserve(native, 1, 0, 60) == []

    await until(is_over)
