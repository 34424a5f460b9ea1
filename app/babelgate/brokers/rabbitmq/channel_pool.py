"""Assigns channels to queues, and tracks the deliveries handed out on each channel."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from aiormq.exceptions import ChannelPreconditionFailed

from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.errors import reason_of
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import make_room

MAX_CHANNELS = 256
"""More queues in use than this share channels: a channel costs the broker a process and some 100 kB."""

_KEPT_FREE = 8
"""Channels of a connection that are reserved for declaring, counting and browsing."""

IDLE_SECONDS = 60.0
"""How long an unused channel stays open; longer than a reserve may last."""

_MAX_QUEUES = 10_000
"""Queues whose channel is remembered, of about 500 bytes each. One that is forgotten is assigned a channel again."""

_MAX_RELEASED = 10_000

_TIMED_OUT = re.compile("delivery acknowledgement on channel .* timed out")
"""What RabbitMQ says when it closes a channel: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout"""

_ADVICE = (
    "RabbitMQ has taken all deliveries of this channel back. Settle within its consumer_timeout: use shorter leases, "
    "or raise consumer_timeout in rabbitmq.conf or by a policy"
)
_MAX_LOGGED = 10

log = get_logger(__name__)

State = Literal["held", "acked", "lost"]


class ReceivingChannel:
    """A channel, and the delivery tags handed out on it that are not settled.

    A tag must be settled at most once: the broker closes a channel that settles a tag twice and requeues all of its
    deliveries. ``watchers`` are called when the channel ends. ``alone``: only one queue uses the channel and its
    connection.
    """

    def __init__(self, channel: Channel, alone: bool = False) -> None:
        self.channel = channel
        self.alone = alone
        self.outstanding: set[int] = set()
        self.used_at = 0.0
        self.consuming = asyncio.Lock()
        """Locked from ``basic.qos`` to ``basic.consume``, because the first sets the prefetch of the second."""
        self.watchers: set[Callable[[], None]] = set()
        self._released: set[int] = set()
        self._highest = 0
        self._forgotten = 0
        channel.rpc.closing.add_done_callback(self._ended)

    def handle(self, tag: int) -> str:
        """Register ``tag`` as handed out; its handle."""
        self.outstanding.add(tag)
        self._highest = max(self._highest, tag)
        return f"{self.channel.generation}.{tag}"

    def state(self, tag: int) -> State:
        """The state of a delivery. Acked tags are not stored: a tag in no other state was acked."""
        if tag in self.outstanding:
            return "held"
        if tag > self._highest or tag <= self._forgotten or tag in self._released:
            return "lost"
        return "acked"

    def ack(self, tags: Sequence[int]) -> None:
        """Write acks of outstanding tags. Raises ChannelGone."""
        self.channel.ack(tags)
        self.outstanding.difference_update(tags)

    def release(self, tags: Sequence[int]) -> None:
        """Write that outstanding tags go back to their queue. Raises ChannelGone."""
        self.channel.requeue(tags)
        self.outstanding.difference_update(tags)
        self._released.update(tags)
        if len(self._released) > _MAX_RELEASED:
            # Forgotten tags count as lost: their messages may have been delivered again.
            self._forgotten = max(self._released)
            self._released.clear()

    def _ended(self, _: object) -> None:
        self.outstanding.clear()
        for watcher in list(self.watchers):
            watcher()


class ChannelPool:
    """The channels of the consuming connection: one for each queue in use, shared beyond MAX_CHANNELS. A queue that has
    to be alone has a channel on a connection of its own."""

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[Channel]],
        most: Callable[[], int],
        idle_seconds: float = IDLE_SECONDS,
        max_queues: int = _MAX_QUEUES,
        open_alone: Callable[[str], Awaitable[Channel]] | None = None,
        broker: str = "",
    ) -> None:
        """``open_channel`` may connect, and raises BrokerUnavailable. ``most``: the connection's limit of channels.
        ``open_alone``: opens a channel for a queue on a connection of its own; without it every queue shares one.
        ``broker``: its name, for the log."""
        self._open_channel = open_channel
        self._open_alone = open_alone
        self._broker = broker
        self._most = most
        self._idle_seconds = idle_seconds
        self._max_queues = max_queues
        self._by_queue: OrderedDict[str, ReceivingChannel] = OrderedDict()
        self._by_generation: dict[str, ReceivingChannel] = {}
        self._opening: dict[tuple[str, bool], asyncio.Task[ReceivingChannel]] = {}
        self._closing: BackgroundTasks[None] = BackgroundTasks()
        self._sweep: asyncio.TimerHandle | None = None

    def of_generation(self, generation: str) -> ReceivingChannel | None:
        """The channel of ``generation`` while it is open; None after that."""
        return self._by_generation.get(generation)

    @property
    def isolated(self) -> int:
        """The number of queues that are alone on a connection."""
        return len(self._by_generation) - len(self._shared_channels())

    async def of_queue(self, queue: str, alone: bool = False) -> ReceivingChannel:
        """The channel of ``queue``, assigned on first use. May be cancelled at any time. Raises BrokerUnavailable, and
        errors of ``open_alone``."""
        receiving = self._by_queue.get(queue)
        if receiving is None or not receiving.channel.is_open or receiving.alone != alone:
            receiving = await self._assigned(queue, alone)
        else:
            self._by_queue.move_to_end(queue)
        receiving.used_at = asyncio.get_running_loop().time()
        return receiving

    async def close(self) -> None:
        """Forget all channels; closing the connection requeues unsettled deliveries."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        tasks = [*self._opening.values(), *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._by_queue.clear()
        self._by_generation.clear()

    async def _assigned(self, queue: str, alone: bool) -> ReceivingChannel:
        key = queue, alone
        task = self._opening.get(key)
        if task is None:
            if not alone and (shared := self._shared_channels()) and len(shared) + len(self._opening) >= self._bound():
                receiving = self._least_shared(shared)
                self._assign(queue, receiving)
                return receiving
            task = asyncio.get_running_loop().create_task(self._open(queue, alone))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        # A cancelled caller leaves the new channel to the next caller.
        return await asyncio.shield(task)

    async def _open(self, queue: str, alone: bool) -> ReceivingChannel:
        if alone and self._open_alone is not None:
            receiving = ReceivingChannel(await self._open_alone(queue), alone)
        else:
            receiving = ReceivingChannel(await self._open_channel(), alone)
        self._assign(queue, receiving)
        self._by_generation[receiving.channel.generation] = receiving
        receiving.channel.rpc.closing.add_done_callback(partial(self._ended, receiving))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._close_idle)
        return receiving

    def _assign(self, queue: str, receiving: ReceivingChannel) -> None:
        make_room(self._by_queue, self._max_queues, lambda _: False, lambda _: None)
        self._by_queue[queue] = receiving

    def _bound(self) -> int:
        return max(1, min(MAX_CHANNELS, self._most() - _KEPT_FREE))

    def _shared_channels(self) -> list[ReceivingChannel]:
        return [receiving for receiving in self._by_generation.values() if not receiving.alone]

    def _least_shared(self, shared: Iterable[ReceivingChannel]) -> ReceivingChannel:
        queues = Counter(receiving.channel.generation for receiving in self._by_queue.values())
        return min(shared, key=lambda receiving: queues[receiving.channel.generation])

    def _ended(self, receiving: ReceivingChannel, closing: asyncio.Future[Any]) -> None:
        cause = None if closing.cancelled() else closing.exception()
        if isinstance(cause, ChannelPreconditionFailed) and _TIMED_OUT.search(reason := reason_of(cause)):
            queues = [queue for queue, each in self._by_queue.items() if each is receiving][:_MAX_LOGGED]
            log.warning(
                "channel closed by consumer_timeout", broker=self._broker, queues=queues, reason=reason, advice=_ADVICE
            )
        self._drop(receiving)

    def _drop(self, receiving: ReceivingChannel) -> None:
        self._by_generation.pop(receiving.channel.generation, None)
        for queue in [queue for queue, each in self._by_queue.items() if each is receiving]:
            del self._by_queue[queue]

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        long_ago = loop.time() - self._idle_seconds
        for receiving in list(self._by_generation.values()):
            if receiving.outstanding or receiving.watchers:
                continue
            if receiving.used_at < long_ago:
                self._drop(receiving)
                self._closing.start(receiving.channel.close())
        if self._by_generation:
            self._sweep = loop.call_later(self._idle_seconds / 2, self._close_idle)


def by_generation(handles: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """``(position, tag)`` of each handle, by the generation of its channel."""
    grouped: dict[str, list[tuple[int, int]]] = {}
    for position, handle in enumerate(handles):
        generation, _, tag = handle.partition(".")
        grouped.setdefault(generation, []).append((position, int(tag)))
    return grouped
