"""The wall clock, as a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns Unix milliseconds UTC."""


def now_ms() -> int:
    """The system's wall clock in Unix milliseconds UTC."""
    return time.time_ns() // 1_000_000
