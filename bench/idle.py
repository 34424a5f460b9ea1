"""Ten thousand idle long polls on a hundred queues of one process: its memory and its CPU."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import psutil

from babelgate.server.server import raise_file_limit
from bench.calls import queue
from bench.load import request
from tests.brokers.registry import HARNESSES
from tests.harness.gateway import GatewayProcess, gateway

WAITERS, QUEUES, SECONDS = 10_000, 100, 10.0
GOAL_MIB = 350


class Waiter(asyncio.Protocol):
    """A long poll on ``queue`` that is left waiting, over and over. ``ended`` is what came instead."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self.ended: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self.transport.write(request("POST", f"/queues/{self._queue}/messages:receive?wait_seconds=30"))

    def data_received(self, data: bytes) -> None:
        if data.endswith(b'{"messages":[]}'):
            self._ask()
        else:
            self.ended = data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = self.ended or b"the connection was closed"


async def wait(port: int, count: int) -> list[Waiter]:
    """So many long polls on QUEUES queues, all waiting."""
    names = [queue() for _ in range(QUEUES)]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for name in names:
            (await client.post(f"/queues/{name}/messages:receive")).raise_for_status()
    waiters = []
    for number in range(count):
        make = partial(Waiter, names[number % QUEUES])
        waiters.append((await asyncio.get_running_loop().create_connection(make, "127.0.0.1", port))[1])
        if number % 200 == 0:
            await asyncio.sleep(0.02)
    await asyncio.sleep(2)
    return waiters


def end(waiters: Sequence[Waiter]) -> None:
    """Hang up. Raises AssertionError when one of them did not wait until now."""
    if ended := [waiter.ended for waiter in waiters if waiter.ended is not None]:
        raise AssertionError(f"{len(ended)} of {len(waiters)} did not wait: {ended[0]!r}")
    for waiter in waiters:
        waiter.transport.close()


async def _measure(port: int, pid: int) -> tuple[float, float]:
    process = psutil.Process(pid)
    waiters = await wait(port, WAITERS)
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    await asyncio.sleep(SECONDS)
    share = (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - began)
    resident = process.memory_info().rss / 2**20
    end(waiters)
    return resident, share * 100


def main(directory: Path, broker: str) -> None:
    """Print one line for the broker of this kind."""
    raise_file_limit()
    with ExitStack() as stack:
        home = directory / f"idle-{broker}"
        home.mkdir()
        started = stack.enter_context(HARNESSES[broker][0].start(home))
        config = {"brokers": {"main": started.url}, "default": started.route()}
        process = stack.enter_context(gateway(home, config, kind=GatewayProcess))
        resident, share = asyncio.run(_measure(httpx.URL(process.url).port or 0, process.pid))
    print(
        f"{broker}: {WAITERS} idle long polls on {QUEUES} queues: {resident:.0f} MiB resident, "
        f"{share:.1f} % of one core over {SECONDS:.0f} s (goal: {GOAL_MIB} MiB, near 0 %)"
    )
