"""``python -m bench.pipeline_continuous --minutes 10``: how late figures are, and what they cost, as events happen.

A generator lands segments of a journal with ``--rate`` events a second, as a gateway would; ``ingest --continuous`` and
``metrics --continuous`` run beside it. Each minute has a row: the events that have landed, how much older than now the
last event in the datasets is (median and most), and CPU seconds and memory of each command with its children.
Afterwards nothing lands for ``--idle-seconds``; the last row is what the commands use then.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import psutil

from babelgate.observe.journal.record import Record, Segment, encode

_ROW = {"queue": "hot", "broker": "main", "job": "urn:babel:bench:job", "lang": "go", "bytes": 400, "v": 1}
_EVENTS_OF_A_MESSAGE = 3.1


class Journal(threading.Thread):
    """Lands segments until it is stopped. ``landed``: the number of events; ``behind``: the most seconds that a segment
    was late because the machine was busy."""

    def __init__(self, landing: Path, rate: float, segment_seconds: float) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.landed = 0
        self.behind = 0.0
        self._landing = landing
        self._rate = rate
        self._segment_seconds = segment_seconds
        self._epoch = f"{time.time_ns() // 1_000_000:012x}{'0' * 8}"
        self._chance = random.Random(3)
        self._messages = 0
        self._created: dict[int, int] = {}
        self._due: list[tuple[int, int, str]] = []

    def run(self) -> None:
        """Land a segment whenever it is due."""
        begin = time.time()
        while not self.over.wait(max(0.0, begin + self._segment_seconds - time.time())):
            self.behind = max(self.behind, time.time() - begin - self._segment_seconds)
            self._land(int(begin * 1000), int((begin + self._segment_seconds) * 1000))
            begin += self._segment_seconds

    def _land(self, begin: int, end: int) -> None:
        for at in range(int((end - begin) / 1000 * self._rate / _EVENTS_OF_A_MESSAGE)):
            self._messages += 1
            self._later(begin + int(at * 1000 * _EVENTS_OF_A_MESSAGE / self._rate), "accepted", self._messages)
        first = self.landed + 1
        segment = Segment("bench", self._epoch, first)
        lines = [encode(record) for record in self._records(segment, first, end)]
        target = self._landing / f"{segment.landed(begin)}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f".{target.name}")
        made.write_bytes(gzip.compress(b"\n".join([*lines, b""]), 1))
        made.replace(target)
        self.landed += len(lines)

    def _records(self, segment: Segment, seq: int, end: int) -> Iterator[Record]:
        """The events before ``end``; each but the last of a message makes the next."""
        while self._due and self._due[0][0] < end:
            at, number, event = heapq.heappop(self._due)
            created_at = self._created.setdefault(number, at)
            if event == "accepted":
                self._later(at + int(self._chance.lognormvariate(5, 1.5)), "delivered", number)
            elif event == "delivered":
                self._later(at + 20, "acked" if self._chance.random() < 0.95 else "nacked", number)
            elif event == "nacked":
                self._later(at + 1000, "delivered", number)
            else:
                del self._created[number]
            facts = {
                "node": segment.node,
                "epoch": segment.epoch,
                "seq": seq,
                "event": event,
                "at": at,
                "message_id": f"10000000-0000-4000-8000-{number:012d}",
                "trace_id": f"00000000-0000-4000-8000-{number // 3:012d}",
                "created_at": created_at,
                "attempts": 0,
                "lease_seconds": 30.0 if event == "delivered" else None,
                "outcome": event if event in ("acked", "nacked") else None,
            }
            yield msgspec.convert(_ROW | facts, Record)
            seq += 1

    def _later(self, at: int, event: str, number: int) -> None:
        heapq.heappush(self._due, (at, number, event))


class Command:
    """A command of ``babelgate pipeline`` beside this process."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log.open("w")
        command = [sys.executable, "-m", "babelgate", "pipeline", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._log)

    def used(self) -> tuple[float, int]:
        """CPU seconds so far, and resident bytes, with those of its children."""
        seconds, resident = 0.0, 0
        root = psutil.Process(self.process.pid)
        for each in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                seconds += sum(each.cpu_times()[:4])
                resident += each.memory_info().rss
        return seconds, resident

    def end(self) -> None:
        """Stop it as an operator would."""
        self.process.terminate()
        if self.process.wait(600):
            raise SystemExit(f"{self.process.args!r} ended with {self.process.returncode}: see {self._log.name}")


def last_event_at(lake: Path) -> int | None:
    """The time of the last event in the datasets, Unix ms: in ``open``, which becomes current after all others."""
    home = lake / "open" / "v=1"
    with suppress(OSError, ValueError):
        run = (home / "CURRENT").read_text().strip()
        return int(json.loads((home / f"run={run}" / "_manifest.json").read_text())["as_of"])
    return None


def measured(commands: Sequence[Command], lake: Path, seconds: float) -> str:
    """A row of the table, after so many seconds."""
    before = [each.used()[0] for each in commands]
    late = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        at = last_event_at(lake)
        if at is not None:
            late.append(time.time() - at / 1000)
        time.sleep(0.5)
    now = [each.used() for each in commands]
    cpu = "".join(f" {(after - used) * 60 / seconds:12.1f}" for (after, _), used in zip(now, before, strict=True))
    memory = "".join(f" {resident / 2**20:12.0f}" for _, resident in now)
    lateness = f"{statistics.median(late):9.0f} {max(late):9.0f}" if late else f"{'-':>9} {'-':>9}"
    return f"{lateness}{cpu}{memory}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_continuous", description=__doc__)
    parser.add_argument("--rate", type=float, default=1000, help="events a second")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--segment-seconds", type=float, default=60, help="journal.segment_seconds of the gateway")
    parser.add_argument("--interval-seconds", type=float, default=10, help="of both commands")
    parser.add_argument("--idle-seconds", type=float, default=120)
    parser.add_argument("--engine", default="auto", help="of metrics")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, {arguments}")
    head = f"{'minute':>7} {'events':>9} {'late s':>9} {'most':>9}"
    print(head + "".join(f" {name:>12}" for name in ("ingest CPU/m", "metrics", "ingest MiB", "metrics")))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        landing, lake = folder / "landing", folder / "lake"
        landing.mkdir()
        every = ["--continuous", "--interval-seconds", str(arguments.interval_seconds)]
        every += ["--lake", str(lake)]
        ingest = Command(folder / "ingest.log", "ingest", str(landing), "--master", "local[2]", *every)
        metrics = Command(folder / "metrics.log", "metrics", "--engine", arguments.engine, *every)
        commands = ingest, metrics
        for each in commands:
            stack.callback(each.process.kill)
        journal = Journal(landing, arguments.rate, arguments.segment_seconds)
        journal.start()
        for minute in range(1, arguments.minutes + 1):
            row = measured(commands, lake, 60)
            print(f"{minute:7} {journal.landed:9} {row}", flush=True)
        journal.over.set()
        time.sleep(60)
        row = measured(commands, lake, arguments.idle_seconds)
        print(f"{'idle':>7} {journal.landed:9} {row}")
        print(f"the generator was at most {journal.behind:.1f} s behind")
        for each in commands:
            each.end()
        print(*(folder / "metrics.log").read_text().splitlines()[-3:], sep="\n")


if __name__ == "__main__":
    main()
