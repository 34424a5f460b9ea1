"""``python -m bench.pipeline_scale --millions 1 5 20``: what a million events cost each stage, and what grows.

For each size it lands a journal, and runs ``ingest``, ``compact`` and ``metrics`` by Spark on ``local[2]``, each in
processes of its own. CPU seconds are of all processes. ``slope``: CPU seconds for each million events more than in the
size before. Stages, tasks and shuffled bytes are from Spark's log of events.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import Used, job
from bench.pipeline_data import write_journal

_MIB = 1024 * 1024
_EVENTS_PER_MESSAGE = 3.1


class Work(NamedTuple):
    """What Spark did in a job. ``shuffled``: bytes that tasks wrote for exchanges."""

    stages: int
    tasks: int
    shuffled: int


def work(logs: Path) -> Work:
    """The work in the logs of events in the folder ``logs``."""
    stages = tasks = shuffled = 0
    for path in (each for each in logs.rglob("*") if each.is_file()):
        for line in path.open():
            if '"SparkListenerStageCompleted"' in line:
                stages += 1
            elif '"SparkListenerTaskEnd"' in line:
                tasks += 1
                metrics = json.loads(line).get("Task Metrics") or {}
                shuffled += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return Work(stages, tasks, shuffled)


def size(folder: Path) -> tuple[int, float]:
    """The number of files below ``folder``, and their MiB."""
    sizes = [each.stat().st_size for each in folder.rglob("*") if each.is_file()]
    return len(sizes), sum(sizes) / _MIB


def staged(folder: Path, millions: float, cores: int, memory: str) -> Iterator[tuple[str, int, Used, Work]]:
    """The stage, the events, and what it used, for each stage."""
    landing, lake, logs = folder / "landing", folder / "lake", folder / "events"
    events = write_journal(landing, round(millions * 1_000_000 / _EVENTS_PER_MESSAGE))
    logged = ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={logs.as_uri()}")
    plain = ("--conf", "spark.eventLog.compress=false", "--conf", "spark.eventLog.rolling.enabled=false")
    for name, *inputs in (("ingest", str(landing)), ("compact",), ("metrics",)):
        logs.mkdir()
        used = job(events, cores, memory, name, *inputs, "--lake", str(lake), *logged, *plain).used
        yield name, events, used, work(logs)
        shutil.rmtree(logs)
    for name, place in (("landing", landing), ("journal", lake / "journal"), ("metrics", lake)):
        files, mib = size(place)
        print(f"  {name}: {files} files, {mib:.1f} MiB", flush=True)
    files, mib = size(lake / "journal" / "v=1" / "_checkpoint")
    print(f"  checkpoint: {files} files, {mib:.2f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_scale", description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 5, 20], help="sizes, the smallest first")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="the heap of Spark")
    asked = parser.parse_args()
    head = f"{'stage':8} {'events':>10} {'CPU s':>7} {'/million':>8} {'slope':>6} {'JVM MiB':>8} {'Python MiB':>10}"
    print(f"{head} {'stages':>6} {'tasks':>6} {'shuffled MiB':>12}  seconds")
    former: dict[str, tuple[int, float]] = {}
    for millions in asked.millions:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for name, events, used, done in staged(Path(folder), millions, asked.cores, asked.memory):
                fewer, cheaper = former.get(name, (0, 0.0))
                slope = (used.cpu_seconds - cheaper) / (events - fewer) * 1e6 if fewer else float("nan")
                former[name] = events, used.cpu_seconds
                costs = f"{used.cpu_seconds:7.1f} {used.cpu_seconds / events * 1e6:8.1f} {slope:6.1f}"
                memory = f"{used.jvm_bytes / _MIB:8.0f} {used.python_bytes / _MIB:10.0f}"
                spark = f"{done.stages:6} {done.tasks:6} {done.shuffled / _MIB:12.1f}"
                print(f"{name:8} {events:10} {costs} {memory} {spark}  {used.seconds:.0f}", flush=True)
        print(f"  {time.monotonic() - began:.0f} seconds\n", flush=True)


if __name__ == "__main__":
    main()
