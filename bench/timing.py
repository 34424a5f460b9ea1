"""Times a client library by itself: an operation after the other, and the CPU of this process."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Sequence

from babelgate.clock import now_ms
from babelgate.envelope import Limits, read_publication
from bench.calls import ENVELOPE
from bench.load import Measured

BODY = read_publication(ENVELOPE, "bench", Limits(), now_ms).envelope.body
"""The envelope that the gateway makes of the draft."""


async def timed(publishers: Sequence[Callable[[], Awaitable[object]]], operations: int) -> tuple[Measured, float]:
    """All ``operations``, one after the other by each of ``publishers``; the CPU seconds are this process's."""
    measured = Measured()
    remaining = operations

    async def work(publish: Callable[[], Awaitable[object]]) -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            began = time.perf_counter()
            await publish()
            measured.latencies.append(time.perf_counter() - began)
            measured.operations += 1

    before, started = cpu_seconds(), time.perf_counter()
    await asyncio.gather(*map(work, publishers))
    measured.seconds = time.perf_counter() - started
    return measured, cpu_seconds() - before


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def per_message(count: int, timed: tuple[Measured, float]) -> tuple[Measured, float]:
    """Figures per message of operations that move ``count``."""
    measured, cpu = timed
    measured.messages = measured.operations * count
    return measured, cpu
