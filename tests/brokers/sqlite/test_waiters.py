"""Waiting reserves are woken by what this process does, by what others do, and by time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from babelgate.brokers.sqlite.file import SQL
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from tests.brokers.sqlite.support import Line, another_process, finished, opened, tell, told

LONG = 20.0
"""Seconds to wait for what must come: a wait that ends empty took all of it."""


@pytest.fixture
async def line(tmp_path: Path, queue: str) -> AsyncIterator[Line]:
    async with opened(tmp_path / "q.db") as binding:
        yield Line(binding, queue)


async def waiting(line: Line, limit: int = 1) -> asyncio.Task[list[bytes]]:
    async def bodies() -> list[bytes]:
        return [delivery.body for delivery in await line.reserve(limit, wait=LONG)]

    task = asyncio.create_task(bodies())
    await line.binding.ping()  # behind the first attempt, which found nothing
    return task


async def test_a_publish_wakes(line: Line) -> None:
    task = await waiting(line)
    await line.publish(b"a")
    assert await task == [b"a"]


async def test_a_release_wakes(line: Line) -> None:
    await line.publish(b"a")
    taken = await line.reserve()
    task = await waiting(line)
    await line.release(*taken)
    assert await task == [b"a"]


async def test_the_end_of_a_delay_wakes(line: Line) -> None:
    task = await waiting(line)
    await line.publish(b"a", delay=0.05)
    assert await task == [b"a"]


async def test_the_end_of_a_lease_wakes(line: Line) -> None:
    await line.publish(b"a")
    await line.reserve(lease=0.05)
    assert await (await waiting(line)) == [b"a"]


async def test_a_lease_that_was_extended_does_not_wake(line: Line) -> None:
    await line.publish(b"a")
    taken = await line.reserve(lease=3)
    await line.extend(*taken, lease=60)
    assert await line.reserve(wait=3.2) == []


async def test_another_process_wakes(line: Line, tmp_path: Path) -> None:
    script = """
async def main():
    await binding.open()
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    await binding.publish(queue, [Outgoing(b"from afar"), Outgoing(b"and later", delay_seconds=0.3)])
    await binding.close()

asyncio.run(main())
"""
    with another_process(tmp_path / "q.db", line.queue.name, script) as process:
        assert await asyncio.to_thread(told, process) == "ready"
        task = await waiting(line)
        tell(process)
        assert await task == [b"from afar"]
        assert [delivery.body for delivery in await line.reserve(wait=LONG)] == [b"and later"]
        await asyncio.to_thread(finished, process)


async def test_an_empty_wait_ends_empty(line: Line) -> None:
    assert await line.reserve(wait=0.05) == []


async def test_waiters_share_what_comes(line: Line) -> None:
    tasks = [await waiting(line) for _ in range(5)]
    await line.publish(*(str(number).encode() for number in range(5)))
    assert sorted([body for task in tasks for body in await task]) == [b"0", b"1", b"2", b"3", b"4"]


async def test_close_ends_waits_empty(line: Line) -> None:
    task = await waiting(line)
    await line.binding.close()
    assert await task == []


async def test_a_cancelled_reserve_holds_nothing(line: Line) -> None:
    task = asyncio.create_task(line.reserve(wait=LONG))
    await asyncio.sleep(0)  # its first attempt is on its way to the writer
    await line.publish(b"a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [delivery.body for delivery in await line.reserve(wait=LONG)] == [b"a"]


@pytest.fixture
async def held(tmp_path: Path, queue: str) -> AsyncIterator[tuple[Line, threading.Event, threading.Event]]:
    """A queue with a message, whose next commit sets the first event and waits for the second."""
    arrived, free = threading.Event(), threading.Event()
    armed: list[bool] = []

    def seen(statement: str) -> None:
        if statement == "COMMIT" and armed:
            arrived.set()
            free.wait()

    async with opened(tmp_path / "q.db", prepared=lambda connection: connection.set_trace_callback(seen)) as binding:
        binding.timeout_seconds = LONG
        line = Line(binding, queue)
        await line.publish(b"a")
        armed.append(True)
        try:
            yield line, arrived, free
        finally:
            free.set()


async def test_what_is_reserved_for_a_caller_that_has_gone_is_given_back(
    held: tuple[Line, threading.Event, threading.Event],
) -> None:
    line, arrived, free = held
    task = asyncio.create_task(line.reserve())
    assert await asyncio.to_thread(arrived.wait, LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    assert [delivery.body for delivery in await line.reserve(wait=LONG)] == [b"a"]


async def test_what_is_reserved_too_late_is_given_back_and_what_was_not_begun_is_dropped(
    held: tuple[Line, threading.Event, threading.Event],
) -> None:
    line, arrived, free = held
    line.binding.timeout_seconds = 0.01
    while not arrived.is_set():
        with pytest.raises(BrokerUnavailable):
            await line.reserve()
    with pytest.raises(OutcomeUnknown):
        await line.publish(b"nobody waits for it")
    line.binding.timeout_seconds = LONG
    free.set()
    assert [delivery.body for delivery in await line.reserve(wait=LONG)] == [b"a"]
    assert await line.bodies() == []


async def test_a_change_elsewhere_costs_a_hundred_waits_next_to_nothing(tmp_path: Path) -> None:
    statements: Counter[str] = Counter()
    head = SQL["next_ready"].split("?")[0]

    def seen(statement: str) -> None:
        statements["reserve"] += statement.startswith(head)

    async with (
        opened(tmp_path / "q.db", prepared=lambda connection: connection.set_trace_callback(seen)) as binding,
        opened(tmp_path / "q.db") as other,
    ):
        lines = [Line(binding, f"queue.{number}") for number in range(100)]
        for line in lines:
            await line.publish(b"first")
            await line.reserve()
        tasks = [await waiting(line) for line in lines]
        statements.clear()
        await Line(other, "queue.42").publish(b"for one")
        assert await tasks[42] == [b"for one"]
        assert 1 <= statements["reserve"] <= 3
        await binding.close()
        await asyncio.gather(*tasks)
