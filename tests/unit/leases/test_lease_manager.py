"""Leases that this process keeps: settled by copy, confirm and ack, whatever the broker does in between."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.errors import BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.leases.table import BrokerUsage
from tests.harness.kept import LEASE, Kept, body
from tests.harness.memory import ConnectedMemory, DeadLetterPublishingMemory
from tests.harness.world import kinds

UNKNOWN = OutcomeUnknown("memory", "no answer")
VERBS = ("ack", "nack", "reject", "give back", "extend")


async def turn() -> None:
    """Let everything run that can run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_kept_is_counted_and_has_its_deadline(queue: str) -> None:
    kept = Kept(queue)
    await kept.put(Outgoing(body(0)), Outgoing(body(1)))
    deliveries = await kept.take(2, 7.5)
    assert [delivery.lease_expires_at for delivery in deliveries] == [kept.now + 7_500] * 2
    assert (kept.broker_usage.count, kept.broker_usage.size) == (2, len(body(0)) * 2)
    assert kept.lease_manager.busy
    assert await kept.lease_manager.ack([delivery.handle for delivery in deliveries]) == [None, None]
    assert (kept.broker_usage.count, kept.broker_usage.size, kept.lease_manager.busy) == (0, 0, False)


async def test_a_nack_puts_a_counted_copy_in_place_of_the_original(queue: str) -> None:
    kept = Kept(queue)
    headers, carried = {"traceparent": "00-1-2-01"}, object()
    await kept.put(Outgoing(body(1), headers, carried=carried, dedup_id="m"))
    (delivery,) = await kept.take(1)
    assert await kept.nack(delivery.handle, delay=5) == [None]
    (copy,) = kept.binding.ready(queue)
    assert copy == Outgoing(body(1, attempts=1), headers, delay_seconds=5, failure=LastFailure(1), carried=carried)
    assert (await kept.out(), kept.broker_usage.count) == (0, 0)


async def test_many_nacks_are_one_publish_and_one_ack(queue: str) -> None:
    kept = Kept(queue)
    handles = await kept.handles(50)
    kept.binding.calls.clear()
    assert await kept.nack(*handles) == [None] * 50
    assert kept.binding.calls == {"prove": [50], "publish": [50], "ack": [50]}
    assert kept.ready() == [(n, 1) for n in range(50)]


async def test_where_the_broker_releases_and_dead_letters_by_itself_no_copy_is_made(queue: str) -> None:
    kept = Kept(queue, native_release=True)
    handles = await kept.handles(2)
    kept.binding.calls.clear()
    assert await kept.nack(handles[0]) == [None]
    await kept.pass_seconds()
    assert kept.binding.calls == {"release": [1, 1]}
    assert kept.ready() == [(0, 0), (1, 0)]
    assert kept.expired() == 1


@pytest.mark.parametrize("verb", ["nack", "reject"])
@pytest.mark.parametrize("error", [None, UNKNOWN], ids=["refused", "unknown"])
async def test_without_a_confirm_the_lease_goes_on(queue: str, verb: str, error: OutcomeUnknown | None) -> None:
    kept = Kept(queue)
    handles = await kept.handles(2)
    kept.binding.calls.clear()
    kept.binding.fail_after("publish" if verb == "nack" else "publish_dead_letters", 0, error)
    assert kinds(await kept.settle(verb, *handles)) == [type(error) if error else BrokerUnavailable] * 2
    assert "ack" not in kept.binding.calls
    assert (await kept.out(), kept.broker_usage.count) == (2, 2)
    kept.binding.faults.clear()
    assert await kept.settle(verb, *handles) == [None] * 2
    assert (await kept.out(), kept.broker_usage.count) == (0, 0)


async def test_a_copy_that_is_refused_fails_alone_and_its_lease_goes_on(queue: str) -> None:
    kept = Kept(queue)
    first, second, third = await kept.handles(3)
    kept.binding.refused = body(1, attempts=1)
    assert kinds(await kept.nack(first, second, third)) == [None, BrokerRejected, None]
    assert kept.ready() == [(0, 1), (2, 1)]
    assert await kept.lease_manager.ack([second]) == [None]


