"""When the locks of a queue are renewed, whatever the difference between the service's clock and this machine's."""

from __future__ import annotations

from babelgate.clock import Clock

_LONGEST_SECONDS = 300.0
"""The longest ``LockDuration`` of a queue:
https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement#peeklock"""

_TRUSTED_SECONDS = 30.0
"""A lock is renewed as if it lasted no longer than this. Half of the default ``LockDuration``, so that a clock that is
behind loses no lock of an ordinary queue, even if no fresh message has shown how long its locks last."""

_LEAST_PAUSE_SECONDS = 0.5


class LockTime:
    """The duration of the locks of one queue or session.

    Service Bus states when a lock ends by its own clock, and never what that clock shows. A message is locked after it
    was enqueued, so that no lock lasts longer than the shortest time between the two. ``longest``: that, in seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.longest = _LONGEST_SECONDS

    def learn(self, enqueued_at: int, locked_until: int) -> None:
        """Take note of a message that was enqueued before it was locked. Times in Unix ms of the service's clock; 0
        where it states none."""
        if 0 < enqueued_at < locked_until:
            self.longest = min(self.longest, (locked_until - enqueued_at) / 1000)

    def pause(self, locked_until: int) -> float:
        """Seconds until the renewal of a lock that was obtained now: half of its time, as far as that is known."""
        by_clock = (locked_until - self._clock()) / 1000
        return max(min(by_clock, self.longest, _TRUSTED_SECONDS) / 2, _LEAST_PAUSE_SECONDS)
