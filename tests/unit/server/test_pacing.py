"""The number of requests that are accepted per turn of the event loop."""

from __future__ import annotations

import asyncio

from babelgate.server.overload import FEWEST, GRACE_SECONDS, REFUSAL_SECONDS, TURN_SECONDS, Pacer


class Turns:
    """A pacer, and turns of a given length on a simulated clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pacer = Pacer(lambda: self.now)

    def turn(self, requests: int, each: float = 0.0, rest: float = 0.0) -> int:
        """Run a turn with this number of requests, of ``each`` seconds when accepted; return the number accepted."""
        taken = sum(self.pacer.take() for _ in range(requests))
        seconds = taken * each + (requests - taken) * REFUSAL_SECONDS + rest
        self.now += seconds
        self.pacer.turned(self.now, seconds)
        return taken


async def test_short_turns_take_on_everything() -> None:
    turns = Turns()
    assert all(turns.turn(1000, each=TURN_SECONDS / 1000) == 1000 for _ in range(100))


async def test_one_long_turn_is_no_overload() -> None:
    turns = Turns()
    turns.turn(10, rest=10 * GRACE_SECONDS)
    assert turns.turn(500) == 500


async def test_long_turns_are_cut_to_what_can_be_served_in_time() -> None:
    turns = Turns()
    cost = TURN_SECONDS / 50
    taken = [turns.turn(500, each=cost) for _ in range(200)]
    assert taken[0] == 500
    settled = taken[50:]
    assert max(settled) <= 75
    assert sum(settled) / len(settled) >= 40, "and to no fewer"


async def test_refusals_are_no_reason_to_refuse_more() -> None:
    turns = Turns()
    cost = TURN_SECONDS / 50
    for _ in range(50):
        turns.turn(20_000, each=cost)
    settled = [turns.turn(20_000, each=cost) for _ in range(100)]
    assert sum(settled) / len(settled) >= 40


async def test_beside_what_takes_long_in_any_case_some_requests_a_turn_are_taken_on() -> None:
    turns = Turns()
    for _ in range(100):
        turns.turn(FEWEST + 10, rest=10 * TURN_SECONDS)
    assert turns.turn(FEWEST + 10, rest=10 * TURN_SECONDS) == FEWEST


async def test_a_few_clients_that_keep_the_loop_busy_are_no_overload() -> None:
    turns = Turns()
    assert all(turns.turn(FEWEST, each=TURN_SECONDS) == FEWEST for _ in range(100))


async def test_a_burst_of_a_second_is_no_overload() -> None:
    turns = Turns()
    bursts = [turns.turn(1_000, each=GRACE_SECONDS / 10_000) for _ in range(10)]
    assert bursts == [1_000] * 10


async def test_when_the_load_ends_all_are_taken_on_again() -> None:
    turns = Turns()
    for _ in range(100):
        turns.turn(500, each=TURN_SECONDS / 50)
    assert turns.turn(500, each=TURN_SECONDS / 50) <= 75
    for _ in range(150):
        turns.turn(1)
    assert turns.turn(500) == 500


async def test_it_measures_the_turns_of_its_loop_and_sleeps_with_it() -> None:
    now = 0.0
    pacer = Pacer(lambda: now)

    def work() -> None:
        nonlocal now
        now += TURN_SECONDS * 2

    taken = 500
    while taken == 500:
        assert now < 100 * GRACE_SECONDS, "turns twice as long as they may be must show"
        taken = sum(pacer.take() for _ in range(500))
        asyncio.get_running_loop().call_soon(work)
        await asyncio.sleep(0)
    now += 3600
    await asyncio.sleep(0.01)
    before = now
    assert pacer.take(), "an hour of sleep is no long turn"
    assert now == before
