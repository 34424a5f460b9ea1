"""Empties queues that have moved: publish, confirm, then remove.

A reload of the configuration may route a queue to another broker, another server of its broker, or another native
queue. What it still has where it was is published where it is, with the attempts that are counted so far. Leases are
not touched: a message that a consumer has follows if it comes back. A process that stops between confirm and removal
leaves a message twice; none is lost.

Two addresses may lead to one server, and then a queue is drained into itself. Nothing is lost or doubled by that. The
drain rests once messages come back that were moved twice. It does not end, because another replica, which has not
loaded the configuration yet, may have sent them back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
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
from babelgate.gateway.outages import Outages, is_silence
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route, Router
from babelgate.gateway.runtimes import QueueRuntimes
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.backoff import Backoff

LOOK_SECONDS = 1.0
"""How often a former queue that had messages is looked at."""
MOST_LOOK_SECONDS = 60.0
"""How often one is looked at that stays empty, or whose look fails: the pauses double. Publishes in flight, leases that
end and other replicas may still bring messages."""
LEASED_LOOK_SECONDS = 3.0
"""How often one is looked at whose messages cannot be moved now: consumers have them, or a broker is down."""
FIRST_REST_SECONDS, MOST_REST_SECONDS = 60.0, 3_600.0
"""The pauses of a drain that leads back to itself: they double."""
REFUSED_SECONDS = 60.0
"""How long the lease of a message that the new broker has refused is kept, so that the next looks find others."""
_AT_ONCE = 100
_QUEUES_AT_ONCE = 8
_CLOSE_SECONDS = 10.0
_LEASE_SPARE_SECONDS = 10.0

log = get_logger(__name__)
_throttled = LogThrottle(log)

Key = tuple[str, int, str]
"""Where a queue was before: :attr:`babelgate.brokers.route.BrokerRoute.location`."""

_TRACED = 1_000
"""Bodies of which a drain remembers that it has moved them."""
_TRACED_ROUNDS = 4
"""The trace begins again after this many times the messages that were there: consumers may have taken those."""


class _Circle:
    """Finds out that a queue is drained into itself: a message that was moved twice is there again, after twice as many
    were moved as there were at first. Clients do not publish that many copies of one body."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._first = self._moved = 0
        self._most = 0

    def begin(self, ready: int | None) -> None:
        """``ready``: the number of messages that can be moved now; None if it is not known."""
        if 0 < self._moved <= self._most:
            return
        is_longer = ready is None and self._moved > 0
        # Of an unknown number: each trace is twice as long, so that one is long enough.
        self._most = 2 * self._most if is_longer else _TRACED_ROUNDS * max(ready or 0, _TRACED)
        self._times, self._first, self._moved = {}, ready or 0, 0

    def moved(self, message: Outgoing) -> None:
        """``message`` was published."""
        self._moved += 1
        key = hash(message.body)
        if key in self._times or len(self._times) < _TRACED:
            self._times[key] = self._times.get(key, 0) + 1

    def closes(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether some of these were moved twice."""
        if self._moved < 2 * max(self._first, 1):
            return False
        return any(self._times.get(hash(each.body), 0) > 1 for each in deliveries)


class _LeadsBack(Exception):
    """The queue is drained into itself."""


class QueueDrains:
    """Empties the former queues of one process. ``clock``: seconds."""

    def __init__(
        self, runtimes: QueueRuntimes, pauses: Pauses, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtimes = runtimes
        self._pauses = pauses
        self._limits = limits
        self._clock = clock
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_QUEUES_AT_ONCE))
        """Of each former broker, by the binding's id: one that does not answer holds up no others."""
        self._circles: defaultdict[Key, _Circle] = defaultdict(_Circle)
        self._stopping = asyncio.Event()
        self._moving: set[Key] = set()
        """Whose messages are in the middle of a move."""
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._resting: BackgroundTasks[None] = BackgroundTasks()
        """Messages that the new broker has refused."""
        self._awake: dict[Key, asyncio.Event] = {}
        """Ends the pause of a drain."""
        self._owners: dict[int, str] = {}
        """The queue that left each place last, by :attr:`babelgate.brokers.route.BrokerRoute.place`."""

    def left_by(self, route: Route) -> None:
        """What is left at the place of ``route`` is its queue's, and of no queue that had the place before."""
        self._owners[route.place] = route.queue

    def start(self, former: Route, router: Router, outages: Outages) -> None:
        """Empty the queue of ``former``; ``router`` finds where it lives now. Needs a running event loop."""
        key = former.location
        if key in self._tasks:
            # What has come back by a reload was not sent back by a drain.
            self._circles.pop(key, None)
            self._awake[key].set()
        elif not self._stopping.is_set():
            self._awake[key] = asyncio.Event()
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key, former, router, outages))

    def left(self) -> dict[tuple[int, str], str]:
        """The queues that have left a native queue, by the binding's id and the native name."""
        return {(binding, native): queue for queue, binding, native in self._tasks}

    async def close(self) -> None:
        """Stop after the messages that are being moved, at most 10 s; idempotent."""
        self._stopping.set()
        for awake in self._awake.values():
            awake.set()
        tasks = list(self._tasks.values())
        moving = [self._tasks[key] for key in self._moving if key in self._tasks]
        if moving:
            await asyncio.wait(moving, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._resting.wait(_CLOSE_SECONDS)
        await self._resting.cancel()

    async def _run(self, key: Key, former: Route, router: Router, outages: Outages) -> None:
        """Look for as long as the process runs: a queue that has gone back to ``former`` costs no call."""
        backoff, awake = Backoff(LOOK_SECONDS, MOST_LOOK_SECONDS), self._awake[key]
        rest = Backoff(FIRST_REST_SECONDS, MOST_REST_SECONDS)
        moved = 0
        while not self._stopping.is_set():
            count, is_empty, has_failed, rest_seconds = 0, False, True, 0.0
            try:
                async with self._turns[id(former.binding)]:
                    count, is_empty = await self._drain(key, former, router, outages.of(former.binding))
                has_failed = False
            except _LeadsBack:
                self._circles.pop(key, None)
                rest_seconds = rest.failed()
                log.warning("queue not drained: it leads back to itself", queue=former.queue, broker=former.broker)
            except BabelgateError as error:
                _throttled.warning("queue not drained", queue=former.queue, broker=former.broker, error=error)
            except Exception:
                log.exception("queue not drained", queue=former.queue, broker=former.broker)
            moved += count
            if count:
                backoff.succeeded()
            elif moved and is_empty:
                log.info("queue drained", queue=former.queue, broker=former.broker, messages=moved)
                moved = 0
            pause = min(backoff.failed(), MOST_LOOK_SECONDS if is_empty or has_failed else LEASED_LOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(awake.wait(), max(pause, rest_seconds))
            if awake.is_set() and not self._stopping.is_set():
                awake.clear()
                backoff.succeeded()

    async def _drain(self, key: Key, former: Route, router: Router, outages: Outages) -> tuple[int, bool]:
        """Move messages for LOOK_SECONDS at most; the number moved, and whether none was found, leased ones included
        as far as the broker counts them. Raises what the brokers raise."""
        if former.queue in self._pauses.refusing:
            return 0, False
        if self._elsewhere(former, router) is None:
            return 0, True
        if outages.circuits[former.broker].is_open:
            return 0, False
        try:
            stats = await former.stats()
        except BabelgateError as error:
            outages.call_ended(former.broker, error)
            raise
        is_empty = not total(stats)
        # Where the depth is not known, a reserve is the look.
        if is_empty and stats.depth is not None:
            return 0, True
        self._circles[key].begin(stats.depth)
        until, moved = self._clock() + LOOK_SECONDS, 0
        while not self._stopping.is_set() and self._clock() < until:
            if (route := self._elsewhere(former, router)) is None:
                break
            runtime = self._runtimes.of(route)
            self._moving.add(key)
            try:
                done, more = await self._move(self._runtimes.former(former), runtime)
            finally:
                self._moving.discard(key)
            moved += done
            if not more:
                break
        return moved, is_empty and not moved

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
        circle = self._circles[old.location]
        if circle.closes(deliveries):
            await former.give_back([each.handle for each in deliveries])
            raise _LeadsBack
        messages = await turns.mapped(partial(self._message, old, new), deliveries, size=lambda each: len(each.body))
        moved: list[str] = []
        kept: list[str] = []
        refused: list[str] = []
        is_silent = False
        pairs = list(zip(deliveries, messages, strict=True))
        sizes = [len(message.body) for _, message in pairs]
        for chunk in batches(pairs, new.capabilities.max_batch, BATCH_BYTES, sizes):
            if is_silent:
                kept += [delivery.handle for delivery, _ in chunk]
                continue
            outcomes: Sequence[Outcome]
            outcomes = await for_each(runtime.calls.send([message for _, message in chunk]), len(chunk))
            for (delivery, message), outcome in zip(chunk, outcomes, strict=True):
                if outcome is None:
                    circle.moved(message)
                    moved.append(delivery.handle)
                    continue
                (kept if is_silence(outcome) else refused).append(delivery.handle)
                is_silent = is_silent or is_silence(outcome)
                _throttled.warning("message not drained", queue=old.queue, broker=new.broker, error=outcome)
        for handles in batches(moved, limit):
            acked = await former.calls.timed("ack", former.lease_manager.ack(handles), len(handles))
            if lost := len(handles) - list(acked).count(None):
                _throttled.warning("messages may be moved twice", queue=old.queue, broker=old.broker, count=lost)
        if kept:
            await former.give_back(kept)
        if refused:
            self._resting.start(self._rest(former, refused))
        return len(moved), bool(moved) and not kept

    async def _rest(self, former: QueueRuntime, handles: Sequence[str]) -> None:
        """Keep refused messages for REFUSED_SECONDS, and then give them back uncounted. At the head of the queue they
        would be all that the next look finds."""
        seconds = min(2 * REFUSED_SECONDS, former.route.capabilities.max_lease_seconds)
        await former.prolong(handles, seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), min(REFUSED_SECONDS, seconds / 2))
        await former.give_back(handles)

    def _elsewhere(self, former: Route, router: Router) -> Route | None:
        """Where the queue is routed now; None without a route, where that leads to the same place, and where another
        queue has this place now, or was the last to have it."""
        if self._owners.get(former.place, former.queue) != former.queue:
            return None
        try:
            route = router.route(former.queue)
            owner = router.queue_of(former.binding, former.native.name)
            if owner is not None and owner != former.queue and owner in router.configured():
                # Its broker may have another connection to this place.
                is_taken = router.route(owner).place == former.place
            else:
                is_taken = False
        except BabelgateError:
            return None
        return None if is_taken or route.place == former.place else route

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
