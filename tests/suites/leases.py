"""Leases at a time: no more are handed out than a limit allows, and none counts once it has ended."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.counted_leases import LeasesExceeded
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.model import Message, Nack, Settlement
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.routing import Policy
from babelgate.gateway.streaming import Stream
from tests.harness.world import PATIENCE, Process, World, tokens, until


async def limited(world: World, most: int) -> Process:
    return await world.process(policy=Policy(limits=QueueTerms(max_leases=most)))


def held(process: Process) -> int:
    """How many leases count; fails if the scopes count others."""
    counted, limits = process.gateway.counted, process.gateway.rate_limits
    assert limits is not None
    route = process.gateway.router.route(process.queue)
    (scope,) = limits.of_leases(ANYONE, route)
    assert scope.running["leases"] == len(counted.held)
    return len(counted.held)


async def none_is_held(process: Process) -> None:
    """Wait until no lease counts."""

    async def is_over() -> bool:
        return held(process) == 0

    await until(is_over)


async def filled(process: Process, most: int) -> list[Message]:
    """As many messages as the limit allows, of receives that ask for more."""
    messages: list[Message] = []
    while len(messages) < most:
        messages += await process.ready(most + 2, PATIENCE)
    assert len(messages) == most == held(process)
    return messages


class TestLeases:
    async def test_no_more_are_handed_out_than_are_free(self, world: World) -> None:
        process = await limited(world, 3)
        await process.publish_all([{"n": n} for n in range(6)])
        messages = await filled(process, 3)
        with pytest.raises(LeasesExceeded, match="has 3 leases already"):
            await process.receive(5)
        # A receive that waits gets what the next settle makes room for.
        waiting = process.waiting(5)
        assert await process.ack(messages[0]) == [None]
        assert len(await waiting) == 1
        for end in (process.nack(messages[1]), process.reject(messages[2])):
            assert await end == [None]
        assert held(process) == 1

    async def test_none_counts_once_it_has_ended(self, world: World) -> None:
        process = await limited(world, 4)
        await process.publish_all([{"n": n} for n in range(4)])
        acked, nacked, rejected, untried = await filled(process, 4)
        assert await process.extend(acked, lease=45) == [None]
        assert held(process) == 4
        assert await process.ack(acked) == [None]
        assert await process.nack(nacked) == [None]
        assert await process.reject(rejected) == [None]
        assert held(process) == 1
        assert await process.settle(Settlement(nacks=[Nack(tokens([untried]), failed=False)])) == [None]
        assert held(process) == 0
        # One whose client has gone before its answer.
        given_back = await process.ready(1, PATIENCE)
        assert held(process) == 1
        await process.gateway.give_back(process.queue, given_back)
        await none_is_held(process)

    async def test_one_that_is_over_counts_no_more(self, world: World) -> None:
        process = await limited(world, 1)
        await process.publish({"n": 1})
        lease = process.gateway.router.route(process.queue).lease_seconds(2)
        await process.one(lease)
        assert held(process) == 1
        (again,) = await process.ready(2, PATIENCE)
        assert held(process) == 1
        assert await process.ack(again) == [None]
        assert held(process) == 0

    async def test_a_settle_by_another_replica_frees_its_room(self, world: World) -> None:
        process, other = await limited(world, 2), await limited(world, 2)
        await process.publish_all([{"n": n} for n in range(3)])
        one, two = await filled(process, 2)
        assert await other.ack(one) == [None]
        assert held(process) == 1
        waiting = process.waiting(3)
        assert await other.nack(two, delay=0) == [None]
        assert await waiting

    async def test_streams_hold_no_more_and_leave_nothing(self, world: World) -> None:
        process = await limited(world, 2)
        await process.publish_all([{"n": n} for n in range(4)])
        with Stream(process.gateway, ANYONE, process.queue, StreamOptions(10, None, True)) as stream:
            messages: list[Message] = []
            while len(messages) < 2:
                messages += await stream.take(PATIENCE)
            assert len(messages) == 2 == held(process)
            assert await stream.take(0.3) == []
            taking = asyncio.create_task(stream.take(PATIENCE))
            assert await process.ack(*messages) == [None] * 2
            assert 0 < len(await taking) <= 2
        await none_is_held(process)
