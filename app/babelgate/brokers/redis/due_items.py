"""Makes due messages and expired leases ready: every process does it for every queue, with or without receivers."""

from __future__ import annotations

import asyncio
import math

from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.brokers.redis.server import Server
from babelgate.brokers.redis.used_queues import MAX_QUEUES
from babelgate.errors import BabelgateError
from babelgate.observe.logs import get_logger

log = get_logger(__name__)

IDLE_SECONDS = 1.0
"""The longest pause: another process may have added an item that is due sooner."""

_SHORTEST_SECONDS = 0.005
_LOOK_SECONDS = 2.0
_QUEUES_PER_CALL = b"20"
_MESSAGES_PER_QUEUE = b"100"
_MAX_RECLAIM_SECONDS = 30.0


class DueItems:
    """One task of a process: a script call when a message or lease is due, and one a second while none is."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        """When the timer fires, in the loop's time. A timer of uvloop that is due at once has no such time."""
        self._soonest = math.inf
        self._waited: set[bytes] = set()
        self._look_at = 0.0
        self._reclaims: dict[bytes, tuple[RedisQueue, float]] = {}

    def start(self) -> None:
        """Begin; idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def due_in(self, seconds: float) -> None:
        """Note that this process has added a message or lease that is due in ``seconds``."""
        if self._task is None:
            return
        loop = self._task.get_loop()
        moment = loop.time() + max(seconds, _SHORTEST_SECONDS)
        self._soonest = min(self._soonest, moment)
        if self._timer is not None and moment < self._fires_at:
            self._timer.cancel()
            self._fires_at, self._timer = moment, loop.call_at(moment, self._wake.set)

    def waited(self, queue: RedisQueue) -> None:
        """Note that this process waits on ``queue``, so that the leases of other programs there expire as well."""
        self._waited.add(queue.entry)

    def reclaims(self, queue: RedisQueue) -> None:
        """Note that ``queue`` is routed to, so that its elements without a lease return, with or without receivers."""
        if queue.key in self._reclaims or len(self._reclaims) < MAX_QUEUES:
            self._reclaims[queue.key] = (queue, 0.0)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._soonest = math.inf
            pause = IDLE_SECONDS
            try:
                due = await self._server.make_due_ready(
                    _QUEUES_PER_CALL, _MESSAGES_PER_QUEUE, *self._looked_at(loop.time())
                )
                if due >= 0:
                    pause = min(pause, max(due / 1_000_000, _SHORTEST_SECONDS))
                await self._reclaim(loop.time())
            except BabelgateError as error:
                log.debug("making due messages ready failed", error=error)
            self._wake.clear()
            self._fires_at = min(loop.time() + pause, self._soonest)
            self._timer = loop.call_at(self._fires_at, self._wake.set)
            await self._wake.wait()
            self._timer = None

    def _looked_at(self, now: float) -> set[bytes]:
        """Every few seconds the queues waited on since the last time; otherwise none."""
        if now < self._look_at:
            return set()
        self._look_at = now + _LOOK_SECONDS
        waited, self._waited = self._waited, set()
        return waited

    async def _reclaim(self, now: float) -> None:
        for key, (queue, due) in list(self._reclaims.items()):
            patience = queue.reclaim_unleased_seconds
            if patience is None or now < due:
                continue
            self._reclaims[key] = (queue, now + min(patience / 4, _MAX_RECLAIM_SECONDS))
            reclaimed = await self._server.run("reclaim", key, repr(patience))
            if reclaimed:
                log.warning(
                    "elements without a lease went back to their queue",
                    native_queue=key.decode(errors="replace"),
                    count=reclaimed,
                )
