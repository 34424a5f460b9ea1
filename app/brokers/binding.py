"""The Binding protocol: what the gateway needs of a broker, and nothing more.

A binding is a thin driver. It never retries, and neither may its client; batching across callers, retries, dead-letter
policy, tokens and tracing are written once above it. All methods are safe to call concurrently from one event loop.
A binding raises only errors of :mod:`app.errors`: vendor exceptions are translated at one boundary.

Each call ends within the broker's ``timeout_seconds``, connecting included, and half a second to clean up; ``open``,
``close``, ``ping``, ``warnings`` and ``reserve`` have bounds of their own. A call that has no answer by then raises
BrokerUnavailable, or OutcomeUnknown when something may have been written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from app.errors import BabelgateError

Outcome = BabelgateError | None
"""``None``: done. An error: this item failed, and only this one."""

NO_HEADERS: Mapping[str, str] = {}

MAX_HANDLE_LENGTH = 2_048
"""The most characters of a handle. Receipt handles of Amazon SQS are opaque and can be long:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html"""

OptionsOf = TypeVar("OptionsOf")


@dataclass(frozen=True, slots=True)
class NativeQueue:
    """A queue as its broker knows it: native ``name`` and the binding's own validated ``options``."""

    name: str
    options: Any = None

    def options_as(self, kind: type[OptionsOf]) -> OptionsOf:
        """``options``, of the type that the binding's ``native_queue`` puts there. Raises TypeError for another."""
        if not isinstance(self.options, kind):
            raise TypeError(f"the queue {self.name} is not one of {kind.__name__}")
        return self.options


class LastFailure(Struct, frozen=True):
    """Why a message is published again: its failed ``attempts`` so far, and what the consumer said of the last."""

    attempts: int
    error: str | None = None
    exception: str | None = None


class Outgoing(Struct, frozen=True):
    """One message to publish. ``body`` is canonical envelope bytes; ``headers`` are native headers.

    A copy of a delivery (a retry, a dead letter) has its ``failure``, and ``carried`` as the delivery had it.
    """

    body: bytes
    headers: Mapping[str, str] = {}
    ordering_key: str | None = None
    delay_seconds: float = 0
    dedup_id: str | None = None
    failure: LastFailure | None = None
    carried: Any = None


class Delivery(Struct, frozen=True):
    """One reserved message.

    ``handle``: an opaque text of at most MAX_HANDLE_LENGTH ASCII characters without control characters; on an
    ``anywhere`` broker it is all that any process needs to settle. ``delivery_count``: see
    ``BrokerCapabilities.delivery_count``. ``lease_expires_at``: Unix milliseconds of the broker's clock; 0 where the
    gateway keeps the lease. ``carried``: the binding's own data, which the gateway passes back in an :class:`Outgoing`
    that copies this message. ``expired``: the message was reserved before and that lease expired, where the broker
    keeps the leases and can report that.
    """

    body: bytes
    handle: str
    lease_expires_at: int
    headers: Mapping[str, str] = {}
    delivery_count: int = 0
    redelivered: bool = False
    carried: Any = None
    expired: bool = False


class Peeked(Struct, frozen=True):
    """A message looked at without reserving it."""

    body: bytes
    headers: Mapping[str, str] = {}


class DeadLetterRequest(Struct, frozen=True):
    """A reserved message to dead-letter: its ``handle``, and the ``dead_letter`` block to add to its body."""

    handle: str
    block: Mapping[str, Any]


