"""The options of a message: when it is delivered."""

from __future__ import annotations

import pytest

from babelgate.clock import now_ms
from babelgate.errors import EnvelopeError, UnsupportedByBroker
from babelgate.gateway.authorization import ANYONE
from tests.harness.world import World, data, draft


class TestOptions:
    async def test_a_message_is_not_delivered_before_its_time(self, world: World) -> None:
        process = await world.process()
        maximum = process.capabilities.max_delay_seconds
        if maximum == 0:
            with pytest.raises(UnsupportedByBroker) as refusal:
                await process.publish_body(draft({"n": 1}, deliver_at=now_ms() + 60_000))
            assert (refusal.value.problem_code, refusal.value.pointer) == ("delay_too_long", "/deliver_at")
        else:
            due = now_ms() + 1_500
            await process.publish_body(draft({"n": 1}, deliver_at=due))
            assert data(await process.one()) == {"n": 1}
            assert now_ms() >= due

    async def test_a_time_in_the_past_is_now(self, world: World) -> None:
        process = await world.process()
        await process.publish_body(draft({"n": 1}, deliver_at=now_ms() - 60_000))
        assert data(await process.one()) == {"n": 1}

    async def test_a_time_beyond_the_broker_is_refused_with_its_maximum(self, world: World) -> None:
        process = await world.process()
        maximum = process.capabilities.max_delay_seconds
        assert maximum is not None
        late = now_ms() + int(maximum * 1000) + 60_000
        with pytest.raises(UnsupportedByBroker) as refusal:
            await process.publish_body(draft({}, deliver_at=late))
        assert (refusal.value.problem_code, refusal.value.maximum) == ("delay_too_long", maximum)
        for asked in ({"delay_seconds": 0}, {"options": {"deliver_at": 1}}):
            with pytest.raises(EnvelopeError) as mismatch:
                await process.gateway.publish(ANYONE, world.queue, draft({}, deliver_at=0), **asked)
            assert [(each.code, each.pointer) for each in mismatch.value.problems] == [
                ("deliver_at_mismatch", "/deliver_at")
            ]
        assert await process.is_empty()
