"""Remembers which dead letters were removed, as far as their markers were read. No I/O."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator

from babelgate.brokers.kafka.admin import Topic

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
        self._blocks: dict[int, bytearray] = {}

    def __contains__(self, offset: int) -> bool:
        block = self._blocks.get(offset // _BLOCK_BITS)
        bit = offset % _BLOCK_BITS
        return block is not None and bool(block[bit >> 3] >> (bit & 7) & 1)

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return len(self._blocks) * _BLOCK_BYTES

    def add(self, offset: int) -> None:
        """Add an offset."""
        block = self._blocks.setdefault(offset // _BLOCK_BITS, bytearray(_BLOCK_BITS // 8))
        bit = offset % _BLOCK_BITS
        block[bit >> 3] |= 1 << (bit & 7)

    def discard(self, offset: int) -> None:
        """Take an offset away."""
        number, bit = divmod(offset, _BLOCK_BITS)
        if (block := self._blocks.get(number)) is not None:
            block[bit >> 3] &= ~(1 << (bit & 7))
            if not any(block):
                del self._blocks[number]

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
        for number, block in sorted(self._blocks.items()):
            first = number * _BLOCK_BITS
            bits = int.from_bytes(block, "little")
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
