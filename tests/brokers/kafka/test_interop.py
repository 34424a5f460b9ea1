"""The Python SDK's own transport and re-injector on the other end of a queue, both ways, byte for byte."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from babelqueue.codec import EnvelopeCodec
from babelqueue.kafka_retry import RetryReinjector
from babelqueue.kafka_transport import KafkaTransport
from babelqueue.transport import ReceivedMessage

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.kafka.binding import KafkaBinding
from tests.brokers.kafka.harness import STANDARD, KafkaBroker, create, read
from tests.brokers.kafka.server import KafkaServer
from tests.harness.world import World, data, until

pytestmark = pytest.mark.kafka
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}
HEADERS = {"traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01", "shop-region": "eu ☕"}
TIERS = [200, 500]
ROUTE = STANDARD | {"retry_delays_seconds": [0.2, 0.5]}


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


@contextmanager
def transport(server: KafkaServer) -> Iterator[KafkaTransport]:
    """The SDK's transport, in the classic group that it joins by itself."""
    made = KafkaTransport(server.url().rstrip("/"), retry_tiers_ms=TIERS, log_level=0)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def sdk(server: KafkaServer, queue: str) -> Iterator[KafkaTransport]:
    create(server.port, queue, f"{queue}.dlq", *(f"{queue}.retry.{number}" for number in (1, 2)))
    with transport(server) as opened:
        yield opened


@pytest.fixture
async def world(server: KafkaServer, queue: str) -> AsyncIterator[World]:
    opened = World(KafkaBroker(server, ROUTE), queue)
    yield opened
    await opened.close()


async def popped(sdk: KafkaTransport, topic: str) -> ReceivedMessage:
    found: list[ReceivedMessage] = []

    async def has_one() -> bool:
        message = await asyncio.to_thread(sdk.pop, topic, 1)
        found.extend([] if message is None else [message])
        return bool(found)

    await until(has_one)
    return found[0]


async def published(sdk: KafkaTransport, topic: str, *bodies: bytes) -> None:
    def publish() -> None:
        for body in bodies:
            sdk.publish(topic, body.decode())
        sdk._producer_().flush(60)

    await asyncio.to_thread(publish)


async def test_the_sdk_publishes_and_we_consume(one: KafkaBinding, sdk: KafkaTransport, queue: str) -> None:
    native = one.native_queue(queue, ROUTE)
    body = made()
    await published(sdk, queue, body)
    (delivery,) = await one.reserve(native, 10, 30, 30)
    assert (delivery.body, delivery.headers, delivery.declared_attempts) == (body, {}, 0)
    assert await one.ack(native, [delivery.handle]) == [None]


async def test_we_publish_and_the_sdk_consumes(one: KafkaBinding, sdk: KafkaTransport, queue: str) -> None:
    native = one.native_queue(queue, ROUTE)
    body = made()
    assert await one.publish(native, [Outgoing(body, HEADERS, dedup_id="d")]) == [None]
    message = await popped(sdk, queue)
    assert (message.body.encode(), message.key) == (body, None)
    headers = {name: value.decode() for name, value in message.handle.headers() if not name.startswith("bq-")}
    assert headers == HEADERS
    await asyncio.to_thread(sdk.ack, message)
    await asyncio.to_thread(sdk.close)

    async def is_empty() -> bool:
        assert await one.reserve(native, 1, 2, 30) == [], "we are in the same group"
        return True

    await until(is_empty)


async def test_both_consume_in_one_group_at_once(server: KafkaServer, world: World) -> None:
    """Each partition belongs to one of them, and each message is consumed once."""
    queue = world.queue
    await asyncio.to_thread(create, server.port, queue, partitions=4)
    process = await world.process()
    theirs: list[int] = []
    ours: list[int] = []
    ending = threading.Event()
    joined = threading.Event()

    def consume() -> None:
        with transport(server) as sdk:
            while not ending.is_set():
                message = sdk.pop(queue, 0.2)
                if len(sdk._consumer(queue).assignment()) == 2:
                    joined.set()
                if message is not None:
                    theirs.append(json.loads(message.body)["data"]["n"])
                    sdk.ack(message)

    async def receive() -> None:
        while not ending.is_set():
            for message in await process.ready(10, 0.2):
                ours.append(data(message)["n"])
                assert await process.ack(message) == [None]

    receiving = asyncio.ensure_future(receive())
    consuming = asyncio.ensure_future(asyncio.to_thread(consume))
    try:
        assert await asyncio.to_thread(joined.wait, 120)
        count = 0

        async def both_have_some() -> bool:
            nonlocal count
            await process.publish_all([{"n": number} for number in range(count, count + 20)])
            count += 20
            return bool(ours and theirs)

        await until(both_have_some)

        async def all_are_consumed() -> bool:
            return set(ours) | set(theirs) == set(range(count))

        await until(all_are_consumed)
    finally:
        ending.set()
        await asyncio.gather(receiving, consuming)


