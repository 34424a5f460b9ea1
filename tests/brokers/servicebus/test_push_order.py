"""Pushes keep the order of each session, also when a message fails."""

from __future__ import annotations

from tests.brokers.servicebus.harness import ServiceBusBroker
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.world import World
from tests.suites.push import keys_are_pushed_in_order


async def test_the_order_of_each_session(emulator: ServiceBusEmulator, queue: str) -> None:
    world = World(ServiceBusBroker(emulator), queue)
    emulator.queue(queue, requires_session=True)
    process = await world.process(queue_options={"sessions": True})
    await keys_are_pushed_in_order(world, process, retried_in_place=True)
    await world.close()
