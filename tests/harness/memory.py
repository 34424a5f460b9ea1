"""A broker in memory, for behaviour that no real broker shows on demand: missing abilities, delivery counts, faults."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from babelgate.brokers.binding import DeadLetterRequest, Delivery, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.servicebus.properties import http_date
from babelgate.clock import Clock, now_ms
from babelgate.envelope import dead_letter_record
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, ConfigError, LeaseLost, OutcomeUnknown

CAPABLE = BrokerCapabilities(
    max_delay_seconds=None,
    max_retry_delay_seconds=None,
    max_lease_seconds=3600,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="added",
    max_body_bytes=None,
    max_batch=100,
    headers=True,
)

OWNED = dataclasses.replace(
    CAPABLE,
    max_lease_seconds=1500,
    ack_scope="owner",
    native_release=False,
    delivery_count="zero_based",
    lease_bound_to="connection",
)
"""The capabilities of a broker whose deliveries belong to a connection."""

FOREVER = 2**63


@dataclass(slots=True)
class _Stored:
    message: Outgoing
    count: int = 0


@dataclass(slots=True)
class _Queue:
    ready: list[_Stored] = field(default_factory=list)
    leased: dict[str, tuple[int, _Stored]] = field(default_factory=dict)
    dead: list[Outgoing] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryBinding:
    """Carries messages in this process. It offers none of the optional protocols, and does not keep delays.

    - ``faults[verb]``: the number of calls of the verb that still succeed; later ones fail with ``errors[verb]``. One
      that fails with OutcomeUnknown does its work first.
    - ``refused``: a body that publish rejects.
    - ``gates[verb]``: calls of the verb wait for this event.
    - ``calls[verb]``: the number of items of each call so far.
    """

    def __init__(self, name: str = "memory", capabilities: BrokerCapabilities = CAPABLE, clock: Clock = now_ms) -> None:
        self.name = name
        self.timeout_seconds = 5.0
        self.faults: dict[str, int] = {}
        self.errors: dict[str, BabelgateError] = {}
        self.refused: bytes | None = None
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: defaultdict[str, list[int]] = defaultdict(list)
        self._capabilities = capabilities
        self._clock = clock
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._handles = itertools.count(1)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        for key in options:
            raise ConfigError(key=key, reason="this broker has no options")
        return NativeQueue(name)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        return self._capabilities

    async def open(self) -> None:
        await self._called("open", 1)

    async def close(self) -> None:
        await self._called("close", 1)

    async def ping(self) -> None:
        await self._called("ping", 1)

    async def warnings(self) -> Sequence[str]:
        return ["nothing here survives the process"]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        unknown = await self._called("publish", len(messages))
        held = self._queues[queue.name]
        outcomes = [self._refusal(message) for message in messages]
        held.ready += [_Stored(each) for each, refused in zip(messages, outcomes, strict=True) if refused is None]
        held.arrived.set()
        return self._answer(outcomes, unknown)

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        await self._called("reserve", limit)
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
        kept = self._capabilities.lease_bound_to is None
        deadline = self._clock() + round(lease_seconds * 1000) if kept else FOREVER
        return [self._lease(held, stored, deadline) for stored in taken]

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        unknown = await self._called("ack", len(handles))
        leased = self._standing(queue).leased
        return self._answer([None if leased.pop(handle, None) else LeaseLost() for handle in handles], unknown)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        assert self._capabilities.native_release or not (failed or delay_seconds), "it cannot"
        await self._called("release", len(handles))
        held = self._standing(queue)
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
        await self._called("extend", len(handles))
        leased, deadline = self._standing(queue).leased, self._clock() + round(lease_seconds * 1000)
        for handle in set(handles) & leased.keys():
            leased[handle] = (deadline, leased[handle][1])
        return [deadline if handle in leased else LeaseLost() for handle in handles]

    async def stats(self, queue: NativeQueue) -> QueueStats:
        await self._called("stats", 1)
        held = self._queues[queue.name]
        return QueueStats(depth=len(held.ready), in_flight=len(held.leased), dead=len(held.dead))

    def ready(self, queue: str) -> list[Outgoing]:
        """The ready messages of the queue, as they were published."""
        return [stored.message for stored in self._queues[queue].ready]

    def dead(self, queue: str) -> list[Outgoing]:
        """The records in its dead-letter queue."""
        return self._queues[queue].dead

    def disconnect(self, queue: str) -> None:
        """The connection is lost: what was out on it is ready again, at the head."""
        held = self._queues[queue]
        held.ready = [stored for _, stored in held.leased.values()] + held.ready
        held.leased.clear()
        held.arrived.set()

    def fail_after(self, verb: str, calls: int, error: BabelgateError | None = None) -> None:
        """Let ``calls`` more calls of ``verb`` succeed, then fail with ``error``, by default BrokerUnavailable."""
        self.faults[verb] = calls
        self.errors[verb] = error or BrokerUnavailable(self.name, "it is down")

    async def _called(self, verb: str, items: int) -> OutcomeUnknown | None:
        """Count a call and raise its fault. An OutcomeUnknown is returned, to be raised after the work is done."""
        self.calls[verb].append(items)
        if verb in self.gates:
            await self.gates[verb].wait()
        if verb in self.faults:
            if self.faults[verb] == 0:
                error = self.errors[verb]
                if not isinstance(error, OutcomeUnknown):
                    raise error
                return error
            self.faults[verb] -= 1
        return None

    @staticmethod
    def _answer(outcomes: Sequence[Outcome], unknown: OutcomeUnknown | None) -> Sequence[Outcome]:
        if unknown is not None:
            raise unknown
        return outcomes

    def _refusal(self, message: Outgoing) -> Outcome:
        return BrokerRejected(self.name, "not this one") if message.body == self.refused else None

    def _standing(self, queue: NativeQueue) -> _Queue:
        """The queue, without leases that are over."""
        held = self._queues[queue.name]
        self._expire(held)
        return held

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
        message = stored.message
        based = 1 if self._capabilities.delivery_count == "one_based" else 0
        return Delivery(
            message.body,
            handle,
            deadline if deadline != FOREVER else 0,
            message.headers,
            stored.count + based,
            stored.count > 0,
            message.carried,
            properties=_received(message.properties, stored.count + 1) if message.properties else {},
        )


def _received(properties: Mapping[str, Any], deliveries: int) -> dict[str, Any]:
    """The broker properties of a delivery, as JSON."""
    times = {name: http_date(at) for name, at in properties.items() if name == "ScheduledEnqueueTimeUtc"}
    return {**properties, **times, "DeliveryCount": deliveries}


class ConnectedMemory(MemoryBinding):
    """ConnectionBroker. Where any process acks, an extend proves that none has.

    ``stale``: this process believes that it has all that it ever had.
    """

    stale = False

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        leased = self._queues[queue.name].leased
        return [self.stale or handle in leased for handle in handles]

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        await self._called("prove", len(handles))
        leased = self._queues[queue.name].leased
        return [None if handle in leased else LeaseLost() for handle in handles]

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        if self._capabilities.lease_bound_to is None:
            return await super().extend(queue, handles, lease_seconds)
        await self._called("extend", len(handles))
        leased = self._queues[queue.name].leased
        return [self._clock() if handle in leased else LeaseLost() for handle in handles]


class DeadLetterPublishingMemory(ConnectedMemory):
    """ConnectionBroker, and PublishesDeadLetters."""

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        unknown = await self._called("publish_dead_letters", len(records))
        self._queues[queue.name].dead += records
        return self._answer([None] * len(records), unknown)


class MovingMemory(MemoryBinding):
    """DeadLetters."""

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        await self._called("dead_letter", len(letters))
        held = self._standing(queue)
        outcomes: list[Outcome] = []
        for letter in letters:
            leased = held.leased.pop(letter.handle, None)
            outcomes.append(None if leased else LeaseLost())
            if leased:
                message = leased[1].message
                held.dead.append(replace(message, body=dead_letter_record(message.body, letter.block)))
        return outcomes


def lacking(**abilities: Any) -> BrokerCapabilities:
    """CAPABLE with other values of some capabilities."""
    return dataclasses.replace(CAPABLE, **abilities)
