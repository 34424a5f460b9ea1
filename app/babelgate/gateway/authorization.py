"""Rights of callers on queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from babelgate.clock import Clock, now_ms
from babelgate.errors import Forbidden
from babelgate.gateway.limit_terms import RateTerms
from babelgate.gateway.names import Pattern, check_queue_name
from babelgate.gateway.page_tokens import PageTerms


class Right(StrEnum):
    """A right on a queue: publish to it, consume from it, manage it, look at it without a change."""

    SEND = "send"
    LISTEN = "listen"
    MANAGE = "manage"
    OBSERVE = "observe"

    # That of an enumeration is a function in Python, and each request looks rights up.
    __hash__ = str.__hash__


OPERATORS = (Right.MANAGE, Right.OBSERVE)
"""Either lets a caller see brokers, processes and metrics."""
READERS = (Right.LISTEN, *OPERATORS)
"""Either lets a caller see what happened to messages."""


class Caller:
    """The holder of a credential: a name for logs, rights per queue pattern, the bounds of a token that is part of a
    web page (``page``; None for any other), and rates of its own (``limits``; None: those of all identities).

    ``ends_at``: when the credential ends, Unix seconds; None: never. A revocation sets it to 0.
    """

    __slots__ = ("__weakref__", "_endings", "_grants", "_rights", "ends_at", "limits", "name", "page")

    def __init__(
        self,
        name: str,
        rights: Mapping[str, frozenset[Right]],
        page: PageTerms | None = None,
        ends_at: float | None = None,
        limits: RateTerms | None = None,
    ) -> None:
        self.name = name
        self.page = page
        self.ends_at = ends_at
        self.limits = limits
        self._endings: set[Ending] = set()
        self._rights = dict(rights)
        self._grants = tuple((Pattern(queue), granted) for queue, granted in rights.items())

    def named(self, name: str, ends_at: float | None) -> Caller:
        """Another caller with the same rights, which both share."""
        other = Caller(name, {}, self.page, ends_at)
        other._rights, other._grants = self._rights, self._grants
        return other

    def has_ended(self, now_ms: int) -> bool:
        """Whether the credential has ended or was revoked. ``now_ms``: Unix ms."""
        return self.ends_at is not None and self.ends_at * 1000 <= now_ms

    def revoke(self) -> None:
        """End the credential now. Its streams and long polls end, too."""
        self.ends_at = 0.0
        for ending in tuple(self._endings):
            ending.happen()

    def become(self, other: Caller) -> None:
        """Have the rights and limits of ``other`` from now on: its credential was configured again. With fewer rights
        its streams and long polls end; it may begin those again that it still has a right to."""
        lost = any(not granted <= other._rights.get(queue, frozenset()) for queue, granted in self._rights.items())
        self.name, self.limits = other.name, other.limits
        self._rights, self._grants = other._rights, other._grants
        if self.page is None or other.page is None or not self.page.is_same(other.page):
            self.page = other.page
        if lost:
            for ending in tuple(self._endings):
                ending.happen()

    def when_ended(self, call: Callable[[], object], clock: Clock = now_ms) -> Ending:
        """Call ``call`` once the credential ends, at its time or by a revocation, until the Ending is cancelled. Needs
        a running event loop. ``call`` must not block or raise."""
        ending = Ending(self, call, clock)
        self._endings.add(ending)
        return ending

    def forget(self, ending: Ending) -> None:
        """Do not call ``ending`` any more."""
        self._endings.discard(ending)

    def rights(self, queue: str) -> frozenset[Right]:
        """All rights on ``queue``, a name or a pattern: the union of the patterns that match it."""
        # Not remembered: a gateway remembers what was granted, and what is refused can have any number of names.
        return frozenset().union(*(granted for pattern, granted in self._grants if pattern.matches(queue)))

    def patterns(self, *rights: Right) -> list[str]:
        """The queue names and patterns that one of ``rights`` was granted on."""
        return [queue for queue, granted in self._rights.items() if not granted.isdisjoint(rights)]

    def may(self, right: Right, queue: str) -> bool:
        """Whether the caller has ``right`` on ``queue``, a name or a pattern. Who may consume may also look."""
        granted = self.rights(queue)
        return right in granted or (right is Right.OBSERVE and Right.LISTEN in granted)

    def require(self, right: Right, queue: str) -> None:
        """Raise InvalidParameter for an illegal name, Forbidden without ``right`` on ``queue``; see :meth:`may`."""
        check_queue_name(queue)
        if not self.may(right, queue):
            named = "'listen' or 'observe'" if right is Right.OBSERVE else repr(right.value)
            raise Forbidden(reason=f"This needs the right {named} on the queue {queue!r}.")

    def require_any(self, queue: str) -> None:
        """Raise InvalidParameter for an illegal name, Forbidden without some right on ``queue``."""
        check_queue_name(queue)
        if not self.rights(queue):
            raise Forbidden(reason=f"This needs a right on the queue {queue!r}.")

    def require_some(self) -> None:
        """Raise Forbidden without any right on any queue pattern."""
        if not any(self._rights.values()):
            raise Forbidden(reason="This needs a right on some queue.")

    def require_everywhere(self, right: Right) -> None:
        """Raise Forbidden without ``right`` on all queues, by one pattern."""
        if not self.may(right, "*"):
            raise Forbidden(reason=f"This needs the right {right.value!r} on all queues, '*'.")

    def require_anywhere(self, *rights: Right) -> None:
        """Raise Forbidden without one of ``rights`` on any queue pattern."""
        if not self.patterns(*rights):
            raise Forbidden(reason=f"This needs the right {_either(rights)} on some queue.")


def _either(rights: Sequence[Right]) -> str:
    *others, last = (repr(right.value) for right in rights)
    return f"{', '.join(others)} or {last}" if others else last


class Ending:
    """What is called once when the credential of a caller ends."""

    __slots__ = ("_call", "_caller", "_clock", "_timer")

    def __init__(self, caller: Caller, call: Callable[[], object], clock: Clock) -> None:
        self._caller = caller
        self._call: Callable[[], object] | None = call
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        if caller.ends_at is not None:
            self._wait(caller.ends_at)

    def cancel(self) -> None:
        """Call nothing; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._caller.forget(self)
        # What is called often refers to this again: without this, only the garbage collector would free both.
        self._call = None

    def happen(self) -> None:
        """Call now."""
        call = self._call
        self.cancel()
        if call is not None:
            call()

    def _wait(self, ends_at: float) -> None:
        # The clock may be set while this waits, and a loop's timer has a longest time.
        seconds = min(max(ends_at - self._clock() / 1000, 0), _LONGEST_TIMER_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        ends_at = self._caller.ends_at
        if ends_at is None or self._caller.has_ended(self._clock()):
            self.happen()
        else:
            self._wait(ends_at)


_LONGEST_TIMER_SECONDS = 60.0
"""After this time a timer looks at the clock again."""

ANYONE = Caller("anyone", {"*": frozenset(Right)})
"""The caller where ``auth: none`` is configured, and of in-process use."""
NOBODY = Caller("nobody", {})
"""The caller of a probe that shows no valid credential."""
