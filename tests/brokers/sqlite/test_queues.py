"""Looking at queues, purging them, and their dead letters."""

from __future__ import annotations

import json

import pytest

from babelgate.brokers.binding import DeadLetterRequest, NativeQueue, Outgoing, QueueStats
from babelgate.envelope import dead_letter_record
from babelgate.errors import InvalidParameter, LeaseLost
from tests.brokers.sqlite.support import BODY, Hands, Line

BLOCK = {"reason": "failed", "error": "no", "failed_at": 1, "original_queue": "q", "attempts": 3, "lang": "python"}


async def publish_dead_letters(line: Line, count: int) -> list[bytes]:
    """Dead-letter ``count`` messages; their records."""
    bodies = [BODY.replace(b'"data":{}', b'"data":{"n":%d}' % number) for number in range(count)]
    await line.publish(*bodies)
    letters = [DeadLetterRequest(delivery.handle, BLOCK) for delivery in await line.reserve(250)]
    assert list(await line.binding.dead_letter(line.queue, letters)) == [None] * count
    return [dead_letter_record(body, BLOCK) for body in bodies]


async def test_stats_of_a_queue_in_every_state(line: Line, clock: Hands) -> None:
    await line.publish(b"first")
    clock.forward(7)
    await line.publish(b"1", b"2", b"3")
    await line.publish(b"later", b"later", delay=100)
    await publish_dead_letters(Line(line.binding, "beside"), 1)
    assert await line.binding.stats(line.queue) == QueueStats(4, 0, 2, 0, 7.0)
    await line.reserve(2, lease=10)
    assert await line.binding.stats(line.queue) == QueueStats(2, 2, 2, 0, 0.0)
    clock.forward(10)
    assert await line.binding.stats(line.queue) == QueueStats(4, 0, 2, 0, 17.0)
    assert await line.ack(*await line.reserve(2)) == [None, None]
    await line.binding.dead_letter(line.queue, [DeadLetterRequest((await line.reserve(1))[0].handle, BLOCK)])
    clock.forward(90)
    assert await line.binding.stats(line.queue) == QueueStats(3, 0, 0, 1, 100.0)


async def test_stats_of_a_queue_that_never_was(line: Line) -> None:
    assert await line.binding.stats(NativeQueue("nothing")) == QueueStats(0, 0, 0, 0, None)
    assert await line.binding.peek(NativeQueue("nothing"), 5) == []
    assert await line.binding.read_dead(NativeQueue("nothing"), None, 5) == ([], None)
    assert await line.binding.purge(NativeQueue("nothing")) == 0
    assert await line.binding.purge_dead(NativeQueue("nothing")) == 0
    assert await line.reserve() == []
    assert await line.binding.queues() == []


async def test_queues_are_listed_by_name(line: Line) -> None:
    for name in ("b", "a", "c"):
        await Line(line.binding, name).publish(b"x")
    assert await line.binding.queues() == ["a", "b", "c"]


async def test_peek_shows_what_is_ready_in_order_and_takes_nothing(line: Line, clock: Hands) -> None:
    await line.binding.publish(line.queue, [Outgoing(b"1", {"h": "é"}), Outgoing(b"2", delay_seconds=5)])
    await line.publish(b"3", b"4")
    shown = await line.binding.peek(line.queue, 2)
    assert [(one.body, dict(one.headers)) for one in shown] == [(b"1", {"h": "é"}), (b"3", {})]
    clock.forward(5)
    assert [one.body for one in await line.binding.peek(line.queue, 10)] == [b"1", b"2", b"3", b"4"]
    assert await line.bodies() == [b"1", b"2", b"3", b"4"]


async def test_purge_removes_ready_and_delayed_and_leaves_leases(line: Line) -> None:
    beside = Line(line.binding, "beside")
    await beside.publish(b"kept")
    await line.publish(*[b"x"] * 1200)
    await line.publish(b"later", delay=60)
    taken = await line.reserve(3)
    assert await line.binding.purge(line.queue) == 1198
    assert await line.binding.stats(line.queue) == QueueStats(0, 3, 0, 0, None)
    assert await line.ack(*taken) == [None] * 3
    assert await beside.bodies() == [b"kept"]


async def test_a_dead_letter_keeps_its_block_and_headers(line: Line) -> None:
    await line.binding.publish(line.queue, [Outgoing(BODY, {"traceparent": "00-1-2-03"})])
    (taken,) = await line.reserve()
    assert list(await line.binding.dead_letter(line.queue, [DeadLetterRequest(taken.handle, BLOCK)])) == [None]
    ((record,), cursor) = await line.binding.read_dead(line.queue, None, 10)
    assert json.loads(record.body)["dead_letter"] == BLOCK
    assert record.headers == {"traceparent": "00-1-2-03"}
    assert cursor is None
    assert await line.reserve() == []


async def test_dead_lettered_twice_is_one_dead_letter(line: Line) -> None:
    await line.publish(BODY)
    (taken,) = await line.reserve()
    letter = DeadLetterRequest(taken.handle, BLOCK)
    assert list(await line.binding.dead_letter(line.queue, [letter, letter])) == [None, None]
    assert list(await line.binding.dead_letter(line.queue, [letter])) == [None]
    assert [type(outcome) for outcome in await line.ack(taken)] == [LeaseLost]
    assert (await line.binding.stats(line.queue)).dead == 1


async def test_dead_letters_are_paged_oldest_first_while_they_are_removed(line: Line) -> None:
    expected = await publish_dead_letters(line, 7)
    seen: list[bytes] = []
    cursor: str | None = None
    for _ in range(4):
        page, cursor = await line.binding.read_dead(line.queue, cursor, 2)
        seen += [record.body for record in page]
        removed, cursor = await line.binding.remove_dead(line.queue, page[:1], cursor)
        assert list(removed) == [True]
        removed, cursor = await line.binding.remove_dead(line.queue, page[:1], cursor)
        assert list(removed) == [False]
    assert cursor is None
    assert seen == expected
    assert (await line.binding.stats(line.queue)).dead == 3


async def test_a_dead_letter_is_removed_through_its_own_queue_only(line: Line) -> None:
    await publish_dead_letters(line, 1)
    await Line(line.binding, "beside").publish(b"x")
    page, _ = await line.binding.read_dead(line.queue, None, 10)
    removed, _ = await line.binding.remove_dead(NativeQueue("beside"), page, None)
    assert list(removed) == [False]
    assert (await line.binding.stats(line.queue)).dead == 1


async def test_ids_of_dead_letters_are_never_used_again(line: Line) -> None:
    await publish_dead_letters(line, 1)
    stale, _ = await line.binding.read_dead(line.queue, None, 10)
    await line.binding.purge_dead(line.queue)
    await publish_dead_letters(line, 1)
    removed, _ = await line.binding.remove_dead(line.queue, stale, None)
    assert list(removed) == [False]
    assert (await line.binding.stats(line.queue)).dead == 1


async def test_dead_letters_are_purged_in_several_parts(line: Line) -> None:
    for _ in range(3):
        await publish_dead_letters(line, 250)
    assert await line.binding.purge_dead(line.queue) == 750
    assert await line.binding.purge_dead(line.queue) == 0


@pytest.mark.parametrize("cursor", ["x", "1.5", "9" * 30, "-1 "])
async def test_a_foreign_cursor_is_refused(line: Line, cursor: str) -> None:
    await line.publish(b"x")
    with pytest.raises(InvalidParameter):
        await line.binding.read_dead(line.queue, cursor, 5)
