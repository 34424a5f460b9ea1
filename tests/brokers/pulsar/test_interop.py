"""The Python SDK's own transport on the other end of a topic, both ways, byte for byte; and other producers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from babelqueue.codec import EnvelopeCodec
from babelqueue.pulsar_transport import PulsarTransport
from babelqueue.transport import ReceivedMessage

from babelgate.brokers.binding import Delivery, LastFailure, Outgoing
from babelgate.brokers.pulsar.binding import PulsarBinding
from tests.brokers.pulsar.harness import client, subscribe
from tests.brokers.pulsar.server import PulsarServer

pytestmark = pytest.mark.pulsar
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}
HEADERS = {"traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01", "shop-region": "eu ☕"}


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


@pytest.fixture
def plain(server: PulsarServer) -> Iterator[Any]:
    """A plain client."""
    with client(server.port) as opened:
        yield opened


@pytest.fixture
def sdk(plain: Any) -> PulsarTransport:
    return PulsarTransport(client=plain, initial_position=pulsar.InitialPosition.Earliest)


async def popped(sdk: PulsarTransport, name: str) -> ReceivedMessage:
    message = await asyncio.to_thread(sdk.pop, name, 20)
    assert message is not None
    return message


async def test_the_sdk_publishes_and_we_consume(one: PulsarBinding, sdk: PulsarTransport, queue: str) -> None:
    native = one.native_queue(queue, {})
    assert await one.reserve(native, 1, 0, 30) == []
    body = made()
    await asyncio.to_thread(sdk.publish, queue, body.decode())
    (delivery,) = await one.reserve(native, 10, 20, 30)
    assert (delivery.body, delivery.delivery_count, delivery.declared_attempts) == (body, 0, 0)
    assert await one.ack(native, [delivery.handle]) == [None]
    assert await one.reserve(native, 1, 0, 30) == []


async def test_we_publish_and_the_sdk_consumes(one: PulsarBinding, sdk: PulsarTransport, queue: str) -> None:
    native = one.native_queue(queue, {})
    body = made()
    assert await one.publish(native, [Outgoing(body, HEADERS, dedup_id="d")]) == [None]
    message = await popped(sdk, queue)
    assert message.body.encode() == body
    await asyncio.to_thread(sdk.ack, message)
    assert await one.reserve(native, 1, 0, 30) == []


async def test_consumers_of_both_share_a_queue(
    one: PulsarBinding, sdk: PulsarTransport, plain: Any, queue: str
) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(n)) for n in range(20)])
    mine = await one.reserve(native, 5, 20, 30)
    theirs = [await popped(sdk, queue) for _ in range(20 - len(mine))]
    bodies = [delivery.body for delivery in mine] + [message.body.encode() for message in theirs]
    assert sorted(json.loads(body)["data"]["n"] for body in bodies) == list(range(20))
    assert await one.ack(native, [delivery.handle for delivery in mine]) == [None] * len(mine)
    for message in theirs:
        await asyncio.to_thread(sdk.ack, message)


async def test_a_negative_acknowledgement_of_the_sdk_counts_with_ours(
    one: PulsarBinding, plain: Any, queue: str
) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made())])

    def refuse() -> Any:
        consumer = subscribe(plain, queue, negative_ack_redelivery_delay_ms=100)
        consumer.negative_acknowledge(consumer.receive(20_000))
        return consumer

    consumer = await asyncio.to_thread(refuse)
    message = await asyncio.to_thread(consumer.receive, 20_000)
    assert message.redelivery_count() == 1
    consumer.negative_acknowledge(message)
    # The count is kept as long as the subscription has a consumer, so that ours comes before theirs goes.
    waiting = asyncio.create_task(one.reserve(native, 1, 20, 30))
    while not waiting.done():
        try:
            consumer.negative_acknowledge(await asyncio.to_thread(consumer.receive, 200))
        except pulsar.Timeout:
            continue
    (delivery,) = await waiting
    assert delivery.delivery_count >= 2
    assert delivery.redelivered


@pytest.mark.parametrize(
    "compression",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
    ids=lambda each: each.name,
)
async def test_a_batch_of_a_producer(one: PulsarBinding, plain: Any, queue: str, compression: Any) -> None:
    native = one.native_queue(queue, {})
    assert await one.reserve(native, 1, 0, 30) == []
    bodies = [made(n) + b" " * 300 * n + json.dumps(list(range(n * 50))).encode() for n in range(5)]

    def send() -> None:
        producer = plain.create_producer(
            queue,
            batching_enabled=True,
            batching_max_publish_delay_ms=60_000,
            batching_type=pulsar.BatchingType.Default,
            compression_type=compression,
        )
        for number, body in enumerate(bodies):
            producer.send_async(body, lambda result, place: None, properties={"n": str(number)}, partition_key="k")
        producer.flush()
        producer.close()

    await asyncio.to_thread(send)
    got: list[Delivery] = []
    while len(got) < 5:
        got += await one.reserve(native, 2, 20, 30)
    assert [delivery.body for delivery in got] == bodies
    assert [delivery.headers for delivery in got] == [{"n": str(number)} for number in range(5)]
    assert not any(one.acks_anywhere(native, delivery.handle) for delivery in got)
    assert await one.ack(native, [delivery.handle for delivery in got[:4]]) == [None] * 4
    assert (await one.stats(native)).in_flight == 5, "the broker knows only whole batches"
    assert await one.ack(native, [got[4].handle]) == [None]
    assert (await one.stats(native)).in_flight == 0
    assert await one.reserve(native, 1, 0, 30) == []


async def test_a_message_of_a_batch_is_given_back_by_a_copy(one: PulsarBinding, plain: Any, queue: str) -> None:
    native = one.native_queue(queue, {})
    assert await one.reserve(native, 1, 0, 30) == []

    def send() -> None:
        producer = plain.create_producer(queue, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for number in range(3):
            producer.send_async(made(number), lambda result, place: None, partition_key="k")
        producer.flush()
        producer.close()

    await asyncio.to_thread(send)
    first, second, third = await one.reserve(native, 3, 20, 30)
    assert await one.ack(native, [first.handle]) == [None]
    assert await one.release(native, [second.handle], 0, False) == [None]
    (again,) = await one.reserve(native, 1, 20, 30)
    assert (again.body, again.delivery_count, again.carried.key) == (second.body, 0, "k")
    assert await one.ack(native, [third.handle, again.handle]) == [None] * 2
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 0)


async def test_a_copy_keeps_what_a_foreign_producer_gave(one: PulsarBinding, plain: Any, queue: str) -> None:
    """The job on which consumers route, the keys, and the time of the event."""
    native = one.native_queue(queue, {})
    assert await one.reserve(native, 1, 0, 30) == []
    body = made()

    def send() -> None:
        producer = plain.create_producer(queue, batching_enabled=False)
        producer.send(
            body,
            properties={"bq-job": "urn:babel:routed", "colour": "blue"},
            partition_key="partition",
            ordering_key="order",
            event_timestamp=123_456,
        )

    await asyncio.to_thread(send)
    (found,) = await one.reserve(native, 1, 20, 30)
    copy = Outgoing(found.body, found.headers, failure=LastFailure(1), carried=found.carried)
    assert await one.publish(native, [copy]) == [None]
    assert await one.ack(native, [found.handle]) == [None]
    consumer = await asyncio.to_thread(subscribe, plain, queue)
    message = await asyncio.to_thread(consumer.receive, 20_000)
    assert message.data() == body
    assert message.properties()["bq-job"] == "urn:babel:routed"
    assert message.properties()["colour"] == "blue"
    assert (message.partition_key(), message.ordering_key()) == ("partition", "order")
    assert message.event_timestamp() == 123_456
