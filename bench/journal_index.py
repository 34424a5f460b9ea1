"""``python -m bench.journal_index``: what the journal and its index cost, and how long a search takes.

Writes the usual three records of each message through a journal in this process, then searches them. CPU is user and
system time of the process with all its threads, without what it takes to make the events up. ``rss`` is the most that
the process has ever used.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from babelgate.observe.events import Event, EventKind, Facts
from babelgate.observe.journal.scan import Query
from babelgate.observe.journal.search import JournalSearch
from babelgate.observe.journal.writer import Journal, Options
from tests.harness.local import eventually

KINDS: tuple[EventKind, ...] = ("accepted", "delivered", "acked")
QUEUES = 20
JOBS = 40
BETWEEN = 2_000
"""Messages that are accepted before one is delivered, and delivered before it is acked."""
SECOND = 1_000
"""Messages of a simulated second."""
STEP = 500
"""Messages between two looks at the buffer."""


class Traffic:
    """Made-up messages, the time of which passes with their number."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.now = 1_700_000_000_000
        self.kept: list[Facts] = []
        """Some of all messages, evenly."""
        self._recent: list[Facts] = []
        self._made = 0

    def clock(self) -> int:
        return self.now

    def step(self) -> list[Event]:
        """The next events: some messages are accepted, earlier ones delivered, and earlier ones acked."""
        new = [self._message() for _ in range(STEP)]
        self._recent += new
        self.now += STEP * 1000 // SECOND
        events = [self._event("accepted", each) for each in new]
        count = len(self._recent)
        if count > BETWEEN:
            events += [
                self._event("delivered", each) for each in self._recent[count - BETWEEN - STEP : count - BETWEEN]
            ]
        if count > 2 * BETWEEN:
            events += [self._event("acked", each) for each in self._recent[:STEP]]
            del self._recent[:STEP]
        return events

    def _message(self) -> Facts:
        self._made += 1
        facts = Facts(
            size=250,
            message_id=self._uuid(),
            trace_id=self._uuid(),
            job=f"urn:babel:orders:made-{self._made % JOBS}",
            created_at=self.now,
            lang="go",
            attempts=0,
        )
        # A reservoir: each message is as likely to be kept.
        if len(self.kept) < 1_000:
            self.kept.append(facts)
        elif (place := self._random.randrange(self._made)) < 1_000:
            self.kept[place] = facts
        return facts

    def _uuid(self) -> str:
        text = f"{self._random.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def _event(self, kind: EventKind, facts: Facts) -> Event:
        return Event(kind, f"queue-{hash(facts.job) % QUEUES}", "main", 1, messages=(facts,))


async def write(journal: Journal, traffic: Traffic, records: int) -> tuple[float, float]:
    """Write ``records``; return the CPU seconds of the event loop's thread, and of all threads."""
    making = observing = 0.0
    before, shown = time.process_time(), time.monotonic()
    while journal.stats().records < records:
        began = time.thread_time()
        events = traffic.step()
        made = time.thread_time()
        for event in events:
            journal.observe(event)
        observing += time.thread_time() - made
        making += made - began
        await journal.capacity(60)
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            print(f"  {journal.stats().records:,} records …", flush=True)
    await eventually(lambda: journal.stats().buffer_bytes == 0)
    return observing, time.process_time() - before - making


async def timed(calls: Iterator[Callable[[], Awaitable[int]]]) -> str:
    """Run the searches one after the other; return their times, and the CPU time of the process, in words."""
    took, used, found = [], [], []
    for call in calls:
        began, before = time.perf_counter(), time.process_time()
        found.append(await call())
        took.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - before) * 1000)
    took.sort()
    used.sort()
    mid, high = len(took) // 2, min(len(took) - 1, len(took) * 99 // 100)
    return (
        f"{len(took):5} calls  p50 {took[mid]:6.2f}  p99 {took[high]:6.2f}  most {took[-1]:6.2f} ms;  "
        f"CPU p50 {used[mid]:6.2f}  p99 {used[high]:6.2f} ms;  records {min(found)} to {max(found)}"
    )


async def search(search: JournalSearch, traffic: Traffic, lookups: int) -> None:
    """Print how long searches take."""
    end = traffic.now

    def asking(*queries: Query, limit: int = 100) -> Iterator[Callable[[], Awaitable[int]]]:
        async def ask(query: Query) -> int:
            return len((await search.find(query, limit)).records)

        for query in queries:
            yield lambda query=query: ask(query)  # type: ignore[misc]

    kept = traffic.kept[:lookups]
    chance = random.Random(1)
    times = [chance.randrange(1_700_000_000_000, end) for _ in range(50)]
    for name, calls in (
        ("message", asking(*(Query(message_id=each.message_id) for each in kept))),
        ("trace", asking(*(Query(trace_id=each.trace_id) for each in kept))),
        ("unknown message", asking(*(Query(message_id=f"{each.message_id}-") for each in kept))),
        ("queue, newest", asking(*[Query(queue="queue-1")] * 50)),
        ("queue, at a time", asking(*(Query(queue="queue-1", until=each) for each in times))),
        ("job and event", asking(*(Query(job="urn:babel:orders:made-7", event="acked", until=each) for each in times))),
        ("rare event", asking(*[Query(event="dead_lettered")] * 20)),
    ):
        print(f"  {name:18}{await timed(calls)}", flush=True)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def rss() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


async def run(directory: Path, records: int, lookups: int, compression: str) -> None:
    traffic = Traffic(7)
    options = Options(
        landing=str(directory / "landing"),
        open_directory=directory / "open",
        node="bench",
        compression=compression,  # type: ignore[arg-type]
        wait=True,
    )
    journal = Journal(options, traffic.clock)
    journal.start()
    began = time.monotonic()
    loop, process = await write(journal, traffic, records)
    print(f"rss {rss()} after writing, in {time.monotonic() - began:.0f} s")
    print("searches, the last segment open:")
    await search(journal.search, traffic, lookups)
    before = time.process_time()
    await journal.close(120)
    process += time.process_time() - before
    made = journal.stats().records
    print(f"a record: {loop / made * 1e6:.2f} µs CPU of the event loop, {process / made * 1e6:.2f} µs of all threads")
    landing, index = size_of(directory / "landing"), size_of(directory / "open" / "index")
    print(f"a record on disk: {landing / made:.1f} bytes landed, {index / made:.1f} bytes of index")
    again = Journal(options, traffic.clock)
    again.start()
    print("searches, all landed, in a new process's state:")
    await search(again.search, traffic, lookups)
    await again.close()
    print(f"rss {rss()} at the end")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journal_index", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=500)
    parser.add_argument("--compression", choices=("gzip", "zstd"), default="zstd")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"{arguments.records:,} records, {arguments.compression}")
    with tempfile.TemporaryDirectory(prefix="journal-index-") as directory:
        asyncio.run(run(Path(directory), arguments.records, arguments.lookups, arguments.compression))


if __name__ == "__main__":
    main()
