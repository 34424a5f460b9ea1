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
from app.brokers.rabbitmq.channel import Channel, ChannelMessage
from app.brokers.rabbitmq.channel_pool import ReceivingChannel
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.profile import Profile
from app.brokers.rabbitmq.receive import Spawn, TemporaryConsumer
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


class TakenLetter(Struct, frozen=True):
    """A message that was looked at, and on which channel."""

    generation: str
    arrived: ChannelMessage

    @property
    def identity(self) -> tuple[str | None, bytes]:
        """What it is known by when it was put back meanwhile."""
        return self.arrived.message.properties.message_id, self.arrived.message.body


class QueueBrowser:
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
        self._receiving = ReceivingChannel(channel)
        self._queue = queue
        self._taken: dict[int, TakenLetter | None] = {}
        self._forgotten = 0
        self._runs: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._taken)

    def remembers(self, start: int) -> bool:
        """Whether a page from ``start`` on can be shown without taking anything twice."""
        return start >= self._forgotten

    def page(self, start: int, limit: int) -> list[TakenLetter]:
        """What stands from ``start`` on, as far as it was taken."""
        return [found for found in list(self._taken.values())[start : start + limit] if found is not None]

    async def grow(self, count: int) -> bool:
        """Take more, until there are ``count``, or no more: whether any came. Raises ChannelGone."""
        before = len(self._taken)
        self.at_end = False
        while len(self._taken) < count and not self.at_end:
            await self._take(min(_PAGE, count - len(self._taken)))
        return len(self._taken) > before

    async def search(self, wanted: Mapping[int, TakenLetter], bound: int) -> dict[int, int]:
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
        arrived: list[ChannelMessage] = []
        if ready:
            consumer = TemporaryConsumer(self._receiving, self._queue, min(ready, count))
            try:
                await consumer.fill(asyncio.get_running_loop().time() + _PATIENCE_SECONDS)
            finally:
                arrived = await consumer.stop()
        self.at_end = not arrived or len(arrived) >= ready
        self._taken.update((each.tag, TakenLetter(self.channel.generation, each)) for each in arrived)
        self._runs.append([each.tag for each in arrived])
        for tag in list(self._taken)[self._forgotten : -_REMEMBERED]:
            self._taken[tag] = None
            self._forgotten += 1


class _DeadLetterQueue:
    """A dead-letter queue: one operation at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.browsing: QueueBrowser | None = None
        self.timer: asyncio.TimerHandle | None = None


class DeadLetterQueues:
    """The dead-letter queues of one broker, read by their heads.

    All who read a queue in this process share what is taken of it. It is put back when its end has been reached, or
    when nobody goes on reading for a second.
    """

    def __init__(self, connection: AmqpConnection, spawn: Spawn, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._connection = connection
        self._spawn = spawn
        self._timeout_seconds = timeout_seconds
        self._dead_queues: dict[str, _DeadLetterQueue] = {}

    def taken(self, queue: str) -> int:
        """How many of its messages are taken just now."""
        dead_queue = self._dead_queues.get(queue)
        return len(dead_queue.browsing) if dead_queue is not None and dead_queue.browsing is not None else 0

    async def read(self, profile: Profile, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page; the cursor is a position in the queue. Raises InvalidParameter for another cursor."""
        start = _position(cursor)
        async with self._opened(profile.dead_queue) as dead_queue:
            browsing = await self._browse(dead_queue, profile.dead_queue)
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
            async with self._opened(profile.dead_queue, writes=True) as dead_queue:
                browsing = await self._browse(dead_queue, profile.dead_queue)
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
        async with self._opened(queue, writes=True) as dead_queue:
            browsing = await self._browse(dead_queue, queue)
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
        """Cancel the timers of those who read on; closing the connection puts all back."""
        for dead_queue in self._dead_queues.values():
            if dead_queue.timer is not None:
                dead_queue.timer.cancel()
        self._dead_queues.clear()

    async def _purge_old(self, browsing: QueueBrowser, profile: Profile, before_ms: int) -> int:
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
    async def _opened(self, queue: str, *, writes: bool = False) -> AsyncIterator[_DeadLetterQueue]:
        """The dead-letter queue, for one operation; what AMQP raises in it becomes an error of ours."""
        dead_queue = self._dead_queues.setdefault(queue, _DeadLetterQueue())
        dead_queue.users += 1
        try:
            async with asyncio.timeout(self._timeout_seconds), dead_queue.lock:
                if dead_queue.timer is not None:
                    dead_queue.timer.cancel()
                try:
                    yield dead_queue
                finally:
                    self._linger(dead_queue, queue)
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
            kind = OutcomeUnknown if writes else BrokerUnavailable
            raise kind(broker=self._connection.broker, reason=reason) from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(self._connection.broker, error, written=writes) from error
        finally:
            dead_queue.users -= 1
            if not dead_queue.users and dead_queue.browsing is None:
                self._dead_queues.pop(queue, None)

    async def _browse(self, dead_queue: _DeadLetterQueue, queue: str) -> QueueBrowser | None:
        """What is taken of the queue; None where there is no such queue."""
        browsing = dead_queue.browsing
        if browsing is None or not browsing.channel.is_open:
            channel = await self._connection.channel()
            browsing = dead_queue.browsing = QueueBrowser(channel, queue, self._timeout_seconds / 2)
        if not len(browsing):
            try:
                await browsing.ready()
            except ChannelNotFoundEntity:
                dead_queue.browsing = None
        return dead_queue.browsing

    def _linger(self, dead_queue: _DeadLetterQueue, queue: str) -> None:
        if dead_queue.browsing is not None:
            loop = asyncio.get_running_loop()
            dead_queue.timer = loop.call_later(_LINGER_SECONDS, lambda: self._spawn(self._end(queue)))

    async def _end(self, queue: str) -> None:
        with contextlib.suppress(BabelgateError):
            async with self._opened(queue) as dead_queue:
                browsing, dead_queue.browsing = dead_queue.browsing, None
                if browsing is not None:
                    await browsing.channel.close()


def _size(found: TakenLetter) -> int:
    return len(found.arrived.message.body)


def _died_at(profile: Profile, found: TakenLetter) -> int | None:
    return envelope.describe_dead(profile.read_dead(found.arrived.message).body).failed_at


def _record(profile: Profile, found: TakenLetter) -> DeadRecord:
    read = profile.read_dead(found.arrived.message)
    return DeadRecord(found, read.body, read.headers, read.carried)


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 15:
        raise InvalidParameter(name="cursor", reason="it is not one that this queue has given")
    return int(cursor)
