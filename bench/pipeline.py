"""``python -m bench.pipeline --rows 1000000 --cores 2``: the data pipeline beside what could stand in its place.

For each number of rows and of cores, one after the other and each in processes of its own: ``validate``; a loop in one
process over the same files with the same codec, with and without writing what it found; Spark's own JSON parsing; and
``ingest`` with ``metrics`` on a journal of as many messages. Memory is the largest sum of resident sets that was seen,
of the JVM and of all Python processes by themselves; pages that processes share count in each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.pipeline_data import write_bodies, write_journal
from bench.pipeline_rivals import WAYS

_SAMPLE_SECONDS = 0.2
_MIB = 1024 * 1024


class Used(NamedTuple):
    """Wall and CPU seconds, to the last sample of the processes; peaks in bytes."""

    seconds: float
    cpu_seconds: float
    jvm_bytes: int
    python_bytes: int


class Figures(NamedTuple):
    """``seconds`` of the work alone; the rest is of all its processes, their start included."""

    way: str
    rows: int
    cores: int
    seconds: float
    used: Used


def watched(command: Sequence[str]) -> tuple[str, Used]:
    """What ``command`` printed, and what it used."""
    began = time.monotonic()
    jvm = python = 0
    cpu = 0.0
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            seen = list(_processes(process.pid))
            jvm = max(jvm, sum(size for name, size, _ in seen if name == "java"))
            python = max(python, sum(size for name, size, _ in seen if name.startswith("python")))
            cpu = max(cpu, sum(seconds for _, _, seconds in seen))
            time.sleep(_SAMPLE_SECONDS)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        printed.seek(0)
        return printed.read(), Used(time.monotonic() - began, cpu, jvm, python)


def _processes(pid: int) -> Iterator[tuple[str, int, float]]:
    """Name, resident bytes, and CPU seconds with those of its children that have ended."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for each in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                yield each.name(), each.memory_info().rss, sum(each.cpu_times()[:4])


def job(rows: int, cores: int, memory: str, name: str, *arguments: str) -> Figures:
    """A command of ``babelgate pipeline``, as a user runs it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        launch = ["--master", f"local[{cores}]", "--conf", f"spark.driver.memory={memory}", "--summary", summary.name]
        _, used = watched([sys.executable, "-m", "babelgate", "pipeline", name, *arguments, *launch])
        seconds = json.loads(Path(summary.name).read_text())["seconds"]
    return Figures(name, rows, cores, seconds, used)


def rival(rows: int, cores: int, way: str, folder: Path, output: Path) -> Figures:
    """A way of ``pipeline_rivals``."""
    words = ["-m", "bench.pipeline_rivals", way, str(folder), str(output), str(cores)]
    printed, used = watched([sys.executable, *words])
    return Figures(way, rows, cores, float(printed), used)


def measured(folder: Path, rows: int, cores: Iterable[int], memory: str, redriven: bool) -> Iterator[Figures]:
    """All ways over the same files."""
    dump, landing, lake = folder / "dump", folder / "landing", folder / "lake"
    began = time.monotonic()
    write_bodies(dump, rows)
    records = write_journal(landing, rows, redriven=redriven)
    size = sum(each.stat().st_size for each in dump.iterdir())
    print(f"{rows} bodies ({size / _MIB:.0f} MiB), {records} records, made in {time.monotonic() - began:.0f} s")
    for count in cores:
        for way in WAYS:
            if way == "from_json" or count == min(cores):
                yield rival(rows, count if way == "from_json" else 1, way, dump, folder / "out")
                shutil.rmtree(folder / "out", ignore_errors=True)
        yield job(rows, count, memory, "validate", str(dump), "--lake", str(lake))
        yield job(rows, count, memory, "ingest", str(landing), "--lake", str(lake))
        yield job(rows, count, memory, "metrics", "--lake", str(lake))
        shutil.rmtree(lake)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--memory", default="1g", help="the heap of Spark")
    parser.add_argument("--redriven", action="store_true", help="some messages of the journal are redriven")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    head = f"{'':10} {'rows':>9} {'cores':>5} {'seconds':>8} {'rows/s':>8} {'µs/row':>7} {'total s':>8}"
    head += f" {'CPU s':>6} {'JVM MiB':>8} {'Python MiB':>10}"
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            for number, each in enumerate(
                measured(Path(folder), rows, arguments.cores, arguments.memory, arguments.redriven)
            ):
                if number == 0:
                    print(head)
                print(line(each), flush=True)
        print()


def line(taken: Figures) -> str:
    """A row of the table; rates are of the work alone."""
    seconds, used = taken.seconds, taken.used
    numbers = f"{seconds:8.1f} {taken.rows / seconds:8.0f} {seconds / taken.rows * 1e6:7.1f} {used.seconds:8.1f}"
    sizes = f"{used.cpu_seconds:6.1f} {used.jvm_bytes / _MIB:8.0f} {used.python_bytes / _MIB:10.0f}"
    return f"{taken.way:10} {taken.rows:9} {taken.cores:5} {numbers} {sizes}"


if __name__ == "__main__":
    main()
