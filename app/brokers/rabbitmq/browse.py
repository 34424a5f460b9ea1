"""The head of a queue, taken to be looked at."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from app.brokers.rabbitmq.channel import Arrived, Channel
from app.brokers.rabbitmq.channels import Held
from app.brokers.rabbitmq.waiting import Waiting

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
