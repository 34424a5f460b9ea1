"""Pushes keep the order of each key. A message that fails comes again behind all others of its key."""

from __future__ import annotations

from tests.brokers.kafka.harness import KafkaBroker
from tests.brokers.kafka.server import KafkaServer
from tests.harness.world import World
from tests.suites.push import keys_are_pushed_in_order


async def test_the_order_of_each_key(server: KafkaServer, queue: str) -> None:
    world = World(KafkaBroker(server), queue)
    await keys_are_pushed_in_order(world, await world.process(), retried_in_place=False)
    await world.close()
