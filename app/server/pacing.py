"""How many requests a turn of the event loop takes on: what it cannot serve soon is refused while that is cheap.

Requests wait for the event loop, not in it: all that arrived is read at once, and then served. So a turn lasts as long
as a request waits before anybody looks at it, and it is kept short by refusing what would make it longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURN_SECONDS = 0.02
"""How much work a turn may be: refusals are to be answered within 50 ms, and longer ones serve no more in a second."""
GRACE_SECONDS = 1.0
"""So much work must have been in turns that were too long before anything is refused: a burst is no overload, and to be
refused is to be told to wait for longer."""
FEWEST = 32
"""So many are taken on in any turn: one that they alone make too long is long of a few large uploads, or of what is no
request, and to refuse the small ones that come beside it would not shorten it."""
REFUSAL_SECONDS = 20e-6
"""What a refusal takes, roughly: a turn that is long of refusals would not be shorter with less work in it."""
UNLIMITED = 100_000.0

_GROWTH = 1.05
_SHRINK = 0.5


class Pacer:
    """Counts the requests of each turn against a quota, which follows from how long the turns before took.

    The quota is no setting: while turns are short there is none, and where they are too long it is what the process
    has just shown to serve in time, whatever its requests cost and whatever else it does.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds of CPU of the event loop's thread. Where a machine gives the process little, its turns
        are long whatever it takes on, and to take on less would only be to do less."""
        self._clock = clock
        self._quota = UNLIMITED
        self._arrived = False
        self._taken = 0
        self._refused = 0
        self._began = 0.0
        self._late_since: float | None = None
        self._measuring = False

    def take(self, unless: bool = False) -> bool:
        """Whether the request that has just arrived is to be served. Called in the event loop, once a request.

        ``unless``: it is refused in any case.
        """
        self._arrived = True
        if not self._measuring:
            self._measuring = True
            asyncio.get_running_loop().call_soon(self._begin)
        if unless or self._taken >= self._quota:
            self._refused += 1
            return False
        self._taken += 1
        return True

    def _begin(self) -> None:
        """What has arrived until now is served before this loop calls back."""
        self._began = self._clock()
        self._arrived = False
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
        refused, self._refused = self._refused, 0
        seconds -= refused * REFUSAL_SECONDS
        if seconds <= TURN_SECONDS:
            self._late_since = None
            self._quota = min(self._quota * _GROWTH + 1, UNLIMITED)
            return
        if self._late_since is None:
            self._late_since = now
        if self._quota < UNLIMITED:
            self._quota = max(self._quota * max(TURN_SECONDS / seconds, _SHRINK), FEWEST)
        elif now - self._late_since > GRACE_SECONDS:
            self._quota = max(taken * TURN_SECONDS / seconds, FEWEST)
