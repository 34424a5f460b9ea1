"""A token bucket: the one engine of every rate that the gateway keeps."""

from __future__ import annotations

import math

from babelgate.errors import BabelgateError

_INEXACT = 1e-6
"""Seconds, or units, by which a sum of many intervals may be off."""


class RateExceeded(BabelgateError):
    """{reason} Repeat the request after {retry_after} s."""

    code = "rate_exceeded"
    retryable = True


class Bucket:
    """At most ``rate`` a second in the long run, and ``capacity`` at once after a pause.

    What needs more than ``capacity`` is taken when the bucket is full, and leaves a debt: the largest message passes,
    and the rate holds. A bucket is one number, the time at which it was or will be empty. Times are seconds of any
    clock that never goes back.
    """

    __slots__ = ("_empty_at", "_span", "capacity", "rate")

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self._span = capacity / rate
        self._empty_at = -math.inf

    def wait(self, now: float, amount: float) -> float:
        """Seconds until ``amount`` can be taken; 0 if it can be now."""
        # Without max() and min(), which take as long as all else here.
        empty_at, full_at = self._empty_at, now - self._span
        ready_at = (empty_at if empty_at > full_at else full_at) + (
            amount if amount < self.capacity else self.capacity
        ) / self.rate
        return ready_at - now if ready_at > now + _INEXACT else 0.0

    def take(self, now: float, amount: float) -> None:
        """Take ``amount``, whether or not it is there."""
        empty_at, full_at = self._empty_at, now - self._span
        self._empty_at = (empty_at if empty_at > full_at else full_at) + amount / self.rate

    def left(self, now: float) -> float:
        """What can be taken now; 0 while there is a debt."""
        return min(max(now - self._empty_at, 0.0), self._span) * self.rate

    def state(self, now: float) -> tuple[int, int]:
        """Whole units that can be taken now, and whole seconds until the bucket is full."""
        full_in = self._empty_at + self._span - now
        if full_in <= 0:
            return int(self._span * self.rate + _INEXACT), 0
        return int((self._span - full_in) * self.rate + _INEXACT) if full_in < self._span else 0, math.ceil(full_in)

    def full_in(self, now: float) -> float:
        """Seconds until the bucket is full."""
        return max(self._empty_at + self._span - now, 0.0)
