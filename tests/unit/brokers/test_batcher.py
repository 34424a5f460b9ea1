"""Concurrent single calls become one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from babelgate.brokers import batcher
from babelgate.brokers.batcher import BATCH_BYTES, Batcher, Budget
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, Overloaded
from babelgate.runtime import turns


class Flusher:
    """Answers every item with its double, and remembers the batches. A closed ``gate`` holds each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self, items: list[int]) -> Sequence[int]:
        self.batches.append(items)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [item * 2 for item in items]


async def turn() -> None:
    """Let everything run that can run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_calls_of_one_turn_share_a_batch_in_their_order() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    assert await asyncio.gather(*(coalescer.submit(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert flusher.batches == [[0, 1, 2, 3, 4]]


async def test_what_arrives_while_a_batch_is_in_flight_is_the_next_one() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    flusher.gate.clear()
    first = coalescer.submit(1)
    await turn()
    later = [coalescer.submit(n) for n in (2, 3)]
    await turn()
    assert flusher.batches == [[1]], "one batch is in flight at a time"
    flusher.gate.set()
    assert await asyncio.gather(first, *later) == [2, 4, 6]
    assert flusher.batches == [[1], [2, 3]]


async def test_a_lone_call_starts_in_the_same_turn() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    flusher.gate.clear()
    future = coalescer.submit(1)
    await asyncio.sleep(0)
    assert flusher.batches == [[1]]
    flusher.gate.set()
    assert await future == 2


async def crowded(flusher: Flusher, coalescer: Batcher[int, int]) -> None:
    """A batch of three calls that takes 0.05 s."""
    flusher.gate.clear()
    three = [coalescer.submit(n) for n in (1, 2, 3)]
    await asyncio.sleep(0.05)
    flusher.gate.set()
    await asyncio.gather(*three)
    flusher.batches.clear()


async def test_the_callers_of_a_batch_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "_LINGER_SHARE", 1e6)
    monkeypatch.setattr(turns, "RETURN_SECONDS", 1e6)
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    await crowded(flusher, coalescer)
    futures = []
    for n in (4, 5, 6):
        assert flusher.batches == []
        futures.append(coalescer.submit(n))
        await asyncio.sleep(0.01)
    assert await asyncio.gather(*futures) == [8, 10, 12]
    assert flusher.batches == [[4, 5, 6]]


async def test_two_groups_of_callers_become_one() -> None:
    """Those who are answered come back one by one, a turn later each, while others wait for the next batch."""
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)

    async def caller(number: int) -> None:
        for _ in range(3):
            await coalescer.submit(number)
            for _ in range(number):
                await asyncio.sleep(0)

    flusher.gate.clear()
    callers = [asyncio.create_task(caller(number)) for number in range(4)]
    await turn()
    callers += [asyncio.create_task(caller(number)) for number in range(4, 8)]
    await turn()
    flusher.gate.set()
    await asyncio.gather(*callers)
    assert [sorted(batch) for batch in flusher.batches] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [4, 5, 6, 7],
    ]


async def test_a_call_does_not_wait_for_long_for_those_of_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "_LINGER_SHARE", 1e6)
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    await crowded(flusher, coalescer)
    assert await coalescer.submit(4) == 8
    assert flusher.batches == [[4]]


async def test_a_call_that_waits_for_others_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "_LINGER_SHARE", 1e6)
    monkeypatch.setattr(turns, "RETURN_SECONDS", 2.0)
    flusher = Flusher()
    coalescer = Batcher(flusher, 100, budget=Budget("redis", 0.1))
    await crowded(flusher, coalescer)
    assert isinstance(await coalescer.submit(4), BrokerUnavailable)
    await coalescer.idle()
    assert flusher.batches == []


async def test_a_batch_has_its_limit() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 2)
    assert await asyncio.gather(*(coalescer.submit(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert flusher.batches == [[0, 1], [2, 3], [4]]


async def test_a_large_batch_is_answered_in_several_turns() -> None:
    coalescer = Batcher(Flusher(), 1_000)
    calls = [coalescer.submit(n) for n in range(600)]
    answered = [0]
    while answered[-1] < len(calls):
        await asyncio.sleep(0)
        done = sum(call.done() for call in calls)
        if done > answered[-1]:
            answered.append(done)
    assert answered == [0, 256, 512, 600]
    assert [call.result() for call in calls] == [2 * n for n in range(600)]


def busy() -> None:
    """Longer than the budget of a call, which is over when the event loop looks at its timers again."""
    time.sleep(0.1)


async def test_what_was_done_does_not_expire_before_its_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "GRACE_SECONDS", 0)
    monkeypatch.setattr(batcher, "_ANSWERED", 1)

    async def flush(items: list[int]) -> Sequence[int]:
        busy()
        return items

    coalescer = Batcher(flush, 100, budget=Budget("broker", 0.05))
    assert await asyncio.gather(*(coalescer.submit(n) for n in range(3))) == [0, 1, 2]


async def test_an_error_of_the_whole_batch_is_the_result_of_each() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 2)
    flusher.error = BrokerUnavailable("local", "it is down")
    results = await asyncio.gather(*(coalescer.submit(n) for n in range(3)))
    assert results == [flusher.error] * 3


async def test_an_error_of_one_item_is_its_own() -> None:
    rejected = BrokerRejected("local", "not this one")

    async def flush(items: list[int]) -> Sequence[int | BabelgateError]:
        return [rejected if item == 1 else item for item in items]

    coalescer = Batcher(flush, 100)
    assert await asyncio.gather(*(coalescer.submit(n) for n in range(3))) == [0, rejected, 2]


async def test_an_unforeseen_error_is_raised_and_the_next_batch_goes_on() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 1)
    flusher.gate.clear()
    flusher.error = RuntimeError("unforeseen")
    first, second = coalescer.submit(1), coalescer.submit(2)
    await turn()
    flusher.gate.set()
    with pytest.raises(RuntimeError):
        await first
    with pytest.raises(RuntimeError):
        await second
    flusher.error = None
    assert await coalescer.submit(3) == 6


async def test_an_answer_of_the_wrong_length_leaves_nobody_waiting() -> None:
    async def flush(items: list[int]) -> Sequence[int]:
        return items[:-1]

    coalescer = Batcher(flush, 2)
    futures = [coalescer.submit(n) for n in range(3)]
    done, pending = await asyncio.wait(futures, timeout=60)
    assert not pending
    assert all(isinstance(future.exception(), ValueError) for future in done)


async def test_a_cancelled_call_stays_in_its_batch() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 100)
    flusher.gate.clear()
    cancelled, kept = coalescer.submit(1), coalescer.submit(2)
    await turn()
    cancelled.cancel()
    flusher.gate.set()
    assert await kept == 4
    assert cancelled.cancelled()
    assert flusher.batches == [[1, 2]]


async def test_idle_waits_for_everything_submitted() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 1)
    flusher.gate.clear()
    futures = [coalescer.submit(n) for n in range(3)]
    assert coalescer.busy
    idle = asyncio.ensure_future(coalescer.idle())
    await turn()
    assert not idle.done()
    flusher.gate.set()
    await idle
    assert all(future.done() for future in futures)
    assert not coalescer.busy


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time the test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_calls_that_would_wait_too_long_are_refused_by_what_batches_take() -> None:
    loop = Clock()

    async def slow(items: list[int]) -> Sequence[int]:
        loop.ahead += 1.0
        return items

    async def scenario() -> None:
        coalescer = Batcher(slow, 10, max_wait_seconds=2.45)
        assert not coalescer.has_backlog, "of a broker that was never asked nothing bad is known"
        assert await coalescer.submit(0) == 0
        accepted = []
        with pytest.raises(Overloaded):
            while True:
                accepted.append(coalescer.submit(1))
        assert len(accepted) == 25, "two and a half batches of a second each"
        assert await asyncio.gather(*accepted) == [1] * 25
        loop.ahead += 3600
        accepted = [coalescer.submit(1) for _ in range(25)]
        assert await asyncio.gather(*accepted) == [1] * 25, "an hour of silence is no long batch"
        assert await coalescer.submit(2) == 2

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_a_batch_that_hangs_counts_while_it_does() -> None:
    loop = Clock()
    gate = asyncio.Event()

    async def hanging(items: list[int]) -> Sequence[int]:
        await gate.wait()
        return items

    async def scenario() -> None:
        coalescer = Batcher(hanging, 10, max_wait_seconds=2.5)
        first = coalescer.submit(0)
        await turn()
        waiting = [coalescer.submit(1) for _ in range(20)]
        crowded = [coalescer.has_backlog]
        loop.ahead += 5
        crowded.append(coalescer.has_backlog)
        assert crowded == [False, True]
        with pytest.raises(Overloaded):
            coalescer.submit(1)
        gate.set()
        assert await asyncio.gather(first, *waiting) == [0, *[1] * 20]

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


async def test_a_batch_of_large_items_is_cut_short() -> None:
    flusher = Flusher()
    coalescer = Batcher(flusher, 100, sizes=lambda items: items)
    sizes = [BATCH_BYTES, 1, BATCH_BYTES // 2, BATCH_BYTES // 2, 3 * BATCH_BYTES, 1]
    assert await asyncio.gather(*(coalescer.submit(size) for size in sizes)) == [size * 2 for size in sizes]
    assert flusher.batches == [sizes[:1], sizes[1:3], sizes[3:4], sizes[4:5], sizes[5:]]


def test_a_call_has_one_budget_however_long_the_batch_before_it_takes() -> None:
    loop = Clock()
    gate = asyncio.Event()
    batches: list[list[int]] = []

    async def hanging(items: list[int]) -> Sequence[int]:
        batches.append(items)
        await gate.wait()
        return items

    async def forward(seconds: float) -> None:
        loop.ahead += seconds
        await asyncio.sleep(0.01)

    async def scenario() -> None:
        coalescer = Batcher(hanging, 10, budget=Budget("local", 5))
        first = coalescer.submit(0)
        await forward(3)
        second = coalescer.submit(1)
        assert not first.done()
        await forward(3)
        unknown = await asyncio.wait_for(first, 60)
        assert isinstance(unknown, OutcomeUnknown), "it was handed to the broker"
        assert not second.done(), "it has time left"
        await forward(3)
        refused = await asyncio.wait_for(second, 60)
        assert isinstance(refused, BrokerUnavailable), "it never was"
        gate.set()
        assert await coalescer.submit(2) == 2
        assert batches == [[0], [2]], "what was refused is not done later"

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_a_batch_that_answers_in_its_time_is_believed() -> None:
    loop = Clock()

    async def failing(items: list[int]) -> Sequence[int]:
        loop.ahead += 5
        await asyncio.sleep(0.01)
        raise BrokerUnavailable("local", "not connected")

    async def scenario() -> None:
        coalescer = Batcher(failing, 10, budget=Budget("local", 5))
        assert isinstance(await coalescer.submit(0), BrokerUnavailable)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
