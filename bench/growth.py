"""``python -m bench.growth``: whether a message costs more where there is more: queues, messages, connections,
waiting receives, bytes.

For each size one gateway with a broker of its own, prepared once. Then they are measured in turns: so many single
publishes, and as many pairs of receive and ack. CPU is user and system time of the gateway a message. The ratio is
the median of those to the first size in the same turn.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop

from babelgate.server.server import raise_file_limit
from bench import calls, idle
from bench.load import Measured, Step, drive, request
from bench.servers import Server, cpu_seconds
from tests.brokers.registry import HARNESSES
from tests.harness.gateway import GatewayProcess, gateway

CONNECTIONS = 64


@dataclass
class Load:
    """What a turn does at one size."""

    queues: int = 1
    queued: int = 0
    connections: int = CONNECTIONS
    waiters: int = 0
    bytes: int = 300


@dataclass(frozen=True)
class Subject:
    """What grows, and the load of each size."""

    name: str
    sizes: Sequence[int]
    load: Callable[[int], Load]
    bounded_by_scale: bool = False


SUBJECTS = (
    Subject("queues in use", (1, 100, 10_000), lambda size: Load(queues=size)),
    Subject("messages queued", (100, 10_000, 1_000_000), lambda size: Load(queued=size), bounded_by_scale=True),
    Subject("connections", (1, 64, 1_000), lambda size: Load(connections=size)),
    Subject("receives that wait", (0, 1_000, 10_000), lambda size: Load(waiters=size)),
    Subject("bytes of a body", (100, 1_000, 10_000, 100_000), lambda size: Load(bytes=size)),
)


class Column:
    """One size of a subject: a gateway, and the load it has."""

    def __init__(self, server: Server, load: Load) -> None:
        self._server = server
        self._load = load
        self._queues = [calls.queue() for _ in range(load.queues)]
        draft = b'{"job":"urn:babel:orders:created","data":{"note":""}}'
        self._body = draft[:-3] + b"x" * (load.bytes - len(draft)) + draft[-3:]
        self._waiters: list[idle.Waiter] = []

    async def prepare(self) -> None:
        """Use each queue once, fill the queue, and let the receives wait."""
        await self._publish(len(self._queues))
        await self._consume(len(self._queues))
        if self._load.queued:
            await calls.fill(self._server.port, self._queues[0], self._load.queued)
        if self._load.waiters:
            self._waiters = await idle.wait(self._server.port, self._load.waiters)

    async def turn(self, operations: int) -> tuple[float, float]:
        """CPU in microseconds a publish, and a pair of receive and ack."""
        # Opening a connection costs as much as a message.
        operations = max(operations, 10 * self._load.connections)
        return await self._cpu(self._publish, operations), await self._cpu(self._consume, operations)

    def end(self) -> None:
        """Let the receives go. Raises AssertionError when one did not wait."""
        idle.end(self._waiters)

    async def _cpu(self, run: Callable[[int], Awaitable[Measured]], operations: int) -> float:
        before = cpu_seconds(self._server.pids)
        measured = await run(operations)
        return (cpu_seconds(self._server.pids) - before) / measured.operations * 1e6

    async def _publish(self, operations: int) -> Measured:
        sent = itertools.cycle([request("POST", f"/queues/{name}/messages", self._body) for name in self._queues])

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            calls.expect(status, 201, answer)
            return next(sent), True

        def make(number: int) -> Step:
            return step

        return await drive(self._server.port, self._load.connections, operations, make)

    async def _consume(self, operations: int) -> Measured:
        names = itertools.cycle(self._queues)
        return await calls.consume_of(self._server.port, lambda: next(names), self._load.connections, operations, 1)


@contextmanager
def _servers(directory: Path, broker: str, count: int) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
            started = stack.enter_context(HARNESSES[broker][0].start(home))
            config = {"brokers": {"main": started.url}, "default": started.route()}
            process = stack.enter_context(gateway(home, config, kind=GatewayProcess))
            found.append(Server(httpx.URL(process.url).port or 0, (process.pid,)))
        yield found


async def _measure(directory: Path, broker: str, subject: Subject, asked: argparse.Namespace) -> None:
    """Measure, and print one row for publishes and one for receive and ack."""
    taken: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    sizes = [round(size * asked.scale) if subject.bounded_by_scale else size for size in subject.sizes]
    with _servers(directory, broker, len(sizes)) as servers:
        columns = [Column(server, subject.load(size)) for server, size in zip(servers, sizes, strict=True)]
        for column in columns:
            await column.prepare()
        for number in range(asked.turns + 1):
            for size, column in zip(sizes, columns, strict=True):
                figures = await column.turn(asked.operations)
                if number:  # the first turn warms up
                    taken[size].append(figures)
        for column in columns:
            column.end()
    first = taken[sizes[0]]
    for verb, name in enumerate(("publish", "receive + ack")):
        cells = []
        for size in sizes:
            ratio = statistics.median(each[verb] / base[verb] for each, base in zip(taken[size], first, strict=True))
            cpu = statistics.median(each[verb] for each in taken[size])
            per_byte = f", {cpu * 1000 / size:.0f} ns a byte" if subject.name.startswith("bytes") else ""
            cells.append(f"{cpu:.0f}{per_byte}" + (f" ({ratio:.2f})" if size != sizes[0] else ""))
        print(f"| {broker}: {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--only", default="", choices=["", *(subject.name for subject in SUBJECTS)])
    parser.add_argument("--brokers", nargs="+", default=["sqlite", "redis"], choices=["sqlite", "redis", "rabbitmq"])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--operations", type=int, default=3000, help="publishes, and pairs, a turn")
    parser.add_argument("--scale", type=float, default=1.0, help="times the numbers of queued messages")
    asked = parser.parse_args()
    raise_file_limit()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    for subject in SUBJECTS:
        if asked.only not in ("", subject.name):
            continue
        sizes = [f"{round(size * asked.scale) if subject.bounded_by_scale else size:,}" for size in subject.sizes]
        print(f"\n| CPU µs a message (times the first), by {subject.name} | {' | '.join(sizes)} |")
        print(f"| --- |{' --- |' * len(sizes)}")
        for broker in asked.brokers:
            with (
                tempfile.TemporaryDirectory() as directory,
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                runner.run(_measure(Path(directory), broker, subject, asked))


if __name__ == "__main__":
    main()
