"""Counts dead letters by what they have in common."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from babelgate.gateway.dead_letters import MAX_SCANNED, Letter, Walk
from babelgate.gateway.model import DeadLetterFilter
from babelgate.gateway.routing import Route

MAX_GROUPS = 200
"""Groups of one answer. Where each error has an id in it, each letter is a group."""
MAX_TEXT = 1_024
"""Characters of a text that a group is named after, which is the most that a filter takes. A longer one, of another
program, is cut after one more."""
_MAX_COUNTED = 10 * MAX_GROUPS
"""Groups that are counted, of which the largest are returned. Each takes at most 12 KiB."""
_PAGE = 250
"""Letters read at a time, as by the expiry: some brokers find each page by reading all before it."""


class LetterGroup(Struct, frozen=True):
    """Dead letters with this ``reason``, ``job`` and ``error``; None: they have none.

    ``first_at`` and ``last_at``: the earliest and the latest ``failed_at``, Unix ms; None: none has that time.
    """

    reason: str | None
    job: str | None
    error: str | None
    count: int
    first_at: int | None
    last_at: int | None


class LetterGroups(Struct, frozen=True):
    """``groups``, the largest first, of ``matched`` letters among the ``scanned`` ones; ``others`` of these are in
    further groups. ``next_cursor``: where the count can go on; None: all were read."""

    groups: Sequence[LetterGroup]
    scanned: int
    matched: int
    others: int
    next_cursor: str | None


class _Count:
    def __init__(self) -> None:
        self.count = 0
        self.first_at: int | None = None
        self.last_at: int | None = None

    def add(self, failed_at: int | None) -> None:
        self.count += 1
        if failed_at is not None:
            self.first_at = failed_at if self.first_at is None else min(self.first_at, failed_at)
            self.last_at = failed_at if self.last_at is None else max(self.last_at, failed_at)


async def count_groups(route: Route, matching: DeadLetterFilter, cursor: str | None) -> LetterGroups:
    """The groups of the dead letters that match, from ``cursor`` on. Reads at most MAX_SCANNED. Raises BrokerError, and
    InvalidParameter for a malformed cursor."""
    walk = Walk(route, cursor, matching, background=True)
    found: dict[tuple[str | None, str | None, str | None], _Count] = {}
    matched = 0
    while walk.scanned < MAX_SCANNED and not walk.at_end:
        for letter in await walk.page(min(_PAGE, MAX_SCANNED - walk.scanned)):
            matched += 1
            key = _key(letter)
            group = found.get(key)
            if group is None:
                if len(found) >= _MAX_COUNTED:
                    continue
                group = found[key] = _Count()
            group.add(letter.summary.failed_at)
    largest = sorted(found.items(), key=lambda each: -each[1].count)[:MAX_GROUPS]
    groups = [LetterGroup(*key, group.count, group.first_at, group.last_at) for key, group in largest]
    counted = sum(group.count for group in groups)
    return LetterGroups(groups, walk.scanned, matched, matched - counted, walk.cursor)


def _key(letter: Letter) -> tuple[str | None, str | None, str | None]:
    summary = letter.summary
    return _cut(summary.reason), _cut(summary.job), _cut(summary.error)


def _cut(text: str | None) -> str | None:
    return text if text is None else text[: MAX_TEXT + 1]
