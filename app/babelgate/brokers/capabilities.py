"""The features and limits of a broker, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from babelgate.brokers.header_rules import ANY_HEADERS, HeaderRules
from babelgate.brokers.property_rules import NO_PROPERTIES, PropertyRules

Count = Literal["depth", "in_flight", "delayed"]
"""A count of :class:`babelgate.brokers.binding.QueueStats`."""

Report = Literal["in_flight", "delayed", "oldest_age_seconds", "expiries", "ended_leases", "queues"]
"""What a broker may report:

- ``in_flight``, ``delayed``, ``oldest_age_seconds``: this count of a queue; the others of QueueStats always are.
- ``expiries``: that a message comes again because its lease expired.
- ``ended_leases``: of any lease, to any process, whether it has ended, and how. Without it a settle after the deadline
  is done until the message is delivered again, a second ack by another process is LeaseLost, and only the process
  that had leased a message reports that the lease expired.
- ``queues``: the queues that other processes have used.
"""

MAX_DELAY_SECONDS = 31_536_000
"""365 days, ours: the longest delay on a broker that has no bound of its own."""

MAX_LEASE_SECONDS = 43_200
"""12 hours, ours: the longest lease on a broker that has no bound of its own."""

REPORTS: frozenset[Report] = frozenset(get_args(Report))


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """The features and limits of a broker for one queue.

    ``max_delay_seconds`` of a publish, ``max_retry_delay_seconds`` of a nack. 0: no delay; ``None``: no bound.
    ``delivery_count``: ``none``; ``zero_based`` and ``one_based`` are reconciled as ``max(body.attempts, count)`` (less
    one when one-based); ``added`` counts failed deliveries since the body was written, and adds ``body.attempts``.

    ``native_release``: ``release`` supports delays and counts failures. Without it, ``release`` gives back at once and
    uncounted; for the rest the gateway publishes a copy with ``attempts + 1``, waits for the confirm, then acks.
    ``native_release_delays`` False: so it does for a release with a delay alone.

    ``lease_bound_to``: None where the broker keeps the leases. Otherwise the gateway keeps them, and the broker holds
    a delivery by a ``lock`` for a time of its own, for as long as a ``connection`` is open, or for as long as this
    process has the ``partition`` of the message. The receiver then keeps deadline and body, ``max_lease_seconds``
    bounds a lease with all its extends, and the binding is a :class:`ConnectionBroker`. Where ``ack_scope`` is
    ``anywhere``, it is a :class:`LeasingBroker`, too: the gateway extends a lease of a process that has ended and,
    without ``native_release``, one that has expired here, to prove that no other process has acked the message.

    ``ack_scope``: who settles: any process, or the one that received (``owner``), to which the gateway forwards.
    Where any process acks a delivery that is bound to a connection, it acks by the id of the message: a token of an
    earlier delivery serves, too.
    ``max_batch``: the most items of one call of any method that takes a sequence.
    ``max_property_bytes``: the longest ``job`` and ``trace_id`` of a publish, in bytes of UTF-8, where they are native
    properties, too; ``None``: no bound but that of the body. ``max_headers`` of a publish; ``None``: no bound.
    ``header_rules``: which headers of a publish the broker carries.
    ``purges``: the messages that a purge removes. ``counted_as``: messages that may be in another count of the broker
    than their own. Messages that ``depth`` counts are peeked, too.
    ``priorities``: whether a publish may set a priority; ready messages with a higher one are delivered first, and
    those with the same one in their order.
    ``reports``: see :data:`Report`.
    ``broker_properties``: those that a publish may set.

    ``native_dead_letter``: whether :class:`DeadLetters` serves the queue, if the binding offers it; otherwise
    :class:`PublishesDeadLetters` does. Where the broker keeps the leases, the process that received a message then
    keeps its body, too: only this process can dead-letter it, and any other one forwards the request.
    """

    max_delay_seconds: float | None
    max_retry_delay_seconds: float | None
    max_lease_seconds: float
    ack_scope: Literal["anywhere", "owner"]
    ordering: Literal["fifo", "key", "none"]
    native_release: bool
    delivery_count: Literal["none", "zero_based", "one_based", "added"]
    max_body_bytes: int | None
    max_batch: int
    headers: bool
    lease_bound_to: Literal["lock", "connection", "partition"] | None = None
    max_property_bytes: int | None = None
    max_headers: int | None = None
    header_rules: HeaderRules = ANY_HEADERS
    native_dead_letter: bool = True
    native_release_delays: bool = True
    broker_properties: PropertyRules = NO_PROPERTIES
    priorities: bool = False
    purges: tuple[Count, ...] = ("depth", "delayed")
    counted_as: Mapping[Count, Count] = field(default_factory=dict, hash=False)
    reports: frozenset[Report] = REPORTS

    @property
    def purge_counts(self) -> tuple[Count, ...]:
        """The counts that together are what a purge removes; empty where one contains messages that it leaves."""
        contains_others = any(
            count in self.purges and kind not in self.purges for kind, count in self.counted_as.items()
        )
        return () if contains_others else self.purges
