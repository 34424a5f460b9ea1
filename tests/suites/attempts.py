"""Attempts: nacks and expiries count as attempts and redeliver in time; an extend postpones expiry."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from babelgate.clock import now_ms
from babelgate.envelope import Limits
from babelgate.errors import LeaseLost, UnsupportedByBroker
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Extend, Settlement
from babelgate.gateway.routing import Policy
from tests.harness.world import JOB, World, data, draft, kinds
from tests.suites.publish import envelope_of

SHORT = 0.4
"""A lease that a test lets expire: long enough for a call on a busy machine, short enough to wait for."""


class TestAttempts:
    async def test_a_nack_brings_the_message_back_now_and_counts(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        first = await process.one()
        assert await process.nack(first) == [None]
        second = await process.one()
        assert (second.attempts, second.redelivered) == (1, True)
        assert data(second) == data(first)
        assert json.loads(second.body)["meta"] == json.loads(first.body)["meta"]

    async def test_what_was_not_attempted_comes_back_at_once_and_uncounted(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        await process.publish({"n": 1})
        for _ in range(4):
            message = await process.one()
            assert data(message) == {"n": 1}
            assert message.attempts == 0
            assert await process.nack(message, failed=False) == [None]
        message = await process.one()
        assert await process.ack(message) == [None]
        assert kinds(await process.nack(message, failed=False)) == [LeaseLost]

    async def test_a_nack_with_a_delay_brings_it_back_later(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        loop = asyncio.get_running_loop()
        started = loop.time()
        await process.nack(await process.one(), delay=2)
        stats, early = await process.stats(), await process.ready(1)
        # On a machine that stood still it may be due.
        is_delayed = early == [] and world.broker.tells(stats, depth=0, in_flight=0, delayed=1)
        assert loop.time() - started > 2 or is_delayed
        (message,) = early or await process.take(1)
        assert loop.time() - started >= 1.99
        assert message.attempts == 1

    async def test_a_nack_without_a_delay_follows_the_backoff_of_the_queue(self, world: World) -> None:
        process = await world.process(policy=Policy(backoff_seconds=(0.6, 1.2)))
        await process.publish({"n": 1})
        loop = asyncio.get_running_loop()
        for attempts, delay in enumerate([0.6, 1.2, 1.2]):
            message = await process.one()
            assert message.attempts == attempts
            started = loop.time()
            await process.nack(message, delay=None)
            early = await process.ready(1)
            (again,) = early or await process.take(1)
            assert loop.time() - started >= delay - 0.01
            await process.gateway.give_back(world.queue, [again])

    async def test_an_explicit_delay_wins_over_the_backoff_even_when_it_is_none(self, world: World) -> None:
        process = await world.process(policy=Policy(backoff_seconds=(3600,)))
        await process.publish({"n": 1})
        await process.nack(await process.one(), delay=0)
        assert (await process.one()).attempts == 1

    async def test_a_delay_beyond_the_broker_is_refused_and_the_lease_goes_on(self, world: World) -> None:
        process = await world.process()
        maximum = process.capabilities.max_retry_delay_seconds
        if maximum is None:
            pytest.skip("this broker delays without bound")
        await process.publish({"n": 1})
        message = await process.one()
        with pytest.raises(UnsupportedByBroker):
            await process.nack(message, delay=maximum + 1)
        assert await process.ack(message) == [None]

    async def test_nacks_and_expiries_count_alike(self, world: World) -> None:
        process = await world.process()
        can = process.capabilities
        await process.publish({"n": 1})
        in_body = 0
        for attempts, end in enumerate(("nack", "expire", "expire", "nack", "expire", "ack")):
            message = await process.one(SHORT if end == "expire" else None)
            assert (message.attempts, message.redelivered) == (attempts, attempts > 0)
            found = json.loads(message.body)["attempts"]
            if can.delivery_count == "added":
                # The broker counts what was not written to the body.
                assert in_body <= found <= attempts
                in_body = found
            # Where a retry is a copy, and where the broker does not count, the body has the count.
            elif not can.native_release or can.delivery_count == "none":
                assert found == attempts
            else:
                assert found == 0, "the broker counts, and the body stays as it is"
            if end == "nack":
                assert await process.nack(message) == [None]

    async def test_a_large_message_counts_like_any_other(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=4))
        largest = min(Limits().max_message_bytes, process.capabilities.max_body_bytes or math.inf)
        body = envelope_of(int(largest) - 8_192, world.queue)
        await process.publish_body(body)
        for attempts, end in enumerate(("nack", "expire", "wait", "nack")):
            message = await process.one(SHORT if end == "expire" else None)
            assert (message.attempts, message.redelivered) == (attempts, attempts > 0)
            if end != "expire":
                assert await process.nack(message, delay=0.1 if end == "wait" else 0) == [None]
        (letter,) = await process.dead()
        record = json.loads(letter.record)
        assert (letter.reason, letter.attempts, record["attempts"]) == ("failed", 4, 4)
        assert record["data"] == json.loads(body)["data"]
        assert await process.is_empty()

    async def test_a_count_in_the_body_goes_on(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        fresh = await process.one()
        body = fresh.body.replace(b'"attempts":0', b'"attempts":3')
        assert body != fresh.body
        await process.ack(fresh)
        await world.broker.inject(world.queue, body)
        message = await process.one()
        assert (message.attempts, message.body) == (3, body)
        await process.nack(message)
        # Where the broker counts and the body stays as it is, the larger of the two counts.
        can = process.capabilities
        larger = can.native_release and can.delivery_count in ("zero_based", "one_based")
        assert (await process.one()).attempts == (3 if larger else 4)

    async def test_a_negative_count_in_the_body_puts_nothing_off(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        if process.capabilities.delivery_count == "none":
            pytest.skip("here whoever reserves counts on in the body, from where it stands")
        await process.publish({"n": 1})
        fresh = await process.one()
        await process.ack(fresh)
        await world.broker.inject(world.queue, fresh.body.replace(b'"attempts":0', b'"attempts":-9'))
        for attempts in range(2):
            message = await process.one()
            assert message.attempts == attempts
            await process.nack(message)
        (letter,) = await process.dead()
        assert letter.attempts == 2

    async def test_an_extended_lease_keeps_the_message(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one(3)
        before = now_ms()
        (result,) = await process.gateway.settle(
            ANYONE, world.queue, Settlement(extends=[Extend([message.ack_token], 60)])
        )
        assert result.error is None
        assert result.lease_expires_at is not None
        assert before + 59_900 <= result.lease_expires_at <= now_ms() + 60_100
        await asyncio.sleep(3.3)
        assert await process.ready(1) == []
        assert await process.ack(message) == [None], "the token stays valid through extends"
        assert await process.is_empty()

    async def test_a_wall_clock_that_steps_back_keeps_no_lease(self, world: World) -> None:
        if world.broker.shares_deadlines:
            pytest.skip("its processes share deadlines by the wall clock of their machine")
        stepped = 0
        process = await world.process(clock=lambda: now_ms() + stepped)
        await process.publish({"n": 1})
        await process.one(2)
        stepped = -3_600_000
        again = await process.one()
        assert (data(again), again.attempts) == ({"n": 1}, 1)
        assert await process.ack(again) == [None]

    async def test_a_wall_clock_that_steps_ends_no_lease(self, world: World) -> None:
        """Acks in time are done. The processes of a SQLite file share deadlines by the wall clock of their machine."""
        stepped = 0
        process = await world.process(clock=lambda: now_ms() + stepped)
        await process.publish_all([{"n": n} for n in range(2)])
        behind, ahead = await process.take(2, 60)
        stepped = -600_000
        assert await process.ack(behind) == [None]
        stepped = 600_000
        if world.broker.shares_deadlines:
            assert kinds(await process.ack(ahead)) == [LeaseLost]
            again = await process.one()
            assert (data(again), again.attempts) == (data(ahead), 1)
            ahead = again
        assert await process.ack(ahead) == [None]

    async def test_extends_add_up_to_nothing_and_the_last_one_counts(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one(60)
        for lease in (600, 30, SHORT):
            assert await process.extend(message, lease=lease) == [None]
        again = await process.one()
        assert again.attempts == 1, "a lease counts from its last extend"
        assert kinds(await process.extend(message, lease=60)) == [LeaseLost]
        assert await process.nack(again) == [None]

    async def test_an_extended_lease_ends_by_every_verb(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(3)])
        acked, nacked, rejected = messages = await process.take(3, 5)
        assert await process.extend(*messages, lease=60) == [None] * 3
        outcomes = await process.ack(acked) + await process.nack(nacked) + await process.reject(rejected)
        assert outcomes == [None] * 3
        assert [data(message)["n"] for message in await process.take(1)] == [data(nacked)["n"]]
        assert len(await process.dead()) == 1
        assert await process.ack(acked) == [None]

    async def test_a_draft_with_its_own_trace_keeps_it_through_a_nack(self, world: World) -> None:
        process = await world.process()
        await process.publish_body(draft({"n": 1}, trace_id="order-4711", meta={"ext": {"shop": {"region": "eu"}}}))
        await process.nack(await process.one())
        envelope = json.loads((await process.one()).body)
        assert (envelope["job"], envelope["trace_id"]) == (JOB, "order-4711")
        assert envelope["meta"]["ext"] == {"shop": {"region": "eu"}}