async def test_the_sdk_retries_and_we_move_the_record_back(
    server: KafkaServer, sdk: KafkaTransport, world: World
) -> None:
    process = await world.process()
    await process.publish({"n": 1})
    message = await popped(sdk, world.queue)
    await asyncio.to_thread(sdk.redeliver, message, message.body, 0)
    await asyncio.to_thread(sdk.close)
    again = await process.one()
    assert (data(again), again.attempts) == ({"n": 1}, 1)
    assert await process.ack(again) == [None]
    _, moved = await asyncio.to_thread(read, server.port, world.queue)
    headers: Any = moved.headers()
    assert {"bq-delay", "bq-original-topic"}.isdisjoint(dict(headers))


async def test_we_retry_and_the_sdk_moves_the_record_back(server: KafkaServer, queue: str) -> None:
    """The clock of the SDK's re-injector is ahead, so that it moves at once what no other would move for an hour."""
    tiers = [200, 3_601_000]
    world = World(KafkaBroker(server, STANDARD | {"retry_delays_seconds": [0.2, 3601]}), queue)
    process = await world.process()
    await process.publish({"n": 1})
    assert await process.nack(await process.one(), delay=3600) == [None]
    await world.close()
    await asyncio.to_thread(create, server.port, f"{queue}.retry.1")
    theirs = RetryReinjector(
        server.url().rstrip("/"),
        work_topics=[queue],
        retry_tiers_ms=tiers,
        clock=lambda: time.time() + 3700,
        log_level=0,
    )

    async def has_moved() -> bool:
        return await asyncio.to_thread(theirs.run_once, 0.2) == 1

    await until(has_moved)
    await asyncio.to_thread(theirs.close)
    world = World(KafkaBroker(server, ROUTE), queue)
    process = await world.process()
    again = await process.one()
    assert (data(again), again.attempts) == ({"n": 1}, 1)
    await world.close()


async def test_both_move_records_in_one_group_at_once(server: KafkaServer, sdk: KafkaTransport, world: World) -> None:
    process = await world.process()
    ending = threading.Event()

    def reinject() -> None:
        theirs = RetryReinjector(server.url().rstrip("/"), work_topics=[world.queue], retry_tiers_ms=TIERS, log_level=0)
        while not ending.is_set():
            theirs.run_once(0.1)
        theirs.close()

    running = asyncio.ensure_future(asyncio.to_thread(reinject))
    try:
        for number in range(20):
            await process.publish({"n": number}, delay_seconds=0.1 + 0.02 * number)
        found = [data(message)["n"] for message in await process.take(20)]
        assert sorted(found) == list(range(20))
    finally:
        ending.set()
        await running


async def test_the_sdk_reads_our_dead_letters(sdk: KafkaTransport, world: World) -> None:
    process = await world.process()
    await process.publish({"n": 1})
    await process.reject(await process.one(), error="no stock")
    record = await popped(sdk, f"{world.queue}.dlq")
    assert json.loads(record.body)["dead_letter"]["error"] == "no stock"
    assert len(await process.dead()) == 1
    await asyncio.to_thread(sdk.ack, record)
    assert await process.dead() == [], "a letter that an SDK has taken is not listed any more"


async def test_we_list_and_redrive_what_the_sdk_dead_letters(sdk: KafkaTransport, world: World) -> None:
    process = await world.process()
    await process.publish({"n": 1})
    body = made(7)
    await published(sdk, f"{world.queue}.dlq", body)
    assert [letter.record for letter in await process.dead()] == [body]
    assert (await process.redrive()).redriven == 1
    assert sorted(data(each)["n"] for each in await process.take(2)) == [1, 7]
    assert await process.dead() == []
