"""The options of a message: when it is delivered, when it expires, and before which others it comes."""

from __future__ import annotations

import asyncio
import json

import pytest

from babelgate.clock import now_ms
from babelgate.envelope.options import EXPIRES_AT_HEADER, NEVER_EXPIRES
from babelgate.errors import EnvelopeError, UnsupportedByBroker
from babelgate.gateway import expiry
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Receipt
from babelgate.gateway.routing import Policy
from tests.harness.world import World, data, draft, until


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
        # A broker may delay without bound.
        if maximum is not None:
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

    async def test_an_expired_message_is_a_dead_letter_which_a_redrive_delivers(self, world: World) -> None:
        if world.broker.header_options is None:
            pytest.skip("this broker has no native headers")
        process = await world.process(queue_options=world.broker.header_options)
        await process.publish_body(draft({"n": "expired"}, ttl_seconds=0.05))
        await asyncio.sleep(0.06)
        await process.publish_body(draft({"n": "lasting"}, ttl_seconds=3600))
        message = await process.one()
        assert data(message) == {"n": "lasting"}
        expires_at = message.headers[EXPIRES_AT_HEADER]
        assert abs(int(expires_at) - now_ms() - 3_600_000) < 120_000
        assert await process.nack(message, error="again") == [None]
        message = await process.one()
        assert message.headers[EXPIRES_AT_HEADER] == expires_at
        assert await process.reject(message, error="done") == [None]

        async def both_are_dead() -> bool:
            assert await process.ready(1) == []
            return len(await process.dead()) == 2

        await until(both_are_dead)
        letters = {letter.error: letter for letter in await process.dead()}
        assert {(error, letter.reason) for error, letter in letters.items()} == {
            (expiry.EXPIRED, "failed"),
            ("done", "failed"),
        }
        assert letters["done"].headers[EXPIRES_AT_HEADER] == expires_at
        assert (await process.redrive()).redriven == 2
        messages = await process.take(2)
        assert {data(each)["n"] for each in messages} == {"expired", "lasting"}
        assert {each.headers[EXPIRES_AT_HEADER] for each in messages} == {NEVER_EXPIRES}

    async def test_a_route_may_drop_expired_messages(self, world: World) -> None:
        process = await world.process(policy=Policy(ttl_seconds=0.2, expired="drop"))
        receipts = [await process.publish({"n": n}) for n in range(2)]
        await asyncio.sleep(0.21)

        def dropped() -> list[tuple[str | None, str | None]]:
            events = [event for event in process.events if event.kind == "dropped"]
            return [(event.reason, facts.message_id) for event in events for facts in event.messages]

        async def both_are_dropped() -> bool:
            assert await process.ready(10) == []
            return len(dropped()) == 2

        await until(both_are_dropped)
        assert sorted(dropped()) == sorted(("expired", receipt.id) for receipt in receipts)
        assert await process.dead() == []
        # They are gone, also for a gateway whose route keeps messages for ever.
        await process.close()
        lasting = await world.process()
        await lasting.publish({"n": 2})
        message = await lasting.one()
        assert data(message) == {"n": 2}
        assert await lasting.ack(message) == [None]
        assert await lasting.is_empty()

    async def test_without_native_headers_a_time_to_live_is_refused(self, world: World) -> None:
        process = await world.process()
        if process.capabilities.headers:
            pytest.skip("this route has native headers")
        with pytest.raises(UnsupportedByBroker) as refusal:
            await process.publish_body(draft({}, ttl_seconds=1))
        assert (refusal.value.problem_code, refusal.value.pointer) == ("ttl_unsupported", "/ttl_seconds")
        assert await process.is_empty()

    async def test_a_higher_priority_comes_first_and_each_keeps_its_order(self, world: World) -> None:
        process = await world.process(queue_options=world.broker.priority_options)
        if not process.capabilities.priorities:
            with pytest.raises(UnsupportedByBroker) as refusal:
                await process.publish_body(draft({}, priority=5))
            assert (refusal.value.problem_code, refusal.value.pointer) == ("priority_unsupported", "/priority")
            assert await process.is_empty()
            return
        # One batch: no message is on its way to a consumer before the others are there.
        given = [(1, 0), (2, 9), (3, 5), (4, 9), (5, 0), (6, 5)]
        bodies = [draft({"n": n}, priority=priority) for n, priority in given]
        results = await process.gateway.publish_many(ANYONE, world.queue, bodies)
        assert all(isinstance(result, Receipt) for result in results), results
        messages = await process.take(6)
        assert [data(message)["n"] for message in messages] == [2, 4, 3, 6, 1, 5]
        # Copies and dead letters keep it.
        await process.nack(messages[0], messages[4])
        await process.reject(messages[1], messages[5])
        await process.ack(messages[2], messages[3])
        again = await process.take(2)
        assert [data(message)["n"] for message in again] == [2, 1]
        await process.ack(*again)

        async def both_are_dead() -> bool:
            return len(await process.dead()) == 2

        await until(both_are_dead)
        assert (await process.redrive()).redriven == 2
        assert [data(message)["n"] for message in await process.take(2)] == [4, 5]

    async def test_an_edited_dead_letter_has_the_priority_of_its_body_or_its_own(self, world: World) -> None:
        process = await world.process(queue_options=world.broker.priority_options)
        if not process.capabilities.priorities:
            pytest.skip("this route has no priorities")
        given = [(1, 5), (2, 0), (3, 9)]
        bodies = [draft({"n": n}, priority=priority) for n, priority in given]
        await process.gateway.publish_many(ANYONE, world.queue, bodies)
        assert await process.reject(*await process.take(3)) == [None] * 3

        async def all_are_dead() -> bool:
            return len(await process.dead()) == 3

        await until(all_are_dead)
        ids = {json.loads(letter.record)["data"]["n"]: letter.letter_id for letter in await process.dead()}
        assert not (await process.redrive_one(ids[1])).edited
        assert (await process.redrive_one(ids[2], body=draft({"n": 20}, priority=7))).edited
        assert (await process.redrive_one(ids[3], data=b'{"n":30}')).edited
        assert [data(each)["n"] for each in await process.take(3)] == [30, 20, 1]
