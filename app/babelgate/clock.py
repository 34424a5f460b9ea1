"""The clocks, as injectable functions, and times as texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""A function that returns milliseconds: Unix time UTC, where nothing else is said."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
