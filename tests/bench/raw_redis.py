"""redis-py by itself: what publishing one message costs without a gateway."""

from __future__ import annotations

import asyncio
import resource
import time

import redis.asyncio

from tests.bench.cases import ENVELOPE, queue
from tests.bench.load import Measured


async def publish(port: int, connections: int, operations: int) -> tuple[Measured, float]:
    """RPUSH one by one over so many connections; the CPU seconds are this process's."""
    measured = Measured()
    key = queue()
    remaining = operations

    async def work(client: redis.asyncio.Redis) -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            began = time.perf_counter()
            await client.rpush(key, ENVELOPE)
            measured.latencies.append(time.perf_counter() - began)
            measured.operations += 1

    clients = [redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(connections)]
    await asyncio.gather(*(client.ping() for client in clients))
    before, started = _cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(work(client) for client in clients))
    measured.seconds, cpu = time.perf_counter() - started, _cpu_seconds() - before
    await asyncio.gather(*(client.aclose() for client in clients))
    return measured, cpu


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