@pytest.mark.parametrize("verb", ["nack", "reject"])
async def test_an_original_that_was_not_acked_after_its_copy_is_acked_later(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("ack", 0)
    assert kinds(await kept.settle(verb, handle)) == [BrokerUnavailable]
    assert [kinds(await kept.settle(again, handle)) for again in VERBS] == [[LeaseLost]] * 5, "the copy has its place"
    await kept.pass_seconds()
    assert (await kept.out(), kept.broker_usage.count) == (1, 1), "not while the broker is away"
    kept.binding.faults.clear()
    await kept.pass_seconds()
    assert (await kept.out(), kept.broker_usage.count, kept.expired()) == (0, 0, 0)
    assert len(kept.ready()) + len(kept.binding.dead(queue)) == 1


@pytest.mark.parametrize("verb", ["nack", "reject"])
async def test_an_original_that_the_broker_takes_back_before_its_ack_comes_beside_its_copy(
    queue: str, verb: str
) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("ack", 0)
    assert kinds(await kept.settle(verb, handle)) == [BrokerUnavailable]
    kept.binding.faults.clear()
    kept.binding.disconnect(queue)
    assert (0, 0) in kept.ready()
    assert len(kept.ready()) + len(kept.binding.dead(queue)) == 2
    await kept.pass_seconds()
    assert (len(kept.ready()) + len(kept.binding.dead(queue)), kept.broker_usage.count) == (2, 0)


@pytest.mark.parametrize("verb", VERBS)
async def test_what_the_broker_has_back_is_lost_and_never_copied(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.disconnect(queue)
    assert kinds(await kept.settle(verb, handle)) == [LeaseLost]
    assert kept.ready() == [(0, 0)]
    assert kept.binding.dead(queue) == []
    assert kept.broker_usage.count == 0


async def test_an_expiry_of_what_the_broker_has_back_copies_nothing(queue: str) -> None:
    kept = Kept(queue)
    await kept.handles(3)
    kept.binding.disconnect(queue)
    await kept.pass_seconds()
    assert kept.ready() == [(0, 0), (1, 0), (2, 0)]
    assert (kept.broker_usage.count, kept.expired()) == (0, 0)


async def test_an_ack_that_is_not_answered_is_left_to_the_broker(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("ack", 0, UNKNOWN)
    assert kinds(await kept.lease_manager.ack([handle])) == [OutcomeUnknown]
    kept.binding.faults.clear()
    await kept.pass_seconds()
    assert (kept.ready(), kept.broker_usage.count) == ([], 0)


async def test_an_ack_that_was_not_made_may_be_repeated(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    kept.binding.fail_after("ack", 0)
    assert kinds(await kept.lease_manager.ack([handle])) == [BrokerUnavailable]
    kept.binding.faults.clear()
    assert await kept.lease_manager.ack([handle]) == [None]


async def test_acked_twice_is_done_and_every_other_verb_comes_too_late(queue: str) -> None:
    kept = Kept(queue)
    first, second = await kept.handles(2)
    assert await kept.lease_manager.ack([first, second, first]) == [None] * 3
    assert await kept.lease_manager.ack([second]) == [None]
    for verb in VERBS[1:]:
        assert kinds(await kept.settle(verb, first)) == [LeaseLost]
    assert kept.ready() == []


@pytest.mark.parametrize("verb", ["nack", "reject", "give back"])
async def test_an_ack_of_what_ended_otherwise_is_lost(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    assert await kept.settle(verb, handle) == [None]
    assert kinds(await kept.lease_manager.ack([handle])) == [LeaseLost]
    assert kinds(await kept.settle(verb, handle, handle)) == [LeaseLost] * 2


async def test_a_handle_twice_in_one_nack_is_one_copy(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    assert kinds(await kept.nack(handle, handle)) == [None, LeaseLost]
    assert kept.ready() == [(0, 1)]


async def test_two_acks_at_once_share_one_outcome(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["ack"] = asyncio.Event()
    kept.binding.fail_after("ack", 0, UNKNOWN)
    acks = [asyncio.create_task(kept.lease_manager.ack([handle])) for _ in range(2)]
    await turn()
    gate.set()
    assert [kinds(await ack) for ack in acks] == [[OutcomeUnknown]] * 2
    assert kept.binding.calls["ack"] == [1]


@pytest.mark.parametrize("verb", VERBS)
async def test_of_two_verbs_at_once_one_acts(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["publish"] = asyncio.Event()
    nack = asyncio.create_task(kept.nack(handle))
    await turn()
    other = asyncio.create_task(kept.settle(verb, handle))
    await turn()
    assert not other.done()
    gate.set()
    assert (await nack, kinds(await other)) == ([None], [LeaseLost])
    assert kept.ready() == [(0, 1)]


@pytest.mark.parametrize("verb", ["ack", "nack", "give back", "extend"])
async def test_of_two_verbs_at_once_the_second_acts_when_the_first_could_not(queue: str, verb: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["publish_dead_letters"] = asyncio.Event()
    kept.binding.fail_after("publish_dead_letters", 0)
    reject = asyncio.create_task(kept.reject(handle))
    await turn()
    other = asyncio.create_task(kept.settle(verb, handle))
    await turn()
    gate.set()
    assert kinds(await reject) == [BrokerUnavailable]
    assert (await other)[0] in (None, kept.now + round(LEASE * 1000))
    assert kept.broker_usage.count == (verb == "extend")


async def test_a_settle_goes_on_when_its_caller_is_gone(queue: str) -> None:
    kept = Kept(queue)
    (handle,) = await kept.handles(1)
    gate = kept.binding.gates["publish"] = asyncio.Event()
    nack = asyncio.create_task(kept.nack(handle))
    await turn()
    nack.cancel()
    await asyncio.wait([nack])
    gate.set()
    await kept.lease_manager.idle()
    assert (kept.ready(), await kept.out(), kept.broker_usage.count) == ([(0, 1)], 0, 0)


async def test_an_unforeseen_error_leaves_the_lease_as_it_was(queue: str) -> None:
    class Broken(DeadLetterPublishingMemory):
        async def publish_dead_letters(self, queue, records):
            raise RuntimeError("unforeseen")

    kept = Kept(queue, Broken)
    (handle,) = await kept.handles(1)
    with pytest.raises(RuntimeError, match="unforeseen"):
        await kept.reject(handle)
    assert await kept.lease_manager.ack([handle]) == [None]


async def test_a_reject_puts_a_record_in_the_dead_letter_queue(queue: str) -> None:
    kept = Kept(queue)
    carried = object()
    await kept.put(Outgoing(body(1), {"a": "1"}, carried=carried))
    (delivery,) = await kept.take(1)
    assert await kept.reject(delivery.handle) == [None]
    (record,) = kept.binding.dead(queue)
    assert record.body.startswith(body(1)[:-1] + b',"dead_letter":{"reason":"failed"')
    assert (record.headers, record.carried, record.failure) == (
        {"a": "1"},
        carried,
        LastFailure(0, "no stock", "Empty"),
    )
    assert (await kept.out(), kept.ready()) == (0, [])


async def test_without_a_dead_letter_queue_a_reject_is_refused_and_the_lease_goes_on(queue: str) -> None:
    kept = Kept(queue, ConnectedMemory)
    (handle,) = await kept.handles(1)
    (refusal,) = await kept.reject(handle)
    assert refusal is not None
    assert refusal.problem_code == "unsupported_by_broker"
    assert await kept.lease_manager.ack([handle]) == [None]


async def test_a_give_back_is_uncounted_and_native(queue: str) -> None:
    kept = Kept(queue)
    handles = await kept.handles(2)
    assert await kept.lease_manager.give_back(handles) == [None, None]
    assert kept.ready() == [(0, 0), (1, 0)]
    assert kept.broker_usage.count == 0


async def test_a_process_forgets_the_oldest_acks_first(queue: str) -> None:
    ended = BrokerUsage().ended
    kept = 0
    while len(ended) == kept:
        ended.keep(str(kept), True)
        kept += 1
    assert kept > 100_000
    assert [ended.get(str(n)) for n in (0, 1, kept - 1)] == [None, True, True]
