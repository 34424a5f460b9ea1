"""The run-time state that one process keeps for one queue: its batchers, its receives and its leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from app.brokers.batcher import Batcher, Budget
from app.brokers.binding import Delivery, Outcome, Outgoing
from app.brokers.idempotency_store import ClaimResult, KeyClaim, KeyStore, Terms
from app.clock import Clock
from app.envelope import Envelope, Limits, Publication
from app.envelope.broker_properties import contradictions, read_properties
from app.errors import BabelgateError, BodyTooLarge, EnvelopeError, LeaseLost, Problem
from app.gateway.ack_tokens import NO_FACTS, Lease
from app.gateway.deliver import Deliverer
from app.gateway.idempotency import IdempotentPublisher, KeyStores, MaybeKeyed
from app.gateway.idempotency import KeyedResult as Published
from app.gateway.lease_manager import BrokerLeaseManager, GatewayLeaseManager, LeaseManager
from app.gateway.lease_table import BrokerUsage
from app.gateway.model import Action, KeysInfo
from app.gateway.outages import Outages
from app.gateway.receive import Inspector, Receiver
from app.gateway.routing import Route
from app.gateway.shared_leases import SharedLeaseManager
from app.observe.events import Call, Event, EventKind, Facts, Observe, Operation
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger
from app.runtime.background import BackgroundTasks

PUBLISH_SECONDS = 0.1
"""Longest expected wait of a publish for its batch. A publish that would wait longer is refused at once."""

TokenOutcome = Outcome | int
"""The outcome of one token: ``None`` settled, an error, or the new deadline of an extended lease in Unix ms."""

_SETTLED: Mapping[Action, EventKind] = {"ack": "acked", "nack": "nacked", "reject": "rejected", "extend": "extended"}

KeyedResult = TypeVar("KeyedResult")
Given = TypeVar("Given", str, float, Mapping[str, Any])

_throttled = LogThrottle(get_logger("babelgate.lanes"))


class PendingPublish(Struct, frozen=True):
    """A message to publish, and the claim of its idempotency key if it has one."""

    envelope: Envelope
    outgoing: Outgoing
    claim: KeyClaim | None = None


class QueueRuntime:
    """The queue's batched publishes and acks, its waiting receives and its lease manager."""

    def __init__(
        self,
        route: Route,
        broker_usage: BrokerUsage,
        limits: Limits,
        clock: Clock,
        observe: Observe,
        keys: KeyStores,
        outages: Outages,
        deliverer: Deliverer,
    ) -> None:
        """``broker_usage``: the leases that this process keeps of the route's broker."""
        self.route = route
        self.lease_manager = lease_manager_of(route, broker_usage, limits, clock, observe)
        self._observe = observe
        binding, native = route.binding, route.native
        max_batch = route.capabilities.max_batch

        async def send_once(store: KeyStore, messages: Sequence[MaybeKeyed], terms: Terms) -> Sequence[ClaimResult]:
            return await self.timed("send", store.publish(native, messages, terms), len(messages))

        async def ack(leases: list[Lease]) -> Sequence[Outcome]:
            handles = [lease.handle for lease in leases]
            outcomes = await self.timed("ack", self.lease_manager.ack(handles), len(handles), coalesced=True)
            self.report_settled("ack", leases, outcomes)
            return outcomes

        async def reserve(limit: int, wait_seconds: float, lease_seconds: float) -> Sequence[Delivery]:
            # Fewer leases may have been held when the waiting receives were admitted.
            broker_usage.check()
            reserving = binding.reserve(native, min(limit, max_batch), wait_seconds, lease_seconds)
            return self.lease_manager.keep(await self.timed("receive", reserving), lease_seconds)

        self._keys = keys
        self._outages = outages
        self.circuit = outages.circuits[route.broker]
        self._publishing: BackgroundTasks[Sequence[Published]] = BackgroundTasks()
        self._once = IdempotentPublisher(route, keys, self._send, send_once)
        budget = Budget(route.broker, binding.timeout_seconds)
        self.publisher: Batcher[PendingPublish, Outcome] = Batcher(
            partial(self.publish, coalesced=True), max_batch, PUBLISH_SECONDS, _sizes_of, budget, self.circuit
        )
        self.keyed_publisher: Batcher[PendingPublish, Published] = Batcher(
            self.publish_keyed, max_batch, PUBLISH_SECONDS, _sizes_of, budget, self.circuit
        )
        self.acker: Batcher[Lease, Outcome] = Batcher(ack, max_batch, budget=budget, circuit=self.circuit)
        inspector = Inspector(route, self.lease_manager, limits, clock, observe)
        self.receiver = Receiver(reserve, inspector.inspect, partial(deliverer.hand_out, route), self.give_back)

    @property
    def busy(self) -> bool:
        """Whether an operation is in flight or waiting, or a lease is held."""
        publishing = self.publisher.busy or self.keyed_publisher.busy or bool(self._publishing)
        return publishing or self.acker.busy or self.receiver.busy or self.lease_manager.busy

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self.publisher.idle()
        await self.keyed_publisher.idle()
        await self._publishing.wait()
        await self.receiver.idle()
        await self.acker.idle()
        await self.lease_manager.idle()

    async def close(self) -> None:
        """Finish all operations in flight; after that no lease kept by this process expires."""
        await self.idle()
        await self.lease_manager.close()

    async def publish(self, pendings: Sequence[PendingPublish], *, coalesced: bool = False) -> Sequence[Outcome]:
        """Publish ``pendings`` as one batch and report the accepted ones; outcomes and errors are the binding's."""
        outcomes = await self._send([pending.outgoing for pending in pendings], coalesced=coalesced)
        self._report(pendings, outcomes)
        return outcomes

    def submit(self, pending: PendingPublish) -> asyncio.Future[Published]:
        """The future of the result of ``pending``, which is published with others. Raises Overloaded, and
        BrokerUnavailable while the circuit is open."""
        publisher: Any = self.publisher if pending.claim is None else self.keyed_publisher
        submitted: asyncio.Future[Published] = publisher.submit(pending)
        return submitted

    def require_keys(self) -> None:
        """Raise IdempotencyUnsupported if no store keeps idempotency keys for this queue."""
        self._keys.store(self.route)

    @property
    def keys_info(self) -> KeysInfo | None:
        """How the idempotency keys of this queue are kept; None if no store keeps them."""
        return self._keys.info(self.route)

    async def publish_keyed(self, pendings: Sequence[PendingPublish]) -> Sequence[Published]:
        """Publish as one batch the messages whose keys are new, and report them.

        The work is not cancelled with its caller: a key would stay reserved.
        """
        return await asyncio.shield(self._publishing.start(self._publish_once(pendings)))

    async def timed(
        self,
        operation: Operation,
        call: Awaitable[Sequence[KeyedResult]],
        count: int | None = None,
        *,
        coalesced: bool = False,
    ) -> Sequence[KeyedResult]:
        """Await and report ``call``, a call to the broker for ``count`` messages (None: the number of results).

        Raises BrokerUnavailable while the broker's circuit is open; but an extend may need no broker.
        """
        if self.circuit.is_open and operation != "extend":
            if asyncio.iscoroutine(call):
                call.close()
            raise self.circuit.refusal()
        began = time.monotonic()
        results: Sequence[KeyedResult] = ()
        error: str | None = None
        outcome: object = None
        try:
            results = await call
            outcome = results[0] if results else None
            return results
        except BaseException as raised:
            outcome = raised
            error = raised.problem_code if isinstance(raised, BabelgateError) else type(raised).__name__
            raise
        finally:
            took = time.monotonic() - began
            count = len(results) if count is None else count
            self._observe(Call(operation, self.route.queue, self.route.broker, count, took, error, coalesced))
            # The error that the call raised, or else its first result.
            self._outages.call_ended(self.route.broker, outcome)

    def outgoing(
        self,
        publication: Publication,
        delay_seconds: float | None,
        ordering_key: str | None,
        broker_properties: Mapping[str, Any] | None = None,
    ) -> Outgoing:
        """The message to send. ``delay_seconds``, ``ordering_key`` and ``broker_properties`` (in the types of
        :func:`read_properties`) are those of the request, beside the body's own.

        Raises UnsupportedByBroker, BodyTooLarge or InvalidParameter if the broker cannot carry it, and EnvelopeError
        if request and body differ.
        """
        route = self.route
        delay, key = publication.delay_seconds, publication.ordering_key
        if delay_seconds is not None:
            delay = agreed("delay_seconds", "the query parameter delay_seconds", delay_seconds, delay)
        if ordering_key is not None:
            key = agreed("ordering_key", "the query parameter ordering_key", ordering_key, key)
        properties: Mapping[str, Any] = {}
        if broker_properties is not None or publication.broker_properties is not None:
            properties = self._broker_properties(publication, broker_properties, delay, key)
        if key is not None:
            key = route.check_ordering_key(key)
        if delay:
            route.check_delay(delay)
        if publication.headers:
            route.check_headers(publication.headers)
        if route.capabilities.max_property_bytes is not None:
            route.check_properties(publication.envelope, route.capabilities.max_property_bytes)
        body, maximum = publication.envelope.body, route.capabilities.max_body_bytes
        if maximum is not None and len(body) > maximum:
            raise BodyTooLarge(actual=len(body), limit=maximum)
        return Outgoing(body, publication.headers, key, delay or 0, publication.envelope.id, properties=properties)

    async def give_back(self, handles: Sequence[str]) -> None:
        """Return deliveries to the broker: available at once, uncounted. Never raises BabelgateError."""
        try:
            await self.lease_manager.give_back(handles)
        except BabelgateError as error:
            queue, broker = self.route.queue, self.route.broker
            _throttled.warning("deliveries not given back", queue=queue, count=len(handles), broker=broker, error=error)

    def _broker_properties(
        self, publication: Publication, given: Mapping[str, Any] | None, delay: float | None, key: str | None
    ) -> Mapping[str, Any]:
        """The broker properties to send, those ``given`` by the request or the body's own. Raises as ``outgoing``."""
        member = publication.broker_properties
        properties: Mapping[str, Any] | None = None if member is None else read_properties(member)
        if given is not None:
            properties = agreed("broker_properties", "the header BrokerProperties", given, properties)
        properties = properties or {}
        if problems := list(contradictions(properties, delay, key)):
            raise EnvelopeError(problems)
        self.route.check_broker_properties(properties)
        return properties

    async def _send(self, messages: Sequence[Outgoing], *, coalesced: bool = False) -> Sequence[Outcome]:
        sending = self.route.binding.publish(self.route.native, messages)
        return await self.timed("send", sending, len(messages), coalesced=coalesced)

    async def _publish_once(self, pendings: Sequence[PendingPublish]) -> Sequence[Published]:
        results = await self._once.publish([(pending.outgoing, pending.claim) for pending in pendings])
        self._report(pendings, results)
        return results

    def _report(self, pendings: Sequence[PendingPublish], results: Sequence[Published]) -> None:
        """Report the accepted messages, before their callers continue and also if a caller has gone."""
        facts: list[Facts] = []
        bodies: list[bytes] = []
        for pending, result in zip(pendings, results, strict=True):
            if result is not None:
                continue
            it, context = pending.envelope, pending.outgoing.headers.get("traceparent")
            facts.append(Facts(it.attempts, it.id, it.trace_id, it.job, it.created_at, it.lang, len(it.body), context))
            bodies.append(it.body)
        route = self.route
        if facts:
            self._observe(Event("accepted", route.queue, route.broker, len(facts), messages=facts, bodies=bodies))

    def report_settled(
        self, action: Action, opened: Sequence[Lease | BabelgateError], outcomes: Sequence[TokenOutcome]
    ) -> None:
        """Report the leases that were settled, and those that were lost. ``opened``: the lease of each token, or why it
        could not be opened."""
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


def lease_manager_of(
    route: Route, broker_usage: BrokerUsage, limits: Limits, clock: Clock, observe: Observe
) -> LeaseManager:
    """The lease manager of ``route``. Raises UnsupportedByBroker if its binding lacks what the manager needs."""
    if route.capabilities.lease_keeper == "gateway":
        return GatewayLeaseManager(route, broker_usage, limits, clock, observe)
    if route.dead_letters_by_receiver:
        return SharedLeaseManager(route, broker_usage, clock)
    return BrokerLeaseManager(route)


def agreed(option: str, parameter: str, given: Given, member: Given | None) -> Given:
    """The value of an option that the request gives as ``given`` and the body as ``member``.

    Raises EnvelopeError when both are given and differ: neither takes precedence. ``parameter`` says where the request
    gives it.
    """
    if member is not None and given != member:
        detail = f"{option} of the body differs from {parameter}: send one of them, or the same value in both."
        raise EnvelopeError([Problem(f"/{option}", f"{option}_mismatch", detail)])
    return given


def _sizes_of(pendings: Sequence[PendingPublish]) -> Sequence[int]:
    return [len(pending.envelope.body) for pending in pendings]
