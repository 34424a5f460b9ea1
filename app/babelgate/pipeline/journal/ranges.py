"""A set of record numbers kept as ranges. A process numbers its records without gaps, so few ranges suffice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int, int, int]
"""First and last number, both included, and the times of their records, Unix ms."""


class Ranges:
    """A set of numbers with times. Only the times at the ends of ranges are kept."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._ranges: list[Range] = []
        for each in ranges:
            self.add_range(each)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number)
        return at > 0 and number <= self._ranges[at - 1][1]

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __len__(self) -> int:
        """The number of numbers in the set."""
        return sum(last - first + 1 for first, last, _, _ in self._ranges)

    def add(self, number: int, at: int) -> bool:
        """Add a number. Returns whether it is new."""
        if self._ranges and number == self._ranges[-1][1] + 1:
            # The usual case: numbers arrive in order.
            first, _, first_at, _ = self._ranges[-1]
            self._ranges[-1] = first, number, first_at, at
            return True
        if number in self:
            return False
        self.add_range((number, number, at, at))
        return True

    def add_range(self, added: Range) -> None:
        """Add all numbers of a range. Numbers may be in the set already."""
        first, last, first_at, last_at = added
        begin = bisect_right(self._firsts, first)
        if begin and self._ranges[begin - 1][1] >= first - 1:
            begin -= 1
            first, _, first_at, _ = self._ranges[begin]
        end = bisect_right(self._firsts, last + 1)
        if end > begin and self._ranges[end - 1][1] >= last:
            _, last, _, last_at = self._ranges[end - 1]
        self._ranges[begin:end] = [(first, last, first_at, last_at)]
        self._firsts[begin:end] = [first]

    def holes(self) -> Iterator[tuple[int, int, int | None, int]]:
        """The ranges missing between 1 and the last number, each with the times of the records before and after it.

        The time before is None if there is no record before.
        """
        before: int = 0
        before_at: int | None = None
        for first, last, first_at, last_at in self._ranges:
            if first > before + 1:
                yield before + 1, first - 1, before_at, first_at
            before, before_at = last, last_at
