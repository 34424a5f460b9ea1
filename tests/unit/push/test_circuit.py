"""When a target gets the next message."""

from __future__ import annotations

import pytest

from babelgate.push.circuit import FAILURES, FIRST_SECONDS, Pace, TargetCircuit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def state_of(circuit: TargetCircuit) -> str:
    return circuit.state


def opened(clock: Clock) -> TargetCircuit:
    circuit = TargetCircuit(clock)
    for _ in range(FAILURES):
        circuit.failed()
    return circuit


def test_it_opens_after_failures_in_succession_only() -> None:
    circuit = TargetCircuit(Clock())
    for _ in range(FAILURES - 1):
        circuit.failed()
    circuit.succeeded()
    for _ in range(FAILURES - 1):
        circuit.failed()
    assert state_of(circuit) == "closed"
    circuit.failed()
    assert state_of(circuit) == "open"
    assert 0 < circuit.wait_seconds <= FIRST_SECONDS


def test_a_target_that_cannot_be_reached_opens_it_at_once() -> None:
    circuit = TargetCircuit(Clock())
    circuit.failed(at_once=True)
    assert state_of(circuit) == "open"


def test_a_probe_closes_it_or_doubles_the_pause() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += FIRST_SECONDS
    assert state_of(circuit) == "half_open"
    circuit.failed()
    assert state_of(circuit) == "open"
    assert circuit.wait_seconds >= FIRST_SECONDS
    clock.now += 2 * FIRST_SECONDS
    circuit.succeeded()
    assert state_of(circuit) == "closed"


def test_posts_that_were_in_flight_change_nothing_while_it_is_open() -> None:
    clock = Clock()
    circuit = TargetCircuit(clock)
    circuit.hold(30)
    circuit.succeeded()
    circuit.failed()
    assert (state_of(circuit), circuit.wait_seconds) == ("open", 30)
    circuit.hold(5)
    assert circuit.wait_seconds == 30
    clock.now += 30
    assert state_of(circuit) == "half_open"


def test_a_target_that_asks_for_no_pause_gets_a_short_one() -> None:
    circuit = TargetCircuit(Clock())
    circuit.hold(0)
    assert (state_of(circuit), circuit.wait_seconds) == ("open", FIRST_SECONDS)


@pytest.mark.parametrize(("per_second", "burst"), [(0.5, 1), (1, 1), (20, 20)])
def test_a_pace_allows_a_second_at_once_and_then_its_rate(per_second: float, burst: int) -> None:
    clock = Clock()
    pace = Pace(per_second, clock)
    assert pace.allowed(100) == burst
    pace.take(burst)
    assert pace.allowed(100) == 0
    clock.now += pace.wait_seconds
    assert pace.wait_seconds == pytest.approx(1 / per_second)
    assert pace.allowed(100) == 1


def test_without_a_rate_all_are_allowed() -> None:
    pace = Pace(None, Clock())
    pace.take(1_000_000)
    assert pace.allowed(100) == 100
    assert pace.wait_seconds == 0
