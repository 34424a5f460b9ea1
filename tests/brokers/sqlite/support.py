"""What the tests of the SQLite binding share."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.sqlite.binding import SqliteBinding
from babelgate.brokers.sqlite.file import DatabaseFile
from babelgate.clock import Clock, now_ms

ROOT = Path(__file__).resolve().parents[3]
BODY = b'{"job":"urn:babel:test:made","trace_id":"t","data":{},"meta":{"id":"1","queue":"q","lang":"python",' + (
    b'"schema_version":1,"created_at":1},"attempts":0}'
)


class Hands:
    """A clock that a test moves by hand; Unix ms."""

    def __init__(self) -> None:
        self.now = now_ms()

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.now += round(seconds * 1000)


@asynccontextmanager
async def opened(
    path: Path,
    clock: Clock = now_ms,
    prepared: Callable[[sqlite3.Connection], object] | None = None,
    busy_timeout_seconds: float = 5,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> AsyncIterator[SqliteBinding]:
    """A binding on the file; ``prepared`` gets the writer's connection before it is used."""
    file = DatabaseFile("local", str(path), busy_timeout_seconds=busy_timeout_seconds, timeout_seconds=timeout_seconds)

    def connect() -> sqlite3.Connection:
        connection = file.connect_writer()
        if prepared is not None:
            prepared(connection)
        return connection

    binding = SqliteBinding(file, clock, connect)
    await binding.open()
    try:
        yield binding
    finally:
        await binding.close()


class Line:
    """A binding and one queue, short."""

    def __init__(self, binding: SqliteBinding, queue: str) -> None:
        self.binding = binding
        self.queue = NativeQueue(queue)

    async def publish(self, *bodies: bytes, delay: float = 0) -> None:
        outcomes = await self.binding.publish(self.queue, [Outgoing(body, delay_seconds=delay) for body in bodies])
        assert list(outcomes) == [None] * len(bodies)

    async def reserve(self, limit: int = 100, wait: float = 0, lease: float = 60) -> Sequence[Delivery]:
        return await self.binding.reserve(self.queue, limit, wait, lease)

    async def bodies(self, limit: int = 100) -> list[bytes]:
        return [delivery.body for delivery in await self.reserve(limit)]

    async def ack(self, *deliveries: Delivery) -> list[Any]:
        return list(await self.binding.ack(self.queue, [delivery.handle for delivery in deliveries]))

    async def release(self, *deliveries: Delivery, delay: float = 0, failed: bool = False) -> list[Any]:
        handles = [delivery.handle for delivery in deliveries]
        return list(await self.binding.release(self.queue, handles, delay, failed))

    async def extend(self, *deliveries: Delivery, lease: float = 60) -> list[Any]:
        return list(await self.binding.extend(self.queue, [delivery.handle for delivery in deliveries], lease))


PREAMBLE = """
import asyncio, sys, time
from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.sqlite.binding import connect
from babelgate.clock import now_ms

def say(text):
    print(text, flush=True)

binding = connect("local", "sqlite:///" + sys.argv[1], {}, now_ms)
queue = NativeQueue(sys.argv[2])
"""


def another_process(path: Path, queue: str, script: str) -> Popen[str]:
    """A Python process that runs ``script`` (after PREAMBLE) on the file, with pipes for its input and output."""
    command = [sys.executable, "-c", PREAMBLE + script, str(path), queue]
    return Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)


def told(process: Popen[str]) -> str:
    """The next line that the process says; empty at its end."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: Popen[str], line: str = "go") -> None:
    """Write a line to the process."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def finished(process: Popen[str]) -> str:
    """The rest of what the process said, after it ended well."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output
