"""``python -m bench.overload``: five times the load that a gateway can sustain, offered on a schedule.

First the peak: the most publishes a second that were accepted, over some numbers of connections in a closed loop. Then
arrivals at a multiple of it, in an open loop: a request is due when the schedule says so, whatever became of those
before. ``hammer``: who is refused asks again with the next arrival. ``honour``: who is refused is silent for as long as
``Retry-After`` says. ``mixed``: nine tenths of the clients hammer one queue, which the others consume, while a few
publish a little to another queue, and one asks for ``/livez``.

Latencies begin with the write. The load generator runs on the same machine; where it cannot offer that much, or nobody
is idle, ``offered`` says what it did. Accepted publishes are also given for a second of the gateway's CPU: on a machine
that is busy with something else this tells what refusing costs, and the clock does not.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import tempfile
import time
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import psutil
import uvloop

from bench import calls
from bench.load import request
from bench.servers import Server, cpu_seconds
from tests.brokers.registry import HARNESSES, KINDS
from tests.harness.gateway import GatewayProcess, gateway

TICK_SECONDS = 0.001
PEAK_CONNECTIONS = (64, 256)


@dataclass
class Counted:
    """What a phase showed; latencies in seconds."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    offered: int = 0
    withheld: int = 0
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    failed: int = 0
    resident: list[int] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Accepted publishes a second."""
        return len(self.accepted) / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Accepted publishes in a second of the gateway's CPU."""
        return len(self.accepted) / self.cpu_seconds


