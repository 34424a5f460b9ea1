"""Leases that run out: each is a failed attempt, and the message comes again."""

from __future__ import annotations

import asyncio
import json

import pytest

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable, LeaseLost, UnsupportedByBroker
from babelgate.leases.process import EXPIRING
from tests.harness.kept import LEASE, Kept, body
from tests.harness.world import kinds

VERBS = ("ack", "nack", "reject", "give back", "extend")
SOON = 60.0
"""A bound on what must happen shortly, for the case that it never does."""


async def test_a_lease_that_runs_out_is_a_counted_copy_in_place_of_the_original(queue: str) -> None:
    kept = Kept(queue)
    carried = object()
    await kept.put(Outgoing(body(1, attempts=2), {"a": "1"}, carried=carried))
    (delivery,) = await kept.take(1)
    await kept.pass_seconds(LEASE - 0.001)
    assert await kept.out() == 1
    await kept.pass_seconds(0.001)
    (copy,) = kept.binding.ready(queue)
    assert copy == Outgoing(
        body(1, attempts=3), {"a": "1"}, failure=LastFailure(3, "lease expired", expired=True), carried=carried
    )
    assert (await kept.out(), kept.broker_usage.count, kept.expired()) == (0, 0, 1)
    assert kinds(await kept.lease_manager.ack([delivery.handle])) == [LeaseLost]


async def test_a_count_of_the_broker_that_is_larger_goes_on(queue: str) -> None:
    kept = Kept(queue, delivery_count="one_based")
    await kept.put(Outgoing(body(1)))
    for attempts in (1, 2):
        await kept.take(1)
        await kept.pass_seconds()
        assert kept.ready() == [(1, attempts)]


async def test_only_what_was_not_settled_runs_out_and_in_few_calls(queue: str) -> None:
    kept = Kept(queue, max_batch=1000)
    handles = await kept.handles(3 * EXPIRING)
    await kept.lease_manager.ack(handles[::3])
    kept.binding.calls.clear()
    await kept.pass_seconds()
    assert kept.binding.calls["publish"] == kept.binding.calls["ack"] == [EXPIRING, EXPIRING]
    assert kept.ready() == [(n, 1) for n in range(3 * EXPIRING) if n % 3]
    assert kept.expired() == 2 * EXPIRING


async def test_no_call_brings_more_than_the_broker_takes_at_once(queue: str) -> None:
    kept = Kept(queue, max_batch=2)
    await kept.handles(2)
    await kept.handles(1)
    await kept.pass_seconds()
    assert kept.binding.calls["publish"][-2:] == kept.binding.calls["ack"] == [2, 1]


