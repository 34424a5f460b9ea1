"""Bounds of tokens that are part of a web page: anyone can read and use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from babelgate.errors import BodyTooLarge, Forbidden
from babelgate.gateway.buckets import Bucket, RateExceeded

_MINUTE = 60.0


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
        self._bucket = Bucket(per_minute / _MINUTE, per_minute)

    def is_same(self, other: PageTerms) -> bool:
        """Whether both have the same bounds."""
        mine = self._origins, self.per_minute, self.max_message_bytes
        return mine == (other._origins, other.per_minute, other.max_message_bytes)

    def check_origin(self, origin: bytes | None) -> None:
        """Raise Forbidden for a request that no page of the token's origins has sent. A program can send any origin."""
        if origin not in self._origins:
            raise Forbidden(reason="This token is only for the web pages of its origins: see `page.origins`.")

    def take(self, size: int) -> None:
        """Count a message of ``size`` bytes, as it was sent. Raises BodyTooLarge, RateExceeded."""
        if size > self.max_message_bytes:
            raise BodyTooLarge(actual=size, limit=self.max_message_bytes)
        now = self._clock()
        if wait := self._bucket.wait(now, 1):
            reason = f"The token of this page may publish {self.per_minute} messages a minute."
            raise RateExceeded(reason=reason, limit=self.per_minute, retry_after=int(wait) + 1)
        self._bucket.take(now, 1)
