"""Moves parked messages to their queues when they are due: publish, confirm, then remove.

Each gateway moves: a lease of the parking broker gives a message to one of them. One that stops between the confirm and
the removal leaves a message that is moved again; none is lost. A message that its queue's broker does not take stays
parked, and no attempt of it is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import Binding, Delivery, Lists, NativeQueue, Outcome, Outgoing
from babelgate.brokers.errors import for_each
from babelgate.brokers.parking import UNREADABLE, cannot_park, parked_queue, parking_queue, restored, total
from babelgate.errors import BabelgateError, BrokerError
from babelgate.gateway.outages import is_silence
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.receive import RESERVED_BYTES
from babelgate.gateway.routing import Router
from babelgate.gateway.runtimes import QueueRuntimes
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.backoff import Backoff

LOOK_SECONDS = 1.0
"""How often a process looks for due messages, and how long it moves those of one queue before others have a turn."""
EMPTY_SECONDS = 5.0
"""For how long a parking queue that had no messages is not looked at."""
LIST_SECONDS = 60.0
"""How often a process looks for parking queues that others use."""
REFUSED_SECONDS = 60.0
"""For how long a message rests that the broker of its queue has refused."""
UNROUTED_SECONDS = 300.0
"""How often a process warns of parked messages without a route."""
_MOVED_AT_ONCE = 100
_QUEUES_AT_ONCE = 8
_FIRST_PAUSE_SECONDS = 1.0
_LAST_PAUSE_SECONDS = 30.0
_CLOSE_SECONDS = 10.0
_LEASE_SPARE_SECONDS = 10.0

Key = tuple[str, str, str]
"""The parking broker, or the key of a former connection to one, the broker of the queue, and the queue."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


@dataclass(slots=True)
class _Queue:
    """What a process knows of a parking queue. ``rests_until``: by the mover's clock. ``message_bytes``: of a record,
    as estimated."""

    rests_until: float = 0.0
    message_bytes: float = RESERVED_BYTES / _MOVED_AT_ONCE
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS))


