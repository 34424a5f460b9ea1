"""Bounds the calls of one kind, and shares what is left between callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from babelgate.errors import Overloaded
from babelgate.gateway.authorization import Caller


class FairShare:
    """At most ``most`` calls at a time. A caller may have half of what the others leave, at least one, so that the next
    caller finds something left."""

    def __init__(self, most: int, doing: str) -> None:
        """``doing``: what the calls of a refused caller do, such as ``search dead letters``."""
        self._most = most
        self._doing = doing
        self._callers: Counter[str] = Counter()

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """A place for a call of ``caller`` during the block. Raises Overloaded when it has its share already."""
        name = caller.name
        own = self._callers[name]
        if own >= max((self._most - self._callers.total() + own) // 2, 1):
            raise Overloaded(reason=f"{own} calls of {name!r} already {self._doing}")
        self._callers[name] += 1
        try:
            yield
        finally:
            self._callers[name] -= 1
            if not self._callers[name]:
                del self._callers[name]
