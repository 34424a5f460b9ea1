"""The lease manager of one queue over a broker in memory without leases, with a clock that the test sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from babelgate.brokers.binding import DeadLetterRequest, Delivery, LastFailure, Outcome, Outgoing
from babelgate.clock import Clock
from babelgate.envelope import Limits, dead_letter_block
from babelgate.errors import BabelgateError
from babelgate.gateway.routing import Rule
from babelgate.leases.manager import FailedDelivery
from babelgate.leases.process import ProcessLeaseManager
from babelgate.leases.table import BrokerUsage
from babelgate.observe.events import Event
from tests.harness.memory import OWNED, DeadLetterPublishingMemory, MemoryBinding
from tests.harness.observed import events_into

LEASE = 30.0


def body(n: object, attempts: int = 0) -> bytes:
    """A canonical envelope whose payload is numbered."""
    payload = json.dumps({"n": n}, separators=(",", ":")).encode()
    meta = b'{"id":"m","queue":"q","lang":"go","schema_version":1,"created_at":1700000000000}'
    return b'{"job":"urn:babel:test:made","trace_id":"t","data":%b,"meta":%b,"attempts":%d}' % (payload, meta, attempts)


class Kept:
    """``kind`` is the class of the broker; ``now``, in Unix ms, is the time unless there is another ``clock``.
    ``stepped``: by how many ms the wall clock was set forward, or back where it is negative."""

    def __init__(
        self,
        queue: str,
        kind: type[MemoryBinding] = DeadLetterPublishingMemory,
        clock: Clock | None = None,
        **abilities: Any,
    ) -> None:
        self.now = 1_700_000_000_000
        self.stepped = 0
        steady_clock = clock or (lambda: self.now)
        clock = clock or (lambda: self.now + self.stepped)
        self.queue = queue
        self.events: list[Event] = []
        self.binding = kind("memory", replace(OWNED, **abilities), clock)
        self.broker_usage = BrokerUsage()
        self.route = Rule("*", self.binding).route(queue)
        self.lease_manager = ProcessLeaseManager(
            self.route,
            self.broker_usage,
            self.route.policy.max_attempts,
            Limits(),
            clock,
            events_into(self.events),
            steady_clock,
        )

    async def put(self, *messages: Outgoing) -> None:
        """Publish."""
        assert not any(await self.binding.publish(self.route.native, messages))

    async def take(self, count: int, lease: float = LEASE) -> list[Delivery]:
        """So many deliveries."""
        taken = self.lease_manager.keep(await self.binding.reserve(self.route.native, count, 0, lease), lease)
        assert len(taken) == count
        return list(taken)

    async def handles(self, count: int, lease: float = LEASE) -> list[str]:
        """The handles of so many new deliveries, whose payloads are numbered."""
        await self.put(*(Outgoing(body(n)) for n in range(count)))
        return [delivery.handle for delivery in await self.take(count, lease)]

    async def nack(self, *handles: str, delay: float = 0) -> Sequence[Outcome]:
        return await self.lease_manager.release([FailedDelivery(handle, LastFailure(1)) for handle in handles], delay)

    async def reject(self, *handles: str) -> Sequence[Outcome]:
        block = dead_letter_block("failed", self.queue, 0, self.now, "no stock", "Empty")
        return await self.lease_manager.dead_letter([DeadLetterRequest(handle, block) for handle in handles])

    async def settle(self, verb: str, *handles: str) -> Sequence[int | BabelgateError | None]:
        """By the name of the verb."""
        match verb:
            case "ack":
                return await self.lease_manager.ack(handles)
            case "nack":
                return await self.nack(*handles)
            case "reject":
                return await self.reject(*handles)
            case "give back":
                return await self.lease_manager.give_back(handles)
            case _:
                return await self.lease_manager.extend(handles, LEASE)

    async def pass_seconds(self, seconds: float = LEASE) -> None:
        """Let time pass, and what runs out in it."""
        self.now += round(seconds * 1000)
        await self.lease_manager.expire()

    def ready(self) -> list[tuple[object, int]]:
        """Payload and attempts of what is ready."""
        envelopes = [json.loads(message.body) for message in self.binding.ready(self.queue)]
        return [(each["data"]["n"], each["attempts"]) for each in envelopes]

    async def out(self) -> int | None:
        """How many deliveries the broker has out."""
        return (await self.binding.stats(self.route.native)).in_flight

    def expired(self) -> int:
        """The number of leases reported as expired."""
        return sum(event.count for event in self.events if event.kind == "lease_expired")
