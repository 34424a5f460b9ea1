"""Keeps which records of a partition are ready, leased and acked, and what a commit has to record of them. No I/O.

A committed offset says that all records before it are done. Those acked behind the first unacked one are recorded in
the metadata of the commit, one bit each, so that the partition's next owner skips them.
"""

from __future__ import annotations

import asyncio
import heapq
from base64 import b64decode, b64encode
from binascii import Error as InvalidBase64
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from babelgate.brokers.kafka.url import KafkaQueue

LINGER_SECONDS = 1.0
"""How long a topic without waiters and leases stays subscribed. Then other members get its partitions."""

HIDING_SECONDS = 0.3
"""The same for a topic with ready records, which this process hides from the waiters of others."""

_VERSION = "bg1:"

_SIGNS = 7
"""How many signs of life differ. It is a prime number, so that others who look at regular intervals see different
ones."""


class AckedOffsets:
    """The offsets acked behind the committed one, as the bits of a number."""

    def __init__(self, offset: int = 0, metadata: str | None = None) -> None:
        """What a commit of ``offset`` with ``metadata`` records; of another program's metadata: nothing."""
        self._origin = offset & ~7
        self._bits = 0
        if metadata and metadata.startswith(_VERSION):
            with suppress(InvalidBase64):
                self._bits = int.from_bytes(b64decode(metadata.removeprefix(_VERSION), validate=True), "little")

    def __contains__(self, offset: int) -> bool:
        return offset >= self._origin and bool(self._bits >> offset - self._origin & 1)

    def add(self, offset: int) -> None:
        """Record an offset, which is not before the last one of :meth:`metadata`."""
        self._bits |= 1 << offset - self._origin

    def remove(self, offset: int) -> None:
        """Undo :meth:`add`."""
        if offset in self:
            self._bits ^= 1 << offset - self._origin

    def forget_before(self, offset: int) -> None:
        """Drop the bits of offsets before ``offset``, but for those that share its byte."""
        self._bits >>= (offset & ~7) - self._origin
        self._origin = offset & ~7

    def metadata(self, offset: int, padding: int = 0) -> str:
        """The metadata of a commit of ``offset``; empty if nothing behind it is acked. ``padding``: the number of bytes
        without a bit behind the last one with any, which makes commits distinct that record the same."""
        bits = self._bits >> offset - self._origin << (offset & 7)
        size = (bits.bit_length() + 7) // 8 + padding
        return _VERSION + b64encode(bits.to_bytes(size, "little")).decode() if size else ""

    def count_from(self, offset: int) -> int:
        """The number of acked offsets from ``offset``."""
        return (self._bits >> max(offset - self._origin, 0)).bit_count()


class ReadyRange:
    """The ready records of a partition, by its log: the offsets from ``start`` to ``end`` that are neither acked nor
    leased here."""

    def __init__(self, start: int, end: int, acked: AckedOffsets, leased: Collection[int]) -> None:
        self.start = start
        self.end = max(start, end)
        self._acked = acked
        self._leased = frozenset(offset for offset in leased if offset >= start)

    def __len__(self) -> int:
        return max(self.end - self.start - self._acked.count_from(self.start) - len(self._leased), 0)

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end and offset not in self._leased and offset not in self._acked

    def first(self) -> int | None:
        """The first offset; None if there is none."""
        return next((offset for offset in range(self.start, self.end) if offset in self), None)


