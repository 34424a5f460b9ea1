"""Where a queue lives, and what its broker can do for it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from msgspec import structs

from babelgate.brokers.binding import (
    Binding,
    DeadLetters,
    DeadStore,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeks,
    PublishesDeadLetters,
    Purges,
    QueueStats,
)
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.parking import ParkingPlace
from babelgate.brokers.ports import BindsSomeDeliveries, ConnectionBroker, LeasingBroker
from babelgate.brokers.projection import NativeWrite, native_writes
from babelgate.envelope import Received
from babelgate.envelope.contract import INT64_MAX
from babelgate.errors import UnsupportedByBroker
from babelgate.observe.events import Facts

_ABILITIES = {
    "Peeks": "show messages without leasing them",
    "Purges": "purge a queue",
    "DeadStore": "list, redrive or purge its dead letters",
    "DeadLetters": "dead-letter a message",
    "PublishesDeadLetters": "dead-letter a message",
    "LeasingBroker": "extend a lease",
    "ConnectionBroker": "report which deliveries are outstanding",
}
"""What a binding can do when it offers an optional protocol."""

Optional = TypeVar(
    "Optional", Peeks, Purges, PublishesDeadLetters, DeadLetters, DeadStore, LeasingBroker, ConnectionBroker
)


@dataclass(frozen=True)
class BrokerRoute:
    """The broker's queue ``native``, in which ``binding`` keeps the messages of ``queue``.

    ``parking``: where messages wait whose delay is too long for the broker. ``capabilities`` then has the delays that
    are possible with it. ``address``: of the server, as of :func:`babelgate.brokers.address.address_of`.
    """

    queue: str
    binding: Binding
    native: NativeQueue
    capabilities: BrokerCapabilities
    parking: ParkingPlace | None = field(default=None, kw_only=True)
    address: str = field(default="", kw_only=True)

    @cached_property
    def broker(self) -> str:
        """The broker's configured name."""
        return self.binding.name

    @cached_property
    def place(self) -> int:
        """Identifies the native queue to all replicas: the same for all connections to it by this broker's name. Never
        0, and below 2³²."""
        text = f"{self.broker}\n{self.address}\n{self.native.name}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") or 1

    @cached_property
    def location(self) -> tuple[str, int, str]:
        """Identifies the queue, the binding and the native queue in this process, which keeps each binding open until
        it ends."""
        return self.queue, id(self.binding), self.native.name

    @cached_property
    def dead_letters_natively(self) -> bool:
        """Whether the broker dead-letters in one step, for which it needs no body."""
        return self.capabilities.native_dead_letter and isinstance(self.binding, DeadLetters)

    @cached_property
    def dead_letters_by_receiver(self) -> bool:
        """Whether the broker keeps the leases, and only the process that received a message can dead-letter it."""
        publishes = isinstance(self.binding, PublishesDeadLetters) and not self.dead_letters_natively
        return publishes and self.capabilities.lease_bound_to is None

    @cached_property
    def settles_elsewhere(self) -> bool:
        """Whether some settles of a delivery need the process that received it."""
        keeps = self.capabilities.ack_scope != "anywhere" or self.capabilities.lease_bound_to is not None
        return keeps or self.dead_letters_by_receiver

    def releases_natively(self, delay_seconds: float) -> bool:
        """Whether the broker itself makes a message available again after ``delay_seconds``, and counts the attempt."""
        capabilities = self.capabilities
        if self.parks_retry(delay_seconds):
            return False
        return capabilities.native_release and (capabilities.native_release_delays or delay_seconds <= 0)

    def parks_retry(self, delay_seconds: float) -> bool:
        """Whether a retry after ``delay_seconds`` is a copy on the parking broker."""
        return self.parking is not None and self.parking.takes_retry(delay_seconds)

    def publish(self, messages: Sequence[Outgoing]) -> Awaitable[Sequence[Outcome]]:
        """Publish ``messages``, and park those with too long a delay; as :meth:`Binding.publish`."""
        parking = self.parking
        if parking is None or not any(map(parking.takes, messages)):
            return self.binding.publish(self.native, messages)
        return parking.publish(messages, self.binding, self.native)

    async def projection(self, message: Outgoing) -> Sequence[NativeWrite]:
        """What :meth:`publish` would write for ``message``; see :meth:`babelgate.brokers.projection.Projects`."""
        parking = self.parking
        if parking is None or not parking.takes(message):
            return await native_writes(self.binding, self.native, message)
        return await parking.projection(message, self.binding, self.native)

    async def stats(self) -> QueueStats:
        """Counts of the queue; ``delayed`` with the parked messages, None while these are not known."""
        stats = await self.binding.stats(self.native)
        if self.parking is None:
            return stats
        parked = await self.parking.count()
        return replace(stats, delayed=None if parked is None else (stats.delayed or 0) + parked)

    async def purge(self) -> int:
        """Remove the ready, delayed and parked messages; the number removed. Raises UnsupportedByBroker."""
        removed = await self.offering(Purges).purge(self.native)
        return removed if self.parking is None else removed + await self.parking.purge()

    def outstanding(self, handles: Sequence[str]) -> Sequence[bool]:
        """Whether this process can still settle each delivery, as far as that is known here."""
        if isinstance(self.binding, ConnectionBroker):
            return self.binding.outstanding(self.native, handles)
        return [True] * len(handles)

    def acks_anywhere(self, handle: str) -> bool:
        """Whether any process can ack the delivery of ``handle``."""
        if self._binds_some is not None:
            return self._binds_some.acks_anywhere(self.native, handle)
        return self.capabilities.ack_scope == "anywhere"

    @cached_property
    def _binds_some(self) -> BindsSomeDeliveries | None:
        return self.binding if isinstance(self.binding, BindsSomeDeliveries) else None

    def attempts(self, in_body: int, count: int, declared: int | None = None) -> int:
        """Reconcile the failed attempts of a delivery: those stated ``in_body``, and the broker's ``count``.

        ``declared``: those of a native header, which replace ``in_body``; None without the header.
        """
        in_body = max(in_body if declared is None else declared, 0)
        match self.capabilities.delivery_count:
            case "added":
                # A foreign body may state any 64-bit number.
                return min(in_body + count, INT64_MAX)
            case "zero_based":
                return max(in_body, count)
            case "one_based":
                return max(in_body, count - 1)
            case _:
                return in_body

    def reconciled(self, delivery: Delivery, received: Received) -> tuple[int, Facts]:
        """The failed attempts of a delivery, and the facts of its message."""
        attempts = self.attempts(received.attempts, delivery.delivery_count, delivery.declared_attempts)
        return attempts, Facts(
            attempts,
            received.id,
            received.trace_id,
            received.job,
            received.created_at,
            received.lang,
            len(delivery.body),
            delivery.headers.get("traceparent"),
        )

    def carrier(self, delivery: Delivery) -> Delivery:
        """``delivery``, whose ordering key is None where the broker keeps no order by it."""
        if delivery.ordering_key is None or self.capabilities.ordering == "key":
            return delivery
        return structs.replace(delivery, ordering_key=None)

    def offering(self, protocol: type[Optional]) -> Optional:
        """The binding as the optional ``protocol``. Raises UnsupportedByBroker when it does not offer it."""
        if isinstance(self.binding, protocol):
            return self.binding
        reason = f"The broker {self.broker!r} cannot {_ABILITIES[protocol.__name__]}."
        raise UnsupportedByBroker(code="unsupported_by_broker", pointer="", reason=reason)
