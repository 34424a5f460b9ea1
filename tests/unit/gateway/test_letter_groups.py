"""Dead letters, counted by what they have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import DeadRecord, NativeQueue
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.dead_letters import MAX_SCANNED
from babelgate.gateway.letter_groups import MAX_GROUPS, MAX_TEXT
from babelgate.gateway.model import DeadLetterFilter
from tests.harness.memory import MemoryBinding
from tests.harness.setting import Setting


def record(number: int, reason: str, job: str, error: str | None, failed_at: int = 0) -> bytes:
    dead = {"reason": reason, "error": error, "failed_at": failed_at}
    return json.dumps({"job": job, "data": number, "dead_letter": dead}, ensure_ascii=False).encode()


class Buried(MemoryBinding):
    """Has the dead letters ``records``."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.records: list[bytes] = []

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        start = int(cursor or 0)
        end = min(start + limit, len(self.records))
        found = [DeadRecord(number, self.records[number]) for number in range(start, end)]
        return found, str(end) if end < len(self.records) else None

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        raise AssertionError("nothing is removed here")

    async def purge_dead(self, queue: NativeQueue) -> int:
        raise AssertionError("nothing is removed here")


def buried(records: Iterable[bytes]) -> Setting:
    setting = Setting("q", kind=Buried)
    assert isinstance(setting.binding, Buried)
    setting.binding.records = [*records]
    return setting


async def groups(setting: Setting, cursor: str | None = None, **where: Any) -> Any:
    return await setting.process.gateway.letters.groups(ANYONE, "q", DeadLetterFilter(**where), cursor)


async def test_the_largest_group_comes_first_with_its_times() -> None:
    rows = [("failed", "a", "x"), ("failed", "a", "y"), ("failed", "a", "y"), ("poison", "b", None)]
    records = [record(number, *row, failed_at=100 - number) for number, row in enumerate(rows)]
    setting = buried([*records, b"\xff"])
    found = await groups(setting)
    assert (found.scanned, found.matched, found.others, found.next_cursor) == (5, 5, 0, None)
    largest, *rest = [(each.reason, each.job, each.error, each.count) for each in found.groups]
    assert largest == ("failed", "a", "y", 2)
    assert rest == [("failed", "a", "x", 1), ("poison", "b", None, 1), (None, None, None, 1)]
    assert (found.groups[0].first_at, found.groups[0].last_at, found.groups[3].first_at) == (98, 99, None)


@pytest.mark.parametrize("error", ["y", 'say "é"\n', "\\", "x" * MAX_TEXT], ids=ascii)
async def test_a_filter_for_what_names_a_group_selects_its_letters(error: str) -> None:
    setting = buried([record(1, "failed", "a", "z"), record(2, "failed", "a", error)])
    found = await groups(setting, error=error)
    assert (found.scanned, found.matched) == (2, 1)
    page, _ = await setting.process.gateway.letters.page(ANYONE, "q", DeadLetterFilter(error=error), 10, None)
    assert [each.error for each in page] == [error]


async def test_many_groups_are_counted_together_and_long_texts_are_cut() -> None:
    records = [record(number, "failed", "a", f"no order {number}") for number in range(MAX_GROUPS + 5)]
    setting = buried([*records, *(record(n, "failed", "a", "x" * 1_000_000) for n in range(2))])
    found = await groups(setting)
    assert len(found.groups) == MAX_GROUPS
    assert (found.matched, found.others) == (MAX_GROUPS + 7, 6)
    assert (len(found.groups[0].error), found.groups[0].count) == (MAX_TEXT + 1, 2)


async def test_a_count_is_bounded_and_says_where_it_can_go_on() -> None:
    setting = buried(record(number, "failed", "a", str(number % 2)) for number in range(MAX_SCANNED + 3))
    first = await groups(setting)
    assert (first.scanned, sorted(each.count for each in first.groups)) == (MAX_SCANNED, [MAX_SCANNED // 2] * 2)
    rest = await groups(setting, first.next_cursor)
    assert (rest.scanned, rest.next_cursor) == (3, None)
