"""The run-time state that one process keeps for one queue: its batchers, its receives and its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

from msgspec import Struct, field

from babelgate.brokers.batcher import Batcher, Budget
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.clock import Clock
from babelgate.envelope import Limits, Publication
from babelgate.errors import BabelgateError, BodyTooLarge, EnvelopeError
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.admission import Admission
from babelgate.gateway.broker_calls import BrokerCalls, KeyedSender, PendingPublish
from babelgate.gateway.counted_leases import CountedLeases
from babelgate.gateway.deliver import Deliverer
from babelgate.gateway.expiry import with_expiry
from babelgate.gateway.idempotency import KeyedResult as Published
from babelgate.gateway.idempotency import KeyStores
from babelgate.gateway.inspection import Inspector, ReadyDelivery
from babelgate.gateway.model import KeysInfo, Message
from babelgate.gateway.open_streams import OpenStreams
from babelgate.gateway.outages import Outages, is_silence
from babelgate.gateway.pauses import Pauses, QueuePaused
from babelgate.gateway.receive import Receiver
from babelgate.gateway.request_options import agreed, delay_until, with_options
from babelgate.gateway.routing import Route
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.leases.factory import lease_manager_of
from babelgate.leases.manager import LeaseManager
from babelgate.leases.table import BrokerUsage
from babelgate.observe.events import Observe
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

PUBLISH_SECONDS = 0.1
"""Longest expected wait of a publish for its batch. A publish that would wait longer is refused at once."""

_PROPERTIES_HEADER = "BrokerProperties"
"""Where a request gives its broker properties."""


_throttled = LogThrottle(get_logger(__name__))


class Shared(Struct, frozen=True):
    """What the runtimes of all queues of a process share."""

    limits: Limits
    clock: Clock
    observe: Observe
    keys: KeyStores
    outages: Outages
    deliverer: Deliverer
    admission: Admission
    pauses: Pauses
    schema_checks: SchemaChecks
    counted: CountedLeases
    streams: OpenStreams = field(default_factory=OpenStreams)


class _Part(Protocol):
    @property
    def busy(self) -> bool: ...
    async def idle(self) -> None: ...


_PARTS = ("publisher", "keyed_publisher", "parker", "keyed_sender", "receiver", "acker", "lease_manager")
"""The parts of a runtime in the order in which they become idle. Each is made by its first use: most of many queues are
only published to, or only received from."""


class QueueRuntime:
    """The queue's batched publishes and acks, its waiting receives and its lease manager.

    None of its parts has a reference to it or to a part that has a reference back, so that it is freed with the last
    reference. A cycle would keep it until the garbage collector finds it, and thousands of them stop the process for a
    second.
    """

    def __init__(self, route: Route, broker_usage: BrokerUsage, shared: Shared) -> None:
        """``broker_usage``: the leases that this process keeps of the route's broker."""
        self.route = route
        self.calls = BrokerCalls(
            route, shared.observe, shared.outages.of(route.binding), shared.streams, shared.counted
        )
        self.circuit = self.calls.circuit
        self.used = False
        """Whether it was used since :class:`babelgate.gateway.runtimes.QueueRuntimes` last looked for idle ones."""
        self._broker_usage = broker_usage
        self._shared = shared
        self._stopped = False

    @cached_property
    def publisher(self) -> Batcher[PendingPublish, Outcome]:
        """Publishes messages without idempotency keys."""
        return Batcher(self.calls.publish, self._max_batch, PUBLISH_SECONDS, _sizes_of, self._budget, self.circuit)

    @cached_property
    def keyed_publisher(self) -> Batcher[PendingPublish, Published]:
        """Publishes messages of which some have idempotency keys."""
        return Batcher(
            self.keyed_sender.publish, self._max_batch, PUBLISH_SECONDS, _sizes_of, self._budget, self.circuit
        )

    @cached_property
    def parker(self) -> Batcher[PendingPublish, Published]:
        """Parks messages on another broker while the circuit of the queue's own is open."""
        calls, keyed_sender, parking = self.calls, self.keyed_sender, self.route.parking
        assert parking is not None

        async def park(pendings: list[PendingPublish]) -> Sequence[Published]:
            is_keyed = any(pending.claim is not None for pending in pendings)
            return await (keyed_sender.publish(pendings) if is_keyed else calls.publish(pendings))

        budget = Budget(parking.binding.name, parking.binding.timeout_seconds)
        return Batcher(park, self._max_batch, PUBLISH_SECONDS, _sizes_of, budget)

    @cached_property
    def keyed_sender(self) -> KeyedSender:
        """Publishes the batches of messages with idempotency keys."""
        return KeyedSender(self.calls, self._shared.keys)

    @cached_property
    def acker(self) -> Batcher[Lease, Outcome]:
        """Acks single messages."""
        calls, lease_manager = self.calls, self.lease_manager

        async def ack(leases: list[Lease]) -> Sequence[Outcome]:
            handles = [lease.handle for lease in leases]
            outcomes = await calls.timed("ack", lease_manager.ack(handles), len(handles), coalesced=True)
            calls.report_settled("ack", leases, outcomes)
            return outcomes

        return Batcher(ack, self._max_batch, budget=self._budget, circuit=self.circuit)

    @cached_property
    def receiver(self) -> Receiver:
        """The receives of the queue."""
        calls, lease_manager = self.calls, self.lease_manager
        admission, usage, pauses = self._shared.admission, self._broker_usage, self._shared.pauses

        async def reserve(limit: int, wait_seconds: float, lease_seconds: float) -> Sequence[Delivery]:
            if pauses.get(calls.route.queue) is not None:
                await pauses.wait_resumed(calls.route.queue, wait_seconds)
                return ()
            # Fewer leases may have been held when the waiting receives were admitted.
            route = calls.route
            admission.check_handing_out(route.broker, usage.count, usage.size)
            limit = min(limit, route.capabilities.max_batch)
            reserving = route.binding.reserve(route.native, limit, wait_seconds, lease_seconds)
            return lease_manager.keep(await calls.timed("receive", reserving), lease_seconds)

        route, shared = self.route, self._shared
        checks = shared.schema_checks
        give_back = partial(_give_back, route, lease_manager, shared.counted)
        inspector = Inspector(route, lease_manager, shared.limits, shared.clock, shared.observe, checks)

        async def inspect(deliveries: Sequence[Delivery]) -> list[ReadyDelivery]:
            ready = await inspector.inspect(deliveries)
            # They were reserved before the queue was paused.
            if ready and pauses.get(route.queue) is not None:
                await give_back([each.delivery.handle for each in ready])
                return []
            return ready

        hand_out = partial(shared.deliverer.hand_out, route)
        receiver = Receiver(reserve, inspect, hand_out, give_back)
        if self._stopped:
            receiver.stop()
        return receiver

    @cached_property
    def lease_manager(self) -> LeaseManager:
        """The leases of the queue."""
        route, shared = self.route, self._shared
        attempts = route.policy.max_attempts
        return lease_manager_of(route, self._broker_usage, attempts, shared.limits, shared.clock, shared.observe)

    @property
    def _max_batch(self) -> int:
        return self.route.capabilities.max_batch

    @property
    def _budget(self) -> Budget:
        return Budget(self.route.broker, self.route.binding.timeout_seconds)

    def _made(self) -> list[_Part]:
        """The parts that were used."""
        made = vars(self)
        return [made[name] for name in _PARTS if name in made]

    @property
    def busy(self) -> bool:
        """Whether an operation is in flight or waiting, or a lease is held."""
        return any(part.busy for part in self._made())

    @property
    def has_backlog(self) -> bool:
        """Whether a publish would wait too long for its batch."""
        made = vars(self)
        if "publisher" in made and self.publisher.has_backlog:
            return True
        return "keyed_publisher" in made and self.keyed_publisher.has_backlog

    @property
    def waiters(self) -> int:
        """How many receives are waiting now."""
        return self.receiver.waiters if "receiver" in vars(self) else 0

    @property
    def held(self) -> int | None:
        """Number of leases that this process keeps; None where the broker keeps them."""
        if "lease_manager" in vars(self):
            return self.lease_manager.held
        return 0 if self.route.capabilities.lease_bound_to is not None else None

    def holds(self, handle: str) -> bool:
        """Whether this process keeps the lease of a delivery that this runtime has handed out, or its body."""
        return "lease_manager" in vars(self) and self.lease_manager.holds(handle)

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        for part in self._made():
            await part.idle()

    def stop_receives(self) -> None:
        """End all waiting receives now, with an empty list; later receives do not wait."""
        self._stopped = True
        if "receiver" in vars(self):
            self.receiver.stop()

    def end_waits(self) -> None:
        """End all waiting receives now, with an empty list."""
        if "receiver" in vars(self):
            self.receiver.end_waits()

    def stop_timers(self) -> None:
        """Cancel the timers, each of which would keep a part of a runtime that is not busy until it is due."""
        made = vars(self)
        for name in ("publisher", "keyed_publisher", "parker", "acker", "lease_manager"):
            if name in made:
                made[name].close()

    async def close(self) -> None:
        """Finish all operations in flight; after that no lease kept by this process expires."""
        await self.idle()
        self.stop_timers()
        await self.idle()

    def submit(self, pending: PendingPublish) -> asyncio.Future[Published]:
        """The future of the result of ``pending``, which is published with others. Raises Overloaded, and
        BrokerUnavailable while the circuit is open, unless the message is parked on another broker."""
        publisher: Any = self.publisher if pending.claim is None else self.keyed_publisher
        parking = self.route.parking
        if parking is not None and self.circuit.is_open and parking.takes(pending.outgoing):
            publisher = self.parker
        submitted: asyncio.Future[Published] = publisher.submit(pending)
        return submitted

    def check_publishes(self) -> None:
        """Raise QueuePaused if the queue is paused and refuses publishes."""
        if self.route.queue in self._shared.pauses.refusing:
            raise QueuePaused(queue=self.route.queue)

    def require_keys(self) -> None:
        """Raise IdempotencyUnsupported if no store keeps idempotency keys for this queue."""
        self._shared.keys.store(self.route)

    @property
    def keys_info(self) -> KeysInfo | None:
        """How the idempotency keys of this queue are kept; None if no store keeps them."""
        return self._shared.keys.info(self.route)

    def outgoing(
        self,
        publication: Publication,
        delay_seconds: float | None,
        ordering_key: str | None,
        broker_properties: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Outgoing:
        """The message to send. ``delay_seconds``, ``ordering_key``, ``broker_properties`` (JSON values by their names)
        and further ``options`` by name are those of the request, beside the body's own.

        Raises UnsupportedByBroker, BodyTooLarge or InvalidParameter if the broker cannot carry it, and EnvelopeError
        if request and body differ.
        """
        route = self.route
        if options:
            publication = with_options(publication, options)
        delay, key = publication.delay_seconds, publication.ordering_key
        if delay_seconds is not None:
            delay = agreed("delay_seconds", "the query parameter delay_seconds", delay_seconds, delay)
        if ordering_key is not None:
            key = agreed("ordering_key", "the query parameter ordering_key", ordering_key, key)
        if publication.deliver_at is not None:
            delay = delay_until(publication.deliver_at, delay, self._shared.clock())
        properties: Mapping[str, Any] = {}
        if broker_properties is not None or publication.broker_properties is not None:
            properties = self._broker_properties(publication, broker_properties, delay, key)
        if key is not None:
            key = route.check_ordering_key(key)
        if delay:
            route.check_delay(delay, "delay_seconds" if publication.deliver_at is None else "deliver_at")
        if publication.priority is not None:
            route.check_priority(key)
        headers = publication.headers
        if publication.ttl_seconds is not None:
            route.check_ttl()
            headers = with_expiry(headers, self._shared.clock(), (delay or 0) + publication.ttl_seconds)
        if headers:
            route.check_headers(headers)
        if route.capabilities.max_property_bytes is not None:
            route.check_properties(publication.envelope, route.capabilities.max_property_bytes)
        body, maximum = publication.envelope.body, route.capabilities.max_body_bytes
        if maximum is not None and len(body) > maximum:
            raise BodyTooLarge(actual=len(body), limit=maximum)
        return Outgoing(
            body,
            headers,
            key,
            delay or 0,
            publication.envelope.id,
            properties=properties,
            priority=publication.priority,
        )

    async def give_back(self, handles: Sequence[str]) -> None:
        """Return deliveries to the broker: available at once, uncounted. Never raises BabelgateError.

        After a native batch without an answer the rest is left to its leases, so this takes one time-out at most.
        """
        for chunk in batches(handles, self.route.capabilities.max_batch):
            if await _give_back(self.route, self.lease_manager, self._shared.counted, chunk):
                break

    def sticky(self, message: Message) -> Message:
        """See :meth:`babelgate.gateway.deliver.Deliverer.sticky`."""
        return self._shared.deliverer.sticky(message)

    async def prolong(self, handles: Sequence[str], lease_seconds: float) -> list[int | BabelgateError]:
        """Extend leases that the gateway itself prolongs, which is no event: the new deadlines in Unix ms.

        The error of a call is the outcome of each of its leases, and that of a call without an answer also of those
        after it, for which no call is made.
        """
        outcomes: list[int | BabelgateError] = []
        for chunk in batches(handles, self.route.capabilities.max_batch):
            if outcomes and is_silence(outcomes[-1]):
                outcomes += [outcomes[-1]] * len(chunk)
                continue
            extending = self.calls.timed("extend", self.lease_manager.extend(chunk, lease_seconds), len(chunk))
            try:
                outcomes += await extending
            except BabelgateError as error:
                outcomes += [error.without_frames()] * len(chunk)
        if self._shared.counted.held:
            for handle, outcome in zip(handles, outcomes, strict=True):
                self._shared.counted.settled(self.route.queue, handle, outcome)
        return outcomes

    def _broker_properties(
        self, publication: Publication, given: Mapping[str, Any] | None, delay: float | None, key: str | None
    ) -> Mapping[str, Any]:
        """The broker properties to send, those ``given`` by the request or the body's own. Raises as ``outgoing``."""
        member, read = publication.broker_properties, self.route.read_broker_properties
        properties = None if member is None else read(member, delay, key)
        if given is None:
            return properties or {}
        try:
            sent = read(given, delay, key)
        except EnvelopeError as error:
            raise EnvelopeError(error.problems, error.trace_id, header=_PROPERTIES_HEADER) from None
        return agreed("broker_properties", f"the header {_PROPERTIES_HEADER}", sent, properties)


async def _give_back(route: Route, lease_manager: LeaseManager, counted: CountedLeases, handles: Sequence[str]) -> bool:
    """Give back; returns whether the broker did not answer."""
    try:
        outcomes = await lease_manager.give_back(handles)
        if counted.held:
            for handle, outcome in zip(handles, outcomes, strict=True):
                counted.settled(route.queue, handle, outcome)
        return bool(outcomes) and is_silence(outcomes[-1])
    except BabelgateError as error:
        queue, broker = route.queue, route.broker
        _throttled.warning("deliveries not given back", queue=queue, count=len(handles), broker=broker, error=error)
        return is_silence(error)


def _sizes_of(pendings: Sequence[PendingPublish]) -> Sequence[int]:
    return [len(pending.envelope.body) for pending in pendings]
