"""Reads the dead letters of brokers on which a message that is read is hidden from others: taken, held, put back.

All readers of a queue in this process share what is held of it. It is put back when a reader has reached the end, or
when no reader continues for a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from babelgate.brokers.binding import DeadRecord
from babelgate.brokers.bounded import answering
from babelgate.brokers.cursor import decode, encode, moved_back
from babelgate.brokers.errors import Translate
from babelgate.errors import BabelgateError

LINGER_SECONDS = 1.0
"""How long letters stay held for the next page; other readers do not see them meanwhile."""

MAX_SEARCHED = 10_000
"""Letters taken in search of those to remove, in one call."""

PAGE = 100
"""Letters taken at once in a search."""

Letter = TypeVar("Letter")
Queue = TypeVar("Queue")


class Hold(Protocol[Letter]):
    """What is held of one queue, oldest first; for one operation at a time."""

    at_end: bool
    """Whether the last attempt to take more has reached the end of the queue."""

    def __len__(self) -> int: ...

    async def page(self, start: int, limit: int) -> Sequence[Letter]:
        """At most ``limit`` letters from position ``start`` on, for which more are taken."""

    async def remove(self, letters: Sequence[Letter]) -> Sequence[bool]:
        """Remove letters that were read before, and are searched for unless they are held; whether each was removed."""

    async def put_back(self) -> None:
        """Put everything back, in order."""

    async def end(self) -> None:
        """Put everything back; the hold is not used again."""


class _State(Generic[Queue, Letter]):
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.lock = asyncio.Lock()
        self.users = 0
        self.hold: Hold[Letter] | None = None
        self.timer: asyncio.TimerHandle | None = None


class HeldLetters(Generic[Queue, Letter]):
    """What this process holds of the dead letters of one broker. Each call takes at most ``timeout_seconds``."""

    def __init__(
        self,
        broker: str,
        timeout_seconds: float,
        translate: Translate,
        resume: Callable[[Queue, Any], Awaitable[Hold[Letter] | None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        key: Callable[[Queue], str] = str,
    ) -> None:
        """``resume``: the hold of a queue, given the last one or None; None for a queue without letters. ``spawn``
        starts a task. ``key`` identifies a queue."""
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._translate = translate
        self._resume = resume
        self._spawn = spawn
        self._key = key
        self._states: dict[str, _State[Queue, Letter]] = {}

    def held(self, queue: Queue) -> int:
        """The number of letters of ``queue`` that are held now."""
        state = self._states.get(self._key(queue))
        return 0 if state is None or state.hold is None else len(state.hold)

    async def read(self, queue: Queue, cursor: str | None, limit: int) -> tuple[Sequence[Letter], str | None]:
        """A page, and the next cursor, a position in the queue. Raises InvalidParameter for a bad cursor."""
        start = decode(cursor)
        async with self.using(queue) as hold:
            if hold is None:
                return (), None
            page = await hold.page(start, limit)
            if hold.at_end and len(hold) <= start + limit:
                await hold.put_back()
                return page, None
            return page, encode(start + len(page))

    async def remove(
        self, queue: Queue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Remove ``records``, whose keys are letters. The cursor moves back by the number removed."""
        removed: Sequence[bool] = [False] * len(records)
        async with self.using(queue, writes=True) as hold:
            if hold is not None:
                removed = await hold.remove([record.key for record in records])
                if hold.at_end:
                    await hold.put_back()
        return removed, moved_back(cursor, sum(removed))

    @contextlib.asynccontextmanager
    async def using(self, queue: Queue, *, writes: bool = False) -> AsyncIterator[Hold[Letter] | None]:
        """The hold of ``queue``, for one operation; None for a queue without letters. Translates errors."""
        async with self._locked(queue, writes=writes) as state:
            try:
                state.hold = await self._resume(queue, state.hold)
                yield state.hold
            finally:
                if state.hold is not None:
                    loop = asyncio.get_running_loop()
                    state.timer = loop.call_later(LINGER_SECONDS, lambda: self._spawn(self.end(queue)))

    async def end(self, queue: Queue) -> None:
        """Put back what is held of ``queue``. Where that fails, the broker does it later."""
        with contextlib.suppress(BabelgateError):
            async with self._locked(queue) as state:
                hold, state.hold = state.hold, None
                if hold is not None:
                    await hold.end()

    def stop(self) -> None:
        """Cancel the timers, because the end of the connection puts back what is held."""
        for state in self._states.values():
            if state.timer is not None:
                state.timer.cancel()
        self._states.clear()

    async def close(self) -> None:
        """Put everything back."""
        for state in list(self._states.values()):
            await self.end(state.queue)
        self.stop()

    @contextlib.asynccontextmanager
    async def _locked(self, queue: Queue, *, writes: bool = False) -> AsyncIterator[_State[Queue, Letter]]:
        key = self._key(queue)
        state = self._states.setdefault(key, _State(queue))
        state.users += 1
        try:
            bound = answering(self._timeout_seconds, self._translate, self._broker, written=writes)
            async with bound, state.lock:
                if state.timer is not None:
                    state.timer.cancel()
                    state.timer = None
                yield state
        finally:
            state.users -= 1
            if not state.users and state.hold is None:
                self._states.pop(key, None)
