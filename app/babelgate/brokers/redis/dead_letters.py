"""Reads and removes messages that are not leased: counts, ready messages, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from babelgate import envelope
from babelgate.brokers import cursor as cursors
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadRecord, Peeked, QueueStats
from babelgate.brokers.redis.layouts.layout import NO_LIMITS, RedisQueue
from babelgate.brokers.redis.server import Server
from babelgate.clock import Clock
from babelgate.envelope import Poison
from babelgate.runtime import turns

_RECORDS_PER_CALL = 100


async def stats(server: Server, queue: RedisQueue, clock: Clock) -> QueueStats:
    """Counts; the oldest age is that of the queue's head since its ``created_at``."""
    layout = queue.layout
    depth, in_flight, delayed, dead, head = await asyncio.gather(
        server.read(b"LLEN", queue.key),
        server.read(layout.leased[0], queue.key + layout.leased[1]),
        server.read(b"ZCARD", queue.key + layout.delayed_suffix),
        server.read(b"LLEN", queue.dead_key),
        server.read(b"LINDEX", queue.key, 0),
    )
    foreign = int(await server.read(b"GET", queue.foreign_key) or 0) if queue.leaves_foreign else None
    age = None if head is None else await turns.run(_age, queue, head, clock, size=len(head))
    return QueueStats(depth, in_flight, delayed, dead, age, foreign)


async def peek(server: Server, queue: RedisQueue, limit: int) -> list[Peeked]:
    """The next ready messages."""
    values = await server.read(b"LRANGE", queue.key, 0, limit - 1)
    return [Peeked(*read) for read in await turns.mapped(queue.layout.read, values, size=len)]


async def purge(server: Server, queue: RedisQueue) -> int:
    """Remove the ready and the delayed messages."""
    removed: int = await server.run("purge", queue.key, queue.layout.name)
    return removed


async def read_dead(
    server: Server, queue: RedisQueue, cursor: str | None, limit: int
) -> tuple[list[DeadRecord], str | None]:
    """A page; the cursor is a position in the list."""
    start = cursors.decode(cursor)
    values = await server.read(b"LRANGE", queue.dead_key, start, start + limit - 1)
    read = await turns.mapped(queue.layout.read, values, size=len)
    records = [DeadRecord(value, *each) for value, each in zip(values, read, strict=True)]
    return records, cursors.encode(start + limit) if len(values) == limit else None


async def remove_dead(
    server: Server, queue: RedisQueue, records: Sequence[DeadRecord], cursor: str | None
) -> tuple[list[bool], str | None]:
    """Remove by value. All of the records are before the cursor, so it moves back by the number removed."""
    removed: list[bool] = []
    for some in batches(records, _RECORDS_PER_CALL):
        keys = [record.key for record in some]
        removed += map(bool, await server.run("dead_remove", queue.key, queue.layout.name, *keys))
    return removed, cursors.moved_back(cursor, sum(removed))


async def purge_dead(server: Server, queue: RedisQueue) -> int:
    """All at once."""
    removed: int = await server.run("dead_purge", queue.key, queue.layout.name)
    return removed


def _age(queue: RedisQueue, head: bytes, clock: Clock) -> float | None:
    try:
        created_at = envelope.inspect(queue.layout.read(head)[0], NO_LIMITS).created_at
    except Poison:
        return None
    return None if created_at is None else max(0.0, (clock() - created_at) / 1000)
