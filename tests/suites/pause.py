"""Pausing: a paused queue hands nothing out and loses nothing, while consumers settle what they have."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.pauses import QueuePaused
from tests.harness.world import World, data


class TestPause:
    async def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(self, world: World) -> None:
        process = await world.process()
        pauses = process.gateway.pauses
        await process.publish({"n": 0})
        held = await process.one(lease=60)
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        await pauses.pause(ANYONE, world.queue, reason="a test")
        # The reserve of the receive that waits may take one of them: it is given back.
        await process.publish_all([{"n": 1}, {"n": 2}])
        assert await process.receive(2) == []
        assert await process.receive(2, wait=1.2) == [], "longer than a reserve that was under way"
        assert await process.extend(held, lease=60) == [None]
        assert await process.ack(held) == [None]
        assert not waiting.done()
        await pauses.resume(ANYONE, world.queue)
        messages = await waiting
        messages += await process.take(2 - len(messages))
        assert sorted(data(each)["n"] for each in messages) == [1, 2]
        assert [each.attempts for each in messages] == [0, 0], "a give-back is no attempt"
        assert set(await process.ack(*messages)) == {None}
        assert await process.is_empty()

    async def test_publishes_are_refused_if_asked(self, world: World) -> None:
        process = await world.process()
        pauses = process.gateway.pauses
        await pauses.pause(ANYONE, world.queue, "refuse")
        with pytest.raises(QueuePaused):
            await process.publish({"n": 1})
        refused = await process.gateway.publish_many(ANYONE, world.queue, [b"{}", b"{}"])
        assert [type(each) for each in refused] == [QueuePaused] * 2
        await pauses.pause(ANYONE, world.queue, "accept")
        await process.publish({"n": 2})
        await pauses.resume(ANYONE, world.queue)
        assert data(await process.one()) == {"n": 2}
        assert await process.ready(1) == []
