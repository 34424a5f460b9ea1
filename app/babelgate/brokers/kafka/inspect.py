"""Counts, peeks and purges of queues, from committed offsets and the log, without joining a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from operator import itemgetter

from babelgate.brokers.binding import Peeked, QueueStats
from babelgate.brokers.kafka.admin import KafkaAdmin
from babelgate.brokers.kafka.dead_letters import KafkaDeadLetters
from babelgate.brokers.kafka.message import KafkaRecord, read
from babelgate.brokers.kafka.partitions import AckedOffsets
from babelgate.brokers.kafka.reader import KafkaReader, Position
from babelgate.brokers.kafka.retry import GROUP as RETRY_GROUP
from babelgate.brokers.kafka.url import KafkaQueue
from babelgate.clock import Clock

Leased = Callable[[KafkaQueue], Mapping[int, Collection[int]]]
"""The offsets of a topic that this process has leased, by partition."""


class _Range:
    """What is left of a partition: the offsets from ``start`` to ``end`` that are neither acked nor leased here."""

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


class KafkaInspector:
    """Looks at the queues of one cluster."""

    def __init__(
        self,
        group: str,
        admin: KafkaAdmin,
        reader: KafkaReader,
        dead_letters: KafkaDeadLetters,
        leased: Leased,
        clock: Clock,
    ) -> None:
        """``group``: the name of the consumer group."""
        self._group = group
        self._admin = admin
        self._reader = reader
        self._dead_letters = dead_letters
        self._leased = leased
        self._clock = clock

    async def stats(self, queue: KafkaQueue) -> QueueStats:
        """The leases of other processes count as ready here: only these processes know them."""
        ranges, tiers, dead = await asyncio.gather(
            self._ranges(queue), self._waiting(queue), self._dead_letters.count(queue)
        )
        oldest = await asyncio.gather(*(self._oldest(position, left) for position, left in ranges.items()))
        times = [at for at in oldest if at is not None]
        return QueueStats(
            depth=sum(map(len, ranges.values())),
            in_flight=sum(map(len, self._leased(queue).values())),
            delayed=_count(tiers),
            dead=dead,
            oldest_age_seconds=max(self._clock() - min(times), 0) / 1000 if times else None,
        )

    async def peek(self, queue: KafkaQueue, limit: int) -> list[Peeked]:
        """The next ready messages of all partitions, by their dates."""
        found: list[tuple[int, KafkaRecord]] = []
        for position, left in (await self._ranges(queue)).items():
            at, count = left.first(), 0
            while at is not None and at < left.end and count < limit:
                records, at = await self._reader.read(position, at, limit)
                several = [each for each in map(read, records) if each.offset in left][: limit - count]
                count += len(several)
                found += [(each.timestamp or 0, each) for each in several]
        found.sort(key=itemgetter(0))
        return [Peeked(each.body, each.headers) for _, each in found[:limit]]

    async def purge(self, queue: KafkaQueue) -> tuple[int, dict[int, int]]:
        """Delete all ready and delayed records; return their number, and the end of each partition of the topic.

        A leased one is in the memory of its process, which can still settle it.
        """
        ranges, tiers = await asyncio.gather(self._ranges(queue), self._waiting(queue))
        ends = {position: left.end for position, left in ranges.items() if left.end > left.start}
        ends |= {position: end for position, (start, end) in tiers.items() if end > start}
        if ends:
            await self._admin.delete_before(ends)
        count = sum(map(len, ranges.values())) + _count(tiers)
        return count, {number: left.end for (_, number), left in ranges.items()}

    async def _ranges(self, queue: KafkaQueue) -> dict[Position, _Range]:
        bounds, committed = await self._admin.bounds(self._group, await self._admin.positions(queue.name))
        leased = self._leased(queue)
        return {
            position: _Range(
                start, end, AckedOffsets(*committed.get(position, (start, ""))), leased.get(position[1], ())
            )
            for position, (start, end) in bounds.items()
        }

    async def _waiting(self, queue: KafkaQueue) -> dict[Position, tuple[int, int]]:
        """The offsets of the retry tiers that are not moved back yet."""
        bounds, _ = await self._admin.bounds(RETRY_GROUP, await self._admin.positions(*queue.tiers))
        return {position: (start, max(start, end)) for position, (start, end) in bounds.items()}

    async def _oldest(self, position: Position, left: _Range) -> int | None:
        first = left.first()
        if first is None:
            return None
        records, _ = await self._reader.read(position, first, 1)
        return read(records[0]).timestamp if records else None


def _count(ranges: Mapping[Position, tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges.values())
