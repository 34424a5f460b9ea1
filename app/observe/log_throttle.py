"""Warnings that may come with every message: told once in a while, with a count."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from structlog.stdlib import BoundLogger

SECONDS = 10.0
"""At most one line of a kind and a queue in this time."""
MAX_KINDS = 1_000
"""Pairs of line and queue that are remembered; past that, all are forgotten, which costs a few lines more."""


class LogThrottle:
    """Writes to ``log``: the first line of a kind at once, then one every ten seconds at most."""

    def __init__(self, log: BoundLogger, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._log = log
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def warning(self, event: str, *, queue: str = "", count: int = 1, **values: Any) -> None:
        """It happened to ``count`` messages. The line's ``count`` is how many since the line before; its other values
        are those of the last."""
        now = self._clock()
        last = self._written.get((event, queue))
        if last is not None and now - last[0] < SECONDS:
            self._written[event, queue] = (last[0], last[1] + count)
            return
        if len(self._written) >= MAX_KINDS:
            self._written.clear()
        self._written[event, queue] = (now, 0)
        named = {"queue": queue} if queue else {}
        self._log.warning(event, **named, count=count + (last[1] if last else 0), **values)
