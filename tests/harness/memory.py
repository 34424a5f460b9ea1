"""A broker in memory, for what no real one shows on demand: missing abilities, odd delivery counts, faults."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.brokers.binding import Capabilities, Delivery, NativeQueue, Outcome, Outgoing, Stats
from app.clock import Clock, now_ms
from app.errors import BabelgateError, BrokerUnavailable, ConfigError, LeaseLost

CAPABLE = Capabilities(
    max_delay_seconds=None,
    max_lease_seconds=3600,
    extendable=True,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="added",
    max_body_bytes=None,
    max_batch=100,
    headers=True,
)


@dataclass(slots=True)
class _Stored:
    message: Outgoing
    count: int = 0


@dataclass(slots=True)
class _Queue:
    ready: list[_Stored] = field(default_factory=list)
    leased: dict[str, tuple[int, _Stored]] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryBinding:
    """Carries messages in this process. It offers none of the optional protocols, and does not keep delays.

    ``faults[verb]`` is how many more calls of the verb are served before all fail. ``calls[verb]`` holds how many items
    each call brought.
    """

    def __init__(self, name: str = "memory", capabilities: Capabilities = CAPABLE, clock: Clock = now_ms) -> None:
        self.name = name
        self.faults: dict[str, int] = {}
        self.calls: defaultdict[str, list[int]] = defaultdict(list)
        self._capabilities = capabilities
        self._clock = clock
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._handles = itertools.count(1)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        for key in options:
            raise ConfigError(key=key, reason="this broker has no options")
        return NativeQueue(name)

    def capabilities(self, queue: NativeQueue) -> Capabilities:
        return self._capabilities

    async def open(self) -> None:
        self._called("open", 1)

    async def close(self) -> None:
        self._called("close", 1)

    async def ping(self) -> None:
        self._called("ping", 1)

    async def warnings(self) -> Sequence[str]:
        return ["nothing here survives the process"]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        self._called("publish", len(messages))
        held = self._queues[queue.name]
        held.ready += [_Stored(message) for message in messages]
        held.arrived.set()
        return [None] * len(messages)

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        self._called("reserve", limit)
        held = self._queues[queue.name]
        self._expire(held)
        if not held.ready and wait_seconds:
            held.arrived.clear()
            try:
                async with asyncio.timeout(wait_seconds):
                    await held.arrived.wait()
            except TimeoutError:
                self._expire(held)
        taken, held.ready = held.ready[:limit], held.ready[limit:]
        deadline = self._clock() + round(lease_seconds * 1000)
        return [self._lease(held, stored, deadline) for stored in taken]

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        self._called("ack", len(handles))
        leased = self._queues[queue.name].leased
        return [None if leased.pop(handle, None) else LeaseLost() for handle in handles]

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        self._called("release", len(handles))
        held = self._queues[queue.name]
        outcomes: list[Outcome] = []
        for handle in handles:
            deadline_and_stored = held.leased.pop(handle, None)
            outcomes.append(None if deadline_and_stored else LeaseLost())
            if deadline_and_stored:
                stored = deadline_and_stored[1]
                stored.count += failed
                held.ready.append(stored)
                held.arrived.set()
        return outcomes

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        self._called("extend", len(handles))
        leased, deadline = self._queues[queue.name].leased, self._clock() + round(lease_seconds * 1000)
        for handle in set(handles) & leased.keys():
            leased[handle] = (deadline, leased[handle][1])
        return [deadline if handle in leased else LeaseLost() for handle in handles]

    async def stats(self, queue: NativeQueue) -> Stats:
        self._called("stats", 1)
        held = self._queues[queue.name]
        return Stats(depth=len(held.ready), in_flight=len(held.leased))

    def _called(self, verb: str, items: int) -> None:
        self.calls[verb].append(items)
        if verb in self.faults:
            if self.faults[verb] == 0:
                raise BrokerUnavailable(self.name, "it is down")
            self.faults[verb] -= 1

    def fail_after(self, verb: str, calls: int) -> None:
        """Serve ``calls`` more of ``verb``, then fail."""
        self.faults[verb] = calls

    def _expire(self, held: _Queue) -> None:
        now = self._clock()
        for handle, (deadline, stored) in list(held.leased.items()):
            if deadline <= now:
                del held.leased[handle]
                stored.count += 1
                held.ready.append(stored)

    def _lease(self, held: _Queue, stored: _Stored, deadline: int) -> Delivery:
        handle = str(next(self._handles))
        held.leased[handle] = (deadline, stored)
        based = 1 if self._capabilities.delivery_count == "one_based" else 0
        return Delivery(
            stored.message.body,
            handle,
            deadline,
            stored.message.headers,
            stored.count + based,
            stored.count > 0,
        )


def lacking(**abilities: Any) -> Capabilities:
    """The capabilities of an able broker, except for these."""
    return replace(CAPABLE, **abilities)
