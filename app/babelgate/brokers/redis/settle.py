"""Ends and extends leases in Redis. The scripts check each lease: a lost one changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadLetterRequest, Outcome
from babelgate.brokers.redis.layouts.layout import RedisQueue, Stored
from babelgate.brokers.redis.server import Server
from babelgate.errors import BabelgateError, LeaseLost
from babelgate.runtime import turns

BODIES_PER_CALL = 100
"""Messages per call that transfers bodies, so that the memory in use is bounded."""

Item = TypeVar("Item")


async def ack(server: Server, queue: RedisQueue, handles: Sequence[str]) -> list[Outcome]:
    """End the leases and remove the messages."""
    return await _settle(server, queue, "ack", handles)


async def retry(server: Server, queue: RedisQueue, handles: Sequence[str], delay_seconds: float) -> list[Outcome]:
    """Back to the end of the queue with one attempt more, now or after a delay."""
    outcomes: list[Outcome] = []
    for chunk in batches(handles, BODIES_PER_CALL):
        stored = await _fetch(server, queue, chunk)
        bodies = await _written(lambda found, _: queue.layout.retried(found), stored, chunk)
        outcomes += await _settle(server, queue, "nack", chunk, bodies, delay_seconds)
    return outcomes


async def give_back(
    server: Server, queue: RedisQueue, handles: Sequence[str], delay_seconds: float, *, late: bool = False
) -> list[Outcome]:
    """Back to the head of the queue, in their order, as they were before they were reserved.

    ``late``: no consumer has seen these deliveries, so the next delivery still reports that the lease before expired.
    """
    bodies: Sequence[bytes] = ()
    if not queue.layout.leases_as_queued:
        stored = await _fetch(server, queue, handles)
        bodies = await _written(lambda found, handle: queue.layout.returned(handle, found), stored, handles)
    return await _settle(server, queue, "late" if late else "back", handles, bodies, delay_seconds)


async def dead_letter(server: Server, queue: RedisQueue, letters: Sequence[DeadLetterRequest]) -> list[Outcome]:
    """End the leases and move the messages to the dead letters."""
    outcomes: list[Outcome] = []
    for chunk in batches(letters, BODIES_PER_CALL):
        handles = [letter.handle for letter in chunk]
        stored = await _fetch(server, queue, handles)
        records = await _written(lambda found, letter: queue.layout.record(letter, found), stored, chunk)
        outcomes += await _settle(server, queue, "dead", handles, records)
    return outcomes


async def extend(
    server: Server, queue: RedisQueue, handles: Sequence[str], lease_seconds: float
) -> list[int | BabelgateError]:
    """The new deadlines in Unix milliseconds."""
    reply = await server.run("extend", queue.key, queue.layout.name, repr(lease_seconds), *handles)
    return [int(deadline) // 1000 or LeaseLost() for deadline in reply]


async def _fetch(server: Server, queue: RedisQueue, handles: Sequence[str]) -> list[Stored | None]:
    reply = await server.run("fetch", queue.key, queue.layout.name, *handles)
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [None if value is None else Stored(value, expired) for value, expired in pairs]


async def _written(
    write: Callable[[Stored, Item], bytes], stored: Sequence[Stored | None], items: Sequence[Item]
) -> list[bytes]:
    """The bytes to write in place of each of ``stored``; empty where the lease is lost."""

    def body(pair: tuple[Stored | None, Item]) -> bytes:
        found, item = pair
        return b"" if found is None else write(found, item)

    pairs = list(zip(stored, items, strict=True))
    return await turns.mapped(body, pairs, size=lambda pair: 0 if pair[0] is None else len(pair[0].value))


async def _settle(
    server: Server,
    queue: RedisQueue,
    verb: str,
    handles: Sequence[str],
    bodies: Sequence[bytes] = (),
    delay_seconds: float = 0,
) -> list[Outcome]:
    reply = await server.run(
        "settle", queue.key, queue.layout.name, verb, repr(delay_seconds), len(handles), *handles, *bodies
    )
    return [None if settled else LeaseLost() for settled in reply]
