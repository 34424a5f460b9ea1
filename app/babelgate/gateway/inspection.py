"""Inspects reserved deliveries, and dead-letters or drops those that must not be handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, Delivery
from babelgate.clock import Clock
from babelgate.envelope import Limits, Poison, Received
from babelgate.envelope.contract import uuid_warnings
from babelgate.errors import BabelgateError, EnvelopeError, EnvelopeSyntaxError, Problem
from babelgate.gateway import expiry
from babelgate.gateway.model import Projection
from babelgate.gateway.routing import Route
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.leases.manager import ATTEMPTS_EXHAUSTED, LEASE_EXPIRED, LeaseManager
from babelgate.observe.events import Event, Facts, Observe
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns

_throttled = LogThrottle(get_logger(__name__))


class ReadyDelivery(Struct, frozen=True):
    """An inspected delivery that may be handed out, its reconciled ``attempts``, and the facts of its message."""

    delivery: Delivery
    attempts: int
    facts: Facts


class Inspector:
    """Inspects the reserved deliveries of one queue and dead-letters those that must not be handed out.

    These are poison messages, those that violate the schema of their job where the route checks that, messages
    whose attempts are exhausted, and messages past the time to live of their own or of the queue. The latter are
    dropped where the policy of the queue says so.
    """

    def __init__(
        self,
        route: Route,
        lease_manager: LeaseManager,
        limits: Limits,
        clock: Clock,
        observe: Observe,
        schema_checks: SchemaChecks,
    ) -> None:
        self._route = route
        self._lease_manager = lease_manager
        self._limits = limits
        self._clock = clock
        self._observe = observe
        self._schema_checks = schema_checks

    async def inspect(self, deliveries: Sequence[Delivery]) -> list[ReadyDelivery]:
        """The deliveries to hand out; poison, exhausted and expired ones are dead-lettered, or dropped.

        Raises no BabelgateError.
        """
        ready: list[ReadyDelivery] = []
        letters: list[tuple[DeadLetterRequest, Event]] = []
        dropped: list[tuple[Delivery, Facts]] = []
        expired: list[Facts] = []
        inspected = await turns.mapped(self._inspected, deliveries, size=lambda each: len(each.body))
        if self._route.policy.schema_on_receive:
            inspected = await self._schema_checks.received(self._route, deliveries, inspected)
        for delivery, received in zip(deliveries, inspected, strict=True):
            if isinstance(received, Poison):
                letters.append(self._poison(delivery, received))
                if delivery.expired:
                    expired += letters[-1][1].messages
                continue
            attempts, facts = self._route.reconciled(delivery, received)
            if received.warnings:
                self._warn("forbidden keys in a message", 1, message_id=received.id, keys=received.warnings)
            if delivery.expired:
                expired.append(facts)
            reason = self._refusal(delivery, received, attempts)
            if reason is None:
                ready.append(ReadyDelivery(delivery, attempts, facts))
            elif reason == expiry.EXPIRED and self._route.policy.expired == "drop":
                dropped.append((delivery, facts))
            else:
                letters.append(self._failed(delivery, facts, attempts, reason))
        if expired:
            self._observe(Event("lease_expired", self._route.queue, self._route.broker, len(expired), messages=expired))
        if letters:
            await self._dead_letter(letters)
        if dropped:
            await self._drop(dropped)
        return ready

    def _inspected(self, delivery: Delivery) -> Received | Poison:
        if (version := delivery.unsupported_version) is not None:
            return Poison("unsupported_schema_version", f"A native property declares the schema version {version!r}.")
        try:
            return envelope.inspect(delivery.body, self._limits)
        except Poison as poison:
            return poison.with_traceback(None)

    def _refusal(self, delivery: Delivery, received: Received, attempts: int) -> str | None:
        """The reason why the delivery must not be handed out; None if it may."""
        policy = self._route.policy
        if attempts >= policy.max_attempts:
            return LEASE_EXPIRED if delivery.expired or delivery.expired_before else ATTEMPTS_EXHAUSTED
        if delivery.headers and expiry.has_expired(delivery.headers, self._clock()):
            return expiry.EXPIRED
        if policy.ttl_seconds is not None and policy.has_expired(received.created_at, self._clock()):
            return expiry.EXPIRED
        return None

    def _poison(self, delivery: Delivery, poison: Poison) -> tuple[DeadLetterRequest, Event]:
        route = self._route
        attempts = route.attempts(0, delivery.delivery_count, delivery.declared_attempts)
        # Only the code is logged, and kept where bodies are redacted: the detail may quote the body.
        error = poison.code if route.policy.redaction is not None else f"{poison.code}: {poison.detail}"
        self._warn("poison", 1, code=poison.code)
        block = envelope.dead_letter_block("poison", route.queue, attempts, self._clock(), error=error)
        facts = (Facts(attempts=attempts, size=len(delivery.body), traceparent=delivery.headers.get("traceparent")),)
        carriers = (route.carrier(delivery),)
        return DeadLetterRequest(delivery.handle, block), Event(
            "poison",
            route.queue,
            route.broker,
            reason=poison.code,
            messages=facts,
            bodies=(delivery.body,),
            carriers=carriers,
        )

    def _failed(self, delivery: Delivery, facts: Facts, attempts: int, error: str) -> tuple[DeadLetterRequest, Event]:
        route = self._route
        block = envelope.dead_letter_block("failed", route.queue, attempts, self._clock(), error=error)
        return DeadLetterRequest(delivery.handle, block), Event(
            "dead_lettered",
            route.queue,
            route.broker,
            reason="failed",
            messages=(facts,),
            bodies=(delivery.body,),
            carriers=(route.carrier(delivery),),
        )

    async def _dead_letter(self, letters: Sequence[tuple[DeadLetterRequest, Event]]) -> None:
        try:
            outcomes = await self._lease_manager.dead_letter([letter for letter, _ in letters])
        except BabelgateError as error:
            # No message is lost: the leases expire and the messages are delivered again.
            self._warn("messages not dead-lettered", len(letters), error=error)
            return
        for (_, event), outcome in zip(letters, outcomes, strict=True):
            if outcome is None:
                self._observe(event)

    async def _drop(self, dropped: Sequence[tuple[Delivery, Facts]]) -> None:
        route = self._route
        try:
            outcomes = await self._lease_manager.ack([delivery.handle for delivery, _ in dropped])
        except BabelgateError as error:
            # Their leases expire, and the receive that finds them next drops them.
            self._warn("expired messages not dropped", len(dropped), error=error)
            return
        done = [each for each, outcome in zip(dropped, outcomes, strict=True) if outcome is None]
        if done:
            facts, bodies = [each for _, each in done], [delivery.body for delivery, _ in done]
            self._observe(
                Event("dropped", route.queue, route.broker, len(done), "expired", messages=facts, bodies=bodies)
            )

    def _warn(self, event: str, count: int, **values: Any) -> None:
        _throttled.warning(event, queue=self._route.queue, count=count, broker=self._route.broker, **values)


async def as_consumed(route: Route, body: bytes, limits: Limits, schema_checks: SchemaChecks) -> Projection:
    """The canonical form in which a consumer of the queue would read ``body``; no member is completed.

    Raises EnvelopeSyntaxError or EnvelopeError for a body that would be dead-lettered as poison, also for one that
    violates the schema of its job where the route enforces schemas on receive. Where it warns, that is a warning.
    """
    try:
        received = await turns.run(envelope.inspect, body, limits, size=len(body), background=True)
    except Poison as poison:
        refused = EnvelopeSyntaxError if poison.code == "invalid_json" else EnvelopeError
        raise refused([Problem(poison.pointer, poison.code, poison.detail)]) from None
    found: Sequence[Problem] = ()
    if route.policy.schema_on_receive:
        problems = schema_checks.schemas.problems
        found = await turns.run(problems, received.job, body, size=len(body), background=True)
        if found and route.policy.schema == "enforce":
            raise EnvelopeError(found, received.trace_id)
    read = await turns.run(envelope.canonical, body, size=len(body), background=True)
    warnings = (*uuid_warnings(received.id, received.trace_id), *found)
    return Projection(read, route.queue, route.broker, route.native.name, {}, warnings)
