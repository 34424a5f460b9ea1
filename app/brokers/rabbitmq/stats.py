"""Counts messages, pings the server, purges queues, and warns about the set-up of a server and its queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiormq.exceptions import AMQPError, ChannelNotFoundEntity

from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Channel
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.delays import LOST
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.management import ManagementClient
from app.brokers.rabbitmq.options import RabbitQueue
from app.errors import BabelgateError, BrokerUnavailable

CONFIRMED_HOPS = (3, 10)
"""Dead-lettering at least once: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering"""

_MAX_QUEUES = 50
_WARNINGS_SECONDS = 1.8

_OLD = (
    "RabbitMQ {version} does not confirm the hops of a delayed message: a crash between two of them can lose it. "
    "3.10 and newer do."
)
_LOST = (
    "{count} delayed messages rest in the queue {queue}: when they were due, the queue they are for was not bound to "
    "the exchange babelgate.delay.done any more."
)
_BLOCKED = "The server blocks publishers: {reason}."
_DROPS = (
    "The quorum queue {queue} has no dead-letter exchange: a message that is given out again too often "
    "(x-delivery-limit) is dropped."
)
_TRANSIENT = "The queue {queue} is not durable: a restart of the server takes its messages."


class StatsChannel:
    """A channel for pings, counts and purges, one at a time. It is separate because a missing queue closes it."""

    def __init__(self, connection: AmqpConnection, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()

    async def ping(self, seconds: float) -> None:
        """One round trip; raises BrokerUnavailable after ``seconds``."""
        async with self._channel_lock(seconds) as channel:
            await channel.barrier()

    async def ready(self, *queues: str) -> list[int]:
        """The number of ready messages of each queue; 0 for a missing queue.

        Raises BrokerUnavailable within ``timeout_seconds`` for all queues together.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return [await self._ready(queue) for queue in queues]
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
            raise BrokerUnavailable(broker=self._connection.broker, reason=reason) from None

    async def purge(self, queue: str) -> int:
        """Remove the ready messages; their number. Raises BrokerUnavailable within ``timeout_seconds``."""
        async with self._channel_lock(self._timeout_seconds) as channel:
            try:
                return (await channel.rpc.queue_purge(queue)).message_count or 0
            except ChannelNotFoundEntity:
                return 0

    async def _ready(self, queue: str) -> int:
        async with self._channel_lock(self._timeout_seconds) as channel:
            try:
                return (await channel.rpc.queue_declare(queue, passive=True)).message_count or 0
            except ChannelNotFoundEntity:
                return 0

    @asynccontextmanager
    async def _channel_lock(self, seconds: float) -> AsyncIterator[Channel]:
        """The channel, for one caller at a time; translates errors of the AMQP library."""
        try:
            async with asyncio.timeout(seconds), self._lock:
                if self._channel is None or not self._channel.is_open:
                    self._channel = await self._connection.channel()
                yield self._channel
        except TimeoutError:
            raise BrokerUnavailable(broker=self._connection.broker, reason=f"no answer within {seconds:g} s") from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(self._connection.broker, error, written=False) from error


async def warnings_of(
    connection: AmqpConnection, management: ManagementClient | None, queues: Iterable[RabbitQueue]
) -> list[str]:
    """Warnings about the server and ``queues``, as sentences; at most 2 s, then without the rest.

    Queues are checked only with the management API, at most 50 of them.
    """
    found: list[str] = []
    if (reason := connection.blocked) is not None:
        found.append(_BLOCKED.format(reason=reason))
    try:
        async with asyncio.timeout(_WARNINGS_SECONDS):
            found += await _on_delays(connection)
            if management is not None:
                names = list(dict.fromkeys(queue.profile.queue for queue in queues))[:_MAX_QUEUES]
                for warnings in await asyncio.gather(*(_on_queue(management, name) for name in names)):
                    found += warnings
    except (TimeoutError, BabelgateError):
        # Other checks report a server that does not answer.
        pass
    return found


async def _on_delays(connection: AmqpConnection) -> list[str]:
    await connection.open()
    version = connection.server_version
    found = [_OLD.format(version=".".join(map(str, version)))] if version < CONFIRMED_HOPS else []
    channel = await connection.channel()
    try:
        declared = await channel.rpc.queue_declare(LOST, passive=True)
        if declared.message_count:
            found.append(_LOST.format(count=declared.message_count, queue=LOST))
    except AMQPError:
        # The queue is missing: no message was ever delayed here.
        pass
    finally:
        await channel.close()
    return found


async def _on_queue(management: ManagementClient, name: str) -> list[str]:
    counts = await management.counts(name)
    if counts is None:
        return []
    found = [] if counts.durable else [_TRANSIENT.format(queue=name)]
    if counts.type == "quorum" and not counts.has_dead_letter_exchange:
        found.append(_DROPS.format(queue=name))
    return found
