"""``python -m bench.pipeline_idle``: every command of the pipeline on a lake where it has nothing to do.

Makes a lake of some 4,000 events, runs each command once, and then again as often as ``--runs`` says, in processes of
their own. ``libraries``: large ones that were imported. The goal is two seconds, without Spark.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.pipeline_data import write_bodies, write_journal

MESSAGES = 1300
"""About 4,000 events."""
GOAL_SECONDS = 2.0
_ABSENT = "00000000-0000-4000-8000-ffffffffffff"
_LARGE = ("pyspark", "pandas", "pyarrow", "pyarrow.dataset", "duckdb", "deltalake", "numpy", "fastapi", "vl_convert")
_PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print("modules:", *(each for each in {_LARGE} if each in sys.modules), file=sys.stderr))
from babelgate.__main__ import main
main()
"""


class Taken(NamedTuple):
    """Seconds of a command: elapsed, and of CPU, of all processes that it waited for."""

    seconds: float
    cpu_seconds: float
    modules: str
    starts_spark: bool


def commands(folder: Path) -> Iterator[Sequence[str]]:
    """The commands of the pipeline. Those that send choose no message, so they need no gateway."""
    yield "ingest", str(folder / "landing")
    yield "validate", str(folder / "dump")
    yield ("compact",)
    yield ("metrics",)
    yield ("tables",)
    yield "report", "--output", str(folder / "report.html")
    yield "report", "--output", str(folder / "report.json")
    yield ("maintain",)
    yield "erase", _ABSENT
    yield "message", _ABSENT
    yield "trace", _ABSENT
    for name in ("redrive", "replay", "backfill"):
        yield name, "--select", "false"


def timed(command: Sequence[str], lake: Path) -> Taken:
    """Run ``command`` on ``lake``. Exit code 1 is that of nothing found."""
    environment = {**os.environ, "BABELGATE_LAKE": str(lake)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "pipeline", *command], env=environment, capture_output=True, text=True
    )
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode > 1 or "Traceback" in ended.stderr:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
    modules = ended.stderr.rpartition("modules:")[2].strip()
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Taken(seconds, cpu, modules, "starting Spark" in ended.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_idle", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each command; the fastest is shown")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        records = write_journal(folder / "landing", MESSAGES)
        write_bodies(folder / "dump", MESSAGES)
        for command in commands(folder):
            timed(command, folder / "lake")
        print(f"{records} events\n{'nothing new for':18} {'seconds':>8} {'CPU s':>6}  {'Spark':5}  libraries")
        slow = []
        for command in commands(folder):
            best = min(timed(command, folder / "lake") for _ in range(asked.runs))
            name = " ".join(each.rpartition("/")[2] for each in command if each not in ("--output", _ABSENT))
            started = "yes" if best.starts_spark else "no"
            print(f"{name:18} {best.seconds:8.2f} {best.cpu_seconds:6.2f}  {started:5}  {best.modules}", flush=True)
            if best.seconds > GOAL_SECONDS or best.starts_spark:
                slow.append(name)
    print(f"beyond {GOAL_SECONDS:.0f} seconds, or with Spark: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
