"""The Layout protocol: which bytes are stored under which keys, and how they are read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadLetterRequest, Delivery, Outgoing
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, BrokerCapabilities
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.redis.server import Server
from babelgate.envelope import Limits

MAX_ELEMENT_BYTES = 512 * 1024 * 1024
"""The server's default ``proto-max-bulk-len``: https://redis.io/docs/latest/develop/data-types/strings/"""

MAX_COMMAND_BYTES = 4 * 1024 * 1024
"""A larger publish is split into several commands, so that it does not delay the other commands."""

MAX_COMMAND_MESSAGES = 1000

DUE_PER_RESERVE = b"100"
"""The most delayed messages, and the most expired leases, that a reserve makes ready before it reserves."""

NO_LIMITS = Limits(max_message_bytes=MAX_ELEMENT_BYTES)
"""For bodies that are in a queue already."""


CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=MAX_DELAY_SECONDS,
    max_retry_delay_seconds=MAX_DELAY_SECONDS,
    max_lease_seconds=MAX_LEASE_SECONDS,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="none",
    max_body_bytes=MAX_ELEMENT_BYTES,
    max_batch=1000,
    headers=False,
)
"""The common part of both layouts: no delivery count and no headers."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reserved messages, and how many of another program were found and left where they were."""

    deliveries: Sequence[Delivery]
    left: int = 0


LateHandles = Callable[[Sequence[str]], object]
"""Called with the handles of messages that were reserved after the call had failed or was cancelled."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A leased message: the stored bytes, and how many leases on it have expired."""

    value: bytes
    expired: int


class Layout(Protocol):
    """The keys and values of one kind of queue.

    ``name`` identifies the layout in options, scripts and the index. ``leased``: the command that counts leases, and
    the suffix of its key. ``leases_as_queued``: whether the leased bytes equal the queued ones.
    """

    name: str
    leased: tuple[bytes, bytes]
    delayed_suffix: bytes
    leases_as_queued: bool

    def capabilities(self, queue: RedisQueue) -> BrokerCapabilities:
        """The capabilities of ``queue`` in this layout."""

    async def push(self, server: Server, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        """Append all messages in one step, all or none."""

    def pushed(self, queue: RedisQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """What :meth:`push` writes for one message."""

    def element(self, message: Outgoing) -> bytes:
        """The element of the ready list for a message."""

    def delayed(self, queue: RedisQueue, message: Outgoing) -> bytes:
        """The member of the delayed set for a message."""

    async def reserve(
        self, server: Server, queue: RedisQueue, limit: int, lease_seconds: float, late: LateHandles = lambda _: None
    ) -> Reserved:
        """Up to ``limit`` messages that are ready now. ``late`` gets the handles of those reserved too late."""

    def retried(self, stored: Stored) -> bytes:
        """The bytes to write after a failed attempt, with ``attempts`` plus one."""

    def returned(self, handle: str, stored: Stored) -> bytes:
        """The bytes to write for a give-back, as they were before the reserve."""

    def record(self, letter: DeadLetterRequest, stored: Stored) -> bytes:
        """The dead-letter record."""

    def read(self, value: bytes) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers of an element of the queue or of its dead letters."""


@dataclass(frozen=True)
class RedisQueue:
    """A queue with a route's options. ``key``: its ready list, from which the other keys are derived.

    ``frames``: whether clients may give headers. ``reclaim_unleased_seconds`` and ``leaves_foreign``: see ``queue_of``
    of the binding.
    """

    layout: Layout
    key: bytes
    frames: bool = False
    reclaim_unleased_seconds: float | None = None
    leaves_foreign: bool = False

    @property
    def foreign_key(self) -> bytes:
        """The number of messages of another program that were left at the last look, for a minute."""
        return self.key + b":babelgate:foreign"

    @property
    def dead_key(self) -> bytes:
        """The list of its dead letters."""
        return self.key + b".dlq"

    @cached_property
    def entry(self) -> bytes:
        """Its name in the index."""
        return self.layout.name.encode("ascii") + b":" + self.key


def bounded(positions: Sequence[int], messages: Sequence[Outgoing]) -> Iterator[list[int]]:
    """``positions`` in batches of at most MAX_COMMAND_BYTES and MAX_COMMAND_MESSAGES."""
    sizes = [len(messages[position].body) for position in positions]
    return batches(positions, MAX_COMMAND_MESSAGES, MAX_COMMAND_BYTES, sizes)
