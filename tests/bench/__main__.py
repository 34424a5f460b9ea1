"""``python -m tests.bench``: every figure beside its baseline, in one run, the cases taken in turn.

CPU is user and system time of the measured server's process tree, per message; a machine that is busy with something
else stretches the latencies, but hardly that. The load generator runs on the same machine and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.bench import cases, codec, idle, raw_redis
from tests.bench.load import Measured
from tests.bench.servers import Server, all_servers

CONNECTIONS = (1, 16, 64)


@dataclass(frozen=True)
class Sample:
    """One run of one case."""

    cpu_us: float
    per_second: float
    p50_ms: float
    p99_ms: float


def sample(measured: Measured, messages: int, cpu_seconds: float) -> Sample:
    total = measured.operations * messages
    return Sample(
        cpu_us=cpu_seconds / total * 1e6,
        per_second=total / measured.seconds,
        p50_ms=measured.percentile(0.50) * 1e3,
        p99_ms=measured.percentile(0.99) * 1e3,
    )


async def measure(server: Server, case: cases.Case) -> Sample:
    """Prepare, warm up, run, and divide."""
    queue = cases.queue()
    await case.prepare(server.port, queue)
    before = server.cpu_seconds()
    measured = await case.run(server.port, queue)
    return sample(measured, case.messages, server.cpu_seconds() - before)


async def run(directory: Path, repetitions: int, scale: float, only: str) -> dict[str, list[Sample]]:
    """All samples by the name of their case, in the order of the cases."""
    chosen = [case for case in cases.all_cases(CONNECTIONS, scale) if only in case.name]
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    with all_servers(directory) as servers:
        for repetition in range(repetitions + 1):
            for case in chosen:
                taken = await measure(servers[case.server], case)
                if repetition:  # the first round warms up
                    samples[case.name].append(taken)
            for connections in CONNECTIONS if "redis-py" in f"raw redis-py {only}" else ():
                name = f"raw redis-py: RPUSH, {connections} at a time"
                if only not in name:
                    continue
                measured, cpu = await raw_redis.publish(servers["redis-server"].port, connections, round(4000 * scale))
                if repetition:
                    samples[name].append(sample(measured, 1, cpu))
    return samples


def spread(values: Sequence[float], digits: int = 1) -> str:
    """min / median / max."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def report(samples: dict[str, list[Sample]]) -> None:
    """One row a case; the ratio is of medians, to the bare application at as many connections."""
    bare = {
        name.rsplit(", ", 1)[1]: statistics.median(s.cpu_us for s in taken)
        for name, taken in samples.items()
        if name.startswith("bare")
    }
    width = max(map(len, samples))
    print(f"{'case':{width}}  {'CPU µs a message':>22}  {'x bare':>6}  {'messages/s':>25}  {'p50 ms':>7} {'p99 ms':>7}")
    for name, taken in samples.items():
        cpu = [s.cpu_us for s in taken]
        against = bare.get(name.rsplit(", ", 1)[-1])
        ratio = f"{statistics.median(cpu) / against:6.2f}" if against else " " * 6
        p50, p99 = (statistics.median(getattr(s, which) for s in taken) for which in ("p50_ms", "p99_ms"))
        rate = spread([s.per_second for s in taken], 0)
        print(f"{name:{width}}  {spread(cpu):>22}  {ratio}  {rate:>25}  {p50:7.2f} {p99:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer operations a case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--skip-idle", action="store_true", help="without the 10,000 idle long polls (20 s)")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    if not arguments.only or "codec" in arguments.only:
        codec.run(arguments.repetitions, 5000)
        print()
    with tempfile.TemporaryDirectory() as directory:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            samples = runner.run(run(Path(directory), arguments.repetitions, arguments.scale, arguments.only))
        if samples:
            report(samples)
        if not arguments.skip_idle and arguments.only in ("", "idle"):
            print()
            for broker in ("sqlite", "redis"):
                idle.main(Path(directory), broker)


if __name__ == "__main__":
    main()
