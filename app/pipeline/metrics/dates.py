"""Which dates a run of ``metrics`` states again: those whose records, or what is missing of them, are others now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from app.pipeline.metrics.missing_spans import MissingSpans

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)

Signature = list[Any]
State = Mapping[str, Signature]
"""By date, as ISO 8601 has it: how many records, and when some were lost. The journal is only ever added to, so the
same count means the same records."""


class DateRange(NamedTuple):
    """The dates to state, both included, None: to the end; and how many days before them a message may have begun."""

    first: date | None = None
    last: date | None = None
    lookback_days: int = 31

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and not (
            (self.first is not None and day < self.first) or (self.last is not None and day > self.last)
        )


def midnight(day: date) -> int:
    """When the day begins, Unix ms."""
    return (day - _EPOCH).days * DAY_MS


def days_before(day: date, days: int) -> date:
    """So many days earlier, or the first there is."""
    return day - timedelta(days=min(days, (day - date.min).days))


def state_of(rows: Mapping[str, int], missing_spans: MissingSpans) -> dict[str, Signature]:
    """The state of a journal with ``rows`` a date."""
    found: dict[str, Signature] = {}
    for iso, count in rows.items():
        first = midnight(date.fromisoformat(iso))
        last = first + DAY_MS - 1
        lost = [[max(start, first), min(end, last)] for start, end in missing_spans if start <= last and end >= first]
        found[iso] = [count, lost]
    return found


def changed(stated: State, now: State, within: DateRange, *, everything: bool = False) -> list[date]:
    """The dates to state: in order, those ``within`` that are not as they were ``stated``, or all of them."""
    days = (date.fromisoformat(iso) for iso in now if everything or stated.get(iso) != now[iso])
    return sorted(day for day in days if day in within)


def dates_with_other_gaps(stated: State, now: State, days: list[date]) -> list[date]:
    """Those of ``days`` of which something else is missing than was stated."""
    found = ((day, stated.get(day.isoformat(), [0, []]), now[day.isoformat()]) for day in days)
    return [day for day, then, current in found if then[1] != current[1]]
