"""The whole flow: publish, receive, settle, redrive; every fallback, once. (Interface first; bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.brokers.binding import Capabilities, Peeked, Stats
from app.errors import BabelgateError
from app.rights import Caller

Action = Literal["ack", "nack", "reject", "extend"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """An accepted message. ``created_at`` in Unix ms."""

    id: str
    trace_id: str
    queue: str
    broker: str
    attempts: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Message:
    """A delivery handed out: ``body`` is the reserved bytes, unchanged; ``attempts`` the reconciled count."""

    ack_token: str
    lease_expires_at: int
    attempts: int
    redelivered: bool
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Nack:
    """Tokens to hand back. ``delay_seconds`` None: the queue's backoff."""

    ack_tokens: Sequence[str]
    delay_seconds: float | None = None
    error: str | None = None
    exception: str | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Tokens to dead-letter now."""

    ack_tokens: Sequence[str]
    error: str | None = None
    exception: str | None = None


@dataclass(frozen=True, slots=True)
class Extend:
    """Tokens whose lease is to end ``lease_seconds`` from now."""

    ack_tokens: Sequence[str]
    lease_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one settle call asks for. ``index`` in the results counts within each action's tokens, in order."""

    acks: Sequence[str] = ()
    nacks: Sequence[Nack] = ()
    rejects: Sequence[Reject] = ()
    extends: Sequence[Extend] = ()


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The fate of one token. ``error`` None: settled. ``lease_expires_at`` (Unix ms) after an extend."""

    index: int
    action: Action
    error: BabelgateError | None = None
    lease_expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """What a publish would write: the canonical ``body``, the native queue name and the native headers."""

    body: bytes
    queue: str
    broker: str
    native_name: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters: all given conditions hold. ``before`` and ``after`` are Unix ms of ``failed_at``, exclusive/inclusive."""

    job: str | None = None
    reason: str | None = None
    before: int | None = None
    after: int | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """A dead letter as listed. ``record`` is the stored bytes (always one JSON object, or wrapped as a poison record)."""

    id: str | None
    job: str | None
    trace_id: str | None
    reason: str | None
    error: str | None
    failed_at: int | None
    attempts: int | None
    headers: Mapping[str, str]
    record: bytes


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What a redrive did: ``scanned`` records, ``matched`` the filter, ``redriven`` of them, and those that could not be
    (poison records that hold no envelope, publish failures), which stay dead letters. ``complete``: nothing that matches is left."""

    scanned: int
    matched: int
    redriven: int
    failed: int
    dry_run: bool
    complete: bool
    errors: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as operators see it."""

    queue: str
    broker: str
    native_name: str
    stats: Stats
    capabilities: Capabilities
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as operators see it. ``url`` without its secrets; ``capabilities`` of an ordinary queue."""

    broker: str
    kind: str
    url: str
    required: bool
    up: bool
    detail: str | None
    warnings: Sequence[str]
    capabilities: Capabilities


class Gateway:
    """One portable type over all bindings. Every verb takes the Caller and checks its right first (Forbidden)."""

    draining: bool = False
    started: bool = False

    async def start(self) -> None:
        """Open all bindings (a broker that is down does not fail the start) and begin maintenance."""

    async def drain(self) -> None:
        """Stop taking receives: waiting ones end with an empty list at once; idempotent."""

    async def close(self) -> None:
        """Finish in-flight publishes and settles, then close all bindings; idempotent."""

    async def publish(
        self, caller: Caller, queue: str, body: bytes, *, delay_seconds: float | None = None, ordering_key: str | None = None
    ) -> Receipt:
        """Publish one envelope, draft or entry; returns once durable."""
        raise NotImplementedError

    async def publish_many(self, caller: Caller, queue: str, bodies: Sequence[bytes]) -> list[Receipt | BabelgateError]:
        """Publish each; one result per body, in order. Only Forbidden, QueueNotFound, InvalidParameter are raised."""
        raise NotImplementedError

    def validate(
        self, caller: Caller, queue: str, body: bytes, *, delay_seconds: float | None = None, ordering_key: str | None = None
    ) -> Projection:
        """What publish would write; writes nothing."""
        raise NotImplementedError

    async def receive(
        self, caller: Caller, queue: str, *, max_messages: int = 1, wait_seconds: float = 0, lease_seconds: float | None = None
    ) -> list[Message]:
        """Up to ``max_messages``, empty when none came within ``wait_seconds``. Cancelling it loses and holds nothing."""
        raise NotImplementedError

    async def give_back(self, queue: str, messages: Sequence[Message]) -> None:
        """Return handed-out messages whose client is gone: available at once, uncounted. Never raises."""

    async def settle(self, caller: Caller, queue: str, settlement: Settlement) -> list[SettleResult]:
        """Acks, then nacks, rejects, extends: one result per token."""
        raise NotImplementedError

    async def peek(self, caller: Caller, queue: str, limit: int) -> Sequence[Peeked]:
        """Ready messages, oldest first, without reserving. Raises UnsupportedByBroker."""
        raise NotImplementedError

    async def dead_letters(
        self, caller: Caller, queue: str, where: DeadLetterFilter, limit: int, cursor: str | None
    ) -> tuple[list[DeadLetterView], str | None]:
        """A page of matching dead letters and the cursor after it (None: no more)."""
        raise NotImplementedError

    async def redrive(
        self, caller: Caller, queue: str, where: DeadLetterFilter, limit: int | None, to_queue: str | None, dry_run: bool
    ) -> RedriveResult:
        """Send matching dead letters back: publish, confirm, then remove."""
        raise NotImplementedError

    async def purge(self, caller: Caller, queue: str) -> int:
        """Remove ready and delayed messages; the number removed."""
        raise NotImplementedError

    async def purge_dead_letters(self, caller: Caller, queue: str) -> int:
        """Remove all dead letters; the number removed."""
        raise NotImplementedError

    async def queues(self, caller: Caller) -> list[QueueInfo]:
        """Configured queues and those that brokers list, as far as the caller has any right on them, by name."""
        raise NotImplementedError

    async def queue(self, caller: Caller, queue: str) -> QueueInfo:
        """One queue."""
        raise NotImplementedError

    async def brokers(self, caller: Caller) -> list[BrokerInfo]:
        """All configured brokers, pinged (at most 2 s)."""
        raise NotImplementedError
