"""Empties queues that have moved to another broker: publish, confirm, then remove.

A reload of the configuration may route a queue to another broker. What the queue still has on its former broker is
published to the new one, with the attempts that are counted so far. Leases are not touched: a message that a consumer
has follows if it comes back. A process that stops between confirm and removal leaves a message twice; none is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

from babelgate import envelope
from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.brokers.errors import for_each
from babelgate.brokers.parking import total
from babelgate.envelope import Limits, Poison
from babelgate.errors import BabelgateError
from babelgate.gateway.outages import is_silence
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route
from babelgate.gateway.runtimes import QueueRuntimes
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.backoff import Backoff

LOOK_SECONDS = 1.0
"""How often a former queue that had messages is looked at."""
MOST_LOOK_SECONDS = 30.0
"""How often one is looked at that stays empty: the pauses double. Other replicas may still publish to it."""
LEASED_LOOK_SECONDS = 3.0
"""How often one is looked at whose messages cannot be moved now: consumers have them, or the new broker is down."""
_AT_ONCE = 100
_QUEUES_AT_ONCE = 8
_CLOSE_SECONDS = 10.0
_LEASE_SPARE_SECONDS = 10.0

log = get_logger(__name__)
_throttled = LogThrottle(log)

Key = tuple[str, str]
"""A queue, and the broker that it had before."""


class QueueDrains:
    """Empties the former queues of one process. ``clock``: seconds."""

    def __init__(
        self, runtimes: QueueRuntimes, pauses: Pauses, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtimes = runtimes
        self._pauses = pauses
        self._limits = limits
        self._clock = clock
        self._places = asyncio.Semaphore(_QUEUES_AT_ONCE)
        self._stopping = asyncio.Event()
        self._moving: set[Key] = set()
        """Whose messages are in the middle of a move."""
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self.empty: set[Key] = set()
        """Those that had no message when they were last looked at, leased ones included."""

    @property
    def keys(self) -> Sequence[Key]:
        """The queues that are emptied, each with its former broker."""
        return list(self._tasks)

    def start(self, former: Route, route_of: Callable[[str], Route]) -> None:
        """Empty the queue of ``former``; ``route_of`` finds where it lives now. Needs a running event loop."""
        key = former.queue, former.broker
        if key not in self._tasks and not self._stopping.is_set():
            task = self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key, former, route_of))
            task.add_done_callback(partial(self._ended, key))

    async def stop(self, queue: str, broker: str) -> None:
        """Leave what the queue still has on ``broker`` there: it is routed to it again, or the broker is closed."""
        task = self._tasks.get((queue, broker))
        if task is not None:
            while (queue, broker) in self._moving:
                await asyncio.wait([task], timeout=LOOK_SECONDS / 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stop after the messages that are being moved, at most 10 s; idempotent."""
        self._stopping.set()
        tasks = list(self._tasks.values())
        moving = [self._tasks[key] for key in self._moving if key in self._tasks]
        if moving:
            await asyncio.wait(moving, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        self.empty.discard(key)

    async def _run(self, key: Key, former: Route, route_of: Callable[[str], Route]) -> None:
        backoff = Backoff(LOOK_SECONDS, MOST_LOOK_SECONDS)
        moved = 0
        while not self._stopping.is_set():
            count = 0
            try:
                async with self._places:
                    count = await self._drain(key, former, route_of)
            except BabelgateError as error:
                _throttled.warning("queue not drained", queue=former.queue, broker=former.broker, error=error)
            except Exception:
                log.exception("queue not drained", queue=former.queue, broker=former.broker)
            moved += count
            if count:
                backoff.succeeded()
            elif moved and key in self.empty:
                log.info("queue drained", queue=former.queue, broker=former.broker, messages=moved)
                moved = 0
            pause = min(backoff.failed(), MOST_LOOK_SECONDS if key in self.empty else LEASED_LOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _drain(self, key: Key, former: Route, route_of: Callable[[str], Route]) -> int:
        """Move messages for LOOK_SECONDS at most; the number moved. Raises what the brokers raise."""
        if former.queue in self._pauses.refusing:
            return 0
        stats = await former.stats()
        count = total(stats)
        (self.empty.add if not count else self.empty.discard)(key)
        if not count and stats.depth is not None:
            return 0
        until, moved = self._clock() + LOOK_SECONDS, 0
        while not self._stopping.is_set() and self._clock() < until:
            runtime = self._runtimes.of(route_of(former.queue))
            if runtime.route.broker == former.broker:
                return moved
            self._moving.add(key)
            try:
                done, more = await self._move(self._runtimes.former(former), runtime)
            finally:
                self._moving.discard(key)
            moved += done
            if not more:
                break
        return moved

    async def _move(self, former: QueueRuntime, runtime: QueueRuntime) -> tuple[int, bool]:
        """Move one batch; the number moved, and whether there may be more."""
        old, new = former.route, runtime.route
        lease_seconds = min(
            2 * (old.binding.timeout_seconds + new.binding.timeout_seconds) + _LEASE_SPARE_SECONDS,
            old.capabilities.max_lease_seconds,
        )
        limit = min(old.capabilities.max_batch, _AT_ONCE)
        reserved = await former.calls.timed("receive", old.binding.reserve(old.native, limit, 0, lease_seconds))
        deliveries = former.lease_manager.keep(reserved, lease_seconds)
        if not deliveries:
            return 0, False
        messages = await turns.mapped(partial(self._message, old, new), deliveries, size=lambda each: len(each.body))
        moved: list[str] = []
        kept: list[str] = []
        is_silent = False
        pairs = list(zip(deliveries, messages, strict=True))
        sizes = [len(message.body) for _, message in pairs]
        for chunk in batches(pairs, new.capabilities.max_batch, BATCH_BYTES, sizes):
            if is_silent:
                kept += [delivery.handle for delivery, _ in chunk]
                continue
            outcomes: Sequence[Outcome]
            outcomes = await for_each(runtime.calls.send([message for _, message in chunk]), len(chunk))
            for (delivery, _), outcome in zip(chunk, outcomes, strict=True):
                (moved if outcome is None else kept).append(delivery.handle)
                if outcome is not None:
                    is_silent = is_silent or is_silence(outcome)
                    _throttled.warning("message not drained", queue=old.queue, broker=new.broker, error=outcome)
        for handles in batches(moved, limit):
            acked = await former.calls.timed("ack", former.lease_manager.ack(handles), len(handles))
            if lost := len(handles) - list(acked).count(None):
                _throttled.warning("messages may be moved twice", queue=old.queue, broker=old.broker, count=lost)
        if kept:
            await former.give_back(kept)
        return len(moved), not kept

    def _message(self, former: Route, route: Route, delivery: Delivery) -> Outgoing:
        """The message to publish for a delivery. One that is poison is moved byte for byte."""
        headers = delivery.headers if route.capabilities.headers else {}
        key = delivery.ordering_key if route.capabilities.ordering != "none" else None
        try:
            received = envelope.inspect(delivery.body, self._limits)
        except Poison:
            return Outgoing(delivery.body, headers, key, is_envelope=False)
        if delivery.unsupported_version is not None:
            return Outgoing(delivery.body, headers, key, is_envelope=False)
        attempts, _ = former.reconciled(delivery, received)
        body = delivery.body if attempts == received.attempts else envelope.with_attempts(delivery.body, attempts)
        return Outgoing(body, headers, key, is_late=True)
