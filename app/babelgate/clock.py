"""The clocks, as injectable functions, and times as texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

Clock = Callable[[], int]
"""A function that returns milliseconds: Unix time UTC, where nothing else is said."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the maximum of RFC 3339."""
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def now_ms() -> int:
    """Return the system's wall clock in Unix milliseconds UTC."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return milliseconds since some moment before the process began.

    No one can set this clock, so that deadlines which only this process knows use it. Like the event loop's time it
    goes on while the process is paused.
    """
    return time.monotonic_ns() // 1_000_000


def milliseconds(text: str | None) -> int | None:
    """Parse RFC 3339 as Unix milliseconds, truncated; None for any other text, or one without a zone."""
    try:
        at = datetime.fromisoformat(text or "")
        return None if at.tzinfo is None else (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def timestamp(ms: int) -> str:
    """Write Unix milliseconds as RFC 3339 in UTC, at least 1970 and at most the year 9999."""
    at = _EPOCH + timedelta(milliseconds=min(max(ms, 0), _LAST_MS))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_text(at: int, timespec: Literal["minutes", "seconds", "milliseconds"] = "seconds") -> str | None:
    """Write Unix milliseconds as ``2026-01-31 23:59:59`` (UTC), truncated to ``timespec``; None outside the years 1 to
    9999."""
    try:
        return (_EPOCH + timedelta(milliseconds=at)).replace(tzinfo=None).isoformat(" ", timespec)
    except OverflowError:
        return None


def duration(ms: float | None) -> str:
    """``340 ms``, ``2.5 s``, ``12 min``; a dash for None."""
    if ms is None:
        return "–"
    for size, unit in _UNITS:
        number = ms / size
        # 59.97 s is shown as 1 min.
        if number >= 0.9995:
            return f"{number:.1f} {unit}" if number < 99.95 and round(number, 1) % 1 else f"{number:,.0f} {unit}"
    return f"{ms:.0f} ms"
