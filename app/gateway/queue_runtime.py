"""What one process holds for one queue: the lines in which its callers stand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from app import envelope
from app.brokers.binding import DeadLetter, Delivery, Outcome, Outgoing
from app.brokers.idempotency_store import Claim, KeyStore, Terms, Verdict
from app.clock import Clock
from app.envelope import Envelope, Limits, Poison, Publication, Received
from app.errors import BabelgateError, BodyTooLarge, UnsupportedByBroker
from app.gateway.batcher import Budget, Coalescer
from app.gateway.idempotency import Keys, Once, Pair
from app.gateway.idempotency import Result as Published
from app.gateway.lease_manager import LEASE_EXPIRED, facts_of, keeper
from app.gateway.lease_table import Holdings
from app.gateway.receive import Admitted, Receiver
from app.gateway.routing import Route
from app.observe.events import Call, Event, Facts, Observe, Operation
from app.observe.log_throttle import Sparing
from app.observe.logs import get_logger
from app.runtime import turns

PUBLISH_SECONDS = 0.1
"""How long a publish may wait for others of its queue before it is its turn; past that, it is refused at once."""

Result = TypeVar("Result")

_spared = Sparing(get_logger("babelgate.lanes"))


class Posting(Struct, frozen=True):
    """A message on its way to the broker, and the key under which it goes there once."""

    envelope: Envelope
    outgoing: Outgoing
    claim: Claim | None = None


class Lane:
    """The queue's coalesced publishes and acks, its waiting receives, and the check of all that is handed out."""

    def __init__(
        self,
        route: Route,
        holdings: Holdings,
        limits: Limits,
        clock: Clock,
        observe: Observe,
        keys: Keys,
        ended: Callable[[str, object], None],
    ) -> None:
        """``holdings``: of the route's broker, where this process keeps the leases. ``ended`` is told of each call to a
        broker what it raised, or else its first result."""
        self.route = route
        self.keeper = keeper(route, holdings, limits, clock, observe)
        self._limits = limits
        self._clock = clock
        self._observe = observe
        binding, native = route.binding, route.native
        max_batch = route.capabilities.max_batch

        async def send_once(store: KeyStore, messages: Sequence[Pair], terms: Terms) -> Sequence[Verdict]:
            return await self.timed("send", store.publish(native, messages, terms), len(messages))

        async def ack(handles: list[str]) -> Sequence[Outcome]:
            return await self.timed("ack", self.keeper.ack(handles), len(handles), coalesced=True)

        async def reserve(limit: int, wait_seconds: float, lease_seconds: float) -> Sequence[Delivery]:
            # Those that wait were let in when less was held.
            holdings.check()
            reserving = binding.reserve(native, min(limit, max_batch), wait_seconds, lease_seconds)
            return self.keeper.keep(await self.timed("receive", reserving), lease_seconds)

        self._keys = keys
        self._ended = ended
        self._publishing: set[asyncio.Future[Sequence[Published]]] = set()
        self._once = Once(route, keys, self._send, send_once)
        budget = Budget(route.broker, binding.timeout_seconds)
        self.publisher: Coalescer[Posting, Outcome] = Coalescer(
            partial(self.publish, coalesced=True), max_batch, PUBLISH_SECONDS, _size_of, budget
        )
        self.keyed: Coalescer[Posting, Published] = Coalescer(self.once, max_batch, PUBLISH_SECONDS, _size_of, budget)
        self.acker: Coalescer[str, Outcome] = Coalescer(ack, max_batch, budget=budget)
        self.receiver = Receiver(reserve, self._admit, self._give_back)

    @property
    def busy(self) -> bool:
        """Whether anything is in flight, waiting or held."""
        publishing = self.publisher.busy or self.keyed.busy or bool(self._publishing)
        return publishing or self.acker.busy or self.receiver.busy or self.keeper.busy

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self.publisher.idle()
        await self.keyed.idle()
        if self._publishing:
            await asyncio.wait(self._publishing)
        await self.receiver.idle()
        await self.acker.idle()
        await self.keeper.idle()

    async def close(self) -> None:
        """Finish what is in flight; leases that this process keeps run out no more."""
        await self.idle()
        await self.keeper.close()

    async def publish(self, postings: Sequence[Posting], *, coalesced: bool = False) -> Sequence[Outcome]:
        """Publish as one batch of its own, and report what was accepted; outcomes and errors of the binding."""
        outcomes = await self._send([posting.outgoing for posting in postings], coalesced=coalesced)
        self._report(postings, outcomes)
        return outcomes

    def require_keys(self) -> None:
        """Raise IdempotencyUnsupported where nobody keeps idempotency keys for this queue."""
        self._keys.store(self.route)

    async def once(self, postings: Sequence[Posting]) -> Sequence[Published]:
        """Publish as one batch of its own what has not been published under its key before, and report it. Never
        cancelled: a key would stay reserved."""
        publishing = asyncio.ensure_future(self._publish_once(postings))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        return await asyncio.shield(publishing)

    async def timed(
        self,
        operation: Operation,
        call: Awaitable[Sequence[Result]],
        count: int | None = None,
        *,
        coalesced: bool = False,
    ) -> Sequence[Result]:
        """The results of ``call``, a call to the broker for ``count`` messages (None: as many as come), reported."""
        began = time.monotonic()
        results: Sequence[Result] = ()
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
            self._ended(self.route.broker, outcome)

    def outgoing(self, publication: Publication, delay_seconds: float | None, ordering_key: str | None) -> Outgoing:
        """The message for the queue's broker. Raises what the broker cannot carry."""
        route = self.route
        delay = publication.delay_seconds if publication.delay_seconds is not None else delay_seconds or 0
        if delay:
            route.check_delay(delay)
        if publication.headers and not route.capabilities.headers:
            raise UnsupportedByBroker(
                code="headers_unsupported",
                pointer="/headers",
                reason=f"Messages of the queue {route.queue!r} carry no native headers on the broker {route.broker!r}.",
            )
        body, maximum = publication.envelope.body, route.capabilities.max_body_bytes
        if maximum is not None and len(body) > maximum:
            raise BodyTooLarge(actual=len(body), limit=maximum)
        key = publication.ordering_key if publication.ordering_key is not None else ordering_key
        return Outgoing(body, publication.headers, key, delay, publication.envelope.id)

    async def give_back(self, handles: Sequence[str]) -> None:
        """Return deliveries that nobody wants any more: at once, and uncounted. Never raises BabelgateError."""
        try:
            await self.keeper.give_back(handles)
        except BabelgateError as error:
            self._warn("deliveries not given back", len(handles), error=error)

    def _warn(self, event: str, count: int, **values: Any) -> None:
        _spared.warning(event, queue=self.route.queue, count=count, broker=self.route.broker, **values)

    async def _send(self, messages: Sequence[Outgoing], *, coalesced: bool = False) -> Sequence[Outcome]:
        sending = self.route.binding.publish(self.route.native, messages)
        return await self.timed("send", sending, len(messages), coalesced=coalesced)

    async def _publish_once(self, postings: Sequence[Posting]) -> Sequence[Published]:
        results = await self._once.publish([(posting.outgoing, posting.claim) for posting in postings])
        self._report(postings, results)
        return results

    def _report(self, postings: Sequence[Posting], results: Sequence[Published]) -> None:
        """Tell which messages were accepted: before their callers go on, and also where one of them is gone."""
        accepted = [posting for posting, result in zip(postings, results, strict=True) if result is None]
        if not accepted:
            return
        facts = [_facts_of(posting) for posting in accepted]
        bodies = [posting.envelope.body for posting in accepted]
        route = self.route
        self._observe(Event("accepted", route.queue, route.broker, len(facts), messages=facts, bodies=bodies))

    async def _give_back(self, admitted: Sequence[Admitted]) -> None:
        await self.give_back([each.delivery.handle for each in admitted])

    async def _admit(self, deliveries: Sequence[Delivery]) -> list[Admitted]:
        good: list[Admitted] = []
        letters: list[tuple[DeadLetter, Event]] = []
        expired: list[Facts] = []
        read = await turns.mapped(self._inspected, deliveries, size=lambda each: len(each.body))
        for delivery, received in zip(deliveries, read, strict=True):
            if isinstance(received, Poison):
                letters.append(self._poison(delivery, received))
                if delivery.expired:
                    expired += letters[-1][1].messages
                continue
            attempts = self.route.attempts(received.attempts, delivery.delivery_count)
            if received.warnings:
                self._warn("forbidden keys in a message", 1, message_id=received.id, keys=received.warnings)
            facts = facts_of(delivery, received, attempts)
            if delivery.expired:
                expired.append(facts)
            reason = self._overdue(received, attempts)
            if reason is None:
                good.append(Admitted(delivery, attempts, facts))
            else:
                letters.append(self._failed(delivery, facts, attempts, reason))
        if expired:
            self._observe(Event("lease_expired", self.route.queue, self.route.broker, len(expired), messages=expired))
        if letters:
            await self._dead_letter(letters)
        return good

    def _inspected(self, delivery: Delivery) -> Received | Poison:
        try:
            return envelope.inspect(delivery.body, self._limits)
        except Poison as poison:
            return poison.with_traceback(None)

    def _overdue(self, received: Received, attempts: int) -> str | None:
        """Why the delivery must not be handed out any more."""
        policy = self.route.policy
        if attempts >= policy.max_attempts:
            return LEASE_EXPIRED
        if policy.has_expired(received.created_at, self._clock()):
            return "message expired"
        return None

    def _poison(self, delivery: Delivery, poison: Poison) -> tuple[DeadLetter, Event]:
        route = self.route
        attempts = route.attempts(0, delivery.delivery_count)
        error = f"{poison.code}: {poison.detail}"
        # The code alone: what is wrong with a body may quote it.
        self._warn("poison", 1, code=poison.code)
        block = envelope.dead_letter_block("poison", route.queue, attempts, self._clock(), error=error)
        facts = (Facts(attempts=attempts, size=len(delivery.body), traceparent=delivery.headers.get("traceparent")),)
        return DeadLetter(delivery.handle, block), Event(
            "poison", route.queue, route.broker, reason=poison.code, messages=facts, bodies=(delivery.body,)
        )

    def _failed(self, delivery: Delivery, facts: Facts, attempts: int, error: str) -> tuple[DeadLetter, Event]:
        route = self.route
        block = envelope.dead_letter_block("failed", route.queue, attempts, self._clock(), error=error)
        return DeadLetter(delivery.handle, block), Event(
            "dead_lettered", route.queue, route.broker, reason="failed", messages=(facts,), bodies=(delivery.body,)
        )

    async def _dead_letter(self, letters: Sequence[tuple[DeadLetter, Event]]) -> None:
        try:
            outcomes = await self.keeper.dead_letter([letter for letter, _ in letters])
        except BabelgateError as error:
            # Nothing is lost: the leases expire and the bodies come again.
            self._warn("messages not dead-lettered", len(letters), error=error)
            return
        for (_, event), outcome in zip(letters, outcomes, strict=True):
            if outcome is None:
                self._observe(event)


def _size_of(posting: Posting) -> int:
    return len(posting.envelope.body)


def _facts_of(posting: Posting) -> Facts:
    sent, traceparent = posting.envelope, posting.outgoing.headers.get("traceparent")
    return Facts(
        sent.attempts, sent.id, sent.trace_id, sent.job, sent.created_at, sent.lang, len(sent.body), traceparent
    )