class DeadRecord(Struct, frozen=True):
    """A dead letter at rest. ``key`` is the binding's own, for :meth:`DeadStore.remove_dead`; so is ``carried``."""

    key: Any
    body: bytes
    headers: Mapping[str, str] = {}
    carried: Any = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of one queue; ``None`` for what the broker cannot tell. ``depth`` is ready messages only."""

    depth: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    oldest_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """What a broker can do for one queue, as data.

    ``max_delay_seconds`` 0: no delay; ``None``: no bound. ``delivery_count``: ``none``; ``zero_based`` and
    ``one_based`` are reconciled as ``max(body.attempts, count)`` (less one when one-based); ``added`` counts failed
    deliveries since the body was written and is added to ``body.attempts``.

    ``native_release``: ``release`` keeps delays and counts failures. Where it does not, it only gives back at once and
    uncounted; the gateway publishes a copy with ``attempts + 1``, waits for the confirm, then acks.

    ``lease_keeper``: ``broker``, or ``gateway`` where a delivery belongs to a connection for as long as this lasts. The
    receiver then keeps deadline and body, ``extend`` is never called, ``max_lease_seconds`` bounds a lease with all its
    extends, and the binding is :class:`Outstanding`.
    """

    max_delay_seconds: float | None
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


class Binding(Protocol):
    """One configured broker. ``name`` is its name in the configuration, for errors and metrics.

    ``timeout_seconds``: how long a call may take (the option of that name).
    """

    name: str
    timeout_seconds: float

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """Validate a route's binding-specific ``options``; pure.

        Raises ConfigError (``key`` = the option's name) for an unknown or invalid option.
        """

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """What this broker can do for ``queue``; pure."""

    async def open(self) -> None:
        """Connect; idempotent. Raises BrokerUnavailable within 5 s when the broker cannot be reached.

        After a failure the binding stays usable: later calls connect by themselves, or open can be tried again.
        """

    async def close(self) -> None:
        """Return unsettled deliveries where the broker can, flush, disconnect; idempotent; at most 5 s."""

    async def ping(self) -> None:
        """One cheap round trip, at most 2 s. Raises BrokerUnavailable."""

    async def warnings(self) -> Sequence[str]:
        """Sentences on how the broker is set up that an operator should know (durability); at most 2 s."""

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write; return once the broker confirmed, one outcome per message, in order. Never retries.

        Raises BrokerUnavailable when nothing was written, OutcomeUnknown when something may have been.
        """

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """At most ``limit`` deliveries, oldest first; blocks at most ``wait_seconds`` + 1 s.

        Returns as soon as there is at least one. Empty is normal, and says that the broker has answered during this
        call that nothing is there; one that did not answer in time is BrokerUnavailable. Never cancelled by the
        gateway while in flight.
        """

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """Done with these. Per handle: ``None``, or LeaseLost. Acked twice is done.

        A lease that the broker keeps ends at its deadline, by the broker's clock: after that this and the other verbs
        that take handles are LeaseLost and change nothing, also before the message is handed out again.
        """

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Available again after ``delay_seconds``; counted when ``failed`` (a give-back is no attempt)."""

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """The new deadlines in Unix milliseconds of the broker's clock, counted from now; or LeaseLost."""

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts of ``queue``."""


@runtime_checkable
class Peeks(Protocol):
    """A broker whose queues can be looked at without reserving."""

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """The next ``limit`` ready messages, oldest first."""


@runtime_checkable
class Purges(Protocol):
    """A broker whose queues can be emptied."""

    async def purge(self, queue: NativeQueue) -> int:
        """Remove what is ready or delayed, not what is leased; the number removed."""


@runtime_checkable
class DeadLetters(Protocol):
    """A broker that dead-letters in one step."""

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Move reserved messages to the dead-letter queue, atomically with the end of the lease.

        The record is ``app.envelope.dead_letter_record(body, block)``.
        """


@runtime_checkable
class PublishesDeadLetters(Protocol):
    """A broker whose dead letters are published: the gateway waits for the confirm, then acks."""

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write records, made by ``app.envelope.dead_letter_record``, to the dead-letter queue of ``queue``.

        Otherwise as ``publish``; delays are not asked for.
        """


@runtime_checkable
class Outstanding(Protocol):
    """A broker whose deliveries belong to a connection; needed where the gateway keeps the leases."""

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        """Whether each delivery is this process's to settle still: not settled, and its connection not gone.

        A look-up without I/O. What it denies the broker has dealt with, and the gateway neither copies nor acks it.
        """


@runtime_checkable
class DeadStore(Protocol):
    """A broker whose dead letters can be read, removed and purged."""

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page of dead letters, oldest first, and the cursor after it (``None``: no more)."""

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Remove records of pages read so far; per record whether this call removed it.

        Returns ``cursor`` adjusted, so that reading on from it skips nothing.
        """

    async def purge_dead(self, queue: NativeQueue, before_ms: int | None = None) -> int:
        """Remove all dead letters, or those dead-lettered before ``before_ms``; the number removed."""


@runtime_checkable
class Lists(Protocol):
    """A broker that can list its queues without scanning keys."""

    async def queues(self) -> Sequence[str]:
        """Native names of the queues the broker holds."""