class Mover:
    """Moves the parked messages of one process's queues, and those that it finds on the brokers that can park."""

    def __init__(
        self,
        router: Router,
        bindings: Mapping[str, Binding],
        runtimes: QueueRuntimes,
        pauses: Pauses,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds, of the pauses between looks."""
        self._router = router
        self._bindings = bindings
        self._runtimes = runtimes
        self._pauses = pauses
        self._clock = clock
        self._places: dict[str, Binding] = {}
        """On which some route parks, or did before a reload: leases that were handed out then may still park there."""
        self._listed: dict[str, Sequence[Key]] = {}
        self._list_at: dict[str, float] = {}
        """When to list the queues of a broker again. One that is no place is listed once: it may have messages from
        before a restart."""
        self._queues: dict[Key, _Queue] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_QUEUES_AT_ONCE)
        )
        """Of a parking broker and a broker of queues: one that does not answer holds up no others."""
        self._work: dict[Key | str, asyncio.Task[int]] = {}
        """What runs for a parking queue, and for a broker whose queues are listed."""
        self._moving: set[Key] = set()
        """Whose messages are reserved, or in the middle of a move."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._read_routes()

    def _read_routes(self) -> None:
        router = self._router
        self._places |= {binding.name: binding for binding in router.parking_places()}
        routes = map(router.route, router.configured()) if self._places else ()
        self._configured = [
            (route.parking.binding.name, route.broker, route.queue) for route in routes if route.parking is not None
        ]
        self._list_at = {name: 0.0 for name, binding in self._bindings.items() if cannot_park(binding) is None}

    def configure(self, bindings: Mapping[str, Binding]) -> None:
        """Move by the routes that there are now, after a reload of the configuration. ``bindings``: all that are open,
        by the broker's name; a former connection by a key that stays. What is parked for a broker that was removed, or
        on one, goes where its queue is routed now."""
        self._bindings = bindings
        self._listed = {name: keys for name, keys in self._listed.items() if name in bindings}
        self._read_routes()
        if self._task is None or self._task.done():
            self._task = None
            self.start()

    def uses(self, binding: Binding) -> bool:
        """Whether messages are moved or listed over ``binding`` now."""
        return any(self._bindings.get(key if isinstance(key, str) else key[0]) is binding for key in self._work)

    def start(self) -> None:
        """Start to move; needs a running event loop."""
        if self._list_at and not self._stopping.is_set():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop after the messages that are being moved, at most 10 s; idempotent."""
        self._stopping.set()
        tasks: list[asyncio.Task[Any]] = [*self._work.values()]
        if self._task is not None:
            tasks.append(self._task)
        if self._moving:
            await asyncio.wait([self._work[key] for key in self._moving], timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def move(self) -> int:
        """Move messages that are due now, of each queue for LOOK_SECONDS; the number moved. Raises nothing of a broker.

        Queues whose messages are being moved are left out.
        """
        await asyncio.gather(*map(self._list, self._list_at))
        return sum(await asyncio.gather(*self._begin()))

    def _begin(self) -> list[asyncio.Task[int]]:
        """Begin to move the messages of each queue that has none in the middle of a move."""
        keys = dict.fromkeys(
            (*self._configured, *self._used(), *(key for keys in self._listed.values() for key in keys))
        )
        self._queues = {key: self._queues.get(key) or _Queue() for key in keys}
        now = self._clock()
        due = [each for each in self._queues.items() if each[1].rests_until <= now and each[0] not in self._work]
        return [self._start(key, self._move_in_turn(key, queue)) for key, queue in due]

    def _start(self, key: Key | str, work: Coroutine[Any, Any, int]) -> asyncio.Task[int]:
        task = self._work[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._work.pop(key, None))
        return task

    async def _move_in_turn(self, key: Key, queue: _Queue) -> int:
        async with self._turns[key[:2]]:
            return await self._move_from(key, queue)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for name in self._list_at:
                    if name not in self._work and self._list_at[name] <= self._clock():
                        self._start(name, self._list(name))
                self._begin()
            except Exception:
                log.exception("parked messages not moved; tried again later")
            if not self._places and not self._queues and not self._is_listing:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_SECONDS)

    @property
    def _is_listing(self) -> bool:
        return any(at != float("inf") for at in self._list_at.values())

    def _used(self) -> Sequence[Key]:
        """The parking queues of the queues that this process uses."""
        if not self._places:
            return ()
        routes = (runtime.route for runtime in self._runtimes)
        return [
            (route.parking.binding.name, route.broker, route.queue) for route in routes if route.parking is not None
        ]

    async def _list(self, name: str) -> int:
        """List the parking queues on a broker if it is time; their number."""
        now = self._clock()
        if name not in self._bindings or self._list_at.get(name, now + 1) > now:
            return 0
        binding = self._bindings[name]
        if not isinstance(binding, Lists):
            return 0
        self._list_at[name] = now + EMPTY_SECONDS
        try:
            natives = await binding.queues()
        except BabelgateError as error:
            log.debug("parking queues not listed", broker=name, error=error)
            return 0
        except Exception:
            log.exception("parking queues not listed", broker=name)
            return 0
        self._listed[name] = [(name, *found) for found in map(parked_queue, natives) if found is not None]
        self._list_at[name] = now + LIST_SECONDS if binding.name in self._places else float("inf")
        return len(self._listed[name])

    async def _move_from(self, key: Key, queue: _Queue) -> int:
        place, broker, name = key
        if name in self._pauses.refusing or self._stopping.is_set() or place not in self._bindings:
            return 0
        ends_at = self._clock() + LOOK_SECONDS
        binding, moved = self._bindings[place], 0
        native = parking_queue(binding, broker, name)
        try:
            count = total(await binding.stats(native))
            if not count:
                queue.rests_until = self._clock() + EMPTY_SECONDS
                return 0
            runtime = self._runtime(broker, name)
            if runtime is None:
                queue.rests_until = self._clock() + UNROUTED_SECONDS
                log.warning(
                    "parked messages have no route", queue=name, broker=broker, parking=binding.name, count=count
                )
                return 0
            most = min(runtime.route.capabilities.max_batch, _MOVED_AT_ONCE)
            lease_seconds = 2 * (binding.timeout_seconds + runtime.route.binding.timeout_seconds) + _LEASE_SPARE_SECONDS
            while not self._stopping.is_set():
                limit = max(min(most, int(RESERVED_BYTES / queue.message_bytes)), 1)
                # The rest of the lease is for the last chunk and its removal.
                until = self._clock() + lease_seconds / 2
                self._moving.add(key)
                try:
                    deliveries = await binding.reserve(native, limit, 0, lease_seconds)
                    if deliveries:
                        mean = sum(len(each.body) for each in deliveries) / len(deliveries)
                        queue.message_bytes = max(mean, queue.message_bytes / 2, 1)
                    done, is_failed = await self._move(binding, broker, native, runtime, deliveries, until)
                finally:
                    self._moving.discard(key)
                moved += done
                if is_failed:
                    queue.rests_until = self._clock() + queue.backoff.failed()
                    break
                if done:
                    queue.backoff.succeeded()
                if len(deliveries) < limit or self._clock() >= ends_at:
                    break
        except BrokerError as error:
            _throttled.warning("parked messages not moved", queue=name, broker=binding.name, error=error)
            queue.rests_until = self._clock() + queue.backoff.failed()
        except Exception:
            log.exception("parked messages not moved", queue=name, broker=binding.name)
            queue.rests_until = self._clock() + queue.backoff.failed()
        return moved

    def _runtime(self, broker: str, queue: str) -> QueueRuntime | None:
        """The runtime of ``queue``, whose messages were parked when it was on ``broker``. None without a route, and
        where no ``broker`` is open: the messages are those of other gateways."""
        if broker not in self._bindings:
            return None
        try:
            return self._runtimes.of(self._router.route(queue))
        except BabelgateError:
            return None

    async def _move(
        self,
        place: Binding,
        broker: str,
        native: NativeQueue,
        runtime: QueueRuntime,
        deliveries: Sequence[Delivery],
        until: float,
    ) -> tuple[int, bool]:
        """Publish ``deliveries`` of ``place``, parked for ``broker``, to their queue, and remove those that its broker
        has confirmed, chunk by chunk; after ``until``, by the mover's clock, the rest is given back. Returns the number
        removed, and whether that broker did not answer, or a lease was over too soon. Raises BrokerError of ``place``.
        """
        route = runtime.route

        def read(delivery: Delivery) -> Outgoing | Exception:
            try:
                return restored(delivery.body, route.binding, broker)
            except UNREADABLE as error:
                return error.with_traceback(None)

        ready: list[tuple[str, Outgoing]] = []
        refused: list[str] = []
        messages = await turns.mapped(read, deliveries, lambda each: len(each.body))
        for delivery, message in zip(deliveries, messages, strict=True):
            if isinstance(message, Outgoing):
                ready.append((delivery.handle, message))
                continue
            refused.append(delivery.handle)
            _throttled.warning("parked message not read", queue=route.queue, broker=place.name, error=message)
        moved = lost = 0
        silent: list[str] = []
        left: list[str] = []
        sizes = [len(message.body) for _, message in ready]
        for chunk in batches(ready, route.capabilities.max_batch, BATCH_BYTES, sizes):
            if silent or self._stopping.is_set() or self._clock() >= until:
                left += [handle for handle, _ in chunk]
                continue
            outcomes: Sequence[Outcome]
            outcomes = await for_each(runtime.calls.send([message for _, message in chunk]), len(chunk))
            confirmed: list[str] = []
            for (handle, _), outcome in zip(chunk, outcomes, strict=True):
                if outcome is None:
                    confirmed.append(handle)
                    continue
                if is_silence(outcome):
                    # Outages of brokers are logged elsewhere.
                    silent.append(handle)
                    continue
                refused.append(handle)
                _throttled.warning("parked message refused", queue=route.queue, broker=route.broker, error=outcome)
            if confirmed:
                removed = (await place.ack(native, confirmed)).count(None)
                moved += removed
                lost += len(confirmed) - removed
        if lost:
            _throttled.warning("parked messages may be moved twice", queue=route.queue, broker=place.name, count=lost)
        if silent or left:
            await place.release(native, [*silent, *left], 0, failed=False)
        if refused:
            await place.release(native, refused, REFUSED_SECONDS, failed=False)
        return moved, bool(silent or lost)
