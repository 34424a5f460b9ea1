"""A broker with Pulsar's default for storing acknowledgements: what a crash may deliver again, and what it may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.pulsar.server import pulsar_server
from tests.harness.world import World, data
from tests.suites.life import came_back

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

STORED_EVERY_SECONDS = 1
"""``managedLedgerDefaultMarkDeleteRateLimit`` is the number of times a second that a subscription is stored."""


@pytest.fixture
async def world(queue: str) -> AsyncIterator[World]:
    """A server of the test's own, because it is killed, with the default of the distribution."""
    with pulsar_server({"managedLedgerDefaultMarkDeleteRateLimit": "1.0"}) as server:
        made = World(PulsarBroker(server), queue)
        yield made
        await made.close()


async def test_a_crash_forgets_only_the_acks_since_they_were_stored(world: World) -> None:
    process = await world.process()
    await process.publish_all([{"n": n} for n in range(12)])
    messages = sorted(await process.take(12, lease=300), key=lambda each: int(data(each)["n"]))
    assert await process.ack(*messages[:5]) == [None] * 5
    await asyncio.sleep(2 * STORED_EVERY_SECONDS)
    assert await process.ack(messages[5]) == [None], "it is stored, and with it those before"
    for message in messages[6:9]:
        assert await process.ack(message) == [None]
    await world.broker.kill()
    await came_back(process)
    again: set[int] = set()
    while not {9, 10, 11} <= again:
        again |= {data(each)["n"] for each in await process.take(1, lease=300)}
    assert not again & set(range(6)), "a stored ack was forgotten"
