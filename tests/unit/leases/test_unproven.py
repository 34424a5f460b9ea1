"""What the broker has not said is not acted on: no copy without a proof, no second one after an unknown outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from babelgate.brokers.binding import Outcome
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown
from tests.harness.kept import LEASE, Kept
from tests.harness.local import eventually
from tests.harness.memory import ConnectedMemory
from tests.harness.world import kinds

UNKNOWN = OutcomeUnknown("memory", "no answer")
AGAIN = 5.0
"""The pause before the end of a lease is tried again, in seconds."""

PROOFS: dict[str, tuple[str, dict[str, Any]]] = {
    "shared": ("extend", {"ack_scope": "anywhere"}),
    "owned": ("prove", {}),
}
"""The call that proves a delivery whose lease has expired, and the abilities of the broker."""


def kept_by(queue: str, how: str) -> Kept:
    return Kept(queue, **PROOFS[how][1])


@pytest.mark.parametrize("how", PROOFS)
async def test_an_expired_lease_waits_until_the_broker_answers(queue: str, how: str) -> None:
    kept = kept_by(queue, how)
    await kept.handles(2)
    kept.binding.calls.clear()
    kept.binding.fail_after(PROOFS[how][0], 0)
    await kept.pass_seconds()
    await kept.pass_seconds(AGAIN)
    assert kept.binding.calls.keys() == {PROOFS[how][0]}, "nothing was copied or given back"
    assert (kept.ready(), await kept.out(), kept.expired()) == ([], 2, 0)
    kept.binding.faults.clear()
    await kept.pass_seconds(AGAIN)
    assert (kept.ready(), await kept.out(), kept.expired()) == ([(0, 1), (1, 1)], 0, 2)


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
async def test_meanwhile_its_lease_is_over(queue: str, verb: str) -> None:
    kept = kept_by(queue, "shared")
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("extend", 0)
    await kept.pass_seconds()
    assert kinds(await kept.settle(verb, handle)) == [LeaseLost]


async def test_an_ack_at_another_process_stands_whatever_the_broker_answers_first(queue: str) -> None:
    kept = kept_by(queue, "shared")
    acked, _ = await kept.handles(2)
    await kept.binding.ack(kept.route.native, [acked])
    assert isinstance(kept.binding, ConnectedMemory)
    kept.binding.stale = True
    kept.binding.fail_after("extend", 0)
    await kept.pass_seconds()
    kept.binding.faults.clear()
    await kept.pass_seconds(AGAIN)
    assert (kept.ready(), kept.expired()) == ([(1, 1)], 1)


@pytest.mark.parametrize("verb", ["nack", "reject"])
async def test_what_the_broker_has_taken_back_in_a_pause_is_not_copied(queue: str, verb: str) -> None:
    kept = kept_by(queue, "owned")
    (handle,) = await kept.handles(1)
    kept.binding.disconnect(queue)
    assert isinstance(kept.binding, ConnectedMemory)
    kept.binding.stale = True
    assert kinds(await kept.settle(verb, handle)) == [LeaseLost]
    await kept.pass_seconds()
    assert (kept.ready(), kept.binding.dead(queue), kept.expired()) == ([(0, 0)], [], 0)


@pytest.mark.parametrize("verb", ["nack", "reject"])
async def test_without_an_answer_nothing_is_written_and_the_lease_goes_on(queue: str, verb: str) -> None:
    kept = kept_by(queue, "owned")
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("prove", 0)
    assert kinds(await kept.settle(verb, handle)) == [BrokerUnavailable]
    assert (kept.ready(), kept.binding.dead(queue), await kept.out()) == ([], [], 1)
    kept.binding.faults.clear()
    assert await kept.settle(verb, handle) == [None]
    assert len(kept.ready()) + len(kept.binding.dead(queue)) == 1


async def test_beside_a_copy_that_may_exist_the_original_waits_and_is_given_back_once(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(2)
    kept.binding.fail_after("publish", 0, UNKNOWN)
    await kept.pass_seconds()
    copies = [(0, 1), (1, 1)]
    assert (kept.ready(), await kept.out(), kept.expired()) == (copies, 2, 2)
    assert "release" not in kept.binding.calls
    await kept.pass_seconds(AGAIN)
    assert (kept.ready(), await kept.out(), kept.expired()) == ([*copies, (0, 0), (1, 0)], 0, 2)
    assert kept.binding.calls["publish"][-1:] == [2], "no second copy"


async def test_a_nack_whose_copy_may_exist_is_not_copied_at_its_deadline(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("publish", 0, UNKNOWN)
    assert kinds(await kept.nack(handle)) == [OutcomeUnknown]
    kept.binding.faults.clear()
    await kept.pass_seconds()
    assert (kept.ready(), await kept.out()) == ([(0, 1), (0, 0)], 0)


LATE: dict[str, tuple[Outcome, list[tuple[object, int]]]] = {
    "written": (None, [(0, 1)]),
    "not written": (BrokerUnavailable("memory", "it was not sent"), [(0, 1), (0, 1)]),
    "unknown": (UNKNOWN, [(0, 1), (0, 0)]),
}
"""The last word on a copy, and what is ready then. The broker in memory has written the first one in any case."""


@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize("nacked", [False, True], ids=["expired", "nacked"])
async def test_the_original_waits_for_the_last_word_on_its_copy(queue: str, nacked: bool, how: str) -> None:
    """Meanwhile nothing is given back, and no second copy is written."""
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    error = OutcomeUnknown("memory", "no answer")
    error.later = asyncio.get_running_loop().create_future()
    kept.binding.fail_after("publish", 0, error)
    if nacked:
        assert kinds(await kept.nack(handle)) == [OutcomeUnknown]
    else:
        await kept.pass_seconds()
    kept.binding.faults.clear()
    kept.binding.calls.clear()
    if nacked:
        assert kinds(await kept.nack(handle)) == kinds(await kept.reject(handle)) == [OutcomeUnknown]
    for _ in range(3):
        await kept.pass_seconds()
    assert kept.binding.calls.keys() <= {"prove"}, "nothing is written"
    assert (kept.ready(), await kept.out()) == ([(0, 1)], 1)
    outcome, ready = LATE[how]
    error.later.set_result(outcome)
    await asyncio.sleep(0)
    await kept.pass_seconds(AGAIN)
    assert (kept.ready(), await kept.out(), kept.expired()) == (ready, 0, 1)


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
async def test_a_lease_ends_when_its_late_copy_is_written(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    (await nacked_late(kept, handle)).set_result(None)
    await asyncio.sleep(0)
    assert kinds(await kept.settle(verb, handle)) == [LeaseLost]
    await kept.lease_manager.expire()
    assert (kept.ready(), await kept.out(), kept.broker_usage.count) == ([(0, 1)], 0, 0)


@pytest.mark.parametrize("verb", ["nack", "reject"])
async def test_a_copy_that_is_confirmed_while_its_original_is_proven_is_the_only_one(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    confirmed = await nacked_late(kept, handle)
    gate = kept.binding.gates["prove"] = asyncio.Event()
    again = asyncio.create_task(kept.settle(verb, handle))
    await eventually(lambda: len(kept.binding.calls["prove"]) == 2)
    confirmed.set_result(None)
    await asyncio.sleep(0)
    gate.set()
    assert kinds(await again) == [LeaseLost]
    assert (kept.ready(), kept.binding.dead(queue)) == ([(0, 1)], [])
    assert (await kept.out(), kept.broker_usage.count) == (0, 0), "the original is acked at once"


async def test_a_copy_is_confirmed_while_other_expired_leases_are_proven(queue: str) -> None:
    kept = Kept(queue)
    first, _ = await kept.handles(2)
    confirmed = await nacked_late(kept, first)
    gate = kept.binding.gates["prove"] = asyncio.Event()
    expiring = asyncio.create_task(kept.pass_seconds())
    await eventually(lambda: len(kept.binding.calls["prove"]) == 2)
    confirmed.set_result(None)
    await asyncio.sleep(0)
    gate.set()
    await expiring
    assert (kept.ready(), await kept.out(), kept.broker_usage.count) == ([(0, 1), (1, 1)], 0, 0)


async def nacked_late(kept: Kept, handle: str) -> asyncio.Future[Outcome]:
    """Nack a delivery whose copy is written, but not confirmed in time; the future of the outcome."""
    error = OutcomeUnknown("memory", "no answer")
    error.later = asyncio.get_running_loop().create_future()
    kept.binding.fail_after("publish", 0, error)
    assert kinds(await kept.nack(handle)) == [OutcomeUnknown]
    kept.binding.faults.clear()
    return error.later


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_wall_clock_that_is_set_moves_no_deadline(queue: str, hours: int) -> None:
    kept = Kept(queue)
    _, second = await kept.handles(2)
    kept.stepped = hours * 3_600_000
    assert await kept.lease_manager.extend([second], 2 * LEASE) == [kept.now + kept.stepped + round(2000 * LEASE)]
    await kept.pass_seconds(LEASE - 1)
    assert (kept.ready(), kept.expired()) == ([], 0)
    await kept.pass_seconds(1)
    assert (kept.ready(), kept.expired()) == ([(0, 1)], 1)
    await kept.pass_seconds(LEASE)
    assert (kept.ready(), kept.expired()) == ([(0, 1), (1, 1)], 2)
