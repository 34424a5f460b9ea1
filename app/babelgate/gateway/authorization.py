"""Rights of callers on queues."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from babelgate.errors import Forbidden
from babelgate.gateway.names import Pattern, check_queue_name
from babelgate.gateway.page_tokens import PageTerms


class Right(StrEnum):
    """A right on a queue: publish to it, consume from it, manage it."""

    SEND = "send"
    LISTEN = "listen"
    MANAGE = "manage"

    # That of an enumeration is a function in Python, and each request looks rights up.
    __hash__ = str.__hash__


class Caller:
    """The holder of a credential: a name for logs, rights per queue pattern, and the bounds of a token that is part of
    a web page (``page``; None for any other)."""

    __slots__ = ("_grants", "_rights", "name", "page")

    def __init__(self, name: str, rights: Mapping[str, frozenset[Right]], page: PageTerms | None = None) -> None:
        self.name = name
        self.page = page
        self._rights = dict(rights)
        self._grants = tuple((Pattern(queue), granted) for queue, granted in rights.items())

    def rights(self, queue: str) -> frozenset[Right]:
        """All rights on ``queue``, a name or a pattern: the union of the patterns that match it."""
        # Not remembered: a gateway remembers what was granted, and what is refused can have any number of names.
        return frozenset().union(*(granted for pattern, granted in self._grants if pattern.matches(queue)))

    def patterns(self, right: Right) -> list[str]:
        """The queue names and patterns that ``right`` was granted on."""
        return [queue for queue, granted in self._rights.items() if right in granted]

    def require(self, right: Right, queue: str) -> None:
        """Raise InvalidParameter for an illegal name, Forbidden without ``right`` on ``queue``."""
        check_queue_name(queue)
        if right not in self.rights(queue):
            raise Forbidden(reason=f"This needs the right {right.value!r} on the queue {queue!r}.")

    def require_any(self, queue: str) -> None:
        """Raise InvalidParameter for an illegal name, Forbidden without some right on ``queue``."""
        check_queue_name(queue)
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
