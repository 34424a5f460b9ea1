"""Manages leases that the broker keeps, of messages whose bodies only their receiver has."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.binding import DeadLetterRequest, Delivery, Outcome
from babelgate.brokers.ports import LeasingBroker
from babelgate.brokers.route import BrokerRoute
from babelgate.clock import Clock, steady_ms
from babelgate.errors import BabelgateError, LeaseLost
from babelgate.leases.copies import publish_dead_letters
from babelgate.leases.manager import FailedDelivery
from babelgate.leases.table import BrokerUsage, HeldLease, LeaseTable

_DROPPED = 100
"""Maximum bodies dropped at a time."""


class SharedLeaseManager:
    """For brokers that keep deadlines and show no body by a handle: any process acks, releases and extends.

    The process that received a message keeps its body until the lease ends, and dead-letters by a copy: prove the lease
    by an extend, publish the copy, wait for the confirm, ack the original. The process also keeps the outcomes of its
    settles: not every broker reports that a handle was used before.
    """

    held = None

    def __init__(
        self, route: BrokerRoute, broker_usage: BrokerUsage, clock: Clock, steady_clock: Clock = steady_ms
    ) -> None:
        self._route = route
        self._clock = clock
        self._steady_clock = steady_clock
        self._binding, self._native = route.binding, route.native
        self._table = LeaseTable(
            broker_usage, steady_clock, route.outstanding, self._drop_overdue, shared=True, late=True
        )

    @property
    def busy(self) -> bool:
        """Whether bodies are kept."""
        return len(self._table) > 0

    def keep(self, deliveries: Sequence[Delivery], lease_seconds: float) -> Sequence[Delivery]:
        ahead = self._steady_clock() - self._clock()
        for delivery in deliveries:
            self._table.hold(delivery, 0, delivery.lease_expires_at + ahead)
        return deliveries

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._table.settle(handles, self._ack, acking=True)

    async def release(self, failed: Sequence[FailedDelivery], delay_seconds: float) -> Sequence[Outcome]:
        return await self._release([each.handle for each in failed], delay_seconds, failed=True)

    async def give_back(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._release(handles, 0, failed=False)

    async def dead_letter(self, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        by_handle = {letter.handle: letter for letter in letters}

        async def move(claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
            kept = [held for held in claimed if not held.adopted]
            outcomes = await self._proofs(kept)
            proven = [held for held in kept if outcomes[held.handle] is None]
            letters = [(held, by_handle[held.handle]) for held in proven]
            copied = await publish_dead_letters(self._route, letters, proven=True)
            outcomes |= zip([held.handle for held in proven], copied, strict=True)
            return [outcomes.get(held.handle, LeaseLost()) for held in claimed]

        return await self._table.settle([letter.handle for letter in letters], move)

    async def extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        ended = [self._table.has_ended(handle) for handle in handles]
        left = [handle for handle, is_over in zip(handles, ended, strict=True) if not is_over]
        deadlines = iter(await self._extend(left, lease_seconds) if left else ())
        outcomes = [LeaseLost() if is_over else next(deadlines) for is_over in ended]
        ahead = self._steady_clock() - self._clock()
        for handle, deadline in zip(handles, outcomes, strict=True):
            if isinstance(deadline, int):
                self._table.prolong_held(handle, deadline + ahead)
        return outcomes

    async def idle(self) -> None:
        await self._table.idle()

    def close(self) -> None:
        self._table.close()

    async def _ack(self, claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
        return await self._binding.ack(self._native, [held.handle for held in claimed])

    async def _release(self, handles: Sequence[str], delay_seconds: float, *, failed: bool) -> Sequence[Outcome]:
        async def release(claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
            released = [held.handle for held in claimed]
            return await self._binding.release(self._native, released, delay_seconds, failed)

        return await self._table.settle(handles, release)

    async def _proofs(self, several: Sequence[HeldLease]) -> dict[str, Outcome]:
        """Per handle: None if the lease lasts for the time of a copy, else the error. The copy of a message whose lease
        is not proven would be a second message."""
        if not several:
            return {}
        handles = [held.handle for held in several]
        proofs = await self._extend(handles, self._binding.timeout_seconds * 2)
        return {
            handle: None if isinstance(proof, int) else proof for handle, proof in zip(handles, proofs, strict=True)
        }

    async def _extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        return await self._route.offering(LeasingBroker).extend(self._native, handles, lease_seconds)

    def _drop_overdue(self) -> None:
        """Drop the bodies of leases past their deadline. The broker decides whether a late settle succeeds."""
        while handles := self._table.overdue(_DROPPED):
            self._table.drop(handles)
