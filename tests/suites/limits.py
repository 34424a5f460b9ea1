"""Limits: a queue of a limited depth refuses messages while it is full, and loses none."""

from __future__ import annotations

from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.depths import QueueFull
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Policy
from tests.harness.world import World, until

DRAFT = b'{"job":"urn:babel:test:made","data":{"n":1}}'


class TestLimits:
    async def test_a_full_queue_refuses_until_it_is_consumed(self, world: World) -> None:
        process = await world.process(policy=Policy(limits=QueueTerms(max_depth=3)))
        accepted = 0

        async def is_full() -> bool:
            nonlocal accepted
            results = await process.gateway.publish_many(ANYONE, world.queue, [DRAFT] * 2)
            accepted += sum(not isinstance(each, Exception) for each in results)
            assert all(isinstance(each, QueueFull) for each in results if isinstance(each, Exception)), results
            return isinstance(results[-1], QueueFull)

        # The count of a broker may lag behind.
        await until(is_full)
        assert accepted >= 3
        taken: list[Message] = []
        while len(taken) < accepted:
            taken += await process.take(accepted - len(taken))
        await process.ack(*taken)

        async def has_room() -> bool:
            result = (await process.gateway.publish_many(ANYONE, world.queue, [DRAFT]))[0]
            assert not isinstance(result, Exception) or isinstance(result, QueueFull), result
            return not isinstance(result, QueueFull)

        await until(has_room)
        await process.ack(*await process.take(1))
        assert await process.is_empty()
