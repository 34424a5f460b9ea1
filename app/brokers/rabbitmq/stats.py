"""Small questions to the broker, on a channel of their own, because a queue that is missing ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiormq.exceptions import ChannelNotFoundEntity

from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Channel
from app.brokers.rabbitmq.connection import Link
from app.brokers.rabbitmq.errors import translate
from app.errors import BabelgateError, BrokerUnavailable


class Counting:
    """One question at a time."""

    def __init__(self, link: Link, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._link = link
        self._timeout_seconds = timeout_seconds
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()

    async def ping(self, seconds: float) -> None:
        """A round trip; raises BrokerUnavailable after ``seconds``."""
        async with self._asking(seconds) as channel:
            await channel.barrier()

    async def ready(self, *queues: str) -> list[int]:
        """How many messages are ready on each; 0 where there is no such queue.

        Raises BrokerUnavailable within ``timeout_seconds``, all queues together.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return [await self._ready(queue) for queue in queues]
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
            raise BrokerUnavailable(broker=self._link.broker, reason=reason) from None

    async def purge(self, queue: str) -> int:
        """Remove what is ready; the number removed. Raises BrokerUnavailable within ``timeout_seconds``."""
        async with self._asking(self._timeout_seconds) as channel:
            try:
                return (await channel.rpc.queue_purge(queue)).message_count or 0
            except ChannelNotFoundEntity:
                return 0

    async def _ready(self, queue: str) -> int:
        async with self._asking(self._timeout_seconds) as channel:
            try:
                return (await channel.rpc.queue_declare(queue, passive=True)).message_count or 0
            except ChannelNotFoundEntity:
                return 0

    @asynccontextmanager
    async def _asking(self, seconds: float) -> AsyncIterator[Channel]:
        """The channel, in turn; what AMQP raises becomes an error of ours."""
        try:
            async with asyncio.timeout(seconds), self._lock:
                if self._channel is None or not self._channel.is_open:
                    self._channel = await self._link.channel()
                yield self._channel
        except TimeoutError:
            raise BrokerUnavailable(broker=self._link.broker, reason=f"no answer within {seconds:g} s") from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(self._link.broker, error, written=False) from error
