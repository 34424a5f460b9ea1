"""What a layout decides: which bytes lie under which keys, and how they are read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.brokers.binding import BrokerCapabilities, DeadLetterRequest, Delivery, Outgoing
from app.brokers.redis.server import Server
from app.envelope import Limits

MAX_ELEMENT_BYTES = 512 * 1024 * 1024
"""The server's default ``proto-max-bulk-len``: https://redis.io/docs/latest/develop/data-types/strings/"""

MAX_LEASE_SECONDS = 43_200.0
MAX_DELAY_SECONDS = 365 * 86_400.0
"""Both are ours: what is meant to wait for longer is taken for a mistake."""

MAX_COMMAND_BYTES = 4 * 1024 * 1024
"""More messages than fit are written by several commands, so that one publish does not hold up all others."""

MAX_COMMAND_MESSAGES = 1000

DUE_PER_RESERVE = b"100"
"""How many delayed messages, and how many expired leases, a reserve looks after before it takes its own."""

NO_LIMITS = Limits(max_message_bytes=MAX_ELEMENT_BYTES)
"""For bodies that lie in a queue already."""


CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=MAX_DELAY_SECONDS,
    max_lease_seconds=MAX_LEASE_SECONDS,
    extendable=True,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="none",
    max_body_bytes=MAX_ELEMENT_BYTES,
    max_batch=1000,
    headers=False,
)
"""What both layouts have: neither a count beside the body nor headers."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What lies under a lease: the stored bytes, and how often leases on it have expired."""

    value: bytes
    expired: int


class Layout(Protocol):
    """The keys and values of one kind of queue.

    ``name`` is the word for it in options, scripts and the index; ``leased`` the command that counts leases and the
    suffix of its key; ``leases_as_queued`` whether what lies under a lease is what was queued.
    """

    name: str
    leased: tuple[bytes, bytes]
    delayed_suffix: bytes
    leases_as_queued: bool

    def capabilities(self, queue: RedisQueue) -> BrokerCapabilities:
        """What is possible in this layout."""

    async def push(self, server: Server, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        """Append at once, all or none."""

    def element(self, message: Outgoing) -> bytes:
        """The element of the ready list for a message."""

    def delayed(self, queue: RedisQueue, message: Outgoing) -> bytes:
        """The member of the delayed set for a message."""

    async def reserve(self, server: Server, queue: RedisQueue, limit: int, lease_seconds: float) -> Sequence[Delivery]:
        """What is ready now."""

    def retried(self, stored: Stored) -> bytes:
        """The bytes to write for a failed attempt: one more in ``attempts``."""

    def returned(self, handle: str, stored: Stored) -> bytes:
        """The bytes to write for a give-back: as if it had not been reserved."""

    def record(self, letter: DeadLetterRequest, stored: Stored) -> bytes:
        """The dead letter."""

    def read(self, value: bytes) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers of what lies in the queue or among its dead letters."""


@dataclass(frozen=True, slots=True)
class RedisQueue:
    """A queue as this binding knows it. ``key`` is its ready list; the other keys derive from it.

    ``frames``: whether clients may give headers.
    """

    layout: Layout
    key: bytes
    frames: bool = False
    reclaim_unleased_seconds: float | None = None

    @property
    def dead_key(self) -> bytes:
        """The list of its dead letters."""
        return self.key + b".dlq"

    @property
    def entry(self) -> bytes:
        """Its name in the index."""
        return self.layout.name.encode("ascii") + b":" + self.key


def bounded(positions: Sequence[int], messages: Sequence[Outgoing]) -> Iterator[list[int]]:
    """``positions`` in runs of at most MAX_COMMAND_BYTES and MAX_COMMAND_MESSAGES, a message that is larger alone."""
    run: list[int] = []
    size = 0
    for position in positions:
        length = len(messages[position].body)
        if run and (size + length > MAX_COMMAND_BYTES or len(run) == MAX_COMMAND_MESSAGES):
            yield run
            run, size = [], 0
        run.append(position)
        size += length
    if run:
        yield run
