"""Dead letters at rest. AMQP cannot look at a message without taking it, so they are taken, and put back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from aiormq.exceptions import ChannelNotFoundEntity

from app import envelope
from app.brokers.binding import DeadRecord
from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.browse import Browsing, Found
from app.brokers.rabbitmq.connection import Link
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.profile import Profile
from app.brokers.rabbitmq.receive import Spawn
from app.errors import BabelgateError, BrokerUnavailable, InvalidParameter, OutcomeUnknown
from app.runtime import turns

_LINGER_SECONDS = 1.0
"""How long what was read stays taken while more is to be read: meanwhile nobody else sees it."""

_PAGE = 100
_MAX_SEARCHED = 10_000
"""Messages that are looked through for a record, or for old ones, in one call."""

_SEARCHES_AFTER_SECONDS = (0.0, 0.1, 0.3)
"""Somebody else who reads may have taken a record for a moment."""


class _Shelf:
    """A dead-letter queue: one operation at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.browsing: Browsing | None = None
        self.timer: asyncio.TimerHandle | None = None


class Resting:
    """The dead-letter queues of one broker, read by their heads.

    All who read a queue in this process share what is taken of it. It is put back when its end has been reached, or
    when nobody goes on reading for a second.
    """

    def __init__(self, link: Link, spawn: Spawn, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._link = link
        self._spawn = spawn
        self._timeout_seconds = timeout_seconds
        self._shelves: dict[str, _Shelf] = {}

    def taken(self, queue: str) -> int:
        """How many of its messages are taken just now."""
        shelf = self._shelves.get(queue)
        return len(shelf.browsing) if shelf is not None and shelf.browsing is not None else 0

    async def read(self, profile: Profile, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page; the cursor is a position in the queue. Raises InvalidParameter for another cursor."""
        start = _position(cursor)
        async with self._shelf(profile.dead_queue) as shelf:
            browsing = await self._browse(shelf, profile.dead_queue)
            if browsing is None:
                return [], None
            if not browsing.remembers(start):
                await browsing.put_back()
            await browsing.grow(start + limit)
            page = browsing.page(start, limit)
            records = await turns.mapped(partial(_record, profile), page, size=_size)
            if browsing.at_end and len(browsing) <= start + limit:
                await browsing.put_back()
                return records, None
            return records, str(start + len(page))

    async def remove(
        self, profile: Profile, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[list[bool], str | None]:
        """Ack those that are taken, and look again for the others. All lay before the cursor: it moves by as many."""
        removed = [False] * len(records)
        for pause in _SEARCHES_AFTER_SECONDS:
            await asyncio.sleep(pause)
            async with self._shelf(profile.dead_queue, writes=True) as shelf:
                browsing = await self._browse(shelf, profile.dead_queue)
                if browsing is None:
                    break
                wanted = {index: record.key for index, record in enumerate(records) if not removed[index]}
                found = await browsing.search(wanted, _MAX_SEARCHED)
                await browsing.remove(list(found.values()))
                for index in found:
                    removed[index] = True
                if browsing.at_end:
                    await browsing.put_back()
            if all(removed):
                break
        return removed, cursor if cursor is None else str(max(0, _position(cursor) - sum(removed)))

    async def purge(self, profile: Profile, before_ms: int | None) -> int:
        """All that nobody has taken; or those at the head that died before ``before_ms``, up to the first younger."""
        queue = profile.dead_queue
        async with self._shelf(queue, writes=True) as shelf:
            browsing = await self._browse(shelf, queue)
            if browsing is None:
                return 0
            await browsing.put_back()
            try:
                if before_ms is None:
                    return (await browsing.channel.rpc.queue_purge(queue)).message_count or 0
                return await self._purge_old(browsing, profile, before_ms)
            finally:
                await browsing.put_back()

    def close(self) -> None:
        """Stop waiting for those who read on; closing the connection puts all back."""
        for shelf in self._shelves.values():
            if shelf.timer is not None:
                shelf.timer.cancel()
        self._shelves.clear()

    async def _purge_old(self, browsing: Browsing, profile: Profile, before_ms: int) -> int:
        old: list[int] = []
        for start in range(0, _MAX_SEARCHED, _PAGE):
            await browsing.grow(start + _PAGE)
            page = browsing.page(start, _PAGE)
            for found in page:
                died = await turns.run(_died_at, profile, found, size=_size(found))
                if died is not None and died >= before_ms:
                    page = []
                    break
                if died is not None:
                    old.append(found.arrived.tag)
            if not page or browsing.at_end:
                break
        await browsing.remove(old)
        return len(old)

    @asynccontextmanager
    async def _shelf(self, queue: str, *, writes: bool = False) -> AsyncIterator[_Shelf]:
        """The shelf, for one operation; what AMQP raises in it becomes an error of ours."""
        shelf = self._shelves.setdefault(queue, _Shelf())
        shelf.users += 1
        try:
            async with asyncio.timeout(self._timeout_seconds), shelf.lock:
                if shelf.timer is not None:
                    shelf.timer.cancel()
                try:
                    yield shelf
                finally:
                    self._linger(shelf, queue)
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
            kind = OutcomeUnknown if writes else BrokerUnavailable
            raise kind(broker=self._link.broker, reason=reason) from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(self._link.broker, error, written=writes) from error
        finally:
            shelf.users -= 1
            if not shelf.users and shelf.browsing is None:
                self._shelves.pop(queue, None)

    async def _browse(self, shelf: _Shelf, queue: str) -> Browsing | None:
        """What is taken of the queue; None where there is no such queue."""
        browsing = shelf.browsing
        if browsing is None or not browsing.channel.is_open:
            browsing = shelf.browsing = Browsing(await self._link.channel(), queue, self._timeout_seconds / 2)
        if not len(browsing):
            try:
                await browsing.ready()
            except ChannelNotFoundEntity:
                shelf.browsing = None
        return shelf.browsing

    def _linger(self, shelf: _Shelf, queue: str) -> None:
        if shelf.browsing is not None:
            loop = asyncio.get_running_loop()
            shelf.timer = loop.call_later(_LINGER_SECONDS, lambda: self._spawn(self._end(queue)))

    async def _end(self, queue: str) -> None:
        with contextlib.suppress(BabelgateError):
            async with self._shelf(queue) as shelf:
                browsing, shelf.browsing = shelf.browsing, None
                if browsing is not None:
                    await browsing.channel.close()


def _size(found: Found) -> int:
    return len(found.arrived.message.body)


def _died_at(profile: Profile, found: Found) -> int | None:
    return envelope.describe_dead(profile.read_dead(found.arrived.message).body).failed_at


def _record(profile: Profile, found: Found) -> DeadRecord:
    read = profile.read_dead(found.arrived.message)
    return DeadRecord(found, read.body, read.headers, read.carried)


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 15:
        raise InvalidParameter(name="cursor", reason="it is not one that this queue has given")
    return int(cursor)
