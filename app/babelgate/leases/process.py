"""Manages leases that this process keeps, with the bodies of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, Delivery, LastFailure, Outcome
from babelgate.brokers.ports import LeasingBroker
from babelgate.brokers.route import BrokerRoute
from babelgate.clock import Clock, steady_ms
from babelgate.envelope import Limits, Poison, Received
from babelgate.errors import BabelgateError, LeaseLost, OutcomeUnknown, UnsupportedByBroker
from babelgate.leases.copies import unconfirmed, unproven
from babelgate.leases.manager import LEASE_EXPIRED, Way
from babelgate.leases.settling import TableLeaseManager, outcomes_by_handle
from babelgate.leases.table import TRY_AGAIN_MS, BrokerUsage, HeldLease, LeaseTable
from babelgate.observe.events import Event, Facts, Observe
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns

log = get_logger(__name__)

EXPIRING = 100
"""Maximum leases of one queue expired per batch, so that losing many consumers at once causes no unbounded burst of
copies."""


class _ExpiredAttempt(Struct, frozen=True):
    """The attempt of an expired lease: the ``facts`` before it, and the failed ``attempts`` with it; 0 where the body
    cannot count them. ``is_last``: the message is dead-lettered here. ``is_copied``: that or the retry is a copy."""

    held: HeldLease
    facts: Facts
    attempts: int = 0
    is_last: bool = False
    is_copied: bool = False


class ProcessLeaseManager(TableLeaseManager):
    """For brokers that keep no lease of a given duration: this process keeps deadlines and bodies.

    An expired lease is a failed attempt. Where the broker lets any process settle, this one settles for the others,
    too, as far as that needs no body.

    Deadlines are by ``steady_clock``; ``clock`` is that of ``lease_expires_at``.
    """

    def __init__(
        self,
        route: BrokerRoute,
        broker_usage: BrokerUsage,
        max_attempts: int,
        limits: Limits,
        clock: Clock,
        observe: Observe,
        steady_clock: Clock = steady_ms,
    ) -> None:
        self._shared = route.capabilities.ack_scope == "anywhere"
        table = LeaseTable(broker_usage, steady_clock, route.outstanding, self._due, shared=self._shared)
        super().__init__(route, table)
        self.max_attempts = max_attempts
        self._limits = limits
        self._clock = clock
        self._steady_clock = steady_clock
        self._observe = observe
        self._expiring: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return super().busy or self._expiring is not None

    @property
    def held(self) -> int:
        """Number of leases held."""
        return len(self._table)

    def needs_receiver(self, way: Way, handle: str, deadline: int, delay_seconds: float) -> bool:
        route = self._route
        if not route.acks_anywhere(handle) or deadline <= self._clock():
            return True
        if way == "dead_letter":
            return not route.dead_letters_natively
        return way != "ack" and not (way == "release" and route.releases_natively(delay_seconds))

    def keep(self, deliveries: Sequence[Delivery], lease_seconds: float) -> Sequence[Delivery]:
        since, length = self._steady_clock(), round(lease_seconds * 1000)
        expires_at = self._clock() + length
        kept = [replace(delivery, lease_expires_at=expires_at) for delivery in deliveries]
        for delivery in kept:
            self._table.hold(delivery, since, since + length)
        return kept

    async def extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        found = await self._table.find(handles)
        length = round(lease_seconds * 1000)
        elsewhere = [handle for handle in handles if self._shared and not self._table.is_known(handle)]
        others: dict[str, int | BabelgateError] = {}
        if elsewhere:
            ends = await self._route.offering(LeasingBroker).extend(self._native, elsewhere, lease_seconds)
            others = dict(zip(elsewhere, ends, strict=True))
        return [
            others.get(handle) or LeaseLost() if held is None else self._prolong(held, length)
            for handle, held in zip(handles, found, strict=True)
        ]

    async def idle(self) -> None:
        if self._expiring is not None:
            await asyncio.wait([self._expiring])
        await super().idle()

    async def expire(self) -> None:
        """End all leases past their deadline: each is a failed attempt, and its message becomes available again.

        Of a message that was copied the original is acked again.
        """
        facts: dict[str, Facts] = {}

        async def end_expired(claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
            copied = [held for held in claimed if held.is_copied]
            outcomes = await outcomes_by_handle(copied, self._ack(copied)) if copied else {}
            left = [held for held in claimed if not held.is_copied]
            for held in left:
                held.expired = True
            inspected = await turns.mapped(self._inspected, left, size=lambda held: len(held.delivery.body))
            known = [self._facts(held.delivery, each) for held, each in zip(left, inspected, strict=True)]
            ended, unanswered = await self._end_expired(left, known)
            for held, each in zip(left, known, strict=True):
                # Without an answer another process may have acked the message.
                if not held.reported and held.handle not in unanswered:
                    held.reported = True
                    facts[held.handle] = each
            outcomes |= ended
            return [outcomes[held.handle] for held in claimed]

        while handles := self._table.overdue(min(EXPIRING, self._route.capabilities.max_batch)):
            outcomes = await self._table.settle(handles, end_expired, expiring=True)
            # Each lease is reported once, also if its message could not be returned yet. A lost lease ended earlier.
            expired = [
                facts.pop(handle)
                for handle, outcome in zip(handles, outcomes, strict=True)
                if handle in facts and not isinstance(outcome, LeaseLost)
            ]
            if expired:
                route = self._route
                self._observe(Event("lease_expired", route.queue, route.broker, len(expired), messages=expired))

    def _due(self) -> None:
        if self._expiring is None:
            self._expiring = asyncio.get_running_loop().create_task(self._expire())

    async def _expire(self) -> None:
        try:
            await self.expire()
        except Exception:
            log.exception("ending leases failed", queue=self._route.queue, broker=self._route.broker)
        finally:
            self._expiring = None

    def _prolong(self, held: HeldLease, length: int) -> int | BabelgateError:
        now = self._steady_clock()
        longest = held.since + round(self._route.capabilities.max_lease_seconds * 1000)
        if now + length > longest:
            left = max(longest - now, 0) / 1000
            return UnsupportedByBroker(
                code="lease_too_long",
                pointer="/lease_seconds",
                reason=f"The broker {self._route.broker!r} leaves this lease {left:.15g} s more, all extends included.",
                maximum=left,
            )
        self._table.prolong(held, now + length)
        return self._clock() + length

    async def _end_expired(
        self, claimed: Sequence[HeldLease], known: Sequence[Facts]
    ) -> tuple[dict[str, Outcome], Set[str]]:
        """End expired leases: by a counted release or copy, else by returning the original uncounted. Returns the
        outcomes by handle, and the handles of which the broker has not said whose they are.

        ``known``: the facts of each, with the failed attempts before this one; None for a body in which they cannot be
        counted. A broker that counts by itself keeps no reason, so the last attempt is dead-lettered here.

        What is not known waits for an answer: without a proof nothing is copied or returned, and an original whose copy
        may exist is returned later, by itself.
        """
        expired = [self._expired_attempt(*each) for each in zip(claimed, known, strict=True)]
        copied = [each.held for each in expired if each.is_copied]
        outcomes: dict[str, Outcome] = {}
        if copied:
            outcomes |= await unproven(self._route, copied, expired=True)
        unanswered = {handle for handle, error in outcomes.items() if not isinstance(error, LeaseLost)}
        outcomes |= {held.handle: unconfirmed(self._route) for held in claimed if held.is_copying}
        # While the broker proved others, the copies of these were confirmed.
        if made := [held for held in claimed if held.is_copied and held.handle not in outcomes]:
            outcomes |= await outcomes_by_handle(made, self._ack(made))
        left = [
            each for each in expired if each.attempts and each.held.handle not in outcomes and each.held.copy is None
        ]
        if failed := [each for each in left if not each.is_last]:
            reasons = [(each.held, LastFailure(each.attempts, LEASE_EXPIRED, expired=True)) for each in failed]
            outcomes |= await outcomes_by_handle([each.held for each in failed], self._again(reasons, 0, proven=True))
        if last := [each for each in left if each.is_last]:
            outcomes |= await outcomes_by_handle([each.held for each in last], self._dead_letter_expired(last))
        waiting = unanswered | {handle for handle, each in outcomes.items() if isinstance(each, OutcomeUnknown)}
        rest = [
            held
            for held in claimed
            if outcomes.get(held.handle, LeaseLost) is not None and not held.is_copied and held.handle not in waiting
        ]
        if rest:
            outcomes |= await outcomes_by_handle(rest, self._give_back(rest))
        for held in claimed:
            held.deadline = self._steady_clock() + TRY_AGAIN_MS
        return outcomes, unanswered

    def _expired_attempt(self, held: HeldLease, facts: Facts) -> _ExpiredAttempt:
        if facts.attempts is None:
            return _ExpiredAttempt(held, facts)
        attempts, route = facts.attempts + 1, self._route
        is_last = route.releases_natively(0) and attempts >= self.max_attempts
        is_copied = not route.dead_letters_natively if is_last else self._copies(held, 0)
        return _ExpiredAttempt(held, facts, attempts, is_last, is_copied and not held.is_copying)

    async def _dead_letter_expired(self, last: Sequence[_ExpiredAttempt]) -> Sequence[Outcome]:
        """Dead-letter deliveries whose last attempt has ended by expiry."""
        route, now = self._route, self._clock()
        letters = []
        for each in last:
            block = envelope.dead_letter_block("failed", route.queue, each.attempts, now, error=LEASE_EXPIRED)
            letters.append((each.held, DeadLetterRequest(each.held.handle, block)))
        outcomes = await self._dead_letter(letters, proven=True)
        for each, outcome in zip(last, outcomes, strict=True):
            if outcome is None:
                facts, bodies = replace(each.facts, attempts=each.attempts), (each.held.delivery.body,)
                event = Event(
                    "dead_lettered",
                    route.queue,
                    route.broker,
                    reason="failed",
                    messages=(facts,),
                    bodies=bodies,
                    carriers=(route.carrier(each.held.delivery),),
                )
                self._observe(event)
        return outcomes

    def _inspected(self, held: HeldLease) -> Received | None:
        try:
            return envelope.inspect(held.delivery.body, self._limits)
        except Poison:
            return None

    def _facts(self, delivery: Delivery, received: Received | None) -> Facts:
        if received is None:
            return Facts(size=len(delivery.body))
        return self._route.reconciled(delivery, received)[1]
