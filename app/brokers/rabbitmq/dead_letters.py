"""Dead letters at rest. AMQP cannot look at a message without taking it, so they are taken, and put back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from aiormq.exceptions import ChannelNotFoundEntity
from msgspec import Struct

from app import envelope
from app.brokers.binding import DeadRecord
from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Arrived, Channel
from app.brokers.rabbitmq.channels import Held
from app.brokers.rabbitmq.connection import Link
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.profile import Profile
from app.brokers.rabbitmq.receive import Spawn, Waiting
from app.errors import BabelgateError, BrokerUnavailable, InvalidParameter, OutcomeUnknown
from app.runtime import turns

_LINGER_SECONDS = 1.0
"""How long what was read stays taken while more is to be read: meanwhile nobody else sees it."""

_MAX_SEARCHED = 10_000
"""Messages that are looked through for a record, or for old ones, in one call."""

_SEARCHES_AFTER_SECONDS = (0.0, 0.1, 0.3)
"""Somebody else who reads may have taken a record for a moment."""


_PAGE = 100
_REMEMBERED = 300
"""Messages kept in memory: of those further ahead only the tags are."""

_IN_ORDER = 32
"""Messages that a quorum queue keeps in order when they are put back at once: more than a small map of Erlang holds
(https://www.erlang.org/doc/system/maps.html) come back in any order."""

_PATIENCE_SECONDS = 1.0
"""How long messages that were counted a moment ago are waited for; somebody else may have taken them."""

_SEEN_AFTER_SECONDS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""A quorum queue has what was put back only when its replicas agree. What is not there after all of these somebody else
has taken."""


class Found(Struct, frozen=True):
    """A message that was looked at, and on which channel."""

    generation: str
    arrived: Arrived

    @property
    def identity(self) -> tuple[str | None, bytes]:
        """What it is known by when it was put back meanwhile."""
        return self.arrived.message.properties.message_id, self.arrived.message.body


class Browsing:
    """What was taken from the head of ``queue`` on a channel of its own, by consumers that are gone at once.

    It goes back to its places, but on a quorum queue without a delivery limit behind what was not taken
    (https://www.rabbitmq.com/docs/quorum-queues#repeated-requeues).

    The channel must not be closed soon after :meth:`remove`: of many acks for a quorum queue the broker itself keeps
    some on the channel, until the replicas agree on those before, and forgets them with it.
    """

    def __init__(self, channel: Channel, queue: str, putting_seconds: float) -> None:
        """``putting_seconds``: how long is taken, at most, to put many back in order."""
        self.channel = channel
        self._putting_seconds = putting_seconds
        self.at_end = False
        """Whether nothing was left when it was last looked for more."""
        self._held = Held(channel)
        self._queue = queue
        self._taken: dict[int, Found | None] = {}
        self._forgotten = 0
        self._runs: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._taken)

    def remembers(self, start: int) -> bool:
        """Whether a page from ``start`` on can be shown without taking anything twice."""
        return start >= self._forgotten

    def page(self, start: int, limit: int) -> list[Found]:
        """What stands from ``start`` on, as far as it was taken."""
        return [found for found in list(self._taken.values())[start : start + limit] if found is not None]

    async def grow(self, count: int) -> bool:
        """Take more, until there are ``count``, or no more: whether any came. Raises ChannelGone."""
        before = len(self._taken)
        self.at_end = False
        while len(self._taken) < count and not self.at_end:
            await self._take(min(_PAGE, count - len(self._taken)))
        return len(self._taken) > before

    async def search(self, wanted: Mapping[int, Found], bound: int) -> dict[int, int]:
        """The tags of what is ``wanted``, under the same keys; looks through at most ``bound`` messages."""
        found = {
            key: each.arrived.tag
            for key, each in wanted.items()
            if each.generation == self.channel.generation and each.arrived.tag in self._taken
        }
        missing: dict[object, list[int]] = {}
        for key in wanted.keys() - found.keys():
            missing.setdefault(wanted[key].identity, []).append(key)
        matched = set(found.values())
        looked = 0
        while missing:
            for each in list(self._taken.values())[looked:]:
                if each is None or each.arrived.tag in matched or each.identity not in missing:
                    continue
                keys = missing[each.identity]
                found[keys.pop()] = each.arrived.tag
                if not keys:
                    del missing[each.identity]
            looked = len(self._taken)
            if not missing or looked >= bound or not await self.grow(looked + _PAGE):
                break
        return found

    async def remove(self, tags: Sequence[int]) -> None:
        """Ack what was taken, and wait until the broker has read it. Raises ChannelGone."""
        if tags:
            self.channel.ack(tags)
            for tag in tags:
                self._forgotten -= self._taken.pop(tag) is None
            await self.channel.barrier()

    async def ready(self) -> int:
        """How many messages are not taken. Raises aiormq's ChannelNotFoundEntity, and ends, where there is no queue."""
        declared = await self.channel.rpc.queue_declare(self._queue, passive=True)
        return declared.message_count or 0

    async def put_back(self) -> None:
        """Put all back in order, and wait until it can be seen; not much longer than ``putting_seconds``.

        Raises ChannelGone. Each part is waited for before the next is written: a quorum queue that is behind gathers
        what it is told, by consumer, and does it later in another order (``rabbit_fifo_client``, its unsent commands).
        """
        if not self._taken:
            return
        runs = [[tag for tag in run if tag in self._taken] for run in self._runs]
        parts = deque(run[start : start + _IN_ORDER] for run in runs for start in range(0, len(run), _IN_ORDER))
        self._taken.clear()
        self._runs.clear()
        self._forgotten = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + self._putting_seconds
        try:
            ready = await self.ready()
            while parts and loop.time() < until:
                ready += len(parts[0])
                self.channel.requeue(parts.popleft())
                if not await self._sees(ready):
                    break
        finally:
            for part in parts:
                self.channel.requeue(part)

    async def _sees(self, count: int) -> bool:
        """Whether ``count`` messages are ready, soon."""
        for pause in _SEEN_AFTER_SECONDS:
            await asyncio.sleep(pause)
            if await self.ready() >= count:
                return True
        return False

    async def _take(self, count: int) -> None:
        ready = await self.ready()
        arrived: list[Arrived] = []
        if ready:
            waiting = Waiting(self._held, self._queue, min(ready, count))
            try:
                await waiting.fill(asyncio.get_running_loop().time() + _PATIENCE_SECONDS)
            finally:
                arrived = await waiting.stop()
        self.at_end = not arrived or len(arrived) >= ready
        self._taken.update((each.tag, Found(self.channel.generation, each)) for each in arrived)
        self._runs.append([each.tag for each in arrived])
        for tag in list(self._taken)[self._forgotten : -_REMEMBERED]:
            self._taken[tag] = None
            self._forgotten += 1


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
