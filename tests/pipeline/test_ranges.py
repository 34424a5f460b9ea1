"""Sets of numbers as ranges, compared with plain sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from babelgate.pipeline.journal.ranges import Ranges

SPANS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), max_size=20)


@given(SPANS)
def test_ranges_are_the_set_of_what_was_added(spans):
    ranges, plain = Ranges(), set()
    for first, more in spans:
        ranges.add_range((first, first + more, first * 10, (first + more) * 10))
        plain |= set(range(first, first + more + 1))
    held = list(ranges)
    assert len(ranges) == len(plain)
    assert [number in ranges for number in range(60)] == [number in plain for number in range(60)]
    assert [number for first, last, _, _ in held for number in range(first, last + 1)] == sorted(plain)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(held)), "none touches another"
    assert all((first_at, last_at) == (first * 10, last * 10) for first, last, first_at, last_at in held)
    missing = {number for first, last, _, _ in ranges.holes() for number in range(first, last + 1)}
    assert missing == set(range(1, max(plain, default=0))) - plain


@given(st.lists(st.integers(1, 30)))
def test_a_number_is_new_once(numbers):
    ranges, plain = Ranges(), set()
    for number in numbers:
        assert ranges.add(number, number) == (number not in plain)
        plain.add(number)
