"""Assigns channels to queues, and tracks the deliveries handed out on each channel."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from aiormq.exceptions import ChannelPreconditionFailed

from babelgate.brokers.held import Held, State
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.errors import reason_of
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


class ReceivingChannel:
    """A channel, and the delivery tags handed out on it that are not settled: a :class:`babelgate.brokers.held.Holder`.

    A tag must be settled at most once: the broker closes a channel that settles a tag twice and requeues all of its
    deliveries. ``watchers`` are called when the channel ends. ``alone``: only one queue uses the channel and its
    connection.
    """

    def __init__(self, channel: Channel, alone: bool = False) -> None:
        self.channel = channel
        self.alone = alone
        self.held: Held[None] = Held()
        self.used_at = 0.0
        self.settled_at = -math.inf
        self.consuming = asyncio.Lock()
        """Locked from ``basic.qos`` to ``basic.consume``, because the first sets the prefetch of the second."""
        self.watchers: set[Callable[[], None]] = set()
        channel.rpc.closing.add_done_callback(self._ended)

    def handle(self, tag: int) -> str:
        """Register ``tag`` as handed out; its handle."""
        self.held.hold(tag, None)
        return f"{self.channel.generation}.{tag}"

    def state(self, tag: int) -> State:
        return self.held.state(tag)

    def accept(self, tags: Sequence[int]) -> None:
        """Write acks of held tags. Raises ChannelGone."""
        self.channel.ack(tags)
        self.held.acked(tags)
        self.settled_at = asyncio.get_running_loop().time()

    def give_back(self, tags: Sequence[int], *, failed: bool = False) -> None:
        """Write that held tags go back to their places, uncounted: AMQP cannot count. Raises ChannelGone."""
        assert not failed
        self.channel.requeue(tags)
        self.held.returned(tags)
        self.settled_at = asyncio.get_running_loop().time()

    async def barrier(self) -> None:
        """Wait until the broker has read all earlier frames. Raises ChannelGone."""
        await self.channel.barrier()

    def _ended(self, _: object) -> None:
        self.held.clear()
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
        self._by_queue: Recent[str, ReceivingChannel] = Recent(max_queues)
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

    async def _assigned(self, queue: str, alone: bool) -> ReceivingChannel:
        key = queue, alone
        task = self._opening.get(key)
        if task is None:
            if not alone and (shared := self._shared_channels()) and len(shared) + len(self._opening) >= self._bound():
                receiving = self._least_shared(shared)
                self._by_queue[queue] = receiving
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
        self._by_queue[queue] = receiving
        self._by_generation[receiving.channel.generation] = receiving
        receiving.channel.rpc.closing.add_done_callback(partial(self._ended, receiving))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._close_idle)
        return receiving

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
            if receiving.held or receiving.watchers:
                continue
            if receiving.used_at < long_ago:
                self._drop(receiving)
                self._closing.start(receiving.channel.close())
        if self._by_generation:
            self._sweep = loop.call_later(self._idle_seconds / 2, self._close_idle)