class Partition:
    """One partition while it is assigned to this process.

    ``generation``: the number of the assignment. ``position``: the offset after the last record that arrived.
    ``max_held``: how far behind the first unacked record others are handed out.
    """

    def __init__(self, generation: int, offset: int | None, metadata: str | None, max_held: int) -> None:
        self.generation = generation
        self.position = offset or 0
        self.max_held = max_held
        self.leased: dict[int, Any] = {}
        self._sign = 0
        self._known = offset is not None
        self._purged = 0
        self._acked = AckedOffsets(self.position, metadata)
        self._ready: list[tuple[int, int, Any]] = []
        self._order: deque[int] = deque()
        self._acking: set[int] = set()

    def __len__(self) -> int:
        """The number of ready records."""
        return len(self._ready)

    @property
    def span(self) -> int:
        """The number of offsets from the first unacked record to the last one that arrived."""
        return self.position - (self._order[0] if self._order else self.position)

    def was_cut(self, offset: int) -> bool:
        """Whether the arrival of ``offset`` shows that the broker has lost what is held here, and its log begins again.
        Else the records of an assignment come in the order of the log."""
        return bool(self._order) and offset < self._order[0]

    def arrive(self, offset: int, record: Any) -> bool:
        """Take a record from the broker; return whether it is ready: it was not acked, and has not come before."""
        if self._known and not self._order and offset < self.position:
            # The broker has lost what was there: neither a commit nor a purge was of this log.
            self._known, self._purged = False, 0
        if not self._known:
            # The log begins here.
            self._known = True
            self._acked = AckedOffsets(offset)
        elif offset < self.position and self._order:
            return False
        if not self._order:
            # A log that was cut at its front would take a bit for each offset that is gone.
            self._acked.forget_before(offset)
        self.position = offset + 1
        if offset in self._acked or offset < self._purged:
            return False
        self._order.append(offset)
        heapq.heappush(self._ready, (offset, 0, record))
        return True

    def reached(self, offset: int) -> None:
        """The log has no more records before ``offset``."""
        self.position = max(self.position, offset)

    def take(self, limit: int) -> list[tuple[int, bool, Any]]:
        """Lease up to ``limit`` ready records, oldest first: offset, whether it was leased before, and record."""
        taken: list[tuple[int, bool, Any]] = []
        while self._ready and len(taken) < limit and self._ready[0][0] - self._order[0] <= self.max_held:
            offset, leases, record = heapq.heappop(self._ready)
            self.leased[offset] = (leases, record)
            taken.append((offset, leases > 0, record))
        return taken

    def give_back(self, offset: int) -> bool:
        """Make a leased record ready again, in its place; return False if it is not leased."""
        if offset in self._acking or offset not in self.leased:
            return False
        leases, record = self.leased.pop(offset)
        heapq.heappush(self._ready, (offset, leases + 1, record))
        return True

    def was_acked(self, offset: int) -> bool:
        """Whether an ack of the offset is committed."""
        return offset in self._acked if self._order and offset >= self._order[0] else offset < self.position

    def begin(self, offset: int) -> bool:
        """Begin to ack a leased record; return False if it is not leased. :meth:`end` follows."""
        if offset not in self.leased:
            return False
        self._acking.add(offset)
        return True

    def commit(self, offsets: Iterable[int]) -> tuple[int, str]:
        """The offset and the metadata to commit when the acks of ``offsets`` are recorded beside the earlier ones."""
        for offset in offsets:
            self._acked.add(offset)
        target = next((offset for offset in self._order if offset not in self._acked), self.position)
        return target, self._acked.metadata(target, self._sign if target < self.position else 0)

    def give_sign(self) -> bool:
        """Let the next commit differ from the last one if all messages here are leased: others see that their owner
        lives, and that there is none for them. Return whether it will."""
        if self._ready or not self.leased:
            return False
        self._sign = (self._sign + 1) % _SIGNS
        return True

    def end(self, offsets: Iterable[int], *, committed: bool) -> None:
        """The commit with the acks of ``offsets`` has succeeded, or has not."""
        for offset in offsets:
            self._acking.discard(offset)
            if committed:
                self.leased.pop(offset, None)
            else:
                self._acked.remove(offset)
        while self._order and self._order[0] in self._acked and self._order[0] not in self._acking:
            self._order.popleft()
        self._acked.forget_before(self._order[0] if self._order else self.position)

    def drop_ready(self, before: int) -> int:
        """Forget the ready records before ``before``, which the broker has deleted, and those on their way; return the
        number of the ready ones."""
        self._purged = max(self._purged, before)
        dropped = {offset for offset, _, _ in self._ready if offset < before}
        self._ready = [each for each in self._ready if each[0] not in dropped]
        heapq.heapify(self._ready)
        self._order = deque(offset for offset in self._order if offset not in dropped)
        return len(dropped)


class TopicInUse:
    """A topic that the member asks for: its assigned partitions by number, and who waits for its messages.

    ``answered``: the group has said which of its partitions this process has. ``moved_at``: when it was subscribed, or
    a partition was revoked.
    """

    def __init__(self, queue: KafkaQueue) -> None:
        self.queue = queue
        self.partitions: dict[int, Partition] = {}
        self.paused: set[int] = set()
        self.answered = False
        self.waiting = 0
        self.used_at = 0.0
        self.moved_at = 0.0
        self.changed = asyncio.Event()

    @property
    def leases(self) -> int:
        """The number of leased records."""
        return sum(len(each.leased) for each in self.partitions.values())

    def is_idle(self, now: float) -> bool:
        """Whether no call of this process has needed the topic for a while."""
        seconds = HIDING_SECONDS if any(map(len, self.partitions.values())) else LINGER_SECONDS
        return not self.waiting and not self.leases and now - self.used_at >= seconds

    def is_behind(self, number: int, end: int) -> bool:
        """Whether records before ``end`` of an assigned partition are still to arrive."""
        return number in self.partitions and number not in self.paused and self.partitions[number].position < end
