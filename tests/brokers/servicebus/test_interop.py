"""The Python SDK's own transport on the other end of a queue, both ways, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from babelqueue.asb_transport import AsbTransport
from babelqueue.codec import EnvelopeCodec
from babelqueue.transport import ReceivedMessage

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.servicebus.binding import ServiceBusBinding
from tests.brokers.servicebus.harness import ServiceBusBroker
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.world import World

pytestmark = pytest.mark.servicebus
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


@pytest.fixture
def sdk(emulator: ServiceBusEmulator) -> Iterator[AsbTransport]:
    client = ServiceBusClient.from_connection_string(emulator.connection_string())
    transport = AsbTransport(client=client)
    yield transport
    transport.close()


async def popped(sdk: AsbTransport, name: str) -> ReceivedMessage:
    message = await asyncio.to_thread(sdk.pop, name, 30)
    assert message is not None
    return message


async def test_the_sdk_publishes_and_we_consume(one: ServiceBusBinding, sdk: AsbTransport, queue: str) -> None:
    native, body = one.native_queue(queue, {}), made()
    await asyncio.to_thread(sdk.publish, queue, body.decode())
    (delivery,) = await one.reserve(native, 10, 30, 30)
    assert (delivery.body, delivery.headers, delivery.delivery_count) == (body, {}, 0)
    assert await one.ack(native, [delivery.handle]) == [None]
    assert await one.reserve(native, 1, 0, 30) == []


async def test_we_publish_and_the_sdk_consumes(one: ServiceBusBinding, sdk: AsbTransport, queue: str) -> None:
    native, body = one.native_queue(queue, {}), made()
    assert await one.publish(native, [Outgoing(body, {"shop-region": "eu ☕"}, dedup_id="d")]) == [None]
    message = await popped(sdk, queue)
    assert message.body.encode() == body
    await asyncio.to_thread(sdk.ack, message)
    assert await one.reserve(native, 1, 0, 30) == []


async def test_both_write_the_same_native_message(
    one: ServiceBusBinding, sdk: AsbTransport, emulator: ServiceBusEmulator, queue: str
) -> None:
    body = made()
    await asyncio.to_thread(sdk.publish, queue, body.decode())
    await one.publish(one.native_queue(queue, {}), [Outgoing(body, dedup_id="d")])
    theirs, ours = emulator.messages(queue)
    for member in ("properties", "application_properties", "annotations", "body"):
        assert ours[member] == theirs[member]


async def test_an_abandon_of_the_sdk_counts_with_ours(one: ServiceBusBinding, sdk: AsbTransport, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(), dedup_id="d")])
    message = await popped(sdk, queue)
    await asyncio.to_thread(sdk.abandon, message)
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert (delivery.delivery_count, delivery.redelivered) == (1, True)
    assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
    again = await popped(sdk, queue)
    # The SDK reads the client library's count, which is from 0, as one from 1.
    assert json.loads(again.body)["attempts"] == 1
    assert again.handle.delivery_count == 2
    await asyncio.to_thread(sdk.ack, again)


async def test_the_sdk_reads_our_dead_letters(emulator: ServiceBusEmulator, sdk: AsbTransport, queue: str) -> None:
    world = World(ServiceBusBroker(emulator), queue)
    process = await world.process()
    await process.publish({"n": 1})
    await process.reject(await process.one(), error="no stock")
    record = await popped(sdk, f"{queue}.dlq")
    assert json.loads(record.body)["dead_letter"]["error"] == "no stock"
    await asyncio.to_thread(sdk.ack, record)
    await world.close()


async def test_we_list_and_redrive_what_the_sdk_dead_letters(
    emulator: ServiceBusEmulator, sdk: AsbTransport, queue: str
) -> None:
    """In both places: the queue of dead letters, and natively where the SDK's dead-lettering is off."""
    world = World(ServiceBusBroker(emulator), queue)
    process = await world.process()
    body = made(7).decode()
    await asyncio.to_thread(sdk.publish, f"{queue}.dlq", body)
    await asyncio.to_thread(sdk.publish, queue, made(8).decode())
    await asyncio.to_thread(sdk.settle_native, await popped(sdk, queue), "poison", "it has no identity")
    letters = await process.dead()
    assert [json.loads(letter.record)["data"]["n"] for letter in letters] == [7, 8]
    assert (letters[1].reason, letters[1].error) == ("poison", "poison: it has no identity")
    assert (await process.redrive()).redriven == 2
    found = [json.loads(each.body) for each in await process.take(2)]
    assert sorted(each["data"]["n"] for each in found) == [7, 8]
    assert all("dead_letter" not in each for each in found)
    await world.close()
