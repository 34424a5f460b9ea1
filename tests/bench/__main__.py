"""``python -m tests.bench``: every figure beside its baseline, in one run, the cases taken in turn.

CPU is user and system time of the measured server's process tree, per message; a machine that is busy with something
else stretches the latencies, but hardly that. The load generator runs on the same machine and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from tests.bench import cases, codec, idle, observing, raw
from tests.bench.reporting import Sample, Samples, goals, sample, table
from tests.bench.servers import Server, all_servers, cpu_seconds
from tests.brokers.registry import KINDS

CONNECTIONS = (1, 16, 64)


async def measure(servers: Mapping[str, Server], case: cases.Case) -> Sample:
    """Prepare, run, and divide."""
    queue = cases.queue()
    await case.prepare(servers[case.by or case.server].port, queue)
    server = servers[case.server]
    before = cpu_seconds(server.pids), cpu_seconds(server.broker)
    measured = await case.run(server.port, queue)
    cpu, broker_cpu = cpu_seconds(server.pids) - before[0], cpu_seconds(server.broker) - before[1]
    return sample(measured, case.messages, cpu, broker_cpu if server.broker else None)


async def measure_raw(servers: Mapping[str, Server], library: str, at_a_time: int, operations: int) -> Sample:
    """A client library by itself: its CPU is this process's."""
    name, publish = raw.LIBRARIES[library]
    before = cpu_seconds(servers[name].pids)
    measured, cpu = await publish(servers[name].port, at_a_time, operations)
    return sample(measured, 1, cpu, cpu_seconds(servers[name].pids) - before)


async def run(directory: Path, chosen: Sequence[cases.Case], repetitions: int, scale: float, only: str) -> Samples:
    """All samples, in the order of the cases."""
    libraries = {f"{name}, {at} at a time": (name, at) for name in raw.LIBRARIES for at in CONNECTIONS}
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    with all_servers(directory) as servers:
        for repetition in range(repetitions + 1):
            for case in chosen:
                taken = await measure(servers, case)
                if repetition:  # the first round warms up
                    samples[case.name].append(taken)
            for name, (library, at) in libraries.items():
                if re.search(only, name):
                    taken = await measure_raw(servers, library, at, round(4000 * scale / (4 if at == 1 else 1)))
                    if repetition:
                        samples[name].append(taken)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer operations a case")
    parser.add_argument("--only", default="", help="cases whose name has a match of this pattern")
    parser.add_argument("--skip-idle", action="store_true", help="without the 10,000 idle long polls (20 s)")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    if not arguments.only or "codec" in arguments.only:
        codec.run(arguments.repetitions, 5000)
        print()
    with tempfile.TemporaryDirectory() as directory:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            chosen = [
                case for case in cases.all_cases(CONNECTIONS, arguments.scale) if re.search(arguments.only, case.name)
            ]
            samples = runner.run(run(Path(directory), chosen, arguments.repetitions, arguments.scale, arguments.only))
        if samples:
            table(samples)
            goals(chosen, samples)
        if arguments.only in ("", "observing"):
            print()
            observing.table("redis", max(CONNECTIONS), round(8000 * arguments.scale), arguments.repetitions)
        if not arguments.skip_idle and arguments.only in ("", "idle"):
            print()
            for broker in KINDS:
                idle.main(Path(directory), broker)


if __name__ == "__main__":
    main()