class _Client(asyncio.Protocol):
    """A keep-alive connection with one request in flight."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._crowd.idle.append(self)

    def send(self, now: float) -> None:
        self._sent_at = now
        self._transport.write(self._crowd.request)

    def data_received(self, data: bytes) -> None:
        # An answer is smaller than a segment: it comes whole.
        self._crowd.answered(self, time.perf_counter() - self._sent_at, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.counted.failed += not self._crowd.over

    def close(self) -> None:
        self._transport.close()


class Crowd:
    """Connections that publish to one queue; those who are refused rest when they honour ``Retry-After``."""

    def __init__(self, server: Server, honour: bool = False) -> None:
        self.queue = calls.queue()
        self.request = request("POST", f"/queues/{self.queue}/messages", calls.ENVELOPE)
        self.idle: deque[_Client] = deque()
        self.counted = Counted()
        self.over = False
        self._server = server
        self._honour = honour
        self._closed_loop = False
        self._clients: list[_Client] = []

    async def gather(self, size: int) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        for _ in range(size):
            _, client = await loop.create_connection(partial(_Client, self), "127.0.0.1", self._server.port)
            self._clients.append(client)

    def answered(self, client: _Client, seconds: float, answer: bytes) -> None:
        """Count an answer, and say what its client does next."""
        counted, status = self.counted, answer[9:12]
        rest = 0
        if status == b"201":
            counted.accepted.append(seconds)
        elif status in (b"429", b"503"):
            counted.refused.append(seconds)
            at = answer.index(b"retry-after: ") + 13
            rest = int(answer[at : answer.index(b"\r\n", at)])
        else:
            raise AssertionError(f"the server answered {answer[:300]!r}")
        if self.over:
            return
        if self._closed_loop:
            client.send(time.perf_counter())
        elif self._honour and rest:
            asyncio.get_running_loop().call_later(rest, self.idle.append, client)
        else:
            self.idle.append(client)

    async def saturate(self, seconds: float) -> None:
        """Closed loop: everybody has a request in flight all the time."""
        self._closed_loop = True
        now, cpu = time.perf_counter(), cpu_seconds(self._server.pids)
        for client in self._clients:
            client.send(now)
        await asyncio.sleep(seconds)
        self.counted.seconds = time.perf_counter() - now
        self.counted.cpu_seconds = cpu_seconds(self._server.pids) - cpu

    async def arrive(self, rate: float, seconds: float, warm_up_seconds: float) -> None:
        """Open loop: ``rate`` requests a second by the clock, each by whoever is idle; only what follows the warm-up
        counts."""
        began = time.perf_counter()
        arrived, counting, cpu = 0, False, 0.0
        while (elapsed := time.perf_counter() - began) < warm_up_seconds + seconds:
            if not counting and elapsed >= warm_up_seconds:
                counting, cpu = True, cpu_seconds(self._server.pids)
                self.counted = Counted(resident=self.counted.resident)
            due = int(elapsed * rate) - arrived
            arrived += due
            now = time.perf_counter()
            sent = min(due, len(self.idle))
            for _ in range(sent):
                self.idle.popleft().send(now)
            self.counted.offered += sent
            self.counted.withheld += due - sent
            await asyncio.sleep(TICK_SECONDS)
        self.counted.seconds = time.perf_counter() - began - warm_up_seconds
        self.counted.cpu_seconds = cpu_seconds(self._server.pids) - cpu

    def disperse(self) -> None:
        """Hang up."""
        self.over = True
        for client in self._clients:
            client.close()


class _Consumer(asyncio.Protocol):
    """A connection that receives and acks, up to ten messages at a time, until it is closed."""

    def __init__(self, crowd: Consumers) -> None:
        self._crowd = crowd
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._crowd.receive)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(re.search(rb"content-length: (\d+)", head)[1]):  # type: ignore[index]  # it has one
            return
        self._answer = b""
        counts, status = self._crowd.counts, head[9:12]
        counts[status.decode()] += 1
        tokens = re.findall(rb'"ack_token":"([^"]+)"', body)
        if tokens:
            counts["received"] += len(tokens)
            body = b'{"ack_tokens":[%b]}' % b",".join([b'"%b"' % token for token in tokens])
            self._transport.write(request("POST", f"/queues/{self._crowd.queue}/messages:ack", body))
        elif status == b"429":
            asyncio.get_running_loop().call_later(1, self._transport.write, self._crowd.receive)
        else:
            self._transport.write(self._crowd.receive)


class Consumers:
    """Consumers of one queue. ``counts``: of the answers by status, and of the messages."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.receive = request("POST", f"/queues/{queue}/messages:receive?max_messages=10&wait_seconds=1")
        self.counts: Counter[str] = Counter()
        self._transports: list[asyncio.Transport] = []

    async def gather(self, server: Server, size: int) -> None:
        """Connect, and begin."""
        loop = asyncio.get_running_loop()
        for _ in range(size):
            transport, _ = await loop.create_connection(partial(_Consumer, self), "127.0.0.1", server.port)
            self._transports.append(transport)

    def disperse(self) -> None:
        """Hang up."""
        for transport in self._transports:
            transport.close()


def resident(pid: int) -> int:
    """The resident memory of a process in MiB."""
    return int(psutil.Process(pid).memory_info().rss) >> 20


async def _watch(pid: int, seen: list[int]) -> None:
    while True:
        seen.append(resident(pid))
        await asyncio.sleep(0.1)


async def peak(server: Server, seconds: float) -> Counted:
    """The closed loop with the greatest goodput."""
    found = []
    for connections in PEAK_CONNECTIONS:
        crowd = Crowd(server)
        await crowd.gather(connections)
        await crowd.saturate(seconds)
        crowd.disperse()
        found.append(crowd.counted)
        print(f"  closed loop, {connections} connections: {_goodput(crowd.counted)}")
    return max(found, key=lambda counted: counted.goodput)


async def overload(server: Server, rate: float, clients: int, seconds: float, honour: bool) -> Counted:
    """Offer ``rate`` requests a second with so many ``clients``."""
    crowd = Crowd(server, honour)
    await crowd.gather(clients)
    watch = asyncio.create_task(_watch(server.pids[0], crowd.counted.resident))
    await crowd.arrive(rate, seconds, warm_up_seconds=4.0 if honour else 1.0)
    watch.cancel()
    crowd.disperse()
    return crowd.counted


