"""Redis: lists as the BabelQueue SDKs lay them out, or Laravel's queues, chosen for each queue.

Leases live in Redis, so that any process settles any of them; what has several steps is one Lua script. The server
must be 6.2 or newer, and one server: a cluster or a Sentinel URL is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from redis.asyncio.connection import AbstractConnection

from app.brokers.binding import (
    BrokerCapabilities,
    DeadLetterRequest,
    DeadRecord,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeked,
    QueueStats,
)
from app.brokers.options import TIMEOUT_SECONDS, timeout_of
from app.brokers.redis import dead_letters as resting
from app.brokers.redis import settle as settling
from app.brokers.redis.due_items import Upkeep
from app.brokers.redis.idempotency import RedisKeys
from app.brokers.redis.layouts.layout import RedisQueue, bounded
from app.brokers.redis.options import queue_of
from app.brokers.redis.server import Server
from app.brokers.redis.url import connector
from app.brokers.redis.warnings import warnings_of
from app.clock import Clock
from app.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown

_PING_SECONDS = 2.0
_PATIENCE_SECONDS = 0.9
_GRACE_SECONDS = 0.1
"""Together what a reserve may take beside its wait; the second part because it may be this process that stood still."""

_MAX_KNOWN_EMPTY = 10_000


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> RedisBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return RedisBinding(name, connector(url, others), clock, timeout_seconds)


def _queue(queue: NativeQueue) -> RedisQueue:
    return cast(RedisQueue, queue.options)


class RedisBinding:
    """A Redis database. Also Peeks, Purges, DeadLetters and KeepsKeys."""

    def __init__(
        self,
        name: str,
        connections: Callable[[], AbstractConnection],
        clock: Clock,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.server = Server(name, connections, timeout_seconds)
        self._upkeep = Upkeep(self.server)
        self.keys = RedisKeys(name, self.server, self._upkeep.due_in)
        self._clock = clock
        self._empty: set[bytes] = set()
        self._late: set[asyncio.Task[None]] = set()

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`app.brokers.redis.options.queue_of`."""
        return NativeQueue(name, queue_of(name, options))

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """Those of the queue's layout."""
        return _queue(queue).layout.capabilities(_queue(queue))

    async def open(self) -> None:
        """Connect; raises BrokerUnavailable, and ConfigError for a cluster or a server that is too old."""
        await self.server.open()
        self._upkeep.start()

    async def close(self) -> None:
        """Disconnect. Leases stay: any process can settle them, and they expire by themselves."""
        await self._upkeep.stop()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self.server.close()

    async def ping(self) -> None:
        """PING."""
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self.server.read(b"PING")
        except TimeoutError:
            raise BrokerUnavailable(broker=self.name, reason=f"no answer within {_PING_SECONDS:g} s") from None

    async def warnings(self) -> Sequence[str]:
        """On durability and eviction."""
        return await warnings_of(self.server)

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """One RPUSH for what is due at once, one script call for what is delayed; more only past MAX_COMMAND_BYTES."""
        parts = self._parts(_queue(queue), messages)
        if len(parts) == 1:
            await parts[0][1]
            return [None] * len(messages)
        answers = await asyncio.gather(*(call for _, call in parts), return_exceptions=True)
        outcomes: list[Outcome] = [None] * len(messages)
        for (positions, _), answer in zip(parts, answers, strict=True):
            if isinstance(answer, BabelgateError):
                for position in positions:
                    outcomes[position] = answer
            elif isinstance(answer, BaseException):
                raise answer
        failures = [answer for answer in answers if isinstance(answer, BabelgateError)]
        if failures and len(failures) == len(parts):
            raise next((failure for failure in failures if isinstance(failure, OutcomeUnknown)), failures[0])
        return outcomes

    def _parts(
        self, queue: RedisQueue, messages: Sequence[Outgoing]
    ) -> list[tuple[list[int], Coroutine[Any, Any, None]]]:
        """The commands of a publish, each with the positions of its messages."""
        now = [i for i, message in enumerate(messages) if message.delay_seconds <= 0]
        later = [i for i, message in enumerate(messages) if message.delay_seconds > 0]
        parts: list[tuple[list[int], Coroutine[Any, Any, None]]] = []
        for positions in bounded(now, messages):
            parts.append((positions, queue.layout.push(self.server, queue, [messages[i] for i in positions])))
        for positions in bounded(later, messages):
            parts.append((positions, self._delay(queue, [messages[i] for i in positions])))
        return parts

    async def _delay(self, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        pairs: list[object] = []
        for message in messages:
            pairs += (repr(message.delay_seconds), queue.layout.delayed(queue, message))
        await self.server.run("delay", queue.key, queue.layout.name, *pairs)
        self._upkeep.due_in(min(message.delay_seconds for message in messages))

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """A script call; while the queue is empty, one blocking command a second and nothing else.

        Raises BrokerUnavailable when the server does not answer in time; what it hands out later is given back.
        """
        target, loop = _queue(queue), asyncio.get_running_loop()
        self._upkeep.start()
        self._upkeep.waited(target)
        call = loop.create_task(self._reserve_until(target, limit, loop.time() + wait_seconds, lease_seconds))
        try:
            await asyncio.wait((call,), timeout=wait_seconds + _PATIENCE_SECONDS)
            if not call.done():
                await asyncio.wait((call,), timeout=_GRACE_SECONDS)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.done():
            return call.result()
        late = loop.create_task(self._give_back_late(target, call))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        raise BrokerUnavailable(broker=self.name, reason="no answer in time")

    async def _reserve_until(
        self, queue: RedisQueue, limit: int, deadline: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        left = deadline - loop.time()
        if left <= 0 or queue.key not in self._empty:
            deliveries = await self._reserve(queue, limit, lease_seconds)
            if deliveries:
                return deliveries
            left = deadline - loop.time()
        while left > 0:
            # Delayed messages and expired leases come back by the upkeep, which ends this wait.
            if await self.server.wait(queue.key, left) and (
                deliveries := await self._reserve(queue, limit, lease_seconds)
            ):
                return deliveries
            if len(self._empty) < _MAX_KNOWN_EMPTY:
                self._empty.add(queue.key)
            left = deadline - loop.time()
        return ()

    async def _give_back_late(self, queue: RedisQueue, call: asyncio.Task[Sequence[Delivery]]) -> None:
        """Uncounted: nobody has seen them. Where this fails as well, the leases expire."""
        with contextlib.suppress(BabelgateError):
            if deliveries := await call:
                await settling.give_back(self.server, queue, [each.handle for each in deliveries], 0, late=True)

    async def _reserve(self, queue: RedisQueue, limit: int, lease_seconds: float) -> Sequence[Delivery]:
        deliveries = await queue.layout.reserve(self.server, queue, limit, lease_seconds)
        if deliveries:
            self._empty.discard(queue.key)
            self._upkeep.due_in(lease_seconds)
        return deliveries

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """One script call."""
        return await settling.ack(self.server, _queue(queue), handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """To the end of the queue with one attempt more, or back to its head as it was."""
        if failed:
            outcomes = await settling.retry(self.server, _queue(queue), handles, delay_seconds)
        else:
            outcomes = await settling.give_back(self.server, _queue(queue), handles, delay_seconds)
        if delay_seconds > 0:
            self._upkeep.due_in(delay_seconds)
        return outcomes

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """One script call; the handles stay valid."""
        deadlines = await settling.extend(self.server, _queue(queue), handles, lease_seconds)
        self._upkeep.due_in(lease_seconds)
        return deadlines

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Read what the leases hold, then end them and write the records in one step."""
        return await settling.dead_letter(self.server, _queue(queue), letters)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Five small commands in one write. The oldest age is counted from the ``created_at`` of the queue's head."""
        return await resting.stats(self.server, _queue(queue), self._clock)

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """LRANGE."""
        return await resting.peek(self.server, _queue(queue), limit)

    async def purge(self, queue: NativeQueue) -> int:
        """Ready and delayed messages, in one step."""
        return await resting.purge(self.server, _queue(queue))

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page; the cursor is a position in the list. Raises InvalidParameter for another cursor."""
        return await resting.read_dead(self.server, _queue(queue), cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """By value, the first copy of each."""
        return await resting.remove_dead(self.server, _queue(queue), records, cursor)

    async def purge_dead(self, queue: NativeQueue, before_ms: int | None = None) -> int:
        """All, or batches from the head while there are older ones."""
        return await resting.purge_dead(self.server, _queue(queue), before_ms)
