"""Assigns channels to queues."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiormq.exceptions import ChannelPreconditionFailed

from babelgate.brokers.connect import shared_result
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import reason_of
from babelgate.brokers.rabbitmq.isolation import IsolatedChannels
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Recent

MAX_CHANNELS = 256
"""More queues in use than this share channels: a channel costs the broker a process and some 100 kB."""

_KEPT_FREE = 8
"""Channels of a connection that are reserved for declaring, counting and browsing."""

IDLE_SECONDS = 60.0
"""How long an unused channel stays open; longer than a reserve may last."""

_MAX_QUEUES = 10_000
"""Queues whose channel is remembered, of about 500 bytes each. One that is forgotten is assigned a channel again."""

_TIMED_OUT = re.compile("delivery acknowledgement on channel .* timed out")
"""What RabbitMQ says when it closes a channel: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout"""

_ADVICE = (
    "RabbitMQ has taken all deliveries of this channel back. Settle within its consumer_timeout: use shorter leases, "
    "or raise consumer_timeout in rabbitmq.conf or by a policy"
)
_MAX_LOGGED = 10

_UNDER_WAY_SECONDS = 0.2
"""How long the broker may keep acks on a channel until the replicas of a quorum queue agree on earlier ones."""

log = get_logger(__name__)


class ChannelPool:
    """The channels of the consuming connection: one for each queue in use, shared beyond MAX_CHANNELS. A queue that has
    to be alone has a channel on a connection of its own."""

    def __init__(
        self,
        connection: AmqpConnection,
        isolated: IsolatedChannels | None = None,
        idle_seconds: float = IDLE_SECONDS,
        max_queues: int = _MAX_QUEUES,
    ) -> None:
        """``isolated``: opens a channel for a queue on a connection of its own; without it every queue shares one."""
        self._connection = connection
        self._isolated = isolated
        self._idle_seconds = idle_seconds
        self._by_queue: Recent[str, Channel] = Recent(max_queues)
        self._by_generation: dict[str, Channel] = {}
        self._opening: dict[tuple[str, bool], asyncio.Task[Channel]] = {}
        self._closing: BackgroundTasks[None] = BackgroundTasks()
        self._sweep: asyncio.TimerHandle | None = None

    def of_generation(self, generation: str) -> Channel | None:
        """The channel of ``generation`` while it is open; None after that."""
        return self._by_generation.get(generation)

    @property
    def isolated(self) -> int:
        """The number of queues that are alone on a connection."""
        return len(self._by_generation) - len(self._shared_channels())

    async def of_queue(self, queue: str, alone: bool = False) -> Channel:
        """The channel of ``queue``, assigned on first use. May be cancelled at any time. Raises BrokerUnavailable, and
        errors of :meth:`IsolatedChannels.of_existing`."""
        channel = self._by_queue.get(queue)
        if channel is None or not channel.is_open or channel.alone != alone:
            channel = await self._assigned(queue, alone)
        else:
            self._by_queue.move_to_end(queue)
        channel.used_at = asyncio.get_running_loop().time()
        return channel

    async def flush(self) -> None:
        """Wait at most 0.2 s until written acks have reached the queues: a quorum queue delays those past 32."""
        settled_at = max((each.settled_at for each in self._by_generation.values()), default=-math.inf)
        await asyncio.sleep(max(0.0, settled_at + _UNDER_WAY_SECONDS - asyncio.get_running_loop().time()))

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

    async def _assigned(self, queue: str, alone: bool) -> Channel:
        key = queue, alone
        task = self._opening.get(key)
        if task is None:
            if not alone and (shared := self._shared_channels()) and len(shared) + len(self._opening) >= self._bound():
                channel = self._least_shared(shared)
                self._by_queue[queue] = channel
                return channel
            task = asyncio.get_running_loop().create_task(self._open(queue, alone))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        # A cancelled caller leaves the new channel to the next caller.
        return await shared_result(task, self._connection.broker)

    async def _open(self, queue: str, alone: bool) -> Channel:
        isolated = self._isolated if alone else None
        channel = await (self._connection.channel() if isolated is None else isolated.of_existing(queue))
        channel.alone = alone
        self._by_queue[queue] = channel
        self._by_generation[channel.generation] = channel
        channel.rpc.closing.add_done_callback(partial(self._ended, channel))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._close_idle)
        return channel

    def _bound(self) -> int:
        return max(1, min(MAX_CHANNELS, self._connection.channel_max - _KEPT_FREE))

    def _shared_channels(self) -> list[Channel]:
        return [channel for channel in self._by_generation.values() if not channel.alone]

    def _least_shared(self, shared: Iterable[Channel]) -> Channel:
        queues = Counter(channel.generation for channel in self._by_queue.values())
        return min(shared, key=lambda channel: queues[channel.generation])

    def _ended(self, channel: Channel, closing: asyncio.Future[Any]) -> None:
        cause = None if closing.cancelled() else closing.exception()
        if isinstance(cause, ChannelPreconditionFailed) and _TIMED_OUT.search(reason := reason_of(cause)):
            queues = [queue for queue, each in self._by_queue.items() if each is channel][:_MAX_LOGGED]
            name = self._connection.broker
            log.warning("channel closed by consumer_timeout", broker=name, queues=queues, reason=reason, advice=_ADVICE)
        self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        self._by_generation.pop(channel.generation, None)
        for queue in [queue for queue, each in self._by_queue.items() if each is channel]:
            del self._by_queue[queue]

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        long_ago = loop.time() - self._idle_seconds
        for channel in list(self._by_generation.values()):
            if channel.is_idle and channel.used_at < long_ago:
                self._drop(channel)
                self._closing.start(channel.close())
        if self._by_generation:
            self._sweep = loop.call_later(self._idle_seconds / 2, self._close_idle)
