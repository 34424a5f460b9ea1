"""The Binding protocol, its optional protocols, and the data that they exchange.

A binding is a thin driver of one broker. The gateway writes batching across callers, retries, dead-letter policy,
tokens and tracing once, above the protocol. These rules hold for every method that is not said to differ:

- Time: a call ends within the broker's ``timeout_seconds``, connecting included, and half a second to clean up. A call
  without an answer by then raises BrokerUnavailable, or OutcomeUnknown when something may have been written. What the
  call has begun for others goes on for a while: connecting (:data:`babelgate.brokers.connect.CONNECT_SECONDS`), and
  making a queue.
- Retries: none, neither by the binding nor by its client library. The gateway decides what is repeated.
- Concurrency: any number of concurrent calls from one event loop, but few of ``reserve`` per queue, and one that
  waits: see :meth:`Binding.reserve`. They share connections; one attempt to connect serves them all.
- Cancellation: a cancelled call may have taken effect; the binding stays usable, and no other call is affected.
- Errors: only errors of :mod:`babelgate.errors`. Vendor exceptions are translated in one module of the binding. A
  method that writes may raise every BrokerError; a method that only reads, all of them but OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.errors import BabelgateError

Outcome = BabelgateError | None
"""``None``: done. An error: this item failed, the others did not."""

NO_HEADERS: Mapping[str, str] = {}

MAX_HANDLE_LENGTH = 2_048
"""The most characters of a handle. Receipt handles of Amazon SQS are opaque and can be long:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html"""

OptionsOf = TypeVar("OptionsOf")


@dataclass(frozen=True, slots=True)
class NativeQueue:
    """A queue as its broker knows it: native ``name`` and the binding's own validated ``options``.

    ``name``: the broker's own name of the queue, with every prefix that an option of the route adds. ``dead_letters``:
    the broker's name of the queue of its dead letters; None where they are stored without a queue of their own.
    ``delayed``: the broker's names of queues of their own in which its delayed messages wait.
    ``encrypted``: bodies are to be encrypted, by a binding that :class:`~babelgate.brokers.settings.EncryptsBodies`.
    ``stored_as``: how the messages are stored, by option (``layout``, ``profile``, ``queue_type``), for operators.
    ``traced``: the attributes of a span of a ``send``, ``receive`` or ``settle``, where OpenTelemetry's conventions for
    the broker have more than those for all; with those of the delivery of this handle, if one is given. No I/O.
    """

    name: str
    options: Any = None
    dead_letters: str | None = None
    stored_as: Mapping[str, str] = field(default_factory=dict, hash=False)
    traced: Callable[[str, str | None], Mapping[str, str | int]] = field(default=lambda kind, handle: {}, compare=False)
    encrypted: bool = False
    delayed: Sequence[str] = field(default=(), compare=False)

    def options_as(self, kind: type[OptionsOf]) -> OptionsOf:
        """``options``, of the type that the binding's ``native_queue`` puts there. Raises TypeError for another."""
        if not isinstance(self.options, kind):
            raise TypeError(f"the queue {self.name} is not one of {kind.__name__}")
        return self.options


class LastFailure(Struct, frozen=True):
    """The failed ``attempts`` of a message that is published again, and the consumer's error of the last one.
    ``expired``: the last one had no report from the consumer, and its lease expired. ``deliveries`` of a dead letter:
    see :class:`DeadLetterRequest`.
    """

    attempts: int
    error: str | None = None
    exception: str | None = None
    expired: bool = False
    deliveries: int = 0


class Outgoing(Struct, frozen=True):
    """One message to publish. ``body`` is canonical envelope bytes; ``headers`` are native headers.

    ``dedup_id``: the broker may drop a second message with it; None for a redriven message, which may repeat another.
    ``properties``: broker properties to set, as ``BrokerCapabilities.broker_properties`` has read them. A copy has
    none: ``carried`` keeps those of the delivery. A copy of a delivery (a retry, a dead letter) has its ``failure``,
    and the ``carried`` data of the delivery. ``is_envelope`` False: ``body`` is a foreign message, which is written
    byte for byte; ``carried`` may then come from another queue of the same broker. ``priority``: 0 to 9, of a new
    message where the queue has ``priorities``; None: the broker's default. ``carried`` keeps that of a delivery.
    ``is_late``: it has waited elsewhere until it was due, so its age says nothing about how long it is to be kept.
    """

    body: bytes
    headers: Mapping[str, str] = {}
    ordering_key: str | None = None
    delay_seconds: float = 0
    dedup_id: str | None = None
    failure: LastFailure | None = None
    carried: Any = None
    is_envelope: bool = True
    properties: Mapping[str, Any] = {}
    priority: int | None = None
    is_late: bool = False

    @property
    def is_copy(self) -> bool:
        """Whether it copies a delivery or a dead letter, whose headers it has."""
        return self.failure is not None or self.carried is not None


