"""The wall clock, as an injectable function."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""A function that returns Unix milliseconds UTC."""


def now_ms() -> int:
    """Return the system's wall clock in Unix milliseconds UTC."""
    return time.time_ns() // 1_000_000
