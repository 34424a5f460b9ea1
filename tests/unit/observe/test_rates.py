"""What happened on each queue in the last hour: by minute, in bounded memory, at a small cost."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from babelgate.observe import rates
from babelgate.observe.events import Call, Event, Facts
from babelgate.observe.rates import COUNTS, MINUTE_MS, MINUTES, RateCounters, delivery_seconds, publish_seconds

START = 1_790_000_040_000
"""The beginning of a minute, in Unix ms."""


class Hour:
    """Counters, and the clock that they look at."""

    def __init__(self, max_queues: int = rates.MAX_QUEUES) -> None:
        self.now = START
        self.counters = RateCounters(lambda: self.now, max_queues)

    def event(self, kind: Any, count: int = 1, queue: str = "q", **more: Any) -> None:
        self.counters.observe(Event(kind, queue, "b", count, **more))

    def minutes(self, queue: str = "q") -> dict[int, dict[str, int]]:
        """The counts that are not 0, by the minute since START."""
        found = self.counters.of_queue(queue).minutes
        return {
            minute - START // MINUTE_MS: {name: n for name, n in zip(COUNTS, lanes, strict=False) if n}
            for minute, lanes in sorted(found.items())
        }

    def lanes(self) -> list[int]:
        """The numbers of the one minute of the queue."""
        [lanes] = self.counters.of_queue("q").minutes.values()
        return lanes

    def total(self, *queues: str) -> rates.RatesReport:
        report = self.counters.nothing()
        for _ in self.counters.adding(queues or self.counters.queues(), report):
            pass
        return report


@pytest.fixture
def hour() -> Hour:
    return Hour()


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("accepted", "published"),
        ("delivered", "delivered"),
        ("acked", "acked"),
        ("nacked", "nacked"),
        ("rejected", "rejected"),
        ("dead_lettered", "dead_lettered"),
        ("poison", "dead_lettered"),
        ("redriven", "redriven"),
        ("lease_expired", "lease_expired"),
        ("dropped", "dropped"),
    ],
)
def test_each_transition_is_counted_in_its_minute(hour: Hour, kind: str, count: str) -> None:
    hour.event(kind, 3)
    hour.now += MINUTE_MS
    hour.event(kind)
    hour.event(kind, 2)
    assert hour.minutes() == {0: {count: 3}, 1: {count: 3}}


@pytest.mark.parametrize("kind", ["extended", "lease_lost", "settled_here", "forwarded"])
def test_other_events_are_not_counted_and_use_no_queue(hour: Hour, kind: str) -> None:
    hour.event(kind)
    assert hour.counters.queues() == []


def test_failed_calls_are_counted_but_not_those_that_were_cancelled_or_found_nothing(hour: Hour) -> None:
    hour.counters.observe(Call("receive", "idle", "b", 0, 30.0))
    hour.counters.observe(Call("receive", "gone", "b", 0, 1.0, "CancelledError"))
    for operation, error in (("send", "broker_unavailable"), ("ack", "outcome_unknown")):
        hour.counters.observe(Call(operation, "q", "b", 5, 1.0, error))  # type: ignore[arg-type]
    assert hour.counters.queues() == ["q"]
    assert hour.minutes() == {0: {"broker_errors": 2}}
    assert publish_seconds(hour.lanes(), 0.5) is None


def test_a_minute_is_forgotten_after_an_hour_and_its_memory_is_used_again(hour: Hour) -> None:
    for minute in range(3 * MINUTES):
        hour.now = START + minute * MINUTE_MS
        hour.event("acked", minute + 1)
        oldest = max(minute - MINUTES + 1, 0)
        assert hour.minutes() == {each: {"acked": each + 1} for each in range(oldest, minute + 1)}
    hour.now += (MINUTES - 1) * MINUTE_MS
    assert hour.minutes() == {3 * MINUTES - 1: {"acked": 3 * MINUTES}}
    hour.now += MINUTE_MS
    assert hour.minutes() == {}
    assert hour.total().queues == []


def test_counts_at_random_are_those_of_a_plain_list_of_events(hour: Hour) -> None:
    """Also with pauses."""
    chance = random.Random(44)
    said: list[tuple[int, int]] = []
    for _ in range(3_000):
        hour.now += chance.choice([0, 0, 0, 1_000, 20_000, MINUTE_MS, 7 * MINUTE_MS])
        count = chance.randrange(1, 5)
        hour.event("accepted", count)
        minute = hour.now // MINUTE_MS
        said = [(at, n) for at, n in said if at > minute - MINUTES] + [(minute, count)]
        expected: Counter[int] = Counter()
        for at, n in said:
            expected[at] += n
        found = hour.counters.of_queue("q").minutes
        assert {at: lanes[0] for at, lanes in found.items()} == expected


def test_a_clock_that_is_set_back_shows_no_minute_of_the_future_and_takes_no_more_memory(hour: Hour) -> None:
    for minute in [*range(100), *range(20), *range(200)]:
        hour.now = START + minute * MINUTE_MS
        hour.event("accepted")
        shown = hour.minutes()
        assert shown[minute]["published"] >= 1
        assert minute - MINUTES < min(shown) and max(shown) == minute
        assert len(shown) <= MINUTES


def test_the_sum_of_queues_is_that_of_their_minutes(hour: Hour) -> None:
    for minute in range(3):
        hour.now = START + minute * MINUTE_MS
        for queue, count in (("a", 1), ("b", 10), ("c", 100)):
            hour.event("accepted", count + minute, queue)
            hour.event("acked", count, queue)
    hour.now += MINUTE_MS // 4
    report = hour.total("a", "b", "unknown")
    first = START // MINUTE_MS
    assert {at - first: lanes[:3] for at, lanes in report.minutes.items()} == {
        0: [11, 0, 11],
        1: [13, 0, 11],
        2: [15, 0, 11],
    }
    assert [(each.queue, each.lanes[:3]) for each in report.queues] == [("a", [6, 0, 3]), ("b", [33, 0, 30])]
    # A quarter of this minute is over: three quarters of the last one are within the last 60 s.
    assert report.queues[1].recent[:3] == [12 + 0.75 * 11, 0, 10 + 0.75 * 10]


def test_the_memory_is_bounded_and_says_what_it_has_forgotten() -> None:
    hour = Hour(max_queues=3)
    for number in range(5):
        hour.now = START + number * MINUTE_MS
        hour.event("accepted", queue=f"q{number}")
        hour.event("accepted", queue="busy")
    assert hour.counters.queues() == ["q3", "q4", "busy"]
    assert hour.counters.of_queue("busy").complete_since == START
    assert hour.counters.of_queue("q3").complete_since == START + 2 * MINUTE_MS, "q1, of the minute 1, made room"
    assert hour.counters.of_queue("q0").complete_since == START + 3 * MINUTE_MS
    assert hour.total().complete_since == START + 3 * MINUTE_MS
    assert hour.total().began == START


def test_a_queue_takes_as_much_memory_as_is_documented() -> None:
    hour, queues = Hour(), 200
    for queue in range(queues):
        hour.event("accepted", queue=f"q{queue}")
    tracemalloc.start()
    try:
        hour = Hour()
        for minute in range(2 * MINUTES):
            hour.now = START + minute * MINUTE_MS
            for queue in range(queues):
                hour.event("accepted", queue=f"q{queue}")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / queues <= 115_000_000 / rates.MAX_QUEUES


def test_an_event_allocates_nothing() -> None:
    hour, times = Hour(), 2_000
    facts = Facts(0, "i", "t", "j", START)
    events: list[Event | Call] = [
        Event("accepted", "q", "b", messages=(facts,)),
        Event("delivered", "q", "b", messages=(facts,)),
        Event("acked", "q", "b", messages=(facts,)),
        Call("send", "q", "b", 1, 0.003),
    ]
    for event in events:
        hour.counters.observe(event)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(times):
            for event in events:
                hour.counters.observe(event)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000
    assert peak - before < 2_000, "some numbers at a time"


def test_quantiles_are_those_of_the_values_within_a_bucket(hour: Hour) -> None:
    chance, values = random.Random(44), []
    for _ in range(5_000):
        values.append(chance.lognormvariate(-5, 1))
        hour.counters.observe(Call("send", "q", "b", 1, values[-1]))
    values.sort()
    for share in (0.5, 0.99):
        found = publish_seconds(hour.lanes(), share)
        assert found is not None
        assert 0.7 < found / values[int(share * len(values))] < 1.4


def test_the_age_is_that_of_the_first_delivery(hour: Hour) -> None:
    def facts(attempts: int | None, age_ms: int | None) -> Facts:
        return Facts(attempts, created_at=None if age_ms is None else hour.now - age_ms)

    hour.event("delivered", 2, messages=(facts(1, 90_000), facts(0, None)))
    assert delivery_seconds(hour.lanes(), 0.5) is None
    ages = [*[20] * 97, 5_000, 5_000, 5_000]
    hour.event("delivered", len(ages), messages=[facts(0, age) for age in ages])
    median, high = delivery_seconds(hour.lanes(), 0.5), delivery_seconds(hour.lanes(), 0.99)
    assert median is not None and 0.010 <= median <= 0.025
    assert high is not None and 2.5 <= high <= 10


def test_values_beyond_the_buckets_are_the_last_bound_and_a_clock_that_is_ahead_is_no_age(hour: Hour) -> None:
    hour.counters.observe(Call("send", "q", "b", 1, 3_600.0))
    hour.event("delivered", messages=(Facts(0, created_at=hour.now + 5_000),))
    assert publish_seconds(hour.lanes(), 0.5) == rates.PUBLISH_BOUNDS[-1]
    assert (delivery_seconds(hour.lanes(), 0.99) or 0) <= 0.002
