"""Refuses requests that the process cannot serve in time, at the end of their head, without a task or their body.

All requests that arrived are read in one turn of the event loop and then served, so a turn lasts as long as a request
waits before the server reads it. Refusing requests keeps turns short.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from typing import Protocol

from app.errors import Overloaded
from app.http.problems import raw_problem
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

SHEDDER = "babelgate.shedder"
"""The key of the process's Shedder in the lifespan's state, through which the server hands it to its connections."""
REST_SECONDS = 0.02
RESTED = 60
"""Of the refused connections so many are read again every 20 ms, in turn: clients that ask again at once, against what
they were told, cannot take the time of those who are served."""

_PUBLISH = (b"messages", b"messages:batch")
_RECEIVE = b"messages:receive"
_throttled = LogThrottle(get_logger("babelgate.http"))

_REASON = "this process has more requests than it can serve in time"
_AFTER_SECONDS = (1, 2, 3)
"""Told in turn, so that those who were refused together do not come back together."""


Refused = Callable[[str, str, str], None]
"""``(method, verb, scheme)`` of a request."""


class Resting(Protocol):
    """A connection that is not read."""

    def wake(self) -> None:
        """Read again."""


class Shedder:
    """Decides, and answers with 429, for all connections of a process."""

    def __init__(self, pacer: Pacer, crowded: Callable[[str], bool], refused: Refused | None = None) -> None:
        """``crowded(queue)``: whether a publish would wait too long for its broker. ``refused`` is told each time."""
        self._refused = refused
        self._pacer = pacer
        self._crowded = crowded
        self._answers = itertools.cycle(
            [raw_problem(Overloaded(reason=_REASON, retry_after=seconds)) for seconds in _AFTER_SECONDS]
        )
        self._count = itertools.count(1)
        self._process = secrets.token_hex(8).encode()
        self._resting: deque[Resting] = deque()

    def sheds(self, url: bytes) -> bool:
        """Whether the request for ``url`` is refused. Only what brings new work is: settles end it."""
        rest, verb = _verb(url)
        if verb in _PUBLISH:
            queue = rest.rpartition(b"/")[2].decode("latin-1")
            return not self._pacer.take(unless=self._crowded(queue))
        return verb == _RECEIVE and not self._pacer.take()

    def answer(self, keep_alive: bool, method: bytes, url: bytes, scheme: str) -> bytes:
        """The whole answer to a refused request."""
        _throttled.warning("requests refused: more than can be served in time")
        if self._refused is not None:
            self._refused(method.decode("latin-1"), _verb(url)[1].decode("latin-1"), scheme)
        head, body = next(self._answers)
        request_id = b"x-request-id: %b-r%x\r\n" % (self._process, next(self._count))
        return head + request_id + (b"\r\n" if keep_alive else b"connection: close\r\n\r\n") + body

    def rest(self, connection: Resting) -> None:
        """Wake a refused connection when it is its turn."""
        if not self._resting:
            asyncio.get_running_loop().call_later(REST_SECONDS, self._wake)
        self._resting.append(connection)

    def _wake(self) -> None:
        for _ in range(min(RESTED, len(self._resting))):
            self._resting.popleft().wake()
        if self._resting:
            asyncio.get_running_loop().call_later(REST_SECONDS, self._wake)


def _verb(url: bytes) -> tuple[bytes, bytes]:
    """What stands before the last slash of the path, and behind it."""
    rest, _, verb = url.partition(b"?")[0].rpartition(b"/")
    return rest, verb


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
