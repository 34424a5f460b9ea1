"""Pushes keep the order of each message group of a FIFO queue, also over a back-off."""

from __future__ import annotations

from babelgate.gateway.routing import Policy
from tests.brokers.sqs.harness import STANDARD, SqsBroker
from tests.harness.broker import Server
from tests.harness.world import World
from tests.suites.push import keys_are_pushed_in_order


async def test_the_order_of_each_group(elastic: Server, queue: str) -> None:
    world = World(SqsBroker(elastic, STANDARD), f"{queue}.fifo")
    process = await world.process(policy=Policy(backoff_seconds=(1,)))
    await keys_are_pushed_in_order(world, process, retried_in_place=True)
    await world.close()
