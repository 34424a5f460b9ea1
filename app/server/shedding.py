"""Refusals before a request is one: at the end of its head, without a task, an exchange or a look at its body."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from typing import Protocol

from app.errors import Overloaded
from app.http.problems import CONTENT_TYPE, problem
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger
from app.server.pacing import Pacer

SHEDDER = "babelgate.shedder"
"""The key of the process's Shedder in the lifespan's state, through which the server hands it to its connections."""
REST_SECONDS = 0.02
RESTED = 60
"""Of the refused connections so many are read again every 20 ms, in turn: clients that ask again at once, against what
they were told, cannot take the time of those who are served."""

_PUBLISH = (b"messages", b"messages:batch")
_RECEIVE = b"messages:receive"
_throttled = LogThrottle(get_logger("babelgate.http"))

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
        self._answers = itertools.cycle([_answer(seconds) for seconds in _AFTER_SECONDS])
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


def _answer(seconds: int) -> tuple[bytes, bytes]:
    """Head, still open, and body."""
    status, headers, body = problem(
        Overloaded(reason="This process has more requests than it can serve in time.", retry_after=seconds), instance=""
    )
    named = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body)), *headers]
    lines = [b"HTTP/1.1 %d Too Many Requests" % status, *(name + b": " + value for name, value in named)]
    return b"\r\n".join(lines) + b"\r\n", body
