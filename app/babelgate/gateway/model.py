"""The values that the gateway's operations take and return; no behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from babelgate.brokers.binding import QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.projection import NativeWrite
from babelgate.errors import BabelgateError, Problem
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.pauses import PauseChange

Action = Literal["ack", "nack", "reject", "extend"]

Source = Literal["configured", "broker", "process"]
"""How a queue's name is known: from the configuration, from the list of its broker, or from use by this process."""


class Receipt(Struct, frozen=True):
    """An accepted message. ``created_at`` in Unix ms."""

    id: str
    trace_id: str
    queue: str
    broker: str
    attempts: int
    created_at: int


class Replay(Receipt, frozen=True):
    """The receipt of the first call with an idempotency key, returned to a repeated call, which wrote nothing."""


class Message(Struct, frozen=True):
    """A delivery handed out: ``body`` is the reserved bytes, unchanged; ``attempts`` the reconciled count.

    ``lease``: what ``ack_token`` contains. ``trace_id`` is the body's. ``broker_properties``: see ``properties`` of
    :class:`babelgate.brokers.binding.Delivery`. ``ordering_key``: of messages whose order the broker keeps by it; None
    where it keeps the order of all, or none.
    """

    lease: Lease
    ack_token: str
    lease_expires_at: int
    attempts: int
    redelivered: bool
    headers: Mapping[str, str]
    body: bytes
    trace_id: str | None = None
    broker_properties: Mapping[str, Any] = {}
    ordering_key: str | None = None


class Nack(Struct, frozen=True):
    """Tokens of failed attempts, to be delivered again. ``delay_seconds`` None: the queue's backoff.

    ``failed`` False: the messages were not attempted. They are available at once, and no attempt is counted.
    """

    ack_tokens: Sequence[str]
    delay_seconds: float | None = None
    error: str | None = None
    exception: str | None = None
    failed: bool = True


class Reject(Struct, frozen=True):
    """Tokens to dead-letter now."""

    ack_tokens: Sequence[str]
    error: str | None = None
    exception: str | None = None


class Extend(Struct, frozen=True):
    """Tokens whose lease is to end ``lease_seconds`` from now."""

    ack_tokens: Sequence[str]
    lease_seconds: float | None = None


class Settlement(Struct, frozen=True):
    """The request of one settle call. ``index`` in the results counts within the tokens of each action, in order."""

    acks: Sequence[str] = ()
    nacks: Sequence[Nack] = ()
    rejects: Sequence[Reject] = ()
    extends: Sequence[Extend] = ()

    @property
    def tokens(self) -> Iterator[str]:
        """All ack tokens, in the order of the results."""
        requests = chain[Nack | Reject | Extend](self.nacks, self.rejects, self.extends)
        return chain(self.acks, chain.from_iterable(request.ack_tokens for request in requests))


class SettleResult(Struct, frozen=True):
    """The outcome of one token. ``error`` None: settled. ``lease_expires_at`` (Unix ms) after an extend.
    ``dead_lettered``: a nack was that of the last attempt, and the message is a dead letter now."""

    index: int
    action: Action
    error: BabelgateError | None = None
    lease_expires_at: int | None = None
    dead_lettered: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """What a publish would write: the canonical ``body``, the native queue name and the native headers.

    ``warnings``: what is accepted, and not as the contract recommends it.
    ``writes``: the native form, see :class:`babelgate.brokers.projection.NativeWrite`; empty for a body read as a
    consumer would. ``idempotency``: how the idempotency key would be kept, None without a key.
    """

    body: bytes
    queue: str
    broker: str
    native_name: str
    headers: Mapping[str, str]
    warnings: Sequence[Problem] = ()
    writes: Sequence[NativeWrite] = ()
    delay_seconds: float = 0
    ordering_key: str | None = None
    idempotency: KeysInfo | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters that meet all given conditions.

    ``before`` (exclusive) and ``after`` (inclusive) bound ``failed_at``, in Unix ms.
    """

    job: str | None = None
    reason: str | None = None
    before: int | None = None
    after: int | None = None
    trace_id: str | None = None
    error: str | None = None


EVERY_LETTER = DeadLetterFilter()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. ``record``: the stored bytes, which may come from a foreign program.

    ``letter_id`` identifies the letter in its queue; letters with equal bytes share it. ``id`` is the message's.
    """

    letter_id: str
    id: str | None
    job: str | None
    trace_id: str | None
    reason: str | None
    error: str | None
    failed_at: int | None
    attempts: int | None
    headers: Mapping[str, str]
    record: bytes


class RemovalResult(Struct, frozen=True):
    """The outcome of removing one dead letter. ``error`` None: it was removed."""

    letter_id: str
    error: BabelgateError | None = None


class RedriveFailure(Struct, frozen=True):
    """A dead letter that was not sent back, and why. ``id`` is the message's."""

    letter_id: str
    id: str | None
    code: str
    detail: str


class RedrivenLetter(Struct, frozen=True):
    """One dead letter that was sent to ``to_queue``, as a message with this ``id``; None: its bytes are no envelope.

    ``removed``: whether this call has removed the letter; False if another one was faster.
    """

    letter_id: str
    id: str | None
    to_queue: str
    edited: bool
    forced: bool
    removed: bool


class LetterEdit(Struct, frozen=True):
    """A change of a dead letter, as JSON in UTF-8: its new ``data``, or a new ``body`` (envelope, draft or entry)."""

    data: bytes | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """The result of a redrive: ``scanned`` records were read, ``matched`` were selected, and were ``redriven``.

    ``failed`` records hold no envelope, were refused by the broker, or were selected by an unknown id; the letters stay
    where they are. ``errors``: the first of these failures; ``errors_omitted``: how many more there are. ``complete``:
    all dead letters were read, and none that was selected is left.
    """

    scanned: int
    matched: int
    redriven: int
    failed: int
    dry_run: bool
    complete: bool
    errors: Sequence[RedriveFailure] = ()
    errors_omitted: int = 0


@dataclass(frozen=True, slots=True)
class KeysInfo:
    """How the idempotency keys of a queue are kept: the ``broker``, and whether key and message are written
    ``in_one_transaction``."""

    broker: str
    in_one_transaction: bool
    retention_seconds: float
    max_keys: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as operators see it. ``idempotency`` None: no store keeps keys for it.

    ``dead_letter_queue`` and ``stored_as``: see ``dead_letters`` and ``stored_as`` of
    :class:`babelgate.brokers.binding.NativeQueue`. ``source`` None: the queue was requested by its name, and only then
    there are ``warnings`` about its settings. ``pause`` None: it is not paused.
    """

    queue: str
    broker: str
    native_name: str
    dead_letter_queue: str | None
    stored_as: Mapping[str, str]
    stats: QueueStats
    capabilities: BrokerCapabilities
    policy: Mapping[str, Any]
    idempotency: KeysInfo | None
    source: Source | None = None
    warnings: Sequence[str] = ()
    pause: PauseChange | None = None


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as operators see it. ``url`` without its secrets; ``capabilities`` of an ordinary queue. ``circuit``:
    while it is open, this process refuses calls to the broker. ``version``: what the server says of itself, such as
    ``Broker 7.0.15``; None: nothing, or nothing yet."""

    broker: str
    kind: str
    url: str
    required: bool
    up: bool
    circuit: Literal["closed", "open"]
    detail: str | None
    warnings: Sequence[str]
    capabilities: BrokerCapabilities
    version: str | None = None
