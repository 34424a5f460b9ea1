"""Bounds of tokens that are part of a web page: anyone can read and use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from babelgate.errors import BabelgateError, BodyTooLarge, Forbidden

_MINUTE = 60.0


class RateExceeded(BabelgateError):
    """The token of this page may publish {limit} messages a minute. Repeat the request after {retry_after} s."""

    code = "rate_exceeded"
    retryable = True


class PageTerms:
    """The bounds of one token. Each process of a gateway counts for itself.

    Messages count when they are read, whatever becomes of them. After a pause ``per_minute`` of them may come at once;
    then as many a minute, evenly.
    """

    def __init__(
        self,
        origins: Iterable[str],
        per_minute: int,
        max_message_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``origins``: of the pages, as browsers send them; ``clock``: seconds."""
        self.per_minute = per_minute
        self.max_message_bytes = max_message_bytes
        self._origins = frozenset(origin.encode("ascii") for origin in origins)
        self._clock = clock
        self._interval = _MINUTE / per_minute
        self._due = clock() - _MINUTE
        """The time at which the next message would be due if all came evenly."""

    def check_origin(self, origin: bytes | None) -> None:
        """Raise Forbidden for a request that no page of the token's origins has sent. A program can send any origin."""
        if origin not in self._origins:
            raise Forbidden(reason="This token is only for the web pages of its origins: see `page.origins`.")

    def take(self, size: int) -> None:
        """Count a message of ``size`` bytes, as it was sent. Raises BodyTooLarge, RateExceeded."""
        if size > self.max_message_bytes:
            raise BodyTooLarge(actual=size, limit=self.max_message_bytes)
        now = self._clock()
        due = max(self._due, now - _MINUTE) + self._interval
        # A sum of many intervals is inexact.
        if due > now + 1e-6:
            raise RateExceeded(limit=self.per_minute, retry_after=int(due - now) + 1)
        self._due = due
