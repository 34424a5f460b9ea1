"""Limits lines that may occur for every message or request, and counts the omitted ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from structlog.stdlib import BoundLogger

from babelgate.runtime.cache import Cache

SECONDS = 10.0
"""At most one line for each event and queue in this time."""
_WRITTEN_BYTES = 512 * 1024
_LINE_BYTES = 512
"""Most bytes of a remembered pair of event and queue, whose name has at most 120 characters."""
LINES = 30
"""Maximum lines of a LineBudget in ten seconds: some 90 MB a day, if each has 350 bytes."""


class LogThrottle:
    """Writes the first warning of an event and queue at once, and then at most one every ten seconds."""

    def __init__(self, log: BoundLogger, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._log = log
        self._clock = clock
        self._written: Cache[tuple[str, str], tuple[float, int]] = Cache(_WRITTEN_BYTES, _LINE_BYTES)

    def warning(self, event: str, *, queue: str = "", count: int = 1, **values: Any) -> None:
        """Report that ``event`` occurred for ``count`` messages of ``queue``.

        The line's ``count`` covers all messages since the previous line; its other ``values`` are those of this call.
        """
        now = self._clock()
        last = self._written.get((event, queue))
        if last is not None and now - last[0] < SECONDS:
            self._written.keep((event, queue), (last[0], last[1] + count))
            return
        self._written.keep((event, queue), (now, 0))
        named = {"queue": queue} if queue else {}
        self._log.warning(event, **named, count=count + (last[1] if last else 0), **values)


class LineBudget:
    """Allows at most ``lines`` every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, lines: int = LINES) -> None:
        """``clock``: seconds."""
        self._lines = lines
        self._clock = clock
        self._began = clock()
        self._written = 0
        self._pending = 0

    def take(self) -> int:
        """Report one occurrence. Returns the number that a line has to report: this one and those since the previous
        line; 0 when no line may be written now."""
        now = self._clock()
        if now - self._began >= SECONDS:
            self._began, self._written = now, 0
        self._pending += 1
        if self._written >= self._lines:
            return 0
        self._written += 1
        count, self._pending = self._pending, 0
        return count