class Delivery(Struct, frozen=True):
    """One reserved message. ``handle``: an opaque text of at most MAX_HANDLE_LENGTH ASCII characters without control
    characters; on an ``anywhere`` broker it is all that any process needs to settle. ``delivery_count``: see
    ``BrokerCapabilities.delivery_count``. ``lease_expires_at``: Unix milliseconds of the broker's clock; 0 where the
    gateway keeps the lease. ``carried``: the binding's own data, which the gateway passes back in an :class:`Outgoing`
    that copies this message. ``expired``: the message was reserved before and that lease expired, where the broker
    keeps the leases and can report that. ``expired_before``: some lease of it expired earlier and was reported then.
    ``unsupported_version``: the schema version that a native property declares, where it is another one than 1. The
    body is then not decoded, but dead-lettered byte for byte. ``properties``: broker properties of the message, by
    the broker's own names and as JSON values. ``declared_attempts``: the failed attempts that a native header declares,
    which replace those in the body; None without such a header, or where the body alone counts. ``is_uncounted``: the
    broker may not count failed deliveries of this message, so that a retry is a copy, which needs the body: only where
    ``ack_scope`` is not ``anywhere``. ``ordering_key``: where ``BrokerCapabilities.ordering`` is ``key``, the broker
    keeps the order of messages with the same one.
    """

    body: bytes
    handle: str
    lease_expires_at: int
    headers: Mapping[str, str] = {}
    delivery_count: int = 0
    redelivered: bool = False
    carried: Any = None
    expired: bool = False
    expired_before: bool = False
    unsupported_version: str | None = None
    properties: Mapping[str, Any] = {}
    declared_attempts: int | None = None
    is_uncounted: bool = False
    ordering_key: str | None = None


class Peeked(Struct, frozen=True):
    """A message that was read without reserving it."""

    body: bytes
    headers: Mapping[str, str] = {}


class DeadLetterRequest(Struct, frozen=True):
    """A reserved message to dead-letter: its ``handle``, and the ``dead_letter`` block to add to its body.

    ``deliveries``: the number of deliveries to consumers, with the one that a consumer has just ended; a reject ends
    one that is no failed attempt. 0 for a message that is not handed out: it had as many as failed attempts.
    """

    handle: str
    block: Mapping[str, Any]
    deliveries: int = 0


