"""Keeps references to tasks that run in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def error_seen(task: asyncio.Future[Any]) -> None:
    """Mark the error of a task that has ended as seen, so that the event loop does not log it: a callback of tasks."""
    if not task.cancelled():
        task.exception()


class BackgroundTasks(Generic[Result]):
    """The running tasks of one owner: each stays referenced until it ends, and all can be cancelled together.

    Without a reference a task may be collected before it ends
    (https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task).
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Result]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Result]]:
        return iter(tuple(self._running))

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run ``work`` as a task; needs a running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, timeout_seconds: float | None = None) -> None:
        """Wait until the tasks that run now have ended, for at most ``timeout_seconds``; raises none of their errors.

        The tasks continue when the time is over or the caller is cancelled.
        """
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_seconds)

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they have ended; raises none of their errors; idempotent."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
