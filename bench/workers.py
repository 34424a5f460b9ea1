"""``python -m bench.workers``: CPU a message, memory and shares of the connections, of one worker and of two.

The servers are driven in turns with single publishes from 64 connections, by wrk where it is installed. Memory is
resident and proportional (each shared page divided by its users), in MiB, after the load. The goals: CPU a message
within 10 % of one process, and 70 MiB resident a worker. The bare application shows what two busy processors cost
without any work of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import uvloop

from bench import calls
from bench.servers import Server, bare, cpu_seconds
from tests.brokers.registry import HARNESSES
from tests.harness.gateway import GatewayProcess, gateway, workers_of

CONNECTIONS = 64
GOAL_MIB, GOAL_RATIO = 70, 1.1


def mebibytes(pid: int) -> tuple[float, float]:
    """Resident and proportional memory of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    resident, proportional = (
        int(re.findall(rf"^{field}: +(\d+) kB", rollup, re.MULTILINE)[0]) / 1024 for field in ("Rss", "Pss")
    )
    return resident, proportional


def _connections(pid: int, port: int) -> int:
    found = psutil.Process(pid).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr[1] == port for each in found)


async def _turn(server: Server, program: str | None) -> tuple[float, list[int]]:
    """CPU in microseconds a message, and how many connections each worker had."""
    before = cpu_seconds(server.pids)
    load = asyncio.create_task(calls.publish(server.port, "bench", CONNECTIONS, 8000, program))
    share = [0]
    while not load.done():
        await asyncio.sleep(0.1)
        share = max(share, [_connections(pid, server.port) for pid in workers_of(server.pids[0])], key=sum)
    measured = await load
    return (cpu_seconds(server.pids) - before) / measured.operations * 1e6, share


async def _measure(servers: dict[int, Server], turns: int) -> None:
    program = shutil.which("wrk")
    taken: defaultdict[int, list[tuple[float, list[int]]]] = defaultdict(list)
    for number in range(turns + 1):
        for workers, server in servers.items():
            one = await _turn(server, program)
            if number:  # the first turn warms up
                taken[workers].append(one)
    for workers, server in servers.items():
        ratios = [one[0] / base[0] for one, base in zip(taken[workers], taken[1], strict=True)]
        memory = ", ".join(f"{rss:.0f} ({pss:.0f})" for rss, pss in map(mebibytes, workers_of(server.pids[0])))
        shares = ", ".join("+".join(map(str, share)) for _, share in taken[workers])
        cpu = statistics.median(one[0] for one in taken[workers])
        print(f"| {workers} | {cpu:.1f} ({statistics.median(ratios):.2f}) | {memory} | {shares} |", flush=True)


@contextmanager
def _started(broker: str, workers: int) -> Iterator[Server]:
    with ExitStack() as stack:
        if broker == "bare":
            yield stack.enter_context(bare(workers))
            return
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = stack.enter_context(HARNESSES[broker][0].start(home))
        config = {"brokers": {"main": started.url}, "default": started.route(), "workers": workers}
        process = stack.enter_context(gateway(home, config, kind=GatewayProcess))
        yield Server(httpx.URL(process.url).port or 0, (process.pid,))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    choices = ["bare", *sorted(HARNESSES)]
    parser.add_argument("--brokers", nargs="+", default=["bare", "sqlite", "redis", "rabbitmq"], choices=choices)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"load: {'wrk' if shutil.which('wrk') else 'Python'}; goals: {GOAL_RATIO} times the CPU, {GOAL_MIB} MiB")
    for broker in asked.brokers:
        print(
            f"\n| {broker}: workers | CPU µs a publish (times one) | MiB resident (proportional) | connections each |"
        )
        print("| --- | --- | --- | --- |")
        with ExitStack() as stack:
            servers = {workers: stack.enter_context(_started(broker, workers)) for workers in (1, 2)}
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_measure(servers, asked.turns))


if __name__ == "__main__":
    main()
