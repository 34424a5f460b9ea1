"""Decides when a target gets the next message: after a pause where it failed, and at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from babelgate.runtime.backoff import Backoff

FAILURES = 5
"""After this number of failures in succession, nothing is pushed for a while."""
FIRST_SECONDS, LAST_SECONDS = 1.0, 60.0
"""The pauses double from the first to the last."""

State = Literal["closed", "open", "half_open"]


class TargetCircuit:
    """The circuit of one target. It opens after failures; after a pause a single message probes the target.

    ``clock``: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._backoff = Backoff(FIRST_SECONDS, LAST_SECONDS)
        self._failures = 0
        self._is_closed = True
        self._until = 0.0

    @property
    def state(self) -> State:
        """``half_open``: one message may be pushed, whose outcome decides."""
        if self._is_closed:
            return "closed"
        return "half_open" if self.wait_seconds == 0 else "open"

    @property
    def wait_seconds(self) -> float:
        """The time until a message may be pushed; 0: now."""
        return 0.0 if self._is_closed else max(self._until - self._clock(), 0.0)

    def succeeded(self) -> None:
        """The target has answered. While the circuit is open, an earlier post has: that closes nothing."""
        self._failures = 0
        if self.state == "half_open":
            self._is_closed = True
            self._backoff.succeeded()

    def failed(self, *, at_once: bool = False) -> None:
        """The target has failed. ``at_once``: it cannot be reached, so that the circuit opens without more failures."""
        self._failures += 1
        if self.state == "half_open" or (self._is_closed and (at_once or self._failures >= FAILURES)):
            self._open(self._backoff.failed())

    def hold(self, seconds: float) -> None:
        """The target has asked for a pause, which is FIRST_SECONDS at least."""
        self._open(max(seconds, FIRST_SECONDS, self.wait_seconds))

    def _open(self, seconds: float) -> None:
        self._is_closed = False
        self._until = self._clock() + seconds


class Pace:
    """At most ``per_second`` messages in a second, and at most those of one second at once. None: no bound."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(per_second or 1.0, 1.0)
        self._left = self._burst
        self._clock = clock
        self._at = clock()

    def allowed(self, wanted: int) -> int:
        """How many of ``wanted`` messages may be pushed now."""
        if self._per_second is None:
            return wanted
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        # Sums of fractions are a little less than whole numbers.
        return min(wanted, int(self._left + 1e-6))

    @property
    def wait_seconds(self) -> float:
        """The time until one more message may be pushed."""
        return 0.0 if self._per_second is None else max((1 - self._left) / self._per_second, 0.0)

    def take(self, count: int) -> None:
        """Count messages that are pushed now."""
        self._left -= count
