"""Manages leases that the broker keeps, with the bodies of their messages."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.binding import DeadLetterRequest, DeadLetters, Delivery, Outcome
from babelgate.brokers.ports import LeasingBroker
from babelgate.brokers.route import BrokerRoute
from babelgate.errors import BabelgateError
from babelgate.leases.manager import FailedDelivery, Way


class BrokerLeaseManager:
    """For brokers that keep deadlines and bodies: every operation is one native call, possible from any process."""

    busy = False
    held = None

    def __init__(self, route: BrokerRoute) -> None:
        self._route = route
        self._binding = route.binding

    def holds(self, handle: str) -> bool:
        return False

    def needs_receiver(self, way: Way, handle: str, deadline: int, delay_seconds: float) -> bool:
        return not self._route.acks_anywhere(handle)

    def keep(self, deliveries: Sequence[Delivery], lease_seconds: float) -> Sequence[Delivery]:
        return deliveries

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._binding.ack(self._route.native, handles)

    async def release(self, failed: Sequence[FailedDelivery], delay_seconds: float) -> Sequence[Outcome]:
        return await self._binding.release(
            self._route.native, [each.handle for each in failed], delay_seconds, failed=True
        )

    async def give_back(self, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._binding.release(self._route.native, handles, 0, failed=False)

    async def dead_letter(self, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        return await self._route.offering(DeadLetters).dead_letter(self._route.native, letters)

    async def extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        return await self._route.offering(LeasingBroker).extend(self._route.native, handles, lease_seconds)

    async def idle(self) -> None:
        return

    def close(self) -> None:
        return
