"""Rights of callers on queues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from app.errors import Forbidden


class Right(StrEnum):
    """A right on a queue: publish to it, consume from it, manage it."""

    SEND = "send"
    LISTEN = "listen"
    MANAGE = "manage"

    # That of an enumeration is a function in Python, and each request looks rights up.
    __hash__ = str.__hash__


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    """The compiled form of a queue pattern: ``*`` stands for any run of characters, the rest for itself."""
    return re.compile(".*".join(re.escape(part) for part in text.split("*")))


class Caller:
    """The holder of a credential: a name for logs, and rights per queue pattern."""

    __slots__ = ("_cache", "_grants", "_rights", "name")

    def __init__(self, name: str, rights: Mapping[str, frozenset[Right]]) -> None:
        self.name = name
        self._rights = dict(rights)
        self._grants = tuple((pattern(queue), granted) for queue, granted in rights.items())
        self._cache: dict[str, frozenset[Right]] = {}

    def rights(self, queue: str) -> frozenset[Right]:
        """All rights on ``queue``: the union of the patterns that match it."""
        found = self._cache.get(queue)
        if found is None:
            found = frozenset().union(*(granted for match, granted in self._grants if match.fullmatch(queue)))
            if len(self._cache) >= 10_000:
                self._cache.clear()
            self._cache[queue] = found
        return found

    def patterns(self, right: Right) -> list[str]:
        """The queue names and patterns that ``right`` was granted on."""
        return [queue for queue, granted in self._rights.items() if right in granted]

    def require(self, right: Right, queue: str) -> None:
        """Raise Forbidden without ``right`` on ``queue``."""
        if right not in (self._cache.get(queue) or self.rights(queue)):
            raise Forbidden(reason=f"This needs the right {right.value!r} on the queue {queue!r}.")

    def require_any(self, queue: str) -> None:
        """Raise Forbidden without some right on ``queue``."""
        if not self.rights(queue):
            raise Forbidden(reason=f"This needs a right on the queue {queue!r}.")

    def require_anywhere(self, right: Right) -> None:
        """Raise Forbidden without ``right`` on any queue pattern."""
        if not self.patterns(right):
            raise Forbidden(reason=f"This needs the right {right.value!r} on some queue.")


ANYONE = Caller("anyone", {"*": frozenset(Right)})
"""The caller where ``auth: none`` is configured, and of in-process use."""
NOBODY = Caller("nobody", {})
"""The caller of a probe that shows no valid credential."""
