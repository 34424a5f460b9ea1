"""Events: every step of a message is reported with the same facts, by whichever process takes it."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from msgspec.structs import replace

from babelgate.gateway.routing import Policy
from babelgate.observe.events import Event, Facts
from tests.harness.world import JOB, Process, World, data, until
from tests.suites.settle import AFTER, SHORT


def only(process: Process, kind: str) -> Event:
    """The one event of its kind."""
    found = [event for event in process.events if event.kind == kind]
    assert len(found) == 1, process.events
    return found[0]


def fact(event: Event) -> Facts:
    assert event.count == len(event.messages) == 1
    return event.messages[0]


class TestEvents:
    async def test_the_facts_of_a_message_from_its_publish_to_its_ack_elsewhere(self, world: World) -> None:
        process, other = await world.process(), await world.process()
        receipt = await process.publish({"n": 1})
        message = await process.one(30)
        envelope = json.loads(message.body)
        expected = Facts(
            0, receipt.id, receipt.trace_id, JOB, receipt.created_at, envelope["meta"]["lang"], len(message.body)
        )
        accepted, delivered = only(process, "accepted"), only(process, "delivered")
        assert fact(accepted) == fact(delivered) == expected
        assert list(accepted.bodies) == list(delivered.bodies) == [message.body]
        assert delivered.lease_seconds == 30
        assert {(event.queue, event.broker) for event in process.events} == {(world.queue, receipt.broker)}
        assert await other.ack(message) == [None]
        ended = [event for each in (process, other) for event in each.events if event.kind == "acked"]
        assert len(ended) == 1
        assert fact(ended[0]) == expected

    async def test_a_batch_is_one_event_of_many_messages(self, world: World) -> None:
        process = await world.process()
        receipts = await process.publish_all([{"n": n} for n in range(3)])
        ids = [receipt.id for receipt in receipts]
        assert [facts.message_id for facts in only(process, "accepted").messages] == ids
        messages = await process.take(3)
        assert await process.ack(*messages) == [None] * 3
        assert sorted(facts.message_id or "" for facts in only(process, "acked").messages) == sorted(ids)

    async def test_a_failed_message_is_told_by_its_attempts(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        assert await process.nack(await process.one()) == [None]
        assert fact(only(process, "nacked")).attempts == 0
        assert await process.reject(await process.one()) == [None]
        assert fact(only(process, "rejected")).attempts == 1
        buried = only(process, "dead_lettered")
        assert buried.reason == "failed"
        assert fact(buried).message_id == fact(only(process, "rejected")).message_id

    async def test_a_redriven_message_is_told_with_where_it_went(self, world: World) -> None:
        process = await world.process()
        receipt = await process.publish({"n": 1})
        await process.reject(await process.one())
        assert (await process.redrive()).redriven == 1
        redriven = only(process, "redriven")
        assert redriven.to_queue == world.queue
        assert (fact(redriven).message_id, fact(redriven).trace_id) == (receipt.id, receipt.trace_id)

    async def test_a_stale_settle_tells_whose_lease_was_lost(self, world: World) -> None:
        process = await world.process()
        receipt = await process.publish({"n": 1})
        late = await process.one(SHORT)
        await asyncio.sleep(AFTER)
        assert data(await process.one()) == {"n": 1}
        assert [type(error).__name__ for error in await process.ack(late)] == ["LeaseLost"]
        assert fact(only(process, "lease_lost")).message_id == receipt.id

    async def test_a_lease_that_ran_out_is_told_once(self, world: World) -> None:
        process, other = await world.process(), await world.process()
        receipt = await process.publish({"n": 1})
        await process.one(SHORT)
        await asyncio.sleep(AFTER)
        later = other if "ended_leases" in world.broker.reports else process
        again = await later.one()

        def told() -> list[Event]:
            return [event for each in (process, other) for event in each.events if event.kind == "lease_expired"]

        if "expiries" not in world.broker.reports:
            assert told() == []
            return

        async def is_told() -> bool:
            # Where the gateway keeps the lease, the message may come again a moment before this is reported.
            return [fact(event).message_id for event in told()] == [receipt.id]

        await until(is_told)
        expired = told()
        assert await later.nack(again) == [None]
        await process.one()
        assert told() == expired, "a nack passed for one more expiry"

    async def test_each_lease_that_ran_out_is_told_once(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=4))
        receipt = await process.publish({"n": 1})

        def expired() -> list[str | None]:
            told = [event for event in process.events if event.kind == "lease_expired"]
            return [facts.message_id for event in told for facts in event.messages]

        async def has_expired(times: int) -> bool:
            # Where the gateway keeps the lease, the message may come again a moment before this is reported.
            return expired() == ([receipt.id] * times if "expiries" in world.broker.reports else [])

        for attempts in range(3):
            message = await process.one(SHORT)
            assert message.attempts == attempts
            await until(partial(has_expired, attempts))
        again = await process.one()
        for _ in range(2):
            await process.gateway.give_back(world.queue, [again])
            again = await process.one()
        assert again.attempts == 3
        await until(partial(has_expired, 3))
        assert await process.extend(again, lease=SHORT) == [None]

        async def is_dead() -> bool:
            assert await process.receive() == []
            return [letter.attempts for letter in await process.dead()] == [4]

        await until(is_dead)
        await until(partial(has_expired, 4))

    async def test_facts_that_are_too_long_for_a_token_stay_out_of_it(self, world: World) -> None:
        process = await world.process()
        job = "urn:babel:test:" + "j" * 200
        await process.publish_body(json.dumps({"job": job, "data": {}}).encode())
        message = await process.one()
        whole = fact(only(process, "delivered"))
        assert whole.job == job and whole.message_id is not None
        assert await process.ack(message) == [None]
        if len(message.ack_token) <= 300:
            whole = replace(whole, job=None, lang=None, traceparent=None)
        assert fact(only(process, "acked")) == whole, "which message it is stays known"
