"""What the gateway knows of the leases of a queue: how they begin and end, wherever they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from babelgate.brokers.binding import DeadLetterRequest, Delivery, LastFailure, Outcome
from babelgate.errors import BabelgateError

LEASE_EXPIRED = "lease expired"
"""The error of an attempt that ended without a report from the consumer."""

ATTEMPTS_EXHAUSTED = "attempts exhausted"
"""The error of a message whose attempts are spent although no lease of it is known to have expired: it arrived with
them from another program, or the queue's ``max_attempts`` is lower than before."""


class FailedDelivery(Struct, frozen=True):
    """A delivery to be delivered again, and its ``failure``."""

    handle: str
    failure: LastFailure


Way = Literal["ack", "release", "give_back", "dead_letter", "extend"]
"""How a lease ends or goes on: the method of the same name."""


class LeaseManager(Protocol):
    """Ends and extends the leases of one queue. A call has at most as many items as the broker's native batch.

    Outcomes are in the order of the items. A BabelgateError that is raised applies to all items.
    """

    @property
    def busy(self) -> bool:
        """Whether this process keeps leases of the queue."""

    @property
    def held(self) -> int | None:
        """Number of leases that this process keeps; None where the broker keeps them."""

    def holds(self, handle: str) -> bool:
        """Whether this process keeps the lease of a delivery, or its body."""

    def needs_receiver(self, way: Way, handle: str, deadline: int, delay_seconds: float) -> bool:
        """Whether the process that received a delivery has to do it: it has the connection, or the body, or knows
        whether the lease goes on after the ``deadline`` of its token (Unix ms). ``delay_seconds``: of a release.
        """

    def keep(self, deliveries: Sequence[Delivery], lease_seconds: float) -> Sequence[Delivery]:
        """Start the leases of reserved deliveries; returns the deliveries with their deadlines."""

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        """Remove these messages. A second ack of the same message succeeds."""

    async def release(self, failed: Sequence[FailedDelivery], delay_seconds: float) -> Sequence[Outcome]:
        """Make available again after ``delay_seconds``; counts as a failed attempt."""

    async def give_back(self, handles: Sequence[str]) -> Sequence[Outcome]:
        """Make available again at once; not counted."""

    async def dead_letter(self, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Move to the dead-letter queue."""

    async def extend(self, handles: Sequence[str], lease_seconds: float) -> Sequence[int | BabelgateError]:
        """The new deadlines in Unix ms, counted from now."""

    async def idle(self) -> None:
        """Wait until nothing is in flight."""

    def close(self) -> None:
        """Stop expiring leases; deliveries that are still held stay with the broker."""
