"""Client libraries by themselves: what publishing one message costs without a gateway, with the same guarantees."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import aio_pika
import redis.asyncio

from tests.bench.cases import ENVELOPE, queue
from tests.bench.load import Measured


async def redis_py(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """RPUSH over so many connections."""
    key = queue()
    clients = [redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(at_a_time)]
    await asyncio.gather(*(client.ping() for client in clients))

    def publishing(client: redis.asyncio.Redis) -> Callable[[], Awaitable[object]]:
        return lambda: client.rpush(key, ENVELOPE)

    measured = await _timed([publishing(client) for client in clients], operations)
    await asyncio.gather(*(client.aclose() for client in clients))
    return measured


async def aio_pika_(port: int, at_a_time: int, operations: int) -> tuple[Measured, float]:
    """Persistent, mandatory and confirmed, so many at a time on one channel."""
    key = queue()
    mode = aio_pika.DeliveryMode.PERSISTENT
    message = aio_pika.Message(ENVELOPE, content_type="application/json", delivery_mode=mode)
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.declare_queue(key, durable=True)
        exchange = channel.default_exchange
        return await _timed([lambda: exchange.publish(message, key, mandatory=True)] * at_a_time, operations)


LIBRARIES: Mapping[str, tuple[str, Callable[[int, int, int], Awaitable[tuple[Measured, float]]]]] = {
    "raw redis-py: RPUSH": ("redis-server", redis_py),
    "raw aio-pika: publish": ("rabbitmq-server", aio_pika_),
}
"""By the name of the case: the server, and what publishes to it."""


async def _timed(publishers: Sequence[Callable[[], Awaitable[object]]], operations: int) -> tuple[Measured, float]:
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

    before, started = _cpu_seconds(), time.perf_counter()
    await asyncio.gather(*map(work, publishers))
    measured.seconds = time.perf_counter() - started
    return measured, _cpu_seconds() - before


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
