"""How many requests a turn of the event loop takes on: what it cannot serve soon is refused while that is cheap.

Requests wait for the event loop, not in it: all that arrived is read at once, and then served. So a turn lasts as long
as a request waits before anybody looks at it, and it is kept short by refusing what would make it longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURN_SECONDS = 0.02
"""How long a turn may be: refusals are to be answered within 50 ms, and a longer one serves no more in a second."""
GRACE_SECONDS = 0.2
"""Turns must have been too long for so long before anything is refused: a burst, or one large batch, is no overload."""
UNLIMITED = 100_000.0

_GROWTH = 1.05
_SHRINK = 0.5


class Pacer:
    """Counts the requests of each turn against a quota, which follows from how long the turns before took.

    The quota is no setting: while turns are short there is none, and where they are too long it is what the process
    has just shown to serve in time, whatever its requests cost and whatever else it does.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds."""
        self._clock = clock
        self._quota = UNLIMITED
        self._arrived = 0
        self._taken = 0
        self._began = 0.0
        self._late_since: float | None = None
        self._measuring = False
        self.refused = 0

    def take(self) -> bool:
        """Whether the request that has just arrived is to be served. In the event loop, once a request."""
        if not self._measuring:
            self._measuring = True
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived += 1
        if self._taken < self._quota:
            self._taken += 1
            return True
        self.refused += 1
        return False

    def _begin(self) -> None:
        """What has arrived until now is served before this loop calls back."""
        self._began = self._clock()
        self._arrived = 0
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """A turn is over, and the loop did not sleep in it, because this was due."""
        now = self._clock()
        self.turned(now, now - self._began)
        if self._arrived:
            self._begin()
        else:
            self._measuring = False

    def turned(self, now: float, seconds: float) -> None:
        """Set the quota of the next turn after one of ``seconds`` that took on what was counted; ``now``: its end."""
        taken, self._taken = self._taken, 0
        if seconds <= TURN_SECONDS:
            self._late_since = None
            self._quota = min(self._quota * _GROWTH + 1, UNLIMITED)
            return
        if self._late_since is None:
            self._late_since = now - seconds
        if self._quota < UNLIMITED:
            self._quota = max(self._quota * max(TURN_SECONDS / seconds, _SHRINK), 1)
        elif now - self._late_since > GRACE_SECONDS:
            self._quota = max(taken * TURN_SECONDS / seconds, 1)
