"""The Python SDK's own transport on the other end of a queue, both ways, byte for byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from babelqueue.codec import EnvelopeCodec
from babelqueue.sqs_transport import SqsTransport
from babelqueue.transport import ReceivedMessage

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.sqs.binding import SqsBinding
from tests.brokers.sqs.harness import STANDARD, SqsBroker, client, url_of
from tests.harness.broker import Server
from tests.harness.world import World

pytestmark = pytest.mark.sqs
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}
HEADERS = {"traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01", "shop-region": "eu ☕"}


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def name(request: pytest.FixtureRequest, queue: str) -> str:
    return f"{queue}.fifo" if request.param else queue


@pytest.fixture
def sdk(plain: Any, name: str) -> SqsTransport:
    return SqsTransport(client=plain, fifo=name.endswith(".fifo"))


async def popped(sdk: SqsTransport, name: str) -> ReceivedMessage:
    message = await asyncio.to_thread(sdk.pop, name, 20)
    assert message is not None
    return message


async def test_the_sdk_publishes_and_we_consume(one: SqsBinding, sdk: SqsTransport, name: str, plain: Any) -> None:
    native = one.native_queue(name, STANDARD)
    await asyncio.to_thread(url_of, plain, native.options)
    body = made()
    await asyncio.to_thread(sdk.publish_with_headers, name, body.decode(), HEADERS)
    (delivery,) = await one.reserve(native, 10, 20, 30)
    assert (delivery.body, delivery.headers, delivery.delivery_count) == (body, HEADERS, 1)
    assert await one.ack(native, [delivery.handle]) == [None]
    assert await asyncio.to_thread(sdk.pop, name, 0) is None


async def test_we_publish_and_the_sdk_consumes(one: SqsBinding, sdk: SqsTransport, name: str) -> None:
    native = one.native_queue(name, STANDARD)
    body = made()
    assert await one.publish(native, [Outgoing(body, HEADERS, dedup_id="d")]) == [None]
    message = await popped(sdk, name)
    assert message.body.encode() == body
    assert {key: value for key, value in message.headers.items() if not key.startswith("bq-")} == HEADERS
    await asyncio.to_thread(sdk.ack, message)
    assert await one.reserve(native, 1, 0, 30) == []


async def test_a_release_of_the_sdk_counts_with_ours(one: SqsBinding, sdk: SqsTransport, name: str) -> None:
    native = one.native_queue(name, STANDARD)
    await one.publish(native, [Outgoing(made())])
    message = await popped(sdk, name)
    await asyncio.to_thread(sdk.redeliver, message, message.body, 0)
    (delivery,) = await one.reserve(native, 1, 20, 30)
    assert (delivery.delivery_count, delivery.redelivered) == (2, True)
    assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
    again = await popped(sdk, name)
    assert json.loads(again.body)["attempts"] == 2


async def test_the_sdk_reads_our_dead_letters(elastic: Server, queue: str) -> None:
    sdk = SqsTransport(client=client(elastic.port))
    world = World(SqsBroker(elastic, STANDARD), queue)
    process = await world.process()
    await process.publish({"n": 1})
    await process.reject(await process.one(), error="no stock")
    record = await popped(sdk, sdk.dead_letter_queue_name(queue))
    assert json.loads(record.body)["dead_letter"]["error"] == "no stock"
    await world.close()


async def test_we_list_and_redrive_what_the_sdk_dead_letters(elastic: Server, queue: str) -> None:
    plain = client(elastic.port)
    sdk = SqsTransport(client=plain)
    world = World(SqsBroker(elastic, STANDARD), queue)
    process = await world.process()
    await process.publish({"n": 1})
    dead = process.gateway.router.route(queue).native.options.dead
    await asyncio.to_thread(url_of, plain, dead)
    body = made(7).decode()
    await asyncio.to_thread(sdk.publish, sdk.dead_letter_queue_name(queue), body)
    assert [letter.record.decode() for letter in await process.dead()] == [body]
    assert (await process.redrive()).redriven == 1
    found = sorted(json.loads(each.body)["data"]["n"] for each in await process.take(2))
    assert found == [1, 7]
    await world.close()
