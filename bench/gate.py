"""``python -m bench.gate``: fails when a message costs more CPU than the repository says, in bare requests.

Each try measures the bare application and then the case, and takes their ratio: what else the machine does stretches
both. ``--write`` puts the median ratio of the tries into ``ratios.json``. The least one is compared with it, since what
stretches a case is no fault of the gateway; a case that would fail is tried more often. The load is that of the Python
generator, which needs no package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from bench.cases import all_cases
from bench.reporting import measure
from bench.servers import all_servers

RATIOS = Path(__file__).with_name("ratios.json")
WORSE = 1.25
"""How many times the ratio of the repository is allowed."""
MORE = 4
"""How many times the tries a case has before it fails: other programs make its ratio larger, and seldom smaller."""
BARE = "bare application, 64 connections"
CASES = (
    "sqlite: publish, 64 connections",
    "redis: publish, 64 connections",
    "redis: batch of 100, 64 connections",
    "sqlite: receive + ack one by one, 64 connections",
)


async def tries(count: int, scale: float, written: Mapping[str, float]) -> dict[str, list[float]]:
    """By case, the CPU a message of each try, in requests of the bare application.

    A case that is :func:`worse` after ``count`` tries has up to MORE times as many.
    """
    cases = {case.name: case for case in all_cases((64,), scale)}
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory, all_servers(Path(directory), ("sqlite", "redis")) as servers:
        for number in range(count * MORE + 1):
            least = {name: min(ratios[name], default=math.inf) for name in CASES}
            left = CASES if number <= count else [name for name in CASES if worse({name: least[name]}, written)]
            for name in left:
                bare, one = await measure(servers, cases[BARE]), await measure(servers, cases[name])
                assert bare.cpu is not None and one.cpu is not None
                if number:  # the first round warms up
                    ratios[name].append(one.cpu / bare.cpu)
    return ratios


def worse(measured: Mapping[str, float], written: Mapping[str, float]) -> list[str]:
    """One line for each case whose ratio is more than WORSE times the one written, or that has none."""
    return [
        f"{name}: {ratio:.2f} times the CPU of a bare request; ratios.json has {written.get(name, 'nothing')}"
        for name, ratio in measured.items()
        if ratio > written.get(name, 0) * WORSE
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer operations a try")
    parser.add_argument("--write", action="store_true", help="replace the ratios in the repository")
    asked = parser.parse_args(arguments)
    written = dict.fromkeys(CASES, math.inf) if asked.write else json.loads(RATIOS.read_text())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        taken = runner.run(tries(asked.tries, asked.scale, written))
    medians = {name: round(statistics.median(ratios), 2) for name, ratios in taken.items()}
    for name, ratios in taken.items():
        print(f"{name}: {medians[name]} times the CPU of a bare request ({', '.join(f'{r:.2f}' for r in ratios)})")
    if asked.write:
        # Not the least: where something stretched the bare application alone, no later run reaches that ratio again.
        RATIOS.write_text(json.dumps(medians, indent=2) + "\n")
        return 0
    found = worse({name: min(ratios) for name, ratios in taken.items()}, written)
    print("\n".join(found), file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
