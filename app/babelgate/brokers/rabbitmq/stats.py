"""Counts messages, pings the server, and purges queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from aiormq.exceptions import ChannelNotFoundEntity

from babelgate.brokers.bounded import within
from babelgate.brokers.errors import translating
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import translate
from babelgate.brokers.rabbitmq.isolation import IsolatedChannels, purged
from babelgate.errors import OutcomeUnknown

Answer = TypeVar("Answer")


class StatsChannel:
    """A channel for pings and counts, one at a time. It is separate because a missing queue closes it."""

    def __init__(
        self, connection: AmqpConnection, isolated: IsolatedChannels, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """``isolated``: the channels of purges."""
        self._connection = connection
        self._isolated = isolated
        self._timeout_seconds = timeout_seconds
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()

    async def ping(self, seconds: float) -> None:
        """One round trip; raises BrokerUnavailable after ``seconds``."""
        await within(seconds, self._connection.broker, self._call(Channel.barrier))

    async def ready(self, *queues: str) -> list[int]:
        """The number of ready messages of each queue; 0 for a missing queue.

        Raises BrokerUnavailable within ``timeout_seconds`` for all queues together.
        """
        return await within(self._timeout_seconds, self._connection.broker, self._ready(queues))

    async def purge(self, queue: str) -> int:
        """Remove the ready messages; their number. Raises OutcomeUnknown without an answer in ``timeout_seconds``,
        BrokerUnavailable when nothing was removed, and UnsupportedByBroker for a stream."""
        broker, until = self._connection.broker, asyncio.get_running_loop().time() + self._timeout_seconds
        with translating(translate, broker, written=True), suppress(ChannelNotFoundEntity):
            channel = await within(self._timeout_seconds, broker, self._isolated.of_existing(queue))
            left = until - asyncio.get_running_loop().time()
            return await within(left, broker, purged(channel, queue), late=OutcomeUnknown)
        return 0

    async def _ready(self, queues: Iterable[str]) -> list[int]:
        return [await self._call(partial(_count, queue)) for queue in queues]

    async def _call(self, call: Callable[[Channel], Awaitable[Answer]]) -> Answer:
        """The answer of ``call`` on the channel; translates errors of the AMQP library."""
        async with self._lock:
            with translating(translate, self._connection.broker):
                if self._channel is None or not self._channel.is_open:
                    self._channel = await self._connection.channel()
                return await call(self._channel)


async def _count(queue: str, channel: Channel) -> int:
    try:
        return await channel.ready(queue)
    except ChannelNotFoundEntity:
        return 0
