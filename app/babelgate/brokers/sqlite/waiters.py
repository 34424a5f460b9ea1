"""Wakes the reserves that wait for messages, also for commits of other processes and for due times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from babelgate.brokers.sqlite.reader import FileState
from babelgate.clock import Clock
from babelgate.errors import BabelgateError

LOOK_SECONDS = 0.25
"""How often the file is checked for commits of other processes while a reserve waits."""


class Waiters:
    """Waiting reserves per queue. One task, which runs only while a reserve waits, calls ``look`` for the commits of
    other processes, and ``sweep``, which makes due messages ready and returns the next due time (Unix ms)."""

    def __init__(
        self, look: Callable[[], Awaitable[FileState | None]], sweep: Callable[[], Awaitable[int | None]], clock: Clock
    ) -> None:
        self._look = look
        self._sweep = sweep
        self._clock = clock
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._due: int | None = None
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, queue: str) -> asyncio.Future[None]:
        """A future that is done when ``queue`` may have a message. Call :meth:`discard` after use."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, set()).add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        return waiter

    def discard(self, queue: str, waiter: asyncio.Future[None]) -> None:
        """Stop waiting."""
        waiters = self._waiting.get(queue, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiting.pop(queue, None)

    def wake(self, queues: Iterable[str]) -> None:
        """Wake all waiters of ``queues``."""
        for queue in queues:
            for waiter in self._waiting.pop(queue, ()):
                if not waiter.done():
                    waiter.set_result(None)

    def due(self, at: int | None) -> None:
        """Note that a message or lease is due at ``at`` (Unix ms); ``None``: none is."""
        if at is not None and (self._due is None or at < self._due):
            self._due = at
            self._sooner.set()

    async def close(self) -> None:
        """Wake all waiters and end the task."""
        self.wake(list(self._waiting))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while self._waiting:
            await self._sleep()
            try:
                if self._due is not None and self._due <= self._clock():
                    self._due = None
                    self.due(await self._sweep())
                seen = await self._look()
                if seen is not None:
                    self.due(seen.next_due)
                    self.wake(seen.ready)
            except BabelgateError:
                self.wake(list(self._waiting))  # each waiter meets the error itself

    async def _sleep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sooner.clear()
        until = loop.time() + LOOK_SECONDS
        while (remaining := until - loop.time()) > 0:
            if self._due is not None:
                remaining = min(remaining, (self._due - self._clock()) / 1000)
            if remaining <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._sooner.wait()
            self._sooner.clear()
