"""Who waits for which queue, and the one task that wakes them for what this process did not do itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from app.brokers.sqlite.reader import Look
from app.clock import Clock
from app.errors import BabelgateError

LOOK_SECONDS = 0.25
"""How often the file is looked at for commits of other processes, while anybody waits."""


class Waits:
    """Waiters per queue. ``look`` sees the commits of other processes, ``sweep`` makes ready what is due and returns
    when the next is; both are asked by one task, which lives only while somebody waits."""

    def __init__(
        self, look: Callable[[], Awaitable[Look | None]], sweep: Callable[[], Awaitable[int | None]], clock: Clock
    ) -> None:
        self._look = look
        self._sweep = sweep
        self._clock = clock
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._due: int | None = None
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, queue: str) -> asyncio.Future[None]:
        """A future that is done when ``queue`` may have a message; to be discarded after use."""
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
        """Wake all who wait for one of ``queues``."""
        for queue in queues:
            for waiter in self._waiting.pop(queue, ()):
                if not waiter.done():
                    waiter.set_result(None)

    def due(self, at: int | None) -> None:
        """Something becomes due at ``at`` (Unix ms); ``None``: nothing does."""
        if at is not None and (self._due is None or at < self._due):
            self._due = at
            self._sooner.set()

    async def close(self) -> None:
        """Wake everybody and end the task."""
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
                self.wake(list(self._waiting))  # each meets the error by itself

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
