"""Several processes on one file: none is refused, none starves, none sees what another holds."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from babelgate.brokers.binding import NativeQueue
from tests.brokers.sqlite.support import Line, another_process, finished, opened, tell, told


async def test_many_processes_open_a_new_file_at_once(tmp_path: Path, queue: str) -> None:
    script = """
say("ready")
sys.stdin.readline()

async def main():
    await binding.open()
    outcomes = await binding.publish(queue, [Outgoing(b"here")])
    assert outcomes == [None]
    await binding.close()

asyncio.run(main())
"""
    with ExitStack() as stack:
        processes = [stack.enter_context(another_process(tmp_path / "q.db", queue, script)) for _ in range(6)]
        for process in processes:
            assert await asyncio.to_thread(told, process) == "ready"
        for process in processes:
            tell(process)
        for process in processes:
            await asyncio.to_thread(finished, process)
    async with opened(tmp_path / "q.db") as binding:
        assert await Line(binding, queue).bodies() == [b"here"] * 6


async def test_no_writer_starves(tmp_path: Path) -> None:
    script = """
async def publish(until):
    while time.monotonic() < until:
        await binding.publish(queue, [Outgoing(b"x" * 400)])

async def main():
    await binding.open()
    say("ready")
    sys.stdin.readline()
    until = time.monotonic() + 6
    await asyncio.gather(*(publish(until) for _ in range(16)))
    await binding.close()

asyncio.run(main())
"""
    names = ["a", "b", "c"]
    with ExitStack() as stack:
        processes = [stack.enter_context(another_process(tmp_path / "q.db", name, script)) for name in names]
        for process in processes:
            assert await asyncio.to_thread(told, process) == "ready"
        for process in processes:
            tell(process)
        for process in processes:
            await asyncio.to_thread(finished, process)
    async with opened(tmp_path / "q.db") as binding:
        depths = [(await binding.stats(NativeQueue(name))).depth or 0 for name in names]
    assert min(depths) >= sum(depths) / 10, depths


async def test_an_expiry_counts_once_whoever_sees_it(tmp_path: Path, queue: str) -> None:
    async with AsyncExitStack() as stack:
        bindings = [await stack.enter_async_context(opened(tmp_path / "q.db")) for _ in range(4)]
        lines = [Line(binding, queue) for binding in bindings]
        await lines[0].publish(*[b"x"] * 80)
        await lines[0].reserve(lease=0.05)
        taken = await asyncio.gather(*(line.reserve(20, wait=10) for line in lines))
        deliveries = [delivery for of in taken for delivery in of]
        assert [delivery.delivery_count for delivery in deliveries] == [1] * 80
        assert len({delivery.handle.partition(".")[0] for delivery in deliveries}) == 80


async def test_reservers_in_several_processes_are_disjoint(tmp_path: Path, queue: str) -> None:
    script = """
async def main():
    await binding.open()
    say("ready")
    sys.stdin.readline()
    while deliveries := await binding.reserve(queue, 7, 0, 60):
        await binding.ack(queue, [delivery.handle for delivery in deliveries])
        for delivery in deliveries:
            say(delivery.body.decode())
    await binding.close()

asyncio.run(main())
"""
    async with opened(tmp_path / "q.db") as binding:
        await Line(binding, queue).publish(*(str(number).encode() for number in range(600)))
        with ExitStack() as stack:
            processes = [stack.enter_context(another_process(tmp_path / "q.db", queue, script)) for _ in range(3)]
            for process in processes:
                assert await asyncio.to_thread(told, process) == "ready"
            for process in processes:
                tell(process)
            heard = [line for process in processes for line in (await asyncio.to_thread(finished, process)).split()]
        assert sorted(map(int, heard)) == list(range(600))
        assert (await binding.stats(NativeQueue(queue))).in_flight == 0
