"""Pushes keep the order of each message group of a FIFO queue, also when a message fails."""

from __future__ import annotations

from tests.brokers.sqs.harness import STANDARD, SqsBroker
from tests.harness.broker import Server
from tests.harness.world import World
from tests.suites.push import keys_are_pushed_in_order


async def test_the_order_of_each_group(elastic: Server, queue: str) -> None:
    world = World(SqsBroker(elastic, STANDARD), f"{queue}.fifo")
    await keys_are_pushed_in_order(world, await world.process(), retried_in_place=True)
    await world.close()
