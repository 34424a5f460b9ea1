"""``python -m bench``: every figure beside its baseline, in one run, the cases taken in turn.

CPU is user and system time of the measured server's process tree, per message; a machine that is busy with something
else stretches the latencies, but hardly that. The load generator runs on the same machine and is not counted.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

import uvloop

from bench import codec, idle, observing, raw
from bench.cases import Case, all_cases
from bench.reporting import Sample, Samples, goals, measure, sample, table
from bench.servers import Server, all_servers, cpu_seconds
from bench.servers import foreign as foreign_server
from tests.brokers.registry import KINDS

CONNECTIONS = (1, 16, 64)


async def measure_raw(servers: Mapping[str, Server], library: str, at_a_time: int, operations: int) -> Sample:
    """A client library by itself: its CPU is this process's."""
    name, publish = raw.LIBRARIES[library]
    before = cpu_seconds(servers[name].pids)
    measured, cpu = await publish(servers[name].port, at_a_time, operations)
    return sample(measured, 1, cpu, cpu_seconds(servers[name].pids) - before)


RAW = {f"{name}, {at} at a time": (name, at) for name in raw.LIBRARIES for at in CONNECTIONS}


async def run(
    directory: Path, cases: Sequence[Case], libraries: Sequence[str], foreign: Mapping[str, str], asked: Namespace
) -> Samples:
    """All samples, in the order of the cases; ``libraries`` are names in RAW."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    names = [*(case.server for case in cases), *(raw.LIBRARIES[RAW[name][0]][0] for name in libraries)]
    with all_servers(directory, {name.split("-")[0] for name in names}) as servers:
        servers |= {name: foreign_server(url) for name, url in foreign.items()}
        for repetition in range(asked.repetitions + 1):
            taken = {case.name: await measure(servers, case) for case in cases}
            for name in libraries:
                library, at = RAW[name]
                operations = round(4000 * asked.scale / (4 if at == 1 else 1))
                taken[name] = await measure_raw(servers, library, at, operations)
            if repetition:  # the first round warms up
                for name, one in taken.items():
                    samples[name].append(one)
    return samples


def _pair(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not url.startswith("http://"):
        raise ArgumentTypeError("write it as NAME=http://HOST:PORT/PATH")
    return name, url


def main() -> None:
    parser = ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer operations a case, unless by wrk")
    parser.add_argument("--only", default="", help="cases whose name has a match of this pattern, and their baselines")
    parser.add_argument(
        "--foreign",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another server, which accepts the same envelope by POST at this URL",
    )
    parser.add_argument("--skip-idle", action="store_true", help="without the 10,000 idle long polls (20 s)")
    asked = parser.parse_args()
    foreign, wrk = dict(asked.foreign), which("wrk")
    cases = list(all_cases(CONNECTIONS, asked.scale, foreign, wrk))
    wanted = {name for name in (*(case.name for case in cases), *RAW) if re.search(asked.only, name)}
    parts = {name for name in ("codec", "observing", "idle") if re.search(asked.only, name)}
    if not wanted and not parts:
        parser.error(f"--only {asked.only!r} matches no case, and none of codec, observing, idle")
    wanted |= {base for case in cases if case.name in wanted for goal in case.goals for base in goal.bases}
    ends = {name.rpartition(", ")[2] for name in wanted}
    wanted |= {case.name for case in cases if case.server == "bare" and case.name.rpartition(", ")[2] in ends}
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"load of single publishes: {'wrk, 1 s each' if wrk else 'Python (wrk is not installed)'}; others: Python\n")
    if "codec" in parts:
        codec.run(asked.repetitions, 5000)
        print()
    with tempfile.TemporaryDirectory() as directory:
        chosen = [case for case in cases if case.name in wanted]
        if wanted:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                libraries = [name for name in RAW if name in wanted]
                samples = runner.run(run(Path(directory), chosen, libraries, foreign, asked))
            table(samples)
            goals(chosen, samples)
        if "observing" in parts:
            print()
            observing.table("redis", max(CONNECTIONS), round(8000 * asked.scale), asked.repetitions)
        if "idle" in parts and not asked.skip_idle:
            print()
            for broker in KINDS:
                idle.main(Path(directory), broker)


if __name__ == "__main__":
    main()
