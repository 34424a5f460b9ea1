"""Records which queues of a database the gateways have used, so that they can be listed without a scan of its keys."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.brokers.redis.server import Server
from babelgate.clock import Clock
from babelgate.errors import BabelgateError
from babelgate.observe.logs import get_logger
from babelgate.runtime.cache import Cache

log = get_logger(__name__)

USED = b"babelgate:queues"
"""A sorted set: the ready list of each queue that gateways have used, by its last record in Unix seconds."""

MAX_QUEUES = 10_000
"""The most queues in the set. Beyond them those recorded longest ago go."""

_RECORDED_BYTES = 4 * 1024 * 1024
"""Of the queues that a process remembers as recorded: about 10,000."""

RECORDED_SECONDS = 600
"""How long a process takes a record for granted; a set that was deleted is complete again after this time."""


class UsedQueues:
    """The record of one database. ``start`` runs a coroutine in the background."""

    def __init__(self, server: Server, clock: Clock, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._server = server
        self._clock = clock
        self._start = start
        self._recorded: Cache[bytes, float] = Cache(_RECORDED_BYTES)

    def used(self, queue: RedisQueue) -> None:
        """Note that this process has written to ``queue`` or received from it. Costs no I/O for a known queue."""
        now = self._clock() / 1000
        if now - (self._recorded.get(queue.key) or 0.0) >= RECORDED_SECONDS:
            self._recorded.keep(queue.key, now)
            self._start(self._record(queue.key, now))

    async def queues(self) -> Sequence[str]:
        """The ready lists of the queues, at most MAX_QUEUES. Raises BrokerUnavailable."""
        found = await self._server.read(b"ZREVRANGE", USED, 0, MAX_QUEUES - 1)
        return [key.decode("utf-8", "replace") for key in found]

    async def _record(self, key: bytes, now: float) -> None:
        try:
            await self._server.call(b"ZADD", USED, round(now), key)
            await self._server.call(b"ZREMRANGEBYRANK", USED, 0, -MAX_QUEUES - 1)
        except BabelgateError as error:
            # An access list may forbid the key. The message itself is not affected.
            log.debug("queue not recorded", native_queue=key.decode(errors="replace"), error=error)
