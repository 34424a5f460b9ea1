"""The features and limits of a broker, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """The features and limits of a broker for one queue.

    ``max_delay_seconds`` of a publish, ``max_retry_delay_seconds`` of a nack. 0: no delay; ``None``: no bound.
    ``delivery_count``: ``none``; ``zero_based`` and ``one_based`` are reconciled as ``max(body.attempts, count)`` (less
    one when one-based); ``added`` counts failed deliveries since the body was written, and adds ``body.attempts``.

    ``native_release``: ``release`` supports delays and counts failures. Without it, ``release`` gives back at once and
    uncounted; for the rest the gateway publishes a copy with ``attempts + 1``, waits for the confirm, then acks.
    ``native_release_delays`` False: so it does for a release with a delay alone.

    ``lease_keeper``: ``broker``, or ``gateway`` where a delivery belongs to a connection as long as it is open, or
    where the broker locks a message for a time of its own. The receiver then keeps deadline and body,
    ``max_lease_seconds`` bounds a lease with all its extends, and the binding is :class:`Outstanding`. The gateway
    calls ``extend`` only where ``ack_scope`` is ``anywhere``: for a lease of a process that has ended and, without
    ``native_release``, for one that has expired here, to prove that no other process has acked the message.

    ``ack_scope``: who settles: any process, the one that received (``owner``), or that one as long as it has the
    partition of the message (``owner_offset``). The gateway forwards to it.
    ``max_batch``: the most items of one call of any method that takes a sequence.
    ``max_property_bytes``: the longest ``job`` and ``trace_id`` of a publish, in bytes of UTF-8, where they are native
    properties, too; ``None``: no bound but that of the body. ``max_headers`` of a publish; ``None``: no bound.
    ``purge_counts``: the counts of :class:`QueueStats` that together are what a purge removes; empty: the broker's
    counts contain others, or none is a count of these.
    ``broker_properties``: the names of :data:`babelgate.envelope.broker_properties.WRITABLE` that a publish may set.

    ``native_dead_letter``: whether :class:`DeadLetters` serves the queue, if the binding offers it; otherwise
    :class:`PublishesDeadLetters` does. Where the broker keeps the leases, the process that received a message then
    keeps its body, too: only this process can dead-letter it, and any other one forwards the request.
    """

    max_delay_seconds: float | None
    max_retry_delay_seconds: float | None
    max_lease_seconds: float
    extendable: bool
    ack_scope: Literal["anywhere", "owner", "owner_offset"]
    ordering: Literal["fifo", "key", "none"]
    native_release: bool
    delivery_count: Literal["none", "zero_based", "one_based", "added"]
    max_body_bytes: int | None
    max_batch: int
    headers: bool
    lease_keeper: Literal["broker", "gateway"] = "broker"
    max_property_bytes: int | None = None
    max_headers: int | None = None
    native_dead_letter: bool = True
    native_release_delays: bool = True
    broker_properties: frozenset[str] = frozenset()
    purge_counts: tuple[Literal["depth", "in_flight", "delayed"], ...] = ("depth", "delayed")
