"""Long work in short turns of the event loop."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from babelgate.runtime import turns


def work(seconds: float) -> str:
    """Use the CPU for a while; the name of the thread that did it."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return threading.current_thread().name


async def test_results_stand_in_the_order_of_the_items() -> None:
    sizes = [1, turns.LARGE_BYTES + 1, 3, turns.LARGE_BYTES + 2]
    assert await turns.mapped(lambda item: item * 2, sizes, size=lambda item: item) == [size * 2 for size in sizes]


async def test_between_two_pieces_others_have_their_turn() -> None:
    done: list[int] = []
    seen: list[int] = []

    def piece(number: int) -> None:
        work(turns.SLICE_SECONDS)
        done.append(number)

    async def other() -> None:
        while len(done) < 20:
            seen.append(len(done))
            await asyncio.sleep(0)

    await asyncio.gather(turns.mapped(piece, range(20)), other())
    assert set(seen) >= set(range(1, 20)), "several pieces were done in one turn"


async def test_however_many_have_long_work_a_turn_holds_no_more_of_it() -> None:
    done = 0
    longest = 0

    def piece(_: int) -> None:
        nonlocal done
        work(turns.SLICE_SECONDS)
        done += 1

    async def watch() -> None:
        nonlocal longest
        before = done
        while done < 60:
            await asyncio.sleep(0)
            longest, before = max(longest, done - before), done

    await asyncio.gather(*(turns.mapped(piece, range(3)) for _ in range(20)), watch())
    assert longest <= 2


async def test_a_small_piece_alone_waits_for_no_turn() -> None:
    others = asyncio.create_task(turns.mapped(lambda _: work(turns.SLICE_SECONDS), range(5)))
    await asyncio.sleep(0)
    with pytest.raises(StopIteration) as ended:
        turns.mapped(str, [7], size=lambda _: turns.SMALL_BYTES).send(None)
    assert ended.value.value == ["7"]
    assert not others.done()
    await others


async def test_a_thread_hands_the_interpreter_over_soon_and_nothing_else_does() -> None:
    usual = sys.getswitchinterval()
    both = threading.Barrier(2)

    def seen(fails: bool) -> float:
        both.wait(60)
        if fails:
            raise ValueError
        return sys.getswitchinterval()

    for _ in range(2):
        working = (turns.run(seen, fails, size=turns.LARGE_BYTES + 1) for fails in (True, False))
        failed, interval = await asyncio.gather(*working, return_exceptions=True)
        assert isinstance(failed, ValueError)
        assert interval == pytest.approx(turns.HAND_OVER_SECONDS)
        assert sys.getswitchinterval() == usual
    assert await turns.run(sys.getswitchinterval, size=turns.LARGE_BYTES) == usual


async def test_what_is_large_runs_in_a_thread() -> None:
    here = threading.current_thread().name
    assert await turns.run(work, 0.0, size=turns.LARGE_BYTES) == here
    assert await turns.run(work, 0.0, size=turns.LARGE_BYTES + 1) != here


