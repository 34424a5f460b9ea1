"""Reads, removes and purges dead letters: records of ``<topic>.dlq``, which is never rewritten.

The records before the first one that is left are deleted. A removed record behind it has a marker in the compacted
topic ``<topic>.dlq.removed``, so that no process lists it again. The order of the markers decides who removed a record.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadRecord
from babelgate.brokers.cursor import decode, encode
from babelgate.brokers.kafka.admin import MARKERS, KafkaAdmin, Topic
from babelgate.brokers.kafka.errors import translate
from babelgate.brokers.kafka.message import Written, delivery_of
from babelgate.brokers.kafka.publish import KafkaProducer
from babelgate.brokers.kafka.reader import KafkaReader, Position
from babelgate.brokers.kafka.url import KafkaQueue
from babelgate.errors import BabelgateError, BrokerRejected
from babelgate.runtime import turns

_GROUP = "babelqueue"
"""What a redrive of an SDK has taken from the topic, its group has committed."""

_OFFSETS = 10**14
"""A cursor is the number of a partition times this, and an offset."""

_PAGE = 500

_BLOCK_BITS = 4096
_BLOCK_BYTES = _BLOCK_BITS // 8 + 200
"""Of a block of offsets in memory: its bits, their head, and its place in the table."""

_TOPIC_BYTES = 2_000
"""Of a topic in memory beside its blocks, with its name."""

_MOST_TOPICS = 1_000

MAX_BYTES = 32 * 1024 * 1024
"""Of all topics that are remembered, of which each removed letter takes a bit to a block. The topics used least
recently are forgotten first; their markers are read again at their next use."""


class OffsetSet:
    """A set of offsets: one bit for each, in blocks of 4,096 neighbours."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def __contains__(self, offset: int) -> bool:
        number, bit = divmod(offset, _BLOCK_BITS)
        return bool(self._blocks.get(number, 0) >> bit & 1)

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return len(self._blocks) * _BLOCK_BYTES

    def add(self, offset: int) -> None:
        """Add an offset."""
        number, bit = divmod(offset, _BLOCK_BITS)
        self._blocks[number] = self._blocks.get(number, 0) | 1 << bit

    def discard(self, offset: int) -> None:
        """Take an offset away."""
        number, bit = divmod(offset, _BLOCK_BITS)
        if left := self._blocks.pop(number, 0) & ~(1 << bit):
            self._blocks[number] = left

    def count(self, start: int, end: int) -> int:
        """The number of offsets from ``start`` to before ``end``."""
        return sum(bits.bit_count() for _, bits in self._within(start, end))

    def offsets(self, start: int, end: int) -> Iterator[int]:
        """The offsets from ``start`` to before ``end``, ascending."""
        for first, bits in self._within(start, end):
            while bits:
                low = bits & -bits
                yield first + low.bit_length() - 1
                bits ^= low

    def _within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The first offset of each block, and its bits that lie between ``start`` and ``end``."""
        for number, bits in sorted(self._blocks.items()):
            first = number * _BLOCK_BITS
            if first < start:
                bits = bits >> (start - first) << (start - first) if start < first + _BLOCK_BITS else 0
            if end < first + _BLOCK_BITS:
                bits &= (1 << max(end - first, 0)) - 1
            yield first, bits


class RemovedLetters:
    """The removed letters of one topic, by partition. ``lock``: held while they are used.

    A marker is a record with the key ``<partition>:<offset>``. Its value has 16 random bytes of whoever removed the
    letter, and the 16 bytes of the id of the topic; markers of older versions have no id, and count for any topic.
    The first marker of a letter decides who removed it. One without a value takes it away.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.read_up_to = 0
        self._ids: tuple[bytes, bytes] = b"", b""
        self._partitions: dict[int, OffsetSet] = {}

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return _TOPIC_BYTES + sum(each.size for each in self._partitions.values())

    def begin(self, letters: Topic, markers: Topic | None) -> None:
        """Use them for these topics: markers of deleted topics of the same names are forgotten."""
        ids = letters.id, b"" if markers is None else markers.id
        if ids != self._ids:
            self._ids = ids
            self.read_up_to = 0
            self._partitions.clear()

    def of(self, partition: int) -> OffsetSet:
        """The removed offsets of a partition."""
        return self._partitions.get(partition) or OffsetSet()

    def marker(self, ours: bytes) -> bytes:
        """The value of a marker. ``ours``: 16 bytes."""
        return ours + self._ids[0]

    def note(self, key: bytes | None, value: bytes | None) -> tuple[int, int] | None:
        """Note a marker; return partition and offset if it has removed the letter, so that none did before."""
        partition, _, offset = (key or b"").decode("ascii", "replace").partition(":")
        if not (partition.isdigit() and offset.isdigit()):
            return None
        position = int(partition), int(offset)
        if value is None:
            if (known := self._partitions.get(position[0])) is not None:
                known.discard(position[1])
            return None
        if len(value) > 16 and value[16:] != self._ids[0]:
            return None
        offsets = self._partitions.setdefault(position[0], OffsetSet())
        if position[1] in offsets:
            return None
        offsets.add(position[1])
        return position