async def test_where_no_copy_can_be_written_the_original_is_given_back_uncounted(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(2)
    kept.binding.fail_after("publish", 0)
    await kept.pass_seconds()
    assert kept.ready() == [(0, 0), (1, 0)]
    assert (kept.binding.calls["release"], await kept.out(), kept.expired()) == ([2], 0, 2)


async def test_of_copies_that_are_refused_only_the_originals_are_given_back(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(3)
    kept.binding.refused = body(1, attempts=1)
    await kept.pass_seconds()
    assert kept.ready() == [(0, 1), (2, 1), (1, 0)]


async def test_an_original_that_is_not_acked_after_its_copy_is_not_given_back_as_well(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(1)
    kept.binding.fail_after("ack", 0)
    await kept.pass_seconds()
    await kept.pass_seconds(60)
    assert kept.ready() == [(0, 1)]
    assert "release" not in kept.binding.calls


async def test_with_the_broker_away_it_is_tried_again_after_a_while(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(1)
    for verb in ("publish", "release"):
        kept.binding.fail_after(verb, 0)
    await kept.pass_seconds()
    await kept.pass_seconds(4.999)
    assert (kept.binding.calls["release"], kept.broker_usage.count, kept.expired()) == ([1], 1, 1)
    kept.binding.faults.clear()
    await kept.pass_seconds(0.001)
    assert (kept.ready(), kept.broker_usage.count, kept.expired()) == ([(0, 1)], 0, 1)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_lease_whose_end_could_not_be_told_is_over(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    for each in ("publish", "release"):
        kept.binding.fail_after(each, 0)
    await kept.pass_seconds()
    kept.binding.faults.clear()
    assert kinds(await kept.settle(verb, handle)) == [LeaseLost]
    await kept.pass_seconds()
    assert (kept.ready(), kept.expired()) == ([(0, 1)], 1)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_lease_ends_at_its_deadline_before_anybody_has_looked(queue: str, verb: str) -> None:
    kept = Kept(queue)
    in_time, late = await kept.handles(2)
    kept.now += round(LEASE * 1000) - 1
    assert await kept.lease_manager.ack([in_time]) == [None]
    kept.now += 1
    assert kinds(await kept.settle(verb, late)) == [LeaseLost]
    assert await kept.lease_manager.ack([in_time]) == [None], "what was acked in time stays so"
    await kept.lease_manager.expire()
    assert (kept.ready(), kept.expired(), kept.broker_usage.count) == ([(1, 1)], 1, 0)


async def test_a_copy_whose_original_is_not_acked_counts_as_run_out(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(1)
    kept.binding.fail_after("ack", 0)
    await kept.pass_seconds()
    assert kept.expired() == 1


async def test_a_body_that_no_copy_can_count_in_is_given_back(queue: str) -> None:
    kept = Kept(queue)
    await kept.put(Outgoing(b"poison"), Outgoing(body(1)))
    await kept.take(2)
    await kept.pass_seconds()
    assert [message.body for message in kept.binding.ready(queue)] == [body(1, attempts=1), b"poison"]


async def test_what_is_being_settled_does_not_run_out(queue: str) -> None:
    kept = Kept(queue)
    handles = await kept.handles(2)
    gate = kept.binding.gates["ack"] = asyncio.Event()
    ack = asyncio.create_task(kept.lease_manager.ack(handles))
    await asyncio.sleep(0)
    await kept.pass_seconds()
    gate.set()
    assert await ack == [None, None]
    await kept.pass_seconds()
    assert (kept.ready(), kept.expired()) == ([], 0)


async def test_what_ran_out_while_a_settle_failed_is_ended_then(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["ack"] = asyncio.Event()
    kept.binding.fail_after("ack", 0)
    ack = asyncio.create_task(kept.lease_manager.ack([handle]))
    await asyncio.sleep(0)
    await kept.pass_seconds()
    gate.set()
    assert kinds(await ack) == [BrokerUnavailable]
    kept.binding.faults.clear()
    await kept.pass_seconds(0)
    await kept.lease_manager.idle()
    assert (kept.ready(), kept.expired()) == ([(0, 1)], 1)


async def test_a_settle_that_comes_while_the_lease_is_being_ended_is_late(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["publish"] = asyncio.Event()
    ending = asyncio.create_task(kept.pass_seconds())
    await asyncio.sleep(0)
    ack = asyncio.create_task(kept.lease_manager.ack([handle]))
    await asyncio.sleep(0)
    gate.set()
    await ending
    assert kinds(await ack) == [LeaseLost]
    assert kept.ready() == [(0, 1)]


async def test_an_extend_counts_from_now_and_the_last_one_holds(queue: str) -> None:
    kept = Kept(queue)
    longer, shorter = await kept.handles(2)
    await kept.pass_seconds(20)
    assert await kept.lease_manager.extend([longer], 100) == [kept.now + 100_000]
    assert await kept.lease_manager.extend([shorter], 100) == [kept.now + 100_000]
    assert await kept.lease_manager.extend([shorter], 1) == [kept.now + 1_000]
    await kept.pass_seconds(99)
    assert kept.ready() == [(1, 1)]
    await kept.pass_seconds(1)
    assert kept.ready() == [(1, 1), (0, 1)]


async def test_all_extends_together_last_no_longer_than_the_broker_allows(queue: str) -> None:
    kept = Kept(queue, max_lease_seconds=100)
    (handle,) = await kept.handles(1)
    await kept.pass_seconds(20)
    (refusal,) = await kept.lease_manager.extend([handle], 81)
    assert isinstance(refusal, UnsupportedByBroker)
    assert (refusal.problem_code, refusal.maximum) == ("lease_too_long", 80)
    await kept.pass_seconds(9.999)
    assert await kept.out() == 1, "the lease stays as it was"
    assert await kept.lease_manager.extend([handle], 70.001) == [kept.now + 70_001]
    await kept.pass_seconds(0.001)
    assert await kept.out() == 1


async def test_an_extend_of_what_is_over_is_lost(queue: str) -> None:
    kept = Kept(queue)
    acked, expired, held = await kept.handles(3)
    await kept.lease_manager.ack([acked])
    await kept.lease_manager.extend([held], 60)
    await kept.pass_seconds()
    deadline = kept.now + 10_000
    fates = await kept.lease_manager.extend([acked, held, expired, held, "no handle"], 10)
    assert [fate if isinstance(fate, int) else type(fate) for fate in fates] == [
        LeaseLost,
        deadline,
        LeaseLost,
        deadline,
        LeaseLost,
    ]


async def test_deadlines_of_the_settled_do_not_pile_up_or_hide_the_others(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(1, lease=1000)
    for _ in range(60):
        await kept.lease_manager.ack(await kept.handles(100, lease=1500))
    await kept.pass_seconds(1000)
    assert (kept.ready(), kept.expired()) == ([(0, 1)], 1)


async def test_leases_run_out_by_themselves_each_in_its_time(queue: str) -> None:
    kept = Kept(queue, clock=now_ms)
    await kept.handles(1, lease=60)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await kept.put(Outgoing(body("late")), Outgoing(body("early")))
    await kept.take(1, 0.3)
    await kept.take(1, 0.1)
    seen = []
    async with asyncio.timeout(SOON):
        for _ in range(2):
            await kept.binding.reserve(kept.route.native, 1, SOON, LEASE)
            seen.append(loop.time() - started)
    assert seen[0] >= 0.099
    assert seen[1] >= 0.299
    kept.lease_manager.close()
    await kept.lease_manager.idle()
    assert kept.expired() == 2


async def test_an_extended_lease_does_not_run_out_in_its_first_time(queue: str) -> None:
    kept = Kept(queue, clock=now_ms)
    extended, _ = await kept.handles(2, lease=1)
    await kept.lease_manager.extend([extended], 60)
    (delivery,) = await kept.binding.reserve(kept.route.native, 1, SOON, LEASE)
    assert json.loads(delivery.body)["data"] == {"n": 1}
    await kept.lease_manager.idle()
    assert kept.broker_usage.count == 1
    kept.lease_manager.close()


async def test_after_a_close_no_lease_runs_out(queue: str) -> None:
    kept = Kept(queue, clock=now_ms)
    await kept.handles(1, lease=0.05)
    kept.lease_manager.close()
    await kept.handles(1, lease=0.05)
    assert await kept.binding.reserve(kept.route.native, 1, 0.2, LEASE) == []
    assert await kept.out() == 2