@pytest.mark.parametrize("size", [0, turns.LARGE_BYTES + 1])
async def test_what_it_raises_is_raised(size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await turns.run(lambda: 1 // 0, size=size)


async def test_one_that_is_cancelled_while_it_waits_leaves_the_turn_to_the_next() -> None:
    def piece(_: int) -> None:
        work(turns.SLICE_SECONDS)

    first, second = (asyncio.create_task(turns.mapped(piece, range(50))) for _ in range(2))
    await asyncio.sleep(0.02)
    first.cancel()
    assert await second == [None] * 50
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_work_in_the_background_leaves_turns_to_others() -> None:
    seen: list[str] = []

    def working() -> Iterator[int]:
        for number in range(3):
            until = time.perf_counter() + 2 * turns.BACKGROUND_SECONDS
            while time.perf_counter() < until:
                pass
            seen.append("piece")
            yield number

    async def other() -> None:
        while True:
            seen.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await turns.in_background(working()) == [0, 1, 2]
    beside.cancel()
    pieces = [at for at, what in enumerate(seen) if what == "piece"]
    assert all("other" in seen[one:next_] for one, next_ in pairwise(pieces))


async def test_work_in_the_background_rests_while_there_are_small_requests() -> None:
    """Four fifths of the time are left to them, however many have work."""

    def piece(_: int) -> None:
        work(turns.BACKGROUND_SECONDS)
        turns.small_requests.count += 1

    began = time.perf_counter()
    await asyncio.gather(*(turns.mapped(piece, range(5), background=True) for _ in range(4)))
    # After the last piece there is no rest.
    assert time.perf_counter() - began >= 19 * turns.BACKGROUND_SECONDS * (1 + turns.REST_FACTOR)


async def test_one_works_in_the_background_at_a_time() -> None:
    done: list[int] = []
    longest = 0

    async def watch() -> None:
        nonlocal longest
        before = 0
        while len(done) < 60:
            await asyncio.sleep(0)
            longest, before = max(longest, len(done) - before), len(done)

    def piece(number: int) -> None:
        work(turns.BACKGROUND_SECONDS)
        done.append(number)

    await asyncio.gather(*(turns.mapped(piece, range(3), background=True) for _ in range(20)), watch())
    assert longest <= 2


async def test_one_large_piece_runs_at_a_time_while_there_are_small_requests() -> None:
    running = most = 0

    def piece() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1

    # A loop counts from its first piece of work on.
    await turns.run(int, size=0)
    turns.small_requests.count += 1
    await asyncio.gather(*(turns.run(piece, size=turns.LARGE_BYTES + 1) for _ in range(3)))
    assert most == 1


async def test_long_work_in_a_thread_is_followed_by_a_rest_of_four_times_its_length() -> None:
    times: list[float] = []

    def piece() -> None:
        times.append(time.perf_counter())
        work(0.1)
        turns.small_requests.count += 1
        times.append(time.perf_counter())

    await turns.run(int, size=0)
    turns.small_requests.count += 1
    await asyncio.gather(*(turns.run(piece, size=turns.LARGE_BYTES + 1) for _ in range(2)))
    assert times[2] - times[1] >= 0.1 * (turns.REST_FACTOR - 0.5)


async def test_who_is_cancelled_in_the_background_leaves_it_to_the_next() -> None:
    def piece(_: int) -> None:
        work(turns.BACKGROUND_SECONDS)
        turns.small_requests.count += 1

    first, second = (asyncio.create_task(turns.mapped(piece, range(20), background=True)) for _ in range(2))
    await asyncio.sleep(turns.BACKGROUND_SECONDS)
    first.cancel()
    assert await second == [None] * 20
    with pytest.raises(asyncio.CancelledError):
        await first


async def came_back(expected: int, latest: float, arrivals: dict[int, int]) -> tuple[int, int]:
    """How many had come back at the end of the wait, and in which turn that was. ``arrivals``: who comes, by turn."""
    here, turn, waiting = 0, 0, True

    async def arrive() -> None:
        nonlocal here, turn
        while waiting:
            turn += 1
            here += arrivals.get(turn, 0)
            await asyncio.sleep(0)

    arriving = asyncio.create_task(arrive())
    await turns.wait_for_callers(lambda: here, expected, latest)
    waiting = False
    await arriving
    return here, turn


async def test_those_who_come_back_are_waited_for() -> None:
    for arrivals in ({1: 5}, {1: 1, 3: 2, 9: 2}, dict.fromkeys(range(6, 31, 6), 1)):
        here, turn = await came_back(5, math.inf, arrivals)
        assert (here, turn) == (5, max(arrivals)), arrivals


async def test_who_does_not_come_back_is_not_waited_for() -> None:
    here, turn = await came_back(5, math.inf, {2: 3})
    assert here == 3
    assert turn <= 12
    assert await came_back(0, math.inf, {}) == (0, 0)


async def test_callers_are_waited_for_until_a_time() -> None:
    assert await came_back(200, asyncio.get_running_loop().time(), {1: 1}) == (0, 0)


async def test_many_callers_are_enough() -> None:
    here, turn = await came_back(10_000, math.inf, dict.fromkeys(range(1, 10_001), 100))
    assert 256 <= here < 1000
    assert turn < 10