class RememberedTopics:
    """The removed letters of the topics used most recently: at most ``most``, of ``max_bytes``, and those in use."""

    def __init__(self, most: int = _MOST_TOPICS, max_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._topics: OrderedDict[str, RemovedLetters] = OrderedDict()

    def __len__(self) -> int:
        return len(self._topics)

    def of(self, name: str) -> RemovedLetters:
        """Those of the topic ``name``. Others are forgotten if there are too many."""
        found = self._topics.pop(name, None) or RemovedLetters()
        size = sum(each.size for each in self._topics.values())
        for other, removed in list(self._topics.items()):
            if size <= self._max_bytes and len(self._topics) < self._most:
                break
            if not removed.lock.locked():
                size -= removed.size
                del self._topics[other]
        self._topics[name] = found
        return found


class KafkaDeadLetters:
    """The topics of dead letters of one cluster."""

    def __init__(self, admin: KafkaAdmin, producer: KafkaProducer, reader: KafkaReader) -> None:
        self._admin = admin
        self._producer = producer
        self._reader = reader
        self._removed = RememberedTopics()

    async def read(self, queue: KafkaQueue, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page, by partition and offset, and the next cursor. Raises InvalidParameter for a bad cursor."""
        wanted, offset = divmod(decode(cursor), _OFFSETS)
        removed = self._removed.of(queue.dead)
        async with removed.lock:
            bounds = await self._bounds(queue, removed)
        page: list[DeadRecord] = []
        for position, (start, end) in sorted(bounds.items()):
            number = position[1]
            if number < wanted:
                continue
            marks = removed.of(number)
            at: int | None = max(start, offset) if number == wanted else start
            while at is not None and at < end:
                if len(page) == limit:
                    return page, encode(number * _OFFSETS + at)
                if at in marks:
                    at += 1
                    continue
                records, at = await self._reader.read(position, at, limit - len(page))
                for record, each in zip(records, await turns.mapped(delivery_of, records, _size), strict=True):
                    if record.offset() not in marks:
                        key = (number, record.offset())
                        page.append(DeadRecord(key, each.body, each.headers, each.carried))
        return page, None

    async def remove(self, queue: KafkaQueue, records: Sequence[DeadRecord]) -> list[bool]:
        """Whether this call has removed each record."""
        removed = self._removed.of(queue.dead)
        async with removed.lock:
            bounds = await self._bounds(queue, removed)
            left: dict[tuple[int, int], int] = {}
            for index, record in enumerate(records):
                number, offset = record.key
                start, end = bounds.get((queue.dead, number), (0, 0))
                if start <= offset < end and offset not in removed.of(number):
                    left.setdefault((number, offset), index)
            gone = await self._mark(queue, removed, list(left), bounds)
            return [left.get(record.key) == index and record.key in gone for index, record in enumerate(records)]

    async def count(self, queue: KafkaQueue) -> int:
        """The number of dead letters."""
        removed = self._removed.of(queue.dead)
        async with removed.lock:
            return _count(removed, await self._bounds(queue, removed))

    async def purge(self, queue: KafkaQueue) -> int:
        """Delete all records."""
        removed = self._removed.of(queue.dead)
        async with removed.lock:
            bounds = await self._bounds(queue, removed)
            count = _count(removed, bounds)
            ends = {position: end for position, (start, end) in bounds.items() if start < end}
            if ends:
                await self._admin.delete_before(ends)
                await self._forget(queue, removed, ends)
            return count

    async def _bounds(self, queue: KafkaQueue, removed: RemovedLetters) -> dict[Position, tuple[int, int]]:
        """The first offset that may be left of each partition, and its end; reads the new markers before."""
        markers = (f"{queue.dead}.removed", 0)
        # They may have been deleted and created again, by another process or an operator.
        letters, marking = await self._admin.topics_now(queue.dead, markers[0])
        if letters is None:
            return {}
        removed.begin(letters, marking)
        # Their end comes first: a process that deletes letters takes their markers away behind that.
        ends = {} if marking is None else await self._admin.offsets([markers], latest=True)
        bounds, _ = await self._admin.bounds(_GROUP, [(letters.name, number) for number in range(letters.partitions)])
        await self._read_markers(removed, markers, ends.get(markers, 0))
        return bounds

    async def _read_markers(
        self, removed: RemovedLetters, markers: Position, end: int, ours: bytes = b""
    ) -> set[tuple[int, int]]:
        """Read the new markers; return the letters that were removed by those with the value ``ours``."""
        found: set[tuple[int, int]] = set()
        at: int | None = removed.read_up_to
        while at is not None and at < end:
            records, at = await self._reader.read(markers, at, _PAGE)
            for each in records:
                position = removed.note(each.key(), each.value())
                if position is not None and each.value() == ours:
                    found.add(position)
                removed.read_up_to = each.offset() + 1
        removed.read_up_to = max(removed.read_up_to, end)
        return found

    async def _mark(
        self,
        queue: KafkaQueue,
        removed: RemovedLetters,
        keys: Sequence[tuple[int, int]],
        bounds: Mapping[Position, tuple[int, int]],
    ) -> set[tuple[int, int]]:
        """Remove the records ``keys``; return those that this call has removed."""
        if not keys:
            return set()
        firsts: dict[Position, int] = {}
        behind: list[tuple[int, int]] = []
        for number in {number for number, _ in keys}:
            wanted = {offset for partition, offset in keys if partition == number}
            start, _ = bounds[queue.dead, number]
            marks = removed.of(number)
            first = start
            while first in wanted or first in marks:
                first += 1
            if first > start:
                firsts[queue.dead, number] = first
            behind += [(number, offset) for offset in sorted(wanted) if offset >= first]
        gone = set(keys) - set(behind)
        if firsts:
            try:
                await self._admin.delete_before(firsts)
            except BrokerRejected:
                # The broker deletes no records of this topic, so each has a marker.
                behind, firsts, gone = list(keys), {}, set()
        if behind:
            gone |= await self._write_markers(queue, removed, behind)
        if firsts:
            await self._forget(queue, removed, firsts)
        return gone

    async def _write_markers(
        self, queue: KafkaQueue, removed: RemovedLetters, keys: Sequence[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        topic = await self._admin.ensured(queue, f"{queue.dead}.removed", MARKERS)
        ours = removed.marker(uuid4().bytes)
        await self._send([Written(topic.name, ours, b"%d:%d" % key, []) for key in keys])
        markers = (topic.name, 0)
        ends = await self._admin.offsets([markers], latest=True)
        return await self._read_markers(removed, markers, ends.get(markers, 0), ours)

    async def _forget(self, queue: KafkaQueue, removed: RemovedLetters, firsts: Mapping[Position, int]) -> None:
        """Take away the markers of deleted records, for compaction."""
        old = [
            (number, offset) for (_, number), first in firsts.items() for offset in removed.of(number).offsets(0, first)
        ]
        for some in batches(old, _PAGE):
            await self._send([Written(f"{queue.dead}.removed", None, b"%d:%d" % key, []) for key in some])

    async def _send(self, records: Sequence[Written]) -> None:
        for error in await self._producer.send(records):
            if isinstance(error, BabelgateError):
                raise error
            if error is not None:
                raise translate(error, self._admin.broker, written=True)


def _count(removed: RemovedLetters, bounds: Mapping[Position, tuple[int, int]]) -> int:
    return sum(
        max(end - start, 0) - removed.of(number).count(start, end) for (_, number), (start, end) in bounds.items()
    )


def _size(record: Any) -> int:
    return len(record.value() or b"")
