"""Settles the leases in a table: at the broker where it can, else by a copy."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from babelgate.brokers.binding import DeadLetterRequest, DeadLetters, LastFailure, NativeQueue, Outcome
from babelgate.brokers.errors import for_each
from babelgate.brokers.route import BrokerRoute
from babelgate.leases.copies import publish_again, publish_dead_letters
from babelgate.leases.manager import FailedDelivery
from babelgate.leases.table import HeldLease, LeaseTable


class TableLeaseManager:
    """The settles of a lease manager with a table. A process that stops between the confirm of a copy and the ack of
    the original leaves the message twice; it is never lost."""

    def __init__(self, route: BrokerRoute, table: LeaseTable) -> None:
        self._route = route
        self._binding = route.binding
        self._table = table

    @property
    def _native(self) -> NativeQueue:
        """As the route says now: a reload of the configuration may change whether bodies are encrypted."""
        return self._route.native

    @property
    def busy(self) -> bool:
        return len(self._table) > 0

    def holds(self, handle: str) -> bool:
        return self._table.holds(handle)

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._table.settle(handles, self._ack, acking=True)

    async def release(self, failed: Sequence[FailedDelivery], delay_seconds: float) -> Sequence[Outcome]:
        failures = {each.handle: each.failure for each in failed}

        async def again(claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
            return await self._again([(held, failures[held.handle]) for held in claimed], delay_seconds)

        return await self._table.settle([each.handle for each in failed], again)

    async def give_back(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._table.settle(handles, self._give_back)

    async def dead_letter(self, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        by_handle = {letter.handle: letter for letter in letters}

        async def move(claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
            return await self._dead_letter([(held, by_handle[held.handle]) for held in claimed])

        return await self._table.settle([letter.handle for letter in letters], move)

    async def idle(self) -> None:
        await self._table.idle()

    def close(self) -> None:
        self._table.close()

    async def _ack(self, claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
        return await self._binding.ack(self._native, [held.handle for held in claimed])

    async def _give_back(self, claimed: Sequence[HeldLease]) -> Sequence[Outcome]:
        return await self._binding.release(self._native, [held.handle for held in claimed], 0, failed=False)

    def _copies(self, held: HeldLease, delay_seconds: float) -> bool:
        """Whether a retry after ``delay_seconds`` is a copy."""
        return held.delivery.is_uncounted or not self._route.releases_natively(delay_seconds)

    async def _again(
        self, failed: Sequence[tuple[HeldLease, LastFailure]], delay_seconds: float, *, proven: bool = False
    ) -> Sequence[Outcome]:
        native = [held for held, _ in failed if not self._copies(held, delay_seconds)]
        outcomes: dict[str, Outcome] = {}
        if native:
            handles = [held.handle for held in native]
            release = self._binding.release(self._native, handles, delay_seconds, failed=True)
            outcomes |= await outcomes_by_handle(native, release)
        copied = [each for each in failed if each[0].handle not in outcomes]
        if copied:
            publish = publish_again(self._route, copied, delay_seconds, proven=proven)
            outcomes |= await outcomes_by_handle([held for held, _ in copied], publish)
        return [outcomes[held.handle] for held, _ in failed]

    async def _dead_letter(
        self, letters: Sequence[tuple[HeldLease, DeadLetterRequest]], *, proven: bool = False
    ) -> Sequence[Outcome]:
        if self._route.dead_letters_natively:
            dead_letters = self._route.offering(DeadLetters)
            return await dead_letters.dead_letter(self._native, [letter for _, letter in letters])
        return await publish_dead_letters(self._route, letters, proven=proven)


async def outcomes_by_handle(held: Sequence[HeldLease], call: Awaitable[Sequence[Outcome]]) -> dict[str, Outcome]:
    """The outcomes of ``call`` by handle. An error of ``call`` applies to all."""
    outcomes = await for_each(call, len(held))
    return {each.handle: outcome for each, outcome in zip(held, outcomes, strict=True)}
