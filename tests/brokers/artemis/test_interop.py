"""Other clients on the other end of a queue, both ways: the Python SDK's own transport, and STOMP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from babelqueue.artemis_transport import ArtemisTransport
from babelqueue.codec import EnvelopeCodec
from babelqueue.transport import ReceivedMessage

from babelgate.brokers.artemis.binding import ArtemisBinding
from babelgate.brokers.binding import Outgoing
from babelgate.gateway.routing import Policy
from tests.brokers.artemis.harness import ArtemisBroker, browse
from tests.brokers.artemis.server import ArtemisServer
from tests.harness.world import World, data
from tests.official.programs import Foreign, Official

pytestmark = pytest.mark.artemis
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


@pytest.fixture
def sdk(artemis: ArtemisServer) -> Iterator[ArtemisTransport]:
    transport = ArtemisTransport(f"artemis://127.0.0.1:{artemis.port}", timeout=120)
    yield transport
    transport.close()


async def popped(sdk: ArtemisTransport, name: str) -> ReceivedMessage:
    message = await asyncio.to_thread(sdk.pop, name, 60)
    assert message is not None
    return message


async def test_the_sdk_publishes_and_we_consume(one: ArtemisBinding, sdk: ArtemisTransport, queue: str) -> None:
    native, body = one.native_queue(queue, {}), made()
    await asyncio.to_thread(sdk.publish, queue, body.decode())
    (delivery,) = await one.reserve(native, 10, 30, 30)
    assert (delivery.body, delivery.headers, delivery.delivery_count) == (body, {}, 0)
    assert await one.ack(native, [delivery.handle]) == [None]
    assert await one.reserve(native, 1, 0, 30) == []


async def test_we_publish_and_the_sdk_consumes(one: ArtemisBinding, sdk: ArtemisTransport, queue: str) -> None:
    native, body = one.native_queue(queue, {}), made()
    assert await one.publish(native, [Outgoing(body, {"shop-region": "eu ☕"})]) == [None]
    message = await popped(sdk, queue)
    assert message.body.encode() == body
    await asyncio.to_thread(sdk.ack, message)
    assert await one.reserve(native, 1, 0, 30) == []


async def test_both_write_the_same_native_message(
    one: ArtemisBinding, sdk: ArtemisTransport, artemis: ArtemisServer, queue: str
) -> None:
    body = made()
    await asyncio.to_thread(sdk.publish, queue, body.decode())
    await one.publish(one.native_queue(queue, {}), [Outgoing(body)])
    theirs, ours = await asyncio.to_thread(browse, artemis.port, queue)
    for member in ("body", "inferred", "annotations", "properties", "correlation_id", "creation_time", "content_type"):
        assert getattr(ours, member) == getattr(theirs, member), member


async def test_a_counted_release_counts_for_the_sdk(one: ArtemisBinding, sdk: ArtemisTransport, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made())])
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
    message = await popped(sdk, queue)
    assert json.loads(message.body)["attempts"] == 1
    await asyncio.to_thread(sdk.ack, message)


async def test_a_retry_of_a_large_message_counts_for_the_sdk(
    artemis: ArtemisServer, sdk: ArtemisTransport, queue: str
) -> None:
    """The broker always reports 0 deliveries of it. The copy says how many there were."""
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process()
    body = EnvelopeCodec.encode(EnvelopeCodec.make(URN, {"fill": "x" * 200_000}, queue=queue))
    await asyncio.to_thread(sdk.publish, queue, body)
    for attempts in range(2):
        message = await process.one()
        assert message.attempts == attempts
        assert await process.nack(message) == [None]
    (stored,) = await asyncio.to_thread(browse, artemis.port, queue)
    properties: Any = stored.properties
    assert properties["bq_attempts"] == "2"
    message_of_sdk = await popped(sdk, queue)
    assert message_of_sdk.body == body.replace('"attempts":0', '"attempts":2')
    await asyncio.to_thread(sdk.ack, message_of_sdk)
    await world.close()


async def test_the_sdk_reads_our_dead_letters(artemis: ArtemisServer, sdk: ArtemisTransport, queue: str) -> None:
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process()
    await process.publish({"n": 1})
    await process.reject(await process.one(), error="no stock")
    record = await popped(sdk, f"{queue}.dlq")
    assert json.loads(record.body)["dead_letter"]["error"] == "no stock"
    await asyncio.to_thread(sdk.ack, record)
    await world.close()


async def test_we_list_and_redrive_what_the_sdk_dead_letters(
    artemis: ArtemisServer, sdk: ArtemisTransport, queue: str
) -> None:
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process()
    body = made(7).decode()
    await asyncio.to_thread(sdk.publish, f"{queue}.dlq", body)
    await asyncio.to_thread(sdk.publish, f"{queue}.dlq", '{"job": "without an id for a selector"}')
    assert [letter.record.decode() == body for letter in await process.dead()] == [True, False]
    assert (await process.redrive(limit=1)).redriven == 1
    assert data(await process.one())["n"] == 7
    assert [letter.id for letter in await process.dead()] == [None]
    await world.close()


async def test_a_dead_letter_of_a_jms_message_is_found_again(artemis: ArtemisServer, queue: str) -> None:
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process()
    jms = Official("artemis", "java", f"amqp://127.0.0.1:{artemis.port}")
    await jms.produce(f"{queue}.dlq", Foreign(made(3), properties={"body": "amqp-value"}, odd=True))
    await process.publish({"n": 4})
    await process.reject(await process.one())
    assert (await process.redrive()).redriven == 2
    assert await process.dead() == []
    assert sorted(data(each)["n"] for each in await process.take(2)) == [3, 4]
    await world.close()


def send_by_stomp(artemis: ArtemisServer, queue: str, body: bytes) -> None:
    with socket.create_connection(("127.0.0.1", artemis.stomp_port), 60) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:tests\n\n\0")
        assert client.recv(4096).startswith(b"CONNECTED")
        head = f"SEND\ndestination:{queue}\ndestination-type:ANYCAST\npersistent:true\nreceipt:1\ntenant:eu\n\n"
        client.sendall(head.encode() + body + b"\0")
        assert client.recv(4096).startswith(b"RECEIPT")


async def test_a_large_message_of_another_protocol_counts(artemis: ArtemisServer, queue: str) -> None:
    """The broker counts the deliveries of these; a copy counts on."""
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process(policy=Policy(max_attempts=3))
    body = EnvelopeCodec.encode(EnvelopeCodec.make(URN, {"fill": "x" * 300_000}, queue=queue)).encode()
    await asyncio.to_thread(send_by_stomp, artemis, queue, body)
    for attempts in range(3):
        message = await process.one()
        assert (message.attempts, message.headers["tenant"]) == (attempts, "eu")
        assert await process.nack(message) == [None]
    (letter,) = await process.dead()
    assert (letter.attempts, json.loads(letter.record)["attempts"]) == (3, 3)
    await world.close()


async def test_we_consume_what_comes_over_stomp(one: ArtemisBinding, artemis: ArtemisServer, queue: str) -> None:
    """STOMP has no annotations, so that the type is in the body alone."""
    native, body = one.native_queue(queue, {}), made()
    await asyncio.to_thread(send_by_stomp, artemis, queue, body)
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert delivery.body == body
    assert delivery.headers["tenant"] == "eu"
    assert await one.ack(native, [delivery.handle]) == [None]
