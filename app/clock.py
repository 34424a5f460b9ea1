"""The wall clock, as an injectable function, and times as texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""A function that returns Unix milliseconds UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Return the system's wall clock in Unix milliseconds UTC."""
    return time.time_ns() // 1_000_000


def milliseconds(text: str | None) -> int | None:
    """Parse RFC 3339 as Unix milliseconds, truncated; None for any other text, or one without a zone."""
    try:
        at = datetime.fromisoformat(text or "")
        return None if at.tzinfo is None else (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