class DeadRecord(Struct, frozen=True):
    """A stored dead letter. ``key`` and ``carried`` are the binding's own data; see :meth:`DeadStore.remove_dead`.

    ``priority``: 0 to 9, of its message, for a message that replaces it without ``carried``; None: the default.
    """

    key: Any
    body: bytes
    headers: Mapping[str, str] = {}
    carried: Any = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of one queue; ``None`` for a count that the broker cannot report. ``depth``: ready messages only.

    ``foreign``: messages of another program that the last look, at most a minute ago, has left on the queue; ``None``
    where none are left.
    """

    depth: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    oldest_age_seconds: float | None = None
    foreign: int | None = None


class DeliveryLimit(Struct, frozen=True):
    """The broker itself moves a message to its queue ``target`` after this number of ``deliveries``."""

    deliveries: int
    target: str


class Binding(Protocol):
    """One configured broker. ``name``: its name in the configuration. ``timeout_seconds``: the option of that name.

    It is a LeasingBroker or a ConnectionBroker, too: see :mod:`babelgate.brokers.ports`.
    """

    name: str
    timeout_seconds: float

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """Validate a route's ``options``, which are specific to the binding. No I/O.

        Raises ConfigError (``key`` = the option's name) for an unknown or invalid option.
        """

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """The capabilities of ``queue``. No I/O."""

    async def open(self) -> None:
        """Connect; idempotent. Raises BrokerUnavailable within 5 s when the broker cannot be reached.

        Raises ConfigError for a broker that cannot be used as configured. After a failure the binding stays usable:
        later calls connect, and ``open`` can be called again. The gateway calls it again with growing pauses.
        """

    async def close(self) -> None:
        """Return unsettled deliveries to the broker where it can, flush, and disconnect; idempotent; at most 5 s.

        Waiting ``reserve`` calls end. Later calls raise BrokerUnavailable until :meth:`open`, except on SQLite and SQS.
        """

    async def ping(self) -> None:
        """One cheap round trip, at most 2 s. Raises BrokerUnavailable."""

    async def warnings(self) -> Sequence[str]:
        """Sentences about the broker's settings that an operator should know (durability); at most 2 s.

        Raises BrokerUnavailable, or returns the warnings found until then.
        """

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write ``messages``; return once the broker has confirmed them, with one outcome per message, in order.

        Takes at most ``max_batch`` messages, and 4 MiB of bodies, or one larger body. Raises BrokerUnavailable when no
        message was written, OutcomeUnknown when some may have been: with ``later`` where the write of a copy goes on.
        """

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """Reserve at most ``limit`` messages, oldest first; blocks at most ``wait_seconds`` and ``timeout_seconds``,
        and as long again where a link or consumer has to be made first.

        Returns as soon as there is at least one. An empty result means that the broker has answered during this call
        that the queue is empty; without an answer the call raises BrokerUnavailable. Messages that are reserved after
        that are given back uncounted, or their leases expire. The gateway never cancels this call: it waits for the
        result, and releases deliveries that no client waits for any more. It makes at most two of these calls for the
        receives of a queue at a time, one that waits and one that does not, and shares them among all receives; the
        move of parked messages, or of those on a former broker of the queue, makes one more, which does not wait.
        """

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """End the leases and remove the messages. Per handle: ``None``, or LeaseLost. A repeated ack is done.

        Where the broker keeps the leases, a lease ends at its deadline by the broker's clock. After that every method
        that takes handles returns LeaseLost and changes nothing, also before the message is delivered again. A
        malformed handle is LeaseLost.
        """

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """Make the messages available again after ``delay_seconds``. Per handle: ``None``, or LeaseLost.

        ``failed`` counts a failed attempt; otherwise the message is given back as it was. See ``native_release`` of
        :class:`BrokerCapabilities`: without it, both must be false or 0.
        """

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """Counts of ``queue``; zeros for a queue that does not exist."""


@runtime_checkable
class Peeks(Protocol):
    """A broker whose queues can be read without reserving."""

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        """The next ``limit`` ready messages, oldest first. Changes nothing."""


@runtime_checkable
class Purges(Protocol):
    """A broker whose queues can be emptied."""

    async def purge(self, queue: NativeQueue) -> int:
        """Remove ready and delayed messages, but no leased ones; return the number removed.

        Delayed messages stay where the broker keeps those of all queues together. A large queue may take several
        calls to the broker, each within ``timeout_seconds``; after an error some messages may have been removed.
        """


@runtime_checkable
class DeadLetters(Protocol):
    """A broker that dead-letters in one step."""

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        """Move reserved messages to the dead-letter queue, atomically with the end of the lease.

        Per letter: ``None``, or LeaseLost. The record is ``babelgate.envelope.dead_letter_record(body, block)``.
        """


@runtime_checkable
class PublishesDeadLetters(Protocol):
    """A broker whose dead letters are published: the gateway waits for the confirm, then acks the message."""

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """Write records, made by ``babelgate.envelope.dead_letter_record``, to the dead-letter queue of ``queue``.

        Otherwise like ``publish``; the records have no delay.
        """


@runtime_checkable
class DeadStore(Protocol):
    """A broker whose dead letters can be read, removed and purged."""

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page of dead letters, oldest first, and the cursor after it (``None``: no more).

        Raises InvalidParameter for a malformed cursor; see :mod:`babelgate.brokers.cursor`.
        """

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Remove records of pages read so far; per record whether this call has removed it.

        Returns ``cursor`` adjusted, so that the next page skips no record.
        """

    async def purge_dead(self, queue: NativeQueue) -> int:
        """Remove all dead letters; return the number removed.

        Like ``purge``, it may take several calls to the broker.
        """


@runtime_checkable
class Lists(Protocol):
    """A broker that can list its queues without scanning keys.

    ``lists_foreign``: the list may contain queues that no gateway has used. Maintenance and metrics leave these alone.
    """

    lists_foreign: bool

    async def queues(self) -> Sequence[str]:
        """The native names of the queues that the broker knows; empty where it cannot report any as configured."""


@runtime_checkable
class Reinjects(Protocol):
    """A broker that delays nothing itself: each process moves delayed messages back to their queues when they are due.

    ``reinjected``: how many messages this process has moved since it began. It never decreases.
    """

    @property
    def reinjected(self) -> int: ...


@runtime_checkable
class LimitsDeliveries(Protocol):
    """A broker that itself may move a message away, as its own settings of a queue say."""

    async def delivery_limit(self, queue: NativeQueue) -> DeliveryLimit | None:
        """The limit in the broker's settings of ``queue``; None if it has none, or does not exist. At most 2 s."""


@runtime_checkable
class ReportsVersion(Protocol):
    """A broker whose server reports its name and version."""

    @property
    def server_version(self) -> str | None:
        """Such as ``Redis 7.0.15``; None before the first connection, or when the server did not report it."""
