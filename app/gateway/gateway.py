"""The whole flow: publish, receive, settle, redrive; every fallback, once.

A reader can follow a message here from top to bottom. What one process holds per queue is in
:mod:`app.gateway.queue_runtime`, the waiting in :mod:`app.gateway.receive`, dead letters
at rest in :mod:`app.gateway.dead_letters`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from weakref import WeakValueDictionary

from app.brokers.binding import Binding, DeadStore, Peeked, Purges
from app.clock import Clock, now_ms
from app.envelope import Limits, Poison, canonical, inspect
from app.errors import BabelgateError, BrokerError, EnvelopeError, EnvelopeSyntaxError, Overloaded, Problem
from app.gateway.ack_tokens import Lease, TokenSealer
from app.gateway.admission import Admission
from app.gateway.authorization import Caller, Right
from app.gateway.dead_letters import list_dead, redrive
from app.gateway.forwarding import Forwarder, Forwarding, NoPeers
from app.gateway.idempotency import KeyPolicy, Keys
from app.gateway.lease_table import Holdings
from app.gateway.maintenance import Maintenance
from app.gateway.model import (
    DeadLetterFilter,
    DeadLetterView,
    Message,
    Projection,
    Receipt,
    RedriveResult,
    Settlement,
    SettleResult,
)
from app.gateway.outages import Outages
from app.gateway.overview import Overview, known_queues, peek
from app.gateway.publish import Publisher
from app.gateway.queue_runtime import Lane
from app.gateway.routing import Route, Router, offering
from app.gateway.settle import Settler
from app.gateway.spans import receiving, redriving, settling
from app.observe.events import Event, Observe
from app.observe.tracing.request import Trace, Tracing
from app.runtime import turns

_KEPT_LANES = 10_000
"""Past so many queues, those with nothing in flight are forgotten."""


class Gateway:
    """One portable type over all bindings. Every verb takes the Caller and checks its right first (Forbidden)."""

    def __init__(
        self,
        bindings: Mapping[str, Binding],
        router: Router,
        sealer: TokenSealer,
        *,
        required: frozenset[str] = frozenset(),
        urls: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        clock: Clock = now_ms,
        observe: Observe = lambda event: None,
        admission: Admission | None = None,
        forwarder: Forwarder | None = None,
        tracing: Tracing | None = None,
        idempotency: KeyPolicy | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``urls``: each broker's URL without secrets, for operators; ``required``: brokers that readiness needs.
        ``forwarder``: the way to the gateways that share the brokers. ``room``: awaited before verbs that report, where
        who observes must not be left behind; raises Overloaded.
        """
        self.bindings = bindings
        self.router = router
        self._keys = Keys(bindings, idempotency or KeyPolicy())
        self.overview = Overview(router, bindings, required, urls or {}, self._keys)
        self.limits = limits or Limits()
        self.clock = clock
        self.observe = observe
        self.tracing = tracing or Tracing()
        self.admission = admission or Admission()
        self.outages = Outages(bindings)
        self.started = False
        self.draining = False
        self._sealer = sealer
        self._room = room
        self.incarnation = os.urandom(8).hex()
        """What this process is called by its peers and in its tokens; another one after each start."""
        self._publisher = Publisher(self.limits, clock)
        settler = Settler(sealer, clock, observe)
        self._forwarding = Forwarding(settler, sealer, self.incarnation, forwarder or NoPeers(), observe, clock)
        self.holdings: Mapping[str, Holdings] = {name: Holdings(name, self.admission) for name in bindings}
        """What this process holds of each broker."""
        self._lanes: dict[str, Lane] = {}
        self._maintenance = Maintenance(self._kept_routes, clock, self._keys.sweep)
        self._redriving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def lanes(self) -> Collection[Lane]:
        """The queues that this process has dealt with."""
        return self._lanes.values()

    async def start(self) -> None:
        """Open all bindings and begin maintenance. A broker that is down does not fail the start.

        Raises ConfigError when a broker refuses its configuration.
        """
        results = await asyncio.gather(*(binding.open() for binding in self.bindings.values()), return_exceptions=True)
        for binding, result in zip(self.bindings.values(), results, strict=True):
            if isinstance(result, BrokerError):
                self.outages.found(binding.name, result)
                self._maintenance.reopen(binding)
            elif result is not None:
                raise result
        self._maintenance.start()
        self.started = True

    async def drain(self) -> None:
        """Stop waiting: receives end with what they have, readiness fails; idempotent."""
        self.draining = True
        for lane in self._lanes.values():
            lane.receiver.stop()

    async def close(self) -> None:
        """Finish what is in flight, then close all bindings; idempotent."""
        await self.drain()
        await asyncio.gather(self._maintenance.stop(), self.outages.close())
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        await self._keys.close()
        await asyncio.gather(*(binding.close() for binding in self.bindings.values()), return_exceptions=True)

    def broker(self, caller: Caller, right: Right, queue: str) -> str:
        """The broker whose room a request for ``queue`` takes. Raises Forbidden, InvalidParameter, QueueNotFound."""
        caller.require(right, queue)
        return self.router.route(queue).broker

    def crowded(self, queue: str) -> bool:
        """Whether a publish to ``queue`` would wait too long for its broker."""
        lane = self._lanes.get(queue)
        return lane is not None and (lane.publisher.crowded or lane.keyed.crowded)

    async def publish(
        self,
        caller: Caller,
        queue: str,
        body: bytes,
        *,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        trace: Trace | None = None,
        idempotency_key: str | None = None,
        sent: bytes | None = None,
    ) -> Receipt:
        """Publish one envelope, draft or entry; returns once the broker has durably accepted it.

        What an entry says of itself wins over ``delay_seconds`` and ``ordering_key``. ``trace``, here and below: what
        the request is a part of. With ``idempotency_key``, or one of the entry's own, the message is published once,
        and after that a Replay is returned; ``sent``: what the client sent, where ``body`` was made of it.
        """
        caller.require(Right.SEND, queue)
        lane = self._lane(queue)
        if self._room is not None:
            await self._room()
        return await self._publisher.one(lane, body, delay_seconds, ordering_key, trace, idempotency_key, sent)

    async def publish_many(
        self, caller: Caller, queue: str, bodies: Sequence[bytes], trace: Trace | None = None
    ) -> list[Receipt | BabelgateError]:
        """Publish each in order; one result per body. Raises only Forbidden, QueueNotFound, InvalidParameter."""
        caller.require(Right.SEND, queue)
        lane = self._lane(queue)
        if self._room is not None:
            try:
                await self._room()
            except Overloaded as error:
                return [error.without_frames()] * len(bodies)
        return await self._publisher.several(lane, bodies, trace)

    async def validate(
        self,
        caller: Caller,
        queue: str,
        body: bytes,
        *,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        trace: Trace | None = None,
    ) -> Projection:
        """What publish would write; writes nothing. In place of the span that it would make stands the request's."""
        caller.require(Right.SEND, queue)
        return await self._publisher.projected(self._lane(queue), body, delay_seconds, ordering_key, trace)

    async def inspect(self, caller: Caller, queue: str, body: bytes) -> Projection:
        """What a consumer of ``queue`` would read of ``body``, in its canonical form; completes nothing.

        Raises EnvelopeSyntaxError and EnvelopeError for what would be dead-lettered as poison.
        """
        caller.require(Right.LISTEN, queue)
        route = self._lane(queue).route
        try:
            await turns.run(inspect, body, self.limits, size=len(body))
        except Poison as poison:
            refused = EnvelopeSyntaxError if poison.code == "invalid_json" else EnvelopeError
            raise refused([Problem(poison.pointer, poison.code, poison.detail)]) from None
        read = await turns.run(canonical, body, size=len(body))
        return Projection(read, queue, route.broker, route.native.name, {})

    async def receive(
        self,
        caller: Caller,
        queue: str,
        *,
        max_messages: int = 1,
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
        trace: Trace | None = None,
    ) -> list[Message]:
        """Up to ``max_messages`` as soon as there is one; none after ``wait_seconds``.

        ``lease_seconds`` None: the queue's policy. Cancelling it loses nothing and holds nothing.
        """
        caller.require(Right.LISTEN, queue)
        lane = self._lane(queue)
        route = lane.route
        lease_seconds = route.lease_seconds(lease_seconds)
        self.holdings[route.broker].check()
        if self._room is not None:
            await self._room()
        messages = []
        with receiving(trace, route) as span:
            handed_out = await lane.receiver.receive(max_messages, wait_seconds, lease_seconds)
            facts = [admitted.facts for admitted in handed_out]
            span.concerned(facts)
        for admitted in handed_out:
            delivery, attempts = admitted.delivery, admitted.attempts
            deadline = delivery.lease_expires_at
            lease = Lease(queue, route.broker, delivery.handle, self.incarnation, deadline, attempts, admitted.facts)
            token, redelivered = self._sealer.seal(lease), delivery.redelivered or attempts > 0
            trace_id = admitted.facts.trace_id
            messages.append(Message(token, deadline, attempts, redelivered, delivery.headers, delivery.body, trace_id))
        if messages:
            self.observe(
                Event(
                    "delivered",
                    queue,
                    route.broker,
                    len(messages),
                    messages=facts,
                    bodies=[message.body for message in messages],
                    lease_seconds=lease_seconds,
                )
            )
        return messages

    async def give_back(self, queue: str, messages: Sequence[Message]) -> None:
        """Return messages whose client is gone before it could read them: at once, uncounted. Never raises."""
        handles = [self._sealer.open(message.ack_token, queue).handle for message in messages]
        await self._lane(queue).give_back(handles)

    async def settle(
        self, caller: Caller, queue: str, settlement: Settlement, trace: Trace | None = None
    ) -> list[SettleResult]:
        """Acks, then nacks, rejects and extends: one result per token, in order."""
        caller.require(Right.LISTEN, queue)
        lane = self._lane(queue)
        if self._room is not None:
            await self._room()
        with settling(trace, lane.route, settlement, self._sealer) as span:
            results = await self._forwarding.settle(lane, settlement, span.traceparent)
            span.ended(result.error for result in results)
        return results

    async def settle_here(
        self, queue: str, settlement: Settlement, traceparent: str | None = None
    ) -> list[SettleResult]:
        """Settle for a peer, whose caller has the right; what was not handed out here is LeaseLost.

        ``traceparent``: the peer's span, where it has one.
        """
        lane = self._lane(queue)
        with settling(self.tracing.of_peer(traceparent), lane.route, settlement, self._sealer) as span:
            results = await self._forwarding.settle_here(lane, settlement)
            span.ended(result.error for result in results)
        return results

    async def peek(self, caller: Caller, queue: str, limit: int) -> Sequence[Peeked]:
        """Ready messages, oldest first, without reserving: at most PAGE_BYTES. Raises UnsupportedByBroker."""
        caller.require(Right.LISTEN, queue)
        return await peek(self._lane(queue).route, limit)

    async def dead_letters(
        self, caller: Caller, queue: str, where: DeadLetterFilter, limit: int, cursor: str | None
    ) -> tuple[list[DeadLetterView], str | None]:
        """A page of matching dead letters, oldest first, and the cursor after it (None: no more)."""
        caller.require(Right.LISTEN, queue)
        return await list_dead(self._lane(queue).route, where, limit, cursor)

    async def redrive(
        self,
        caller: Caller,
        queue: str,
        where: DeadLetterFilter,
        limit: int | None,
        to_queue: str | None,
        dry_run: bool,
        trace: Trace | None = None,
    ) -> RedriveResult:
        """Send matching dead letters back, to ``to_queue`` or this queue: publish, confirm, then remove."""
        caller.require(Right.MANAGE, queue)
        if to_queue is not None and to_queue != queue:
            caller.require(Right.SEND, to_queue)
        source, target = self._lane(queue).route, self._lane(to_queue or queue).route
        lock = self._redriving.setdefault(queue, asyncio.Lock())
        async with lock:
            with redriving(trace, source):
                return await redrive(source, target, where, limit, dry_run, self.clock, self.observe)

    async def purge(self, caller: Caller, queue: str) -> int:
        """Remove ready and delayed messages; the number removed."""
        caller.require(Right.MANAGE, queue)
        route = self._lane(queue).route
        return await offering(route, Purges).purge(route.native)

    async def purge_dead_letters(self, caller: Caller, queue: str) -> int:
        """Remove all dead letters; the number removed."""
        caller.require(Right.MANAGE, queue)
        route = self._lane(queue).route
        return await offering(route, DeadStore).purge_dead(route.native)

    async def _kept_routes(self) -> list[Route]:
        """The queues this process knows of: configured by name, listed by their broker, or dealt with."""
        names = dict.fromkeys([*await known_queues(self.router, self.bindings), *self._lanes])
        return await turns.mapped(self.router.route, names)

    def _lane(self, queue: str) -> Lane:
        route = self.router.route(queue)
        lane = self._lanes.get(queue)
        if lane is None or (lane.route is not route and lane.route != route):
            if len(self._lanes) >= _KEPT_LANES:
                self._lanes = {name: kept for name, kept in self._lanes.items() if kept.busy}
            holdings = self.holdings[route.broker]
            lane = Lane(route, holdings, self.limits, self.clock, self.observe, self._keys, self.outages.ended)
            self._lanes[queue] = lane
            if self.draining:
                lane.receiver.stop()
        return lane
