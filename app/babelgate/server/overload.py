"""Refuses requests that the process cannot serve in time, at the end of their head, without a task or their body.

All requests that have arrived are read in one turn of the event loop and then served, so a turn lasts as long as a
request waits before the server reads it. Refusing requests keeps turns short.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from babelgate.errors import Overloaded
from babelgate.http.cors import CorsRules
from babelgate.http.heads import RequestTarget
from babelgate.http.problems import raw_problem
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

SHEDDER = "babelgate.shedder"
"""The key of the process's Shedder in the lifespan's state, which the server passes to its connections."""
REST_SECONDS = 0.02
RESTED = 60
"""Number of refused connections that are read again every 20 ms, in order. So clients that repeat a request at once,
despite Retry-After, cannot take the time of the clients that are served."""
TURN_SECONDS = 0.02
"""Maximum work of a turn. Refusals must be answered within 50 ms, and longer turns do not serve more requests."""
GRACE_SECONDS = 1.0
"""CPU time in consecutive long turns before anything is refused: a burst is no overload, and a refused client waits
longer than a late one."""
FEWEST = 32
"""Minimum number of requests accepted per turn. A turn that is long with fewer has large uploads or other work, and
refusing small requests would not shorten it."""
REFUSAL_SECONDS = 20e-6
"""Approximate cost of a refusal, subtracted from the turn, because accepting fewer requests would not save it."""
UNLIMITED = 100_000.0

_GROWTH = 1.05
_SHRINK = 0.5
_PUBLISH = ("messages", "messages:batch")
_RECEIVE = ("messages:receive", "messages:stream")
_REASON = "this process has more requests than it can serve in time"
_AFTER_SECONDS = (1, 2, 3)
"""Values of Retry-After, used in turn, so that clients that were refused together do not return together."""

_throttled = LogThrottle(get_logger(__name__))

Refused = Callable[[str, str, str], None]
"""``(method, verb, scheme)`` of a request."""


class RefusedConnection(Protocol):
    """A connection that is not read."""

    def wake(self) -> None:
        """Read again."""


class Shedder:
    """Decides which requests are refused with 429, and answers them, for all connections of a process."""

    def __init__(
        self,
        pacer: Pacer,
        has_backlog: Callable[[str], bool],
        refused: Refused | None = None,
        cors: CorsRules | None = None,
    ) -> None:
        """``has_backlog(queue)``: whether a publish would wait too long for its broker. ``refused``: called for each.
        ``cors``: the pages that may read the refusals."""
        self._refused = refused
        self.cors = cors
        self._pacer = pacer
        self._has_backlog = has_backlog
        self._answers = itertools.cycle(
            [raw_problem(Overloaded(reason=_REASON, retry_after=seconds)) for seconds in _AFTER_SECONDS]
        )
        self._count = itertools.count(1)
        self._process = secrets.token_hex(8).encode()
        self._waiting: deque[RefusedConnection] = deque()

    def should_shed(self, queue: str, verb: str) -> bool:
        """Whether to refuse the request of ``verb`` for ``queue``. Only publishes and receives are refused: settles end
        work."""
        if verb in _PUBLISH:
            return not self._pacer.take(self._has_backlog(queue))
        return verb in _RECEIVE and not self._pacer.take()

    def answer(
        self, keep_alive: bool, method: bytes, target: RequestTarget, fields: Mapping[bytes, bytes], scheme: str
    ) -> bytes:
        """The whole answer to a refused request. ``fields``: of its head."""
        _throttled.warning("requests refused: more than can be served in time")
        if self._refused is not None:
            self._refused(method.decode("latin-1"), target.verb, scheme)
        head, body = next(self._answers)
        more = b"x-request-id: %b-r%x\r\n" % (self._process, next(self._count))
        if self.cors is not None:
            more += self.cors.lines(target.queue, fields.get(b"origin"))
        return head + more + (b"\r\n" if keep_alive else b"connection: close\r\n\r\n") + body

    def wake_later(self, connection: RefusedConnection) -> None:
        """Wake a refused connection in its turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(REST_SECONDS, self._wake)
        self._waiting.append(connection)

    def _wake(self) -> None:
        for _ in range(min(RESTED, len(self._waiting))):
            self._waiting.popleft().wake()
        if self._waiting:
            asyncio.get_running_loop().call_later(REST_SECONDS, self._wake)


class Pacer:
    """Limits the requests of each turn to a quota, which it adjusts to the duration of the previous turns.

    The quota is not a setting. There is none while turns are short. When they are too long, it is the number of
    requests that the process has just served in time, whatever they cost.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: CPU seconds of the event loop's thread. On a machine that gives the process little CPU, turns take
        long with any number of requests, and refusing some would only reduce the throughput."""
        self._clock = clock
        self._quota = UNLIMITED
        self._arrived = False
        self._taken = 0
        self._refused = 0
        self._began = 0.0
        self._late_since: float | None = None
        self._measuring = False

    def take(self, unless: bool = False) -> bool:
        """Whether to serve the request that has just arrived. Called in the event loop, once per request.

        ``unless``: refuse it in any case.
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
        """Start to measure a turn: the requests that have arrived are served before `_end` is called."""
        self._began = self._clock()
        self._arrived = False
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """End the measurement. The loop did not sleep in this turn, because this call was due."""
        now = self._clock()
        self.turned(now, now - self._began)
        if self._arrived:
            self._begin()
        else:
            self._measuring = False

    def turned(self, now: float, seconds: float) -> None:
        """Set the quota of the next turn after a turn of ``seconds`` that ended at ``now``."""
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
