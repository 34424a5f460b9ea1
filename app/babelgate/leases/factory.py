"""Chooses who keeps the leases of a queue, as the broker's capabilities say."""

from __future__ import annotations

from babelgate.brokers.route import BrokerRoute
from babelgate.clock import Clock
from babelgate.envelope import Limits
from babelgate.leases.manager import LeaseManager
from babelgate.leases.native import BrokerLeaseManager
from babelgate.leases.process import ProcessLeaseManager
from babelgate.leases.shared import SharedLeaseManager
from babelgate.leases.table import BrokerUsage
from babelgate.observe.events import Observe


def lease_manager_of(
    route: BrokerRoute, broker_usage: BrokerUsage, max_attempts: int, limits: Limits, clock: Clock, observe: Observe
) -> LeaseManager:
    """The lease manager of ``route``. ``broker_usage``: the leases that this process keeps of the route's broker.
    ``max_attempts``: a lease that expires at the last attempt is a dead letter."""
    if route.capabilities.lease_bound_to is not None:
        return ProcessLeaseManager(route, broker_usage, max_attempts, limits, clock, observe)
    if route.dead_letters_by_receiver:
        return SharedLeaseManager(route, broker_usage, clock)
    return BrokerLeaseManager(route)


def adopt_attempts(manager: LeaseManager, max_attempts: int) -> None:
    """A lease of ``manager`` that expires at this attempt is a dead letter from now on."""
    if isinstance(manager, ProcessLeaseManager):
        manager.max_attempts = max_attempts
