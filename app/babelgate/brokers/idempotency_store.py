"""The KeyStore protocol of brokers that keep idempotency keys, and its data.

A key is claimed for one queue. Where its store is the queue's own broker, key and message are written in one
transaction; elsewhere the key is reserved, the message published, and the key settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.errors import BabelgateError, KeyShareFull

MAX_ANSWER_BYTES = 1024
"""The most bytes stored beside a key, so that the size of a store is bounded."""

TOKEN_BYTES = 8

RESERVED_SECONDS = 60.0
"""How long a reserved key counts as in progress: longer than any broker takes to confirm or to fail. A call that has
not settled its key by then was interrupted."""


def share_of(space: int) -> int:
    """The most keys of one holder of ``space``: three quarters of it, at least one. The next holder finds the rest."""
    return max(space * 3 // 4, 1)


class Terms(Struct, frozen=True):
    """How long a key is kept, and the most keys of a store; a full store accepts no new key.

    A caller may keep :func:`share_of` what the keys of other callers leave of ``max_keys``, and one queue of this
    caller ``share_of`` what the caller's other queues leave of that.
    """

    retention_seconds: float = 86_400
    max_keys: int = 1_000_000


class KeyClaim(Struct, frozen=True):
    """A request of ``caller`` to publish a message with ``key`` to ``queue`` only once.

    ``queue``: its name, unique among the users of the store, in ASCII without a colon. ``fingerprint``: the SHA-256 of
    the request. ``answer``: the answer to a repeated request, at most MAX_ANSWER_BYTES. ``caller``: the name of the
    caller, in whose share a new key counts; any caller gets the answer of an existing one.
    """

    queue: str
    key: str
    fingerprint: bytes
    answer: bytes
    caller: str


class ExistingKey(Struct, frozen=True):
    """A key that another call has taken. Without an ``answer`` that call has not settled it: it may be in progress for
    ``seconds`` more; at 0 it was interrupted, and its message may or may not have been published."""

    fingerprint: bytes
    answer: bytes | None
    seconds: float


ClaimResult = ExistingKey | BabelgateError | None
"""``None``: the caller has the key. KeysFull: the store accepts no new key. KeyShareFull: it accepts none of this
caller, or of this queue of the caller."""


def share_error(broker: str, claim: KeyClaim, held: int, limit: int, of_queue: bool) -> KeyShareFull:
    """The error for a key beyond the share of its caller, or of one queue of the caller."""
    whose = f"The caller {claim.caller!r}"
    if of_queue:
        whose = f"The queue {claim.queue.partition('=')[0]!r} of the caller {claim.caller!r}"
    return KeyShareFull(whose=whose, broker=broker, held=held, limit=limit)


Resolution = Literal["done", "unknown", "free"]
"""The message of a reserved key was published (done), may have been (unknown), or was not (free)."""


class KeySettlement(Struct, frozen=True):
    """A reserved key, the ``token`` it was reserved with, and its resolution."""

    claim: KeyClaim
    token: bytes
    resolution: Resolution


class KeyStore(Protocol):
    """Keeps keys as durably as its broker keeps messages. The rules of :mod:`babelgate.brokers.binding` apply.

    A key past its retention counts as removed, swept or not. The claims of one call are processed in their order.
    """

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        """Write each message to a queue of the store's own broker if it has no claim or its key is free, and the key
        with it, in one transaction per message or wider. Otherwise as
        :meth:`babelgate.brokers.binding.Binding.publish`.
        """

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        """Reserve the free keys for RESERVED_SECONDS; ``token``, of TOKEN_BYTES bytes, identifies the reservation."""

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        """End reservations. A key that is not reserved with that token stays as it is."""

    async def sweep(self) -> int:
        """Remove some of the keys past their retention; return the number removed, 0 when none is left."""


@runtime_checkable
class KeepsKeys(Protocol):
    """A broker that keeps idempotency keys."""

    keys: KeyStore
