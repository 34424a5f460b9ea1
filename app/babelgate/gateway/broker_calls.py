"""The calls to the broker for one queue: each is timed and reported, and refused while the circuit is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from babelgate.brokers.batcher import Circuit
from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.errors import for_each
from babelgate.brokers.idempotency_store import ClaimResult, KeyClaim, KeyStore, Terms
from babelgate.brokers.parking import ParkingPlace
from babelgate.envelope import Envelope
from babelgate.errors import BabelgateError, LeaseLost
from babelgate.gateway.ack_tokens import NO_FACTS, Lease
from babelgate.gateway.counted_leases import CountedLeases
from babelgate.gateway.idempotency import IdempotentPublisher, KeyStores, MaybeKeyed
from babelgate.gateway.idempotency import KeyedResult as Published
from babelgate.gateway.model import Action
from babelgate.gateway.open_streams import OpenStreams
from babelgate.gateway.outages import Outages
from babelgate.gateway.routing import Route
from babelgate.observe.events import Call, Event, EventKind, Facts, Observe, Operation
from babelgate.runtime.background import BackgroundTasks

TokenOutcome = Outcome | int | Literal["dead_lettered"]
"""The outcome of one token: ``None`` settled, an error, the new deadline of an extended lease in Unix ms, or that its
nack was the last one."""

_SETTLED: Mapping[Action, EventKind] = {"ack": "acked", "nack": "nacked", "reject": "rejected", "extend": "extended"}

Result = TypeVar("Result")


class PendingPublish(Struct, frozen=True):
    """A message to publish, and the claim of its idempotency key if it has one."""

    envelope: Envelope
    outgoing: Outgoing
    claim: KeyClaim | None = None


class BrokerCalls:
    """The calls for the queue of ``route``. It knows nothing of the queue's batchers, receives and leases, which keep
    it: so none of them is in a cycle of references, and all are freed with the last reference to them."""

    __slots__ = ("_counted", "_observe", "_outages", "_streams", "circuit", "route")

    def __init__(
        self, route: Route, observe: Observe, outages: Outages, streams: OpenStreams, counted: CountedLeases
    ) -> None:
        self.route = route
        self._counted = counted
        self.circuit = outages.circuits[route.broker]
        self._observe = observe
        self._outages = outages
        self._streams = streams

    def report_to(self, outages: Outages) -> None:
        """Report outages where those of the broker's connection belong now; its circuit stays."""
        self._outages = outages.of(self.route.binding)

    async def timed(
        self,
        operation: Operation,
        call: Awaitable[Sequence[Result]],
        count: int | None = None,
        *,
        coalesced: bool = False,
        circuit: Circuit | None = None,
    ) -> Sequence[Result]:
        """Await and report ``call``, a call to the broker for ``count`` messages (None: the number of results).

        Raises BrokerUnavailable while the broker's circuit is open; but an extend may need no broker. ``circuit``: that
        of another broker, which is the only one that is called.
        """
        circuit = circuit or self.circuit
        if circuit.is_open and operation != "extend":
            if asyncio.iscoroutine(call):
                call.close()
            raise circuit.refusal()
        began = time.monotonic()
        results: Sequence[Result] = ()
        error: str | None = None
        outcome: object = None
        try:
            results = await call
            # Of a batch that fills the storage the first messages are stored.
            outcome = (results[0] or results[-1]) if results else None
            return results
        except BaseException as raised:
            outcome = raised
            error = raised.problem_code if isinstance(raised, BabelgateError) else type(raised).__name__
            raise
        finally:
            took = time.monotonic() - began
            count = len(results) if count is None else count
            self._observe(Call(operation, self.route.queue, self.route.broker, count, took, error, coalesced))
            # The error that the call raised, or else its first or last result.
            self._outages.call_ended(self.route.broker, outcome)
            # The error's traceback keeps this frame, which must not keep the error.
            outcome = None

    async def publish(self, pendings: Sequence[PendingPublish], *, coalesced: bool = True) -> Sequence[Outcome]:
        """Publish ``pendings`` as one batch and report the accepted ones; outcomes and errors are the binding's.
        ``coalesced``: they are of several calls."""
        outcomes = await self.send([pending.outgoing for pending in pendings], coalesced=coalesced)
        self.report_accepted(pendings, outcomes)
        return outcomes

    async def send(self, messages: Sequence[Outgoing], *, coalesced: bool = False) -> Sequence[Outcome]:
        """Publish ``messages`` as one batch. While the circuit is open, only those that are parked elsewhere."""
        if self.route.parking is not None and self.circuit.is_open:
            return await self._park(self.route.parking, messages, coalesced)
        return await self.timed("send", self.route.publish(messages), len(messages), coalesced=coalesced)

    async def _park(self, parking: ParkingPlace, messages: Sequence[Outgoing], coalesced: bool) -> Sequence[Outcome]:
        late = [at for at, message in enumerate(messages) if parking.takes(message)]
        outcomes: list[Outcome] = [self.circuit.refusal() for _ in messages]
        if late:
            parked = self.route.publish([messages[at] for at in late])
            circuit = self._outages.of(parking.binding).circuits[parking.binding.name]
            sending = self.timed("send", parked, len(late), coalesced=coalesced, circuit=circuit)
            for at, outcome in zip(late, await for_each(sending, len(late)), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def send_once(self, store: KeyStore, messages: Sequence[MaybeKeyed], terms: Terms) -> Sequence[ClaimResult]:
        """Publish as one batch the messages whose keys are new to the ``store``, which is the queue's own broker."""
        return await self.timed("send", store.publish(self.route.native, messages, terms), len(messages))

    def report_accepted(self, pendings: Sequence[PendingPublish], results: Sequence[Published]) -> None:
        """Report the accepted messages, before their callers continue and also if a caller has gone."""
        facts: list[Facts] = []
        bodies: list[bytes] = []
        carriers: list[Outgoing] = []
        for pending, result in zip(pendings, results, strict=True):
            if result is not None:
                continue
            it, context = pending.envelope, pending.outgoing.headers.get("traceparent")
            facts.append(Facts(it.attempts, it.id, it.trace_id, it.job, it.created_at, it.lang, len(it.body), context))
            bodies.append(it.body)
            carriers.append(pending.outgoing)
        route = self.route
        if facts:
            told = Event(
                "accepted", route.queue, route.broker, len(facts), messages=facts, bodies=bodies, carriers=carriers
            )
            self._observe(told)

    def report_settled(
        self, action: Action, opened: Sequence[Lease | BabelgateError], outcomes: Sequence[TokenOutcome]
    ) -> None:
        """Report the leases that were settled, and those that were lost. ``opened``: the lease of each token, or why it
        could not be opened."""
        if self._streams.holders:
            self._streams.settled(action, opened, outcomes)
        if self._counted.held:
            for lease, outcome in zip(opened, outcomes, strict=True):
                if isinstance(lease, Lease):
                    self._counted.settled(lease.queue, lease.handle, outcome)
        settled: list[Facts] = []
        lost: list[Facts] = []
        for lease, outcome in zip(opened, outcomes, strict=True):
            if not isinstance(outcome, BabelgateError):
                assert isinstance(lease, Lease)
                settled.append(lease.facts)
            elif isinstance(outcome, LeaseLost):
                lost.append(lease.facts if isinstance(lease, Lease) else NO_FACTS)
        queue, broker = self.route.queue, self.route.broker
        if settled:
            self._observe(Event(_SETTLED[action], queue, broker, len(settled), messages=settled))
        if lost:
            self._observe(Event("lease_lost", queue, broker, len(lost), messages=lost))


class KeyedSender:
    """Publishes messages with idempotency keys to one queue."""

    def __init__(self, calls: BrokerCalls, keys: KeyStores) -> None:
        self._calls = calls
        self._once = IdempotentPublisher(calls.route, keys, calls.send, calls.send_once)
        self._running: BackgroundTasks[Sequence[Published]] = BackgroundTasks()

    @property
    def busy(self) -> bool:
        """Whether a batch is in flight."""
        return bool(self._running)

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._running.wait()

    async def publish(self, pendings: Sequence[PendingPublish]) -> Sequence[Published]:
        """Publish as one batch the messages whose keys are new, and report them.

        The work is not cancelled with its caller: a key would stay reserved.
        """
        return await asyncio.shield(self._running.start(self._publish(pendings)))

    async def _publish(self, pendings: Sequence[PendingPublish]) -> Sequence[Published]:
        results = await self._once.publish([(pending.outgoing, pending.claim) for pending in pendings])
        self._calls.report_accepted(pendings, results)
        return results
