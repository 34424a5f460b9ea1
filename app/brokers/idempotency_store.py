"""What a broker does that keeps idempotency keys, and nothing more.

A key is claimed for one queue. Where its store is the queue's own broker, key and message are written in one
transaction; elsewhere the key is reserved, the message published, and the key settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from app.brokers.binding import NativeQueue, Outgoing
from app.errors import BabelgateError

MAX_ANSWER_BYTES = 1024
"""What a key may keep beside itself, so that a store of so many keys has a size."""

FINGERPRINT_BYTES = 32
TOKEN_BYTES = 16

RESERVED_SECONDS = 60.0
"""How long a reserved key counts as under way: longer than any broker takes to confirm or to fail. After that the call
that reserved it has been cut off."""


class Terms(Struct, frozen=True):
    """For how long a key is kept, and how many a store holds at most; past that it takes no new ones."""

    retention_seconds: float = 86_400
    max_keys: int = 1_000_000


class KeyClaim(Struct, frozen=True):
    """That what is sent to ``queue`` under ``key`` be published once.

    ``queue`` tells it from all others that use the store, in ASCII without a colon; ``fingerprint`` is the SHA-256 of
    what was sent, ``answer`` what a repeated call is told, at most MAX_ANSWER_BYTES.
    """

    queue: str
    key: str
    fingerprint: bytes
    answer: bytes


class ExistingKey(Struct, frozen=True):
    """A key that is taken. Without an ``answer`` the call that took it is under way: for ``seconds`` more it may be, at
    0 it was cut off, and nobody knows what became of its message."""

    fingerprint: bytes
    answer: bytes | None
    seconds: float


ClaimResult = ExistingKey | BabelgateError | None
"""``None``: the key is the caller's. KeysFull: the store takes no new ones."""

Resolution = Literal["done", "unknown", "free"]
"""Of a reserved key: its message was published, may have been, was not."""


class KeySettlement(Struct, frozen=True):
    """A reserved key, the ``token`` it was reserved with, and what became of it."""

    claim: KeyClaim
    token: bytes
    resolution: Resolution


class KeyStore(Protocol):
    """Keeps keys as durably as its broker keeps messages. Raises the errors of a binding; never retries.

    A key past its retention is as good as gone, swept or not. Several claims of one call are taken in their order.
    """

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        """Write each message to a queue of the store's own broker if it has no claim or its key is free, and the key
        with it, in one transaction per message or wider. Otherwise as :meth:`app.brokers.binding.Binding.publish`.
        """

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        """Take the keys that are free, for RESERVED_SECONDS; ``token``, TOKEN_BYTES long, proves whose they are."""

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        """End reservations; what is not reserved with that token, or not any more, stays as it is."""

    async def sweep(self) -> int:
        """Remove some of the keys past their retention; the number removed, 0 when none is left."""


@runtime_checkable
class KeepsKeys(Protocol):
    """A broker that keeps idempotency keys."""

    keys: KeyStore
