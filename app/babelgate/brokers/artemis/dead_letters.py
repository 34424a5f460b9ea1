"""Reads, removes and purges the messages of a queue: browsers look at them, and selectors find those to remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from babelgate.brokers.artemis.client import ArtemisClient
from babelgate.brokers.artemis.links import Arrived
from babelgate.brokers.artemis.message import ArtemisMessage, identity, read, selector_of
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadRecord
from babelgate.brokers.cursor import decode, encode, moved_back
from babelgate.runtime import turns

_PAGE = 500
"""Messages that are browsed or removed at once."""

_SELECTED = 100
"""Values of one selector."""

_MAX_SEARCHED = 10_000
"""Messages that are searched for those which no selector finds."""


class LetterKey(NamedTuple):
    """What finds a stored message again: its identity, and a field for a selector with its values."""

    identity: bytes
    field: str | None
    values: tuple[str, ...]


class ArtemisDeadLetters:
    """The messages of queues, mostly of those of dead letters. A cursor is a position in the queue."""

    def __init__(self, client: ArtemisClient) -> None:
        self._client = client

    async def browse(self, queue: str, start: int, limit: int) -> list[Arrived]:
        """At most ``limit`` ready messages from position ``start`` on, oldest first."""
        async with self._client.temporary(queue, copying=True) as browser:
            arrived: list[Arrived] = []
            position, end, is_last = 0, start + limit, False
            while position < end and not is_last:
                count = min(_PAGE, (start if position < start else end) - position)
                await browser.drained(count)
                found = browser.take()
                if position >= start:
                    arrived += found
                position += len(found)
                is_last = len(found) < count
            return arrived

    async def read(self, queue: str, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page of records, and the next cursor. Raises InvalidParameter for a bad cursor."""
        start = decode(cursor)
        found = await self.browse(queue, start, limit + 1)
        records = await turns.mapped(_record, found[:limit], _size)
        return records, encode(start + limit) if len(found) > limit else None

    async def remove(
        self, queue: str, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[list[bool], str | None]:
        """Remove ``records``. The cursor moves back by the number removed."""
        removed = [False] * len(records)
        by_field: dict[str | None, list[int]] = {}
        for position, record in enumerate(records):
            by_field.setdefault(record.key.field, []).append(position)
        for field, positions in by_field.items():
            for several in batches(positions, _SELECTED):
                wanted: dict[bytes, list[int]] = {}
                for position in several:
                    wanted.setdefault(records[position].key.identity, []).append(position)
                selector = None
                if field is not None:
                    values = dict.fromkeys(value for position in several for value in records[position].key.values)
                    selector = f"{field} IN ({', '.join(map(_quoted, values))})"
                for position in await self._take(queue, wanted, selector):
                    removed[position] = True
        return removed, moved_back(cursor, sum(removed))

    async def purge(self, queue: str) -> int:
        """Remove all ready messages; their number."""
        count = 0
        while True:
            async with self._client.temporary(queue) as receiver:
                await receiver.drained(_PAGE)
                found = [each.number for each in receiver.take()]
                receiver.connection.accept(found)
                await receiver.connection.barrier()
                count += len(found)
                if len(found) < _PAGE:
                    return count

    async def _take(self, queue: str, wanted: dict[bytes, list[int]], selector: str | None) -> list[int]:
        """Remove a message for each of ``wanted``, positions by identity; the positions of those removed."""
        taken: list[int] = []
        searched, total = 0, sum(map(len, wanted.values()))
        async with self._client.temporary(queue, selector=selector) as receiver:
            is_last = False
            while len(taken) < total and searched < _MAX_SEARCHED and not is_last:
                count = _PAGE if selector is None else total - len(taken)
                await receiver.drained(count)
                arrived = receiver.take()
                searched += len(arrived)
                is_last = len(arrived) < count
                numbers = []
                for each, found in zip(arrived, await turns.mapped(_identity, arrived, _size), strict=True):
                    if positions := wanted.get(found):
                        taken.append(positions.pop())
                        numbers.append(each.number)
                receiver.connection.accept(numbers)
            await receiver.connection.barrier()
        return taken


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identity(arrived: Arrived) -> bytes:
    return identity(arrived.raw)


def _record(arrived: Arrived) -> DeadRecord:
    found: ArtemisMessage = read(arrived.raw)
    field, values = selector_of(found) or (None, ())
    key = LetterKey(identity(arrived.raw), field, values)
    return DeadRecord(key, found.body, found.headers, found.carried, found.priority)


def _size(arrived: Arrived) -> int:
    return len(arrived.raw)
