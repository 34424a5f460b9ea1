"""Dates to recompute: their records, or the known gaps in them, changed since the last run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from babelgate.pipeline.metrics.missing_spans import MissingSpans

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)

Signature = list[Any]
State = Mapping[str, Signature]
"""By ISO date: the number of records, and the missing spans within the date. Records are only ever added, so an equal
count means equal records."""


class DateRange(NamedTuple):
    """The first and last date to compute, None: no bound; and the greatest age of a message to follow, in days."""

    first: date | None = None
    last: date | None = None
    lookback_days: int = 31

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and not (
            (self.first is not None and day < self.first) or (self.last is not None and day > self.last)
        )


def midnight(day: date) -> int:
    """The beginning of ``day`` in UTC, Unix ms."""
    return (day - _EPOCH).days * DAY_MS


def days_before(day: date, days: int) -> date:
    """``day`` minus ``days``, at least the year 1."""
    return day - timedelta(days=min(days, (day - date.min).days))


def state_of(rows: Mapping[str, int], missing_spans: MissingSpans) -> dict[str, Signature]:
    """The state of a journal with ``rows`` records by ISO date."""
    found: dict[str, Signature] = {}
    for iso, count in rows.items():
        first = midnight(date.fromisoformat(iso))
        last = first + DAY_MS - 1
        lost = [[max(start, first), min(end, last)] for start, end in missing_spans if start <= last and end >= first]
        found[iso] = [count, lost]
    return found


def changed(former: State, now: State, within: DateRange, *, everything: bool = False) -> list[date]:
    """The dates ``within`` the range that differ from ``former``, or with ``everything`` all; sorted."""
    days = (date.fromisoformat(iso) for iso in now if everything or former.get(iso) != now[iso])
    return sorted(day for day in days if day in within)


def dates_with_other_gaps(former: State, now: State, days: list[date]) -> list[date]:
    """Those of ``days`` whose missing spans differ from ``former``."""
    found = ((day, former.get(day.isoformat(), [0, []]), now[day.isoformat()]) for day in days)
    return [day for day, then, current in found if then[1] != current[1]]
