"""How fast a task sends, how long it waits after trouble, and when it gives up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 30.0

Clock = Callable[[], float]


class Pace:
    """At most ``rate`` messages a second; None: as fast as they are taken. ``clock``: seconds, from any beginning."""

    def __init__(self, rate: float | None, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free_at = 0.0

    def seconds(self, count: int) -> float:
        """How long to wait before ``count`` messages are sent, which then count as sent."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        begin = max(now, self._free_at)
        self._free_at = begin + count / self._rate
        return begin - now


class Circuit:
    """Opens when nothing got through for ``give_up_seconds``, however often it was tried, and stays open."""

    def __init__(self, give_up_seconds: float, clock: Clock = time.monotonic) -> None:
        self._give_up = give_up_seconds
        self._clock = clock
        self._failing_since: float | None = None
        self._failures = 0
        self.is_open = False

    def succeeded(self) -> None:
        """Something got through."""
        self._failing_since, self._failures = None, 0

    def failed(self, retry_after: float | None = None) -> float:
        """Nothing did. How long to wait before the next try, in seconds, of which no two tasks wait the same; 0 when
        the circuit is open."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self._give_up - now
        told = retry_after or 0.0
        if left <= 0 or told > left:
            self.is_open = True
            return 0.0
        own = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0**self._failures) * random.uniform(0.5, 1.5)
        self._failures += 1
        # The last try is made when the time is over.
        return max(min(own, left), told * random.uniform(1.0, 1.25))
