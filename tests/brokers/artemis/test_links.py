"""The links of queues: however many names are used, a bounded number stays attached, and none in use is ended."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection

import pytest

from babelgate.brokers.artemis.binding import ArtemisBinding
from babelgate.brokers.artemis.client import ArtemisClient
from babelgate.brokers.artemis.message import encode
from babelgate.brokers.artemis.url import settings_of
from babelgate.brokers.binding import Outgoing
from babelgate.brokers.connect import ConnectPause
from babelgate.brokers.held import HandleSettler
from babelgate.clock import now_ms
from tests.brokers.artemis.harness import destroy, receivers, senders
from tests.brokers.artemis.server import ArtemisServer
from tests.harness.world import until

_KEPT = 2
_PAYLOAD = encode(Outgoing(b"x" * 4_000), now_ms())


@pytest.fixture
async def client(artemis: ArtemisServer) -> AsyncIterator[ArtemisClient]:
    """A connection that keeps the links of few queues."""
    made = ArtemisClient("artemis", settings_of(artemis.url(), {}), 30, ConnectPause(), max_queues=_KEPT)
    try:
        yield made
    finally:
        await made.close()


async def taken(client: ArtemisClient, queue: str, limit: int, seconds: float) -> list[str]:
    """The handles of messages."""
    async with client.receiver(queue) as receiver:
        arrived = await receiver.pull(limit, asyncio.get_running_loop().time() + seconds)
        return [f"{receiver.connection.generation}.{each.number}" for each in arrived]


async def attached_are(list_links: Callable[[int], list[str]], port: int, queues: Collection[str]) -> None:
    """Wait until the broker has a link for each of ``queues``, and for no other queue with the same first word."""
    prefix = next(iter(queues)).rpartition(".")[0]

    async def are() -> bool:
        found = await asyncio.to_thread(list_links, port)
        return sorted(each for each in found if each.startswith(prefix)) == sorted(queues)

    await until(are)


async def test_an_idle_receiver_that_the_broker_has_ended_is_replaced_before_the_next_call(
    one: ArtemisBinding, artemis: ArtemisServer
) -> None:
    """As when an operator destroys a queue, which the next receive creates again."""
    native = one.native_queue(f"ended.{uuid.uuid4().hex}", {})
    assert await one.publish(native, [Outgoing(b"1")]) == [None]
    (delivery,) = await one.reserve(native, 1, 20, 60)
    assert await one.ack(native, [delivery.handle]) == [None]
    (receiver,) = one._client._receivers[native.name]
    await asyncio.to_thread(destroy, artemis.port, native.name)

    async def has_ended() -> bool:
        return receiver.ended is not None

    await until(has_ended)
    assert await one.reserve(native, 1, 0, 60) == []
    assert await one.publish(native, [Outgoing(b"2")]) == [None]
    (delivery,) = await one.reserve(native, 1, 20, 60)
    assert await one.ack(native, [delivery.handle]) == [None]


async def test_senders_of_ever_new_queues_are_ended_and_all_messages_are_confirmed(
    client: ArtemisClient, artemis: ArtemisServer
) -> None:
    prefix = f"many.{uuid.uuid4().hex}."
    for number in range(6):
        assert await client.send(f"{prefix}{number}", [_PAYLOAD]) == [None]
    several = await asyncio.gather(*(client.send(f"{prefix}{number % 20}", [_PAYLOAD] * 3) for number in range(60)))
    assert several == [[None] * 3] * 60
    # Those that were in use together go as new ones come.
    for number in range(30):
        assert await client.send(f"{prefix}last-{number}", [_PAYLOAD]) == [None]
    await attached_are(senders, artemis.port, [f"{prefix}last-28", f"{prefix}last-29"])


async def test_a_sender_whose_messages_wait_stays(client: ArtemisClient, artemis: ArtemisServer) -> None:
    name = uuid.uuid4().hex
    blocked, settler = f"blocked.{name}", HandleSettler("artemis", 30, client.of_generation)
    waiting = asyncio.create_task(client.send(blocked, [_PAYLOAD] * 2_000))
    for number in range(6):
        assert await client.send(f"many.{name}.{number}", [_PAYLOAD]) == [None]
    assert not waiting.done()
    while not waiting.done():
        await settler.ack(await taken(client, blocked, 500, 0.1))
    assert await waiting == [None] * 2_000


async def test_receivers_of_ever_new_queues_are_ended_unless_their_deliveries_are_outstanding(
    client: ArtemisClient, artemis: ArtemisServer
) -> None:
    prefix = f"many.{uuid.uuid4().hex}."
    await client.send(f"{prefix}held", [_PAYLOAD])
    (held,) = await taken(client, f"{prefix}held", 1, 10)
    for number in range(8):
        assert await taken(client, f"{prefix}{number}", 1, 0) == []
    await attached_are(receivers, artemis.port, [f"{prefix}held", f"{prefix}7"])
    assert await HandleSettler("artemis", 30, client.of_generation).ack([held]) == [None]
