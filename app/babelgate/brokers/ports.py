"""The two ports of a broker: who keeps a lease, and how the gateway learns what became of a delivery.

A :class:`babelgate.brokers.binding.Binding` offers at least one of them. ``BrokerCapabilities.lease_bound_to`` says
which one a queue uses: None a LeasingBroker, all others a ConnectionBroker. A broker on which any process settles what
another one received offers both: each process keeps its own deliveries, and a lease of another one is asked about by
``extend``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from babelgate.brokers.binding import NativeQueue, Outcome
from babelgate.errors import BabelgateError


@runtime_checkable
class LeasingBroker(Protocol):
    """The broker keeps the lease: any process can end or extend it by its handle alone."""

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """Per handle: the new deadline, ``lease_seconds`` from now, in Unix milliseconds of the broker's clock; or
        LeaseLost. The handles stay valid."""


@runtime_checkable
class ConnectionBroker(Protocol):
    """A delivery belongs to a connection of this process as long as that is open, and has no deadline.

    ``reserve`` takes what came on the connection, ``ack`` accepts, and ``release`` returns a delivery to its place. The
    gateway keeps deadline and body, and replaces by a copy what the broker cannot do: a retry that counts or waits, and
    a dead letter.
    """

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether this process can still settle each delivery: it is unsettled, and its connection is open.

        No I/O; raises nothing. The broker has taken the other messages back, so the gateway neither copies nor acks
        them.
        """

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Per handle: None if the broker has said during this call that it has not taken the delivery back, LeaseLost
        if it has, else BrokerUnavailable. Called before a copy: after a pause ``outstanding`` may be out of date."""


@runtime_checkable
class BindsSomeDeliveries(Protocol):
    """A broker on which any process acks, but for some deliveries, which belong to their connection."""

    def acks_anywhere(self, queue: NativeQueue, handle: str) -> bool:
        """Whether any process can ack the delivery of ``handle``. No I/O; raises nothing."""
