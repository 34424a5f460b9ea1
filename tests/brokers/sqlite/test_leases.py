"""Leases, delays and counts, by a clock that the test moves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from babelgate.brokers.binding import DeadLetterRequest, Delivery
from babelgate.brokers.sqlite.settle import FORGET_EVERY, SETTLED_FOR_MS
from babelgate.errors import LeaseLost
from tests.brokers.sqlite.support import Hands, Line, opened

BLOCK = {"reason": "failed", "error": "no", "failed_at": 1, "original_queue": "q", "attempts": 3, "lang": "python"}


def lost(outcomes: list[object]) -> list[bool]:
    return [isinstance(outcome, LeaseLost) for outcome in outcomes]


async def test_a_delivery_says_what_it_is(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    (delivery,) = await line.reserve(lease=2.5)
    assert delivery == Delivery(b"a", delivery.handle, clock.now + 2500, {}, 0, False)
    assert delivery.handle.isascii() and len(delivery.handle) <= 256


async def test_a_lease_hides_a_message_until_it_ends(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    (first,) = await line.reserve(lease=10)
    clock.forward(9.999)
    assert await line.reserve() == []
    clock.forward(0.001)
    (second,) = await line.reserve()
    assert (second.delivery_count, second.redelivered) == (1, True)
    assert lost(await line.ack(first)) == [True]
    assert await line.ack(second) == [None]


async def test_a_lease_ends_at_its_deadline_also_before_redelivery(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=10)
    letter = DeadLetterRequest(taken[0].handle, BLOCK)
    clock.forward(10)
    for settle in (line.ack(*taken), line.release(*taken, failed=True), line.extend(*taken)):
        assert lost(await settle) == [True]
    assert lost(list(await line.binding.dead_letter(line.queue, [letter]))) == [True]
    (again,) = await line.reserve()
    assert (again.body, again.delivery_count, again.expired) == (b"a", 1, True)
    clock.forward(9.999)
    assert await line.ack(again) == [None]


async def test_each_expiry_is_told_once(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    await line.reserve(lease=10)
    for _ in range(2):
        clock.forward(10)
        (again,) = await line.reserve(lease=10)
        assert again.expired
    for failed in (False, True):
        await line.release(again, failed=failed)
        (again,) = await line.reserve(lease=10)
        assert not again.expired
    assert again.delivery_count == 3


async def test_acked_twice_is_done_for_a_minute_at_least(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=10)
    assert await line.ack(*taken) == [None]
    clock.forward(SETTLED_FOR_MS / 1000 - 0.001)
    assert await line.ack(*taken) == [None]
    clock.forward(0.001)
    assert lost(await line.ack(*taken)) == [True]


async def test_acked_twice_is_done_until_the_deadline_of_a_long_lease(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=600)
    await line.ack(*taken)
    clock.forward(599)
    assert await line.ack(*taken) == [None]
    clock.forward(1)
    assert lost(await line.ack(*taken)) == [True]


async def test_the_same_handle_twice_in_one_call(line: Line) -> None:
    await line.publish(b"a", b"b")
    one, two = await line.reserve()
    assert await line.ack(one, one) == [None, None]
    assert await line.release(two, two) == [None, None]
    assert await line.bodies() == [b"b"]


async def test_a_settle_of_another_kind_is_not_done(line: Line) -> None:
    await line.publish(b"a")
    taken = await line.reserve()
    await line.ack(*taken)
    assert lost(await line.release(*taken)) == [True]
    assert lost(await line.extend(*taken)) == [True]
    assert lost(list(await line.binding.dead_letter(line.queue, [DeadLetterRequest(taken[0].handle, BLOCK)]))) == [True]


@pytest.mark.parametrize("handle", ["", "1", "x.y", "1.1", "ffffffffffffffffffff.1", "-1.-1", "1.2.3"])
async def test_a_handle_that_fits_no_lease(line: Line, handle: str) -> None:
    await line.publish(b"a")
    await line.reserve()
    assert lost(list(await line.binding.ack(line.queue, [handle]))) == [True]


async def test_a_handle_settles_in_its_own_queue_only(line: Line) -> None:
    await line.publish(b"a")
    other = Line(line.binding, "other")
    await other.publish(b"b")
    taken = await line.reserve()
    assert lost(await other.ack(*taken)) == [True]
    assert await line.ack(*taken) == [None]


async def test_a_release_counts_only_when_failed(line: Line) -> None:
    await line.publish(b"a")
    assert await line.release(*await line.reserve()) == [None]
    (second,) = await line.reserve()
    assert (second.delivery_count, second.redelivered) == (0, False)
    assert await line.release(second, failed=True) == [None]
    (third,) = await line.reserve()
    assert (third.delivery_count, third.redelivered) == (1, True)
    assert lost(await line.ack(second)) == [True]


async def test_a_release_with_delay_is_not_early(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    await line.release(*await line.reserve(), delay=5, failed=True)
    clock.forward(4.999)
    assert await line.reserve() == []
    clock.forward(0.001)
    (again,) = await line.reserve()
    assert again.delivery_count == 1


async def test_released_messages_return_to_their_place(line: Line, clock: Hands) -> None:
    await line.publish(b"1", b"2", b"3", b"4")
    one, two = await line.reserve(2)
    await line.release(two)
    assert await line.bodies(1) == [b"2"]
    clock.forward(60)
    assert await line.bodies() == [b"1", b"2", b"3", b"4"]
    assert lost(await line.ack(one)) == [True]


async def test_a_delay_is_not_early_and_not_lost_on_restart(tmp_path: Path, clock: Hands, queue: str) -> None:
    async with opened(tmp_path / "q.db", clock) as binding:
        await Line(binding, queue).publish(b"later", delay=30)
        await Line(binding, queue).publish(b"now")
    async with opened(tmp_path / "q.db", clock) as binding:
        line = Line(binding, queue)
        assert await line.bodies() == [b"now"]
        clock.forward(29.999)
        assert await line.bodies() == []
        clock.forward(0.001)
        (late,) = await line.reserve()
        assert (late.body, late.delivery_count, late.redelivered) == (b"later", 0, False)


async def test_extend_counts_from_now_and_keeps_the_handle(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=10)
    clock.forward(5)
    assert await line.extend(*taken, lease=10) == [clock.now + 10_000]
    clock.forward(9.999)
    assert await line.reserve() == []
    assert await line.ack(*taken) == [None]


async def test_an_extend_can_shorten_a_lease(line: Line, clock: Hands) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=600)
    await line.extend(*taken, lease=1)
    clock.forward(1)
    assert await line.bodies() == [b"a"]
    assert lost(await line.extend(*taken)) == [True]


async def test_leases_outlive_the_binding_that_gave_them(tmp_path: Path, queue: str) -> None:
    async with opened(tmp_path / "q.db") as binding:
        await Line(binding, queue).publish(b"a")
        taken = await Line(binding, queue).reserve()
    async with opened(tmp_path / "q.db") as other:
        assert await Line(other, queue).reserve() == []
        assert await Line(other, queue).ack(*taken) == [None]


async def test_memories_of_settles_do_not_pile_up(line: Line, clock: Hands, tmp_path: Path) -> None:
    for _ in range(8):
        await line.publish(*[b"x"] * FORGET_EVERY)
        while taken := await line.reserve():
            await line.ack(*taken)
        clock.forward(100)
    with closing(sqlite3.connect(tmp_path / "q.db")) as reader:
        ((remembered,),) = reader.execute("SELECT count(*) FROM settled").fetchall()
    assert 0 < remembered <= 3 * FORGET_EVERY
