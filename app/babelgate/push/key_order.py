"""Decides when the messages of an ordering key are posted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable


class KeyOrder:
    """The posts of one process with messages of each ordering key, in the order in which they were received.

    One post of a key is in flight at a time. When it leaves a message on the queue, the posts behind it return theirs,
    because the broker delivers them behind that one again.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    @property
    def is_returning(self) -> bool:
        """Whether messages of a key are on their way back to the queue. What is received meanwhile follows them."""
        return any(lane.is_returning for lane in self._lanes.values())

    def enter(self, keys: Iterable[str]) -> Turn:
        """The turn of a post with messages of ``keys``: after all posts that have entered before with one of them."""
        turn = Turn(self._lanes, dict.fromkeys(keys))
        for key in turn.keys:
            self._lanes.setdefault(key, _Lane()).turns.append(turn)
        return turn


class _Lane:
    """The posts of one key that have not ended, the first one in flight."""

    __slots__ = ("is_returning", "turns")

    def __init__(self) -> None:
        self.turns: deque[Turn] = deque()
        self.is_returning = False


class Turn:
    """A place of one post in the order. ``keys``: of its messages, as far as they have not ended."""

    __slots__ = ("_changed", "_lanes", "keys")

    def __init__(self, lanes: dict[str, _Lane], keys: dict[str, None]) -> None:
        self.keys = keys
        self._lanes = lanes
        self._changed = asyncio.Event()

    async def come(self) -> Collection[str]:
        """Wait for the posts before this one. Returns the keys whose messages must go back to the queue at once; the
        turn has come when there are none."""
        while True:
            returning = {key for key in self.keys if self._lanes[key].is_returning}
            if returning or all(self._lanes[key].turns[0] is self for key in self.keys):
                return returning
            self._changed.clear()
            await self._changed.wait()

    def end(self, keys: Iterable[str], returned: Collection[str]) -> None:
        """The messages of ``keys`` are settled. Of ``returned``, one is on the queue again, before those behind it."""
        for key in list(keys):
            if key not in self.keys:
                continue
            del self.keys[key]
            lane = self._lanes[key]
            lane.turns.remove(self)
            lane.is_returning = lane.is_returning or key in returned
            if not lane.turns:
                del self._lanes[key]
            for turn in lane.turns:
                turn._changed.set()
