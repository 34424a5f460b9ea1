"""Counts messages, pings the server, purges queues, and warns about the set-up of a server and its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from aiormq.exceptions import AMQPError, ChannelNotFoundEntity

from app.brokers.bounded import within
from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Channel
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.delays import LOST
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.isolation import IsolatedChannels, purged
from app.brokers.rabbitmq.management import ManagementClient
from app.brokers.rabbitmq.options import RabbitQueue
from app.errors import BabelgateError, OutcomeUnknown

Answer = TypeVar("Answer")

CONFIRMED_HOPS = (3, 10)
"""Dead-lettering at least once: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering"""

MAX_WARNED_QUEUES = 50
"""How many of the queues in use are checked."""
_WARNINGS_SECONDS = 1.8

_OLD = (
    "RabbitMQ {version} moves delayed messages between queues without confirms, so that a crash can lose one. "
    "3.10 and newer use confirms."
)
_LOST = (
    "{count} delayed messages are in the queue {queue}: when they were due, their queue was no longer bound to the "
    "exchange babelgate.delay.done."
)
_BLOCKED = "The server blocks publishers: {reason}."
_DROPS = (
    "The quorum queue {queue} has no dead-letter exchange: a message that reaches its delivery limit "
    "(x-delivery-limit) is dropped."
)
_TRANSIENT = "The queue {queue} is not durable: its messages are lost when the server restarts."


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
        try:
            channel = await within(self._timeout_seconds, broker, self._isolated.of_existing(queue))
            left = until - asyncio.get_running_loop().time()
            return await within(left, broker, purged(channel, queue), late=OutcomeUnknown)
        except ChannelNotFoundEntity:
            return 0
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(broker, error, written=True) from error

    async def _ready(self, queues: Iterable[str]) -> list[int]:
        return [await self._call(partial(_count, queue)) for queue in queues]

    async def _call(self, call: Callable[[Channel], Awaitable[Answer]]) -> Answer:
        """The answer of ``call`` on the channel; translates errors of the AMQP library."""
        async with self._lock:
            try:
                if self._channel is None or not self._channel.is_open:
                    self._channel = await self._connection.channel()
                return await call(self._channel)
            except BabelgateError:
                raise
            except Exception as error:
                raise translate(self._connection.broker, error, written=False) from error


async def _count(queue: str, channel: Channel) -> int:
    try:
        return (await channel.rpc.queue_declare(queue, passive=True)).message_count or 0
    except ChannelNotFoundEntity:
        return 0


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
                names = list(dict.fromkeys(queue.profile.queue for queue in queues))[:MAX_WARNED_QUEUES]
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
