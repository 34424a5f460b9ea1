"""Pushes keep the order of each key. A message that fails comes again behind all others of its key."""

from __future__ import annotations

from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.world import World
from tests.suites.push import keys_are_pushed_in_order


async def test_the_order_of_each_key(server: PulsarServer, queue: str) -> None:
    world = World(PulsarBroker(server), queue)
    process = await world.process(queue_options={"key_shared": True})
    await keys_are_pushed_in_order(world, process, retried_in_place=False)
    await world.close()
