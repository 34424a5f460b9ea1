"""Manages leases that the broker keeps without the bodies of their messages."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.binding import Delivery
from babelgate.brokers.ports import LeasingBroker
from babelgate.brokers.route import BrokerRoute
from babelgate.clock import Clock, steady_ms
from babelgate.errors import BabelgateError, LeaseLost
from babelgate.leases.manager import Way
from babelgate.leases.settling import TableLeaseManager
from babelgate.leases.table import BrokerUsage, LeaseTable

_DROPPED = 100
"""Maximum bodies dropped at a time."""


class SharedLeaseManager(TableLeaseManager):
    """For brokers that keep deadlines and show no body by a handle: any process acks, releases and extends.

    The process that received a message keeps its body until the lease ends, and dead-letters by a copy. It also keeps
    the outcomes of its settles: not every broker reports that a handle was used before.
    """

    held = None

    def __init__(
        self, route: BrokerRoute, broker_usage: BrokerUsage, clock: Clock, steady_clock: Clock = steady_ms
    ) -> None:
        due = self._drop_overdue
        super().__init__(route, LeaseTable(broker_usage, steady_clock, route.outstanding, due, shared=True, late=True))
        self._clock = clock
        self._steady_clock = steady_clock

    def needs_receiver(self, way: Way, handle: str, deadline: int, delay_seconds: float) -> bool:
        return way == "dead_letter" or (way == "release" and self._route.parks_retry(delay_seconds))

    def keep(self, deliveries: Sequence[Delivery], lease_seconds: float) -> Sequence[Delivery]:
        ahead = self._steady_clock() - self._clock()
        for delivery in deliveries:
            self._table.hold(delivery, 0, delivery.lease_expires_at + ahead)
        return deliveries

    async def extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        left = [handle for handle in handles if not self._table.has_ended(handle)]
        ends = await self._route.offering(LeasingBroker).extend(self._native, left, lease_seconds) if left else ()
        extended = dict(zip(left, ends, strict=True))
        ahead = self._steady_clock() - self._clock()
        for handle, deadline in extended.items():
            if isinstance(deadline, int):
                self._table.prolong_held(handle, deadline + ahead)
        return [extended[handle] if handle in extended else LeaseLost() for handle in handles]

    def _drop_overdue(self) -> None:
        """Drop the bodies of leases past their deadline. The broker decides whether a late settle succeeds."""
        while handles := self._table.overdue(_DROPPED):
            self._table.drop(handles)