async def _probe(server: Server, latencies: list[float]) -> None:
    """Ask for ``/livez`` ten times a second, on a connection of its own."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        while True:
            began = time.perf_counter()
            (await client.get("/livez")).raise_for_status()
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(0.1)


async def mixed(server: Server, rate: float, clients: int, seconds: float) -> None:
    """Overload one queue that is consumed, beside a little traffic of another one; print what became of each."""
    large, small, latencies = Crowd(server), Crowd(server), list[float]()
    consumers = Consumers(large.queue)
    await large.gather(clients * 9 // 10)
    await small.gather(max(clients // 100, 4))
    probing = asyncio.create_task(_probe(server, latencies))
    await consumers.gather(server, clients // 10)
    little = rate / 100
    await asyncio.gather(large.arrive(rate, seconds, 1.0), small.arrive(little, seconds, 1.0))
    for crowd in (large, small, consumers):
        crowd.disperse()
    probing.cancel()
    print(f"  mixed: due {rate:,.0f}/s and {little:,.0f}/s")
    for name, counted in (("overloaded queue", large.counted), ("small queue", small.counted)):
        asked = len(counted.accepted) + len(counted.refused)
        print(
            f"    {name}: {_goodput(counted)}, {len(counted.accepted) / max(asked, 1):.0%} of {asked:,}; "
            f"accepted {_percentiles(counted.accepted)}; refused {_percentiles(counted.refused)}"
        )
    counts = consumers.counts
    print(
        f"    consumers: {counts['received'] / (seconds + 1):,.0f} messages/s, {counts['429']} of "
        f"{counts.total() - counts['received']:,} calls refused\n    /livez: {_percentiles(latencies)}, "
        f"{max(latencies, default=math.inf) * 1e3:.0f} ms at most"
    )


def _percentiles(latencies: list[float]) -> str:
    if not latencies:
        return "none"
    ordered = sorted(latencies)
    p50, p99 = (ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3 for share in (0.5, 0.99))
    return f"{len(ordered):,} (p50 {p50:.1f} ms, p99 {p99:.1f} ms)"


def _goodput(counted: Counted) -> str:
    return f"{counted.goodput:,.0f} accepted/s, {counted.per_cpu_second:,.0f} in a second of CPU"


async def run(server: Server, arguments: argparse.Namespace) -> None:
    """Measure and print."""
    await peak(server, 0.5)
    best = await peak(server, arguments.seconds / 2)
    before, due = resident(server.pids[0]), best.goodput * arguments.factor
    for name, honour in (("hammer", False), ("honour", True)):
        cpu, began = sum(os.times()[:2]), time.perf_counter()
        counted = await overload(server, due, arguments.clients, arguments.seconds, honour)
        busy = (sum(os.times()[:2]) - cpu) / (time.perf_counter() - began)
        await asyncio.sleep(1)
        print(
            f"  {name}: due {due:,.0f}/s, offered {counted.offered / counted.seconds:,.0f}/s\n"
            f"    {_goodput(counted)}: {counted.goodput / best.goodput:.0%} and "
            f"{counted.per_cpu_second / best.per_cpu_second:.0%} of the peak\n"
            f"    accepted {_percentiles(counted.accepted)}; refused {_percentiles(counted.refused)}; "
            f"failed {counted.failed}\n"
            f"    resident: {before} MiB before, {max(counted.resident)} MiB at most, "
            f"{resident(server.pids[0])} MiB after; the load generator had {busy:.0%} of a core"
        )
    await mixed(server, due, arguments.clients, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="sqlite")
    parser.add_argument("--factor", type=float, default=5.0, help="times the peak")
    parser.add_argument("--clients", type=int, default=1000, help="connections")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(HARNESSES[arguments.broker][0].start(directory))
        config = {"brokers": {"main": broker.url}, "default": {"broker": "main"}}
        process = stack.enter_context(gateway(directory, config, kind=GatewayProcess))
        print(f"{arguments.broker}, one worker, envelopes of 400 bytes:")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(Server(httpx.URL(process.url).port or 0, [process.pid]), arguments))


if __name__ == "__main__":
    main()
