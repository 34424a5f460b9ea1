"""The Redis binding: lists as the BabelQueue SDKs lay them out, or Laravel's queues, chosen for each queue.

Leases are kept in Redis, so any process can settle them. An operation of several steps is one Lua script. The server
must be one Redis 6.2 or newer; URLs of clusters and Sentinels are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from redis.asyncio.connection import AbstractConnection

from babelgate.brokers.batching import send_batches
from babelgate.brokers.binding import (
    DeadLetterRequest,
    DeadRecord,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeked,
    QueueStats,
)
from babelgate.brokers.bounded import PING_SECONDS, WARNINGS_SECONDS, within
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.connect import disconnecting
from babelgate.brokers.options import (
    ANY_TEXT,
    BOOLEAN,
    POSITIVE_SECONDS,
    TIMEOUT_SECONDS,
    OptionMap,
    choice,
    optional,
    timeout_of,
)
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.redis import dead_letters, settle
from babelgate.brokers.redis.due_items import DueItems
from babelgate.brokers.redis.idempotency import RedisKeys
from babelgate.brokers.redis.layouts.laravel import LaravelLayout
from babelgate.brokers.redis.layouts.layout import RedisQueue, bounded
from babelgate.brokers.redis.layouts.list import ListLayout
from babelgate.brokers.redis.rates import RedisRates
from babelgate.brokers.redis.server import Server
from babelgate.brokers.redis.url import connector
from babelgate.brokers.redis.used_queues import UsedQueues
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, OutcomeUnknown, StorageFull
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

_LIST = ListLayout()
_LARAVEL = LaravelLayout()

_KNOWN_BYTES = 4 * 1024 * 1024
"""Of the queues that were seen empty, and of those with messages of other programs: about 10,000 each."""

_LOOK_PAUSE_SECONDS = 0.5
"""Between two looks at a queue on which only messages of another program lie, or whose server has no memory to wait."""

_throttled = LogThrottle(get_logger(__name__))


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> RedisBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return RedisBinding(name, connector(url, others), clock, timeout_seconds)


def queue_of(name: str, options: Mapping[str, Any]) -> RedisQueue:
    """The queue ``name`` with a route's options.

    ``layout``: ``list`` (the default) or ``laravel``. In the list layout, ``frames`` (default false) lets clients
    give headers, and ``reclaim_unleased_seconds`` (default null: never) returns elements that other clients have left
    in ``<q>:processing`` without a lease for that long, as if a lease had expired. In Laravel's, ``prefix`` (default
    ``queues:``) precedes the name, and ``foreign`` says what becomes of a job of Laravel itself: ``leave`` (the
    default), where Laravel's workers find it, or ``dead_letter``. Raises ConfigError, ``key`` the option's name.
    """
    given = OptionMap(options)
    layout = given.read("layout", choice("list", "laravel"), "list")
    if layout == "laravel":
        prefix = given.read("prefix", ANY_TEXT, "queues:")
        leaves = given.read("foreign", choice("leave", "dead_letter"), "leave") == "leave"
        queue = RedisQueue(_LARAVEL, (prefix + name).encode("utf-8"), leaves_foreign=leaves)
    else:
        frames = given.read("frames", BOOLEAN, False)
        patience = given.read("reclaim_unleased_seconds", optional(POSITIVE_SECONDS, "never"), None)
        queue = RedisQueue(_LIST, name.encode("utf-8"), frames, patience)
    given.finish(f" in the layout {layout}")
    return queue


def _queue(queue: NativeQueue) -> RedisQueue:
    return queue.options_as(RedisQueue)


class RedisBinding:
    """A Redis database. Also Peeks, Purges, DeadLetters, Lists, KeepsKeys and SharesRates."""

    lists_foreign = False

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
        self._due_items = DueItems(self.server)
        self._clock = clock
        self._empty: Cache[bytes, None] = Cache(_KNOWN_BYTES)
        self._foreign: Cache[bytes, None] = Cache(_KNOWN_BYTES)
        self._late: BackgroundTasks[None] = BackgroundTasks()
        self._used = UsedQueues(self.server, clock, self._late.start)
        self.shared_rates = RedisRates(self.server)
        self.keys = RedisKeys(name, self.server, self._due_items.due_in, self._used.used)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`queue_of`."""
        queue = queue_of(name, options)
        if queue.reclaim_unleased_seconds is not None:
            self._due_items.reclaims(queue)
        key, dead_key = queue.key.decode("utf-8"), queue.dead_key.decode("utf-8")
        return NativeQueue(key, queue, dead_key, {"layout": queue.layout.name})

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """Those of the queue's layout."""
        return _queue(queue).layout.capabilities(_queue(queue))

    @property
    def server_version(self) -> str | None:
        return self.server.version

    async def open(self) -> None:
        """Connect. Raises BrokerUnavailable, also when it is closed meanwhile, and ConfigError for a cluster or a
        server that is too old."""
        await self.server.open()
        self.server.check_open()
        self._due_items.start()

    async def close(self) -> None:
        """Disconnect. Leases stay: any process can settle them, and they expire."""
        # A reserve must not start a task again while the tasks end.
        self.server.closed = True
        try:
            await self._due_items.stop()
            await self._late.cancel()
        finally:
            await self.server.close()

    async def ping(self) -> None:
        """PING."""
        await within(PING_SECONDS, self.name, self.server.read(b"PING"))

    async def warnings(self) -> Sequence[str]:
        """On durability and eviction; raises BrokerUnavailable."""
        return await within(WARNINGS_SECONDS, self.name, self.server.warnings())

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """One RPUSH for messages without a delay, one script call for delayed ones; more past MAX_COMMAND_BYTES."""
        target = _queue(queue)
        if len(messages) == 1:
            return await self._write(target, messages)
        now = [i for i, message in enumerate(messages) if message.delay_seconds <= 0]
        later = [i for i, message in enumerate(messages) if message.delay_seconds > 0]
        parts = [*bounded(now, messages), *bounded(later, messages)]
        if len(parts) == 1:
            return await self._write(target, messages)
        written = await send_batches(parts, lambda part: self._write(target, [messages[i] for i in part]))
        outcomes: list[Outcome] = [None] * len(messages)
        for position, outcome in zip(chain.from_iterable(parts), written, strict=True):
            outcomes[position] = outcome
        errors = [outcome for outcome in outcomes if outcome is not None]
        if errors and len(errors) == len(messages):
            raise next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])
        return outcomes

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The elements and members of :meth:`publish`. The member of the list layout begins with a random id."""
        return await turns.run(self._projection, _queue(queue), message, size=len(message.body))

    def _projection(self, queue: RedisQueue, message: Outgoing) -> Sequence[NativeWrite]:
        if message.delay_seconds <= 0:
            return queue.layout.pushed(queue, message)
        member = queue.layout.delayed(queue, message)
        properties: dict[str, object] = {"score": self._clock() / 1000 + message.delay_seconds}
        if (size := len(member) - len(queue.layout.element(message))) > 0:
            properties["id"] = member[: size - 1].decode()
        key = (queue.key + queue.layout.delayed_suffix).decode()
        return [NativeWrite("ZADD", {"key": key}, properties, body=member, assigned=sorted(properties))]

    async def _write(self, queue: RedisQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write ``messages``, all of them delayed or none, with one command."""
        if messages[0].delay_seconds <= 0:
            await queue.layout.push(self.server, queue, messages)
        else:
            pairs: list[object] = []
            for message in messages:
                pairs += (repr(message.delay_seconds), queue.layout.delayed(queue, message))
            await self.server.run("delay", queue.key, queue.layout.name, *pairs)
            self._due_items.due_in(min(message.delay_seconds for message in messages))
        self._used.used(queue)
        return [None] * len(messages)

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """One script call; while the queue is empty, one blocking command a second.

        Raises BrokerUnavailable when the server does not answer in time, and messages that it reserves later are given
        back. Also when the binding is closed meanwhile: messages that the server has leased then come back when their
        leases expire.
        """
        self.server.check_open()
        target = _queue(queue)
        self._due_items.start()
        self._due_items.waited(target)
        if wait_seconds <= 0:
            return await self._reserve(target, limit, lease_seconds)
        until = asyncio.get_running_loop().time() + wait_seconds
        call = self._reserve_until(target, limit, until, lease_seconds)
        return await within(wait_seconds + self.timeout_seconds, self.name, call)

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
            # DueItems makes delayed messages and expired leases ready, which ends this wait.
            if await self._wait(queue, left) and (deliveries := await self._reserve(queue, limit, lease_seconds)):
                return deliveries
            self._empty.keep(queue.key, None)
            left = deadline - loop.time()
        return ()

    async def _wait(self, queue: RedisQueue, seconds: float) -> bool:
        """Whether there may be a message. After a pause there may be one where waiting for it does not help: messages
        of another program lie there, or the server is at maxmemory, where it refuses BLMOVE, but no reserve."""
        if queue.key not in self._foreign:
            with contextlib.suppress(StorageFull):
                return await self.server.wait(queue.key, seconds)
        await asyncio.sleep(min(seconds, _LOOK_PAUSE_SECONDS))
        return True

    async def _give_back_late(self, queue: RedisQueue, handles: Sequence[str]) -> None:
        """Give back, uncounted, deliveries that no consumer has seen. Where this fails too, the leases expire."""
        with contextlib.suppress(BabelgateError):
            await settle.give_back(self.server, queue, handles, 0, late=True)

    async def _reserve(self, queue: RedisQueue, limit: int, lease_seconds: float) -> Sequence[Delivery]:
        def late(handles: Sequence[str]) -> None:
            if handles:
                self._late.start(self._give_back_late(queue, handles))

        try:
            reserved = await queue.layout.reserve(self.server, queue, limit, lease_seconds, late)
        except OutcomeUnknown as error:
            if self.server.closed:
                raise disconnecting(self.name) from error
            raise
        deliveries = reserved.deliveries
        if reserved.left:
            self._foreign.keep(queue.key, None)
            name = queue.key.decode("utf-8", "replace")
            _throttled.warning("messages of another program stay on the queue", queue=name, count=reserved.left)
        else:
            self._foreign.forget(queue.key)
        if deliveries:
            self._used.used(queue)
            self._empty.forget(queue.key)
            self._due_items.due_in(lease_seconds)
        return deliveries or ()

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """One script call."""
        return await settle.ack(self.server, _queue(queue), handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """To the end of the queue with one more attempt, or unchanged back to its head."""
        if failed:
            outcomes = await settle.retry(self.server, _queue(queue), handles, delay_seconds)
        else:
            outcomes = await settle.give_back(self.server, _queue(queue), handles, delay_seconds)
        if delay_seconds > 0:
            self._due_items.due_in(delay_seconds)
        return outcomes

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """One script call; the handles stay valid."""
        deadlines = await settle.extend(self.server, _queue(queue), handles, lease_seconds)
        self._due_items.due_in(lease_seconds)
        return deadlines

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Read the leased messages, then end the leases and write the records in one step."""
        return await settle.dead_letter(self.server, _queue(queue), letters)

    async def queues(self) -> Sequence[str]:
        """Those that gateways have used: at most 10,000. Queues that only other programs use are not listed."""
        return await self._used.queues()

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Five small commands in one write. The oldest age is counted from the ``created_at`` of the queue's head."""
        return await dead_letters.stats(self.server, _queue(queue), self._clock)

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """LRANGE."""
        return await dead_letters.peek(self.server, _queue(queue), limit)

    async def purge(self, queue: NativeQueue) -> int:
        """Ready and delayed messages, in one step."""
        return await dead_letters.purge(self.server, _queue(queue))

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page; the cursor is a position in the list. Raises InvalidParameter for a malformed cursor."""
        return await dead_letters.read_dead(self.server, _queue(queue), cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """By value, the first copy of each."""
        return await dead_letters.remove_dead(self.server, _queue(queue), records, cursor)

    async def purge_dead(self, queue: NativeQueue) -> int:
        """All at once."""
        return await dead_letters.purge_dead(self.server, _queue(queue))
