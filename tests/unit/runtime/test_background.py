"""Background tasks are kept until they end, and end together when their owner does."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.runtime.background import BackgroundTasks


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_task_is_kept_until_it_ends() -> None:
    tasks: BackgroundTasks[int] = BackgroundTasks()

    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    task = tasks.start(work())
    assert len(tasks) == 1 and list(tasks) == [task]
    assert await task == 3
    await asyncio.sleep(0)
    assert not tasks


async def test_cancel_ends_all_and_may_be_repeated() -> None:
    tasks: BackgroundTasks[None] = BackgroundTasks()
    started = [tasks.start(forever()) for _ in range(3)]
    await tasks.cancel()
    assert all(task.cancelled() for task in started)
    await tasks.cancel()


async def test_cancel_raises_no_error_of_a_task() -> None:
    tasks: BackgroundTasks[None] = BackgroundTasks()

    async def fail() -> None:
        raise ValueError("failed")

    task = tasks.start(fail())
    await tasks.cancel()
    assert task.cancelled() or isinstance(task.exception(), ValueError)


async def test_wait_ends_with_its_time_and_cancels_nothing() -> None:
    tasks: BackgroundTasks[None] = BackgroundTasks()
    await tasks.wait()
    task = tasks.start(forever())
    await tasks.wait(0.01)
    assert not task.done()
    waiting = asyncio.ensure_future(tasks.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not task.done()
    await tasks.cancel()
