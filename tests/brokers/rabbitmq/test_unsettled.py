"""The frames that settle deliveries: few, and none that settles another delivery."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.rabbitmq.channel import Unsettled


def filled(count: int) -> Unsettled:
    unsettled = Unsettled()
    for tag in range(1, count + 1):
        unsettled.hold(tag, None)
    return unsettled


def test_all_from_the_oldest_on_are_one_frame() -> None:
    assert filled(5).frames([3, 1, 2]) == [(3, True)]


def test_what_lies_behind_a_gap_is_settled_alone() -> None:
    assert filled(6).frames([1, 2, 4, 6]) == [(2, True), (4, False), (6, False)]


def test_without_the_oldest_each_is_settled_alone() -> None:
    assert filled(3).frames([2, 3]) == [(2, False), (3, False)]


def test_the_oldest_alone_needs_no_frame_for_many() -> None:
    assert filled(3).frames([1]) == [(1, False)]


@given(st.integers(1, 12), st.lists(st.sets(st.integers(1, 12), min_size=1), max_size=8))
def test_a_broker_settles_what_was_asked_for_and_nothing_else(count: int, calls: list[set[int]]) -> None:
    unsettled = filled(count)
    left = set(range(1, count + 1))
    for call in calls:
        wanted = sorted(call & left)
        if not wanted:
            continue
        settled: set[int] = set()
        frames = unsettled.frames(wanted)
        unsettled.acked(wanted)
        for tag, many in frames:
            now = {each for each in left if each <= tag} if many else {tag}
            assert now <= left, "the broker closes a channel that settles a tag twice"
            assert not now & settled
            settled |= now
            left -= now
        assert settled == set(wanted)
