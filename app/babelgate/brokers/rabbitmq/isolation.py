"""Isolates what may end a channel or a connection, so that no lease of another queue ends with it.

RabbitMQ closes the connection for ``basic.get`` on a stream, and when a queue fails while it answers. AMQP cannot ask
for the type of a queue that another program declares. So such a queue is received on a connection of its own until a
receive has been answered, and purged on one (:meth:`StatsChannel.purge`). A missing queue closes the channel that
counts its messages, so pings and counts have a channel of their own, :class:`StatsChannel`. See
docs/adr/0005-rabbitmq-receiving.md.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TypeVar

from aiormq.exceptions import (
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ConnectionClosed,
    ConnectionNotImplemented,
)

from babelgate.brokers.bounded import within
from babelgate.brokers.errors import translating
from babelgate.brokers.rabbitmq.channel import Channel, ChannelGone
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import reason_of, translate
from babelgate.brokers.rabbitmq.options import RabbitQueue
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown, UnsupportedByBroker
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Recent

UNSUPPORTED_SECONDS = 30.0
"""How long an unsupported queue is refused without asking the broker: another type may replace it."""

FAILED_SECONDS = 2.0
"""The same for a queue that failed. A quorum queue may have a leader again at any time."""

ALONE_SECONDS = 600.0
"""How long a queue that ended a connection of its own is received alone, also after answers: it may fail again."""

_MAX_QUEUES = 10_000
"""Queues of which an answer or a failure is remembered, of about 300 bytes each."""

_MAX_OPENING = 4
"""Connections that are opened at the same time: each costs the broker a login."""

_CLOSE_SECONDS = 4.0

_BY_BROKER = frozenset(ConnectionClosed.__subclasses__())
"""The ends of a connection for which the broker gives a reason. ConnectionClosed itself is its orderly end."""

_NAMES = "queue '{}' in vhost '"
"""How a reply of RabbitMQ names a queue (``rabbit_misc:rs``)."""

_SINGLE_CONSUMER = "single active consumer"

Answer = TypeVar("Answer")


class QueueTrust:
    """Remembers of each queue whether it may be received on the shared connection, and whether it is refused."""

    def __init__(self, broker: str, clock: Callable[[], float] = monotonic) -> None:
        """``clock``: seconds."""
        self._broker = broker
        self._clock = clock
        self._alone_until: Recent[str, float] = Recent(_MAX_QUEUES)
        """By name: until when the queue is received alone. 0 after an answer; infinite until there is one, for a queue
        that had a receive on a shared connection when that ended."""
        self._refused: Recent[str, tuple[float, BabelgateError]] = Recent(_MAX_QUEUES)

    def shares(self, queue: RabbitQueue) -> bool:
        """Whether the shared connection receives ``queue``: the gateway declared it, or a receive was answered, and it
        is not suspected of having ended a connection."""
        until = self._alone_until.get(queue.profile.queue)
        return queue.declare == "active" if until is None else until <= self._clock()

    def is_suspect(self, name: str) -> bool:
        """Whether a receive of the queue may have ended a connection: it must not share one."""
        return self._alone_until.get(name, 0) > self._clock()

    def check(self, name: str) -> None:
        """Raises the remembered error of a queue that is unsupported, or failed a moment ago."""
        if self._refused and (found := self._refused.get(name)) is not None:
            until, error = found
            if self._clock() < until:
                raise error.without_frames()
            del self._refused[name]

    def answered(self, name: str) -> None:
        """Note that a receive of the queue was answered."""
        if not self.is_suspect(name) or self._alone_until[name] == math.inf:
            self._alone_until[name] = 0

    def forget(self, name: str) -> None:
        """Forget an answer: the queue was found missing, and may be declared with another type."""
        if not self.is_suspect(name):
            self._alone_until.pop(name, None)

    def failed(self, name: str, error: BaseException, alone: bool) -> None:
        """Note that a receive has failed with ``error``. ``alone``: on a connection of its own.

        Raises UnsupportedByBroker or BrokerUnavailable, and remembers it, where the queue itself caused the error.
        """
        cause = _cause_of(error)
        refusal: BabelgateError | None = unsupported(name, error)
        if cause is None or (refusal is None and type(cause) not in _BY_BROKER):
            return
        text = str(cause)
        if _NAMES.format(name) not in text and _NAMES.partition("{}")[2] in text:
            # The broker names another queue.
            return
        self._alone_until[name] = self._clock() + ALONE_SECONDS if alone else math.inf
        seconds = UNSUPPORTED_SECONDS
        if refusal is None and alone:
            reason = f"a receive of the queue {name} ends the connection: {reason_of(cause)}"
            refusal, seconds = BrokerUnavailable(broker=self._broker, reason=reason), FAILED_SECONDS
        if refusal is not None:
            self._refused[name] = self._clock() + seconds, refusal
            raise refusal from error


def unsupported(name: str, error: BaseException) -> UnsupportedByBroker | None:
    """The error for a queue whose kind RabbitMQ does not serve, as the broker's ``error`` says; None for others."""
    cause = _cause_of(error)
    if isinstance(cause, ChannelLockedResource) and _SINGLE_CONSUMER in str(cause):
        reason = "a quorum queue with a single active consumer (x-single-active-consumer) has no basic.get"
    elif isinstance(cause, ConnectionNotImplemented):
        reason = reason_of(cause)
    else:
        return None
    text = f"RabbitMQ does not support this for the queue {name}: {reason}."
    return UnsupportedByBroker(code="queue_unsupported", pointer="", reason=text)


def _cause_of(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, ChannelGone) else error


class IsolatedChannels:
    """Channels with a connection of their own each, which ends with the channel."""

    def __init__(self, shared: AmqpConnection, connect: Callable[[], AmqpConnection]) -> None:
        """``shared``: the connection that checks whether a queue exists; none is made while it is closed. ``connect``:
        makes another, not yet open."""
        self._shared = shared
        self._connect = connect
        self._turns = asyncio.Semaphore(_MAX_OPENING)
        self._open: set[AmqpConnection] = set()
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    async def ready(self, queue: str) -> int:
        """The number of ready messages; raises the AMQP library's error for a queue that is missing or refused."""
        channel = await self._shared.channel()
        try:
            return await channel.ready(queue)
        finally:
            await channel.close()

    async def of_existing(self, queue: str) -> Channel:
        """A channel for ``queue``. Raises like :meth:`ready`, without a new connection, and like :meth:`channel`."""
        await self.ready(queue)
        return await self.channel()

    async def channel(self) -> Channel:
        """A channel on a new connection. Raises BrokerUnavailable. May be cancelled."""
        async with self._turns:
            self._shared.check_open()
            connection = self._connect()
            self._open.add(connection)
            try:
                channel = await connection.channel()
            except BaseException:
                self._end(connection)
                raise
        channel.rpc.closing.add_done_callback(lambda _: self._end(connection))
        return channel

    async def close(self) -> None:
        """Close all connections; at most 5 s."""
        for connection in list(self._open):
            self._end(connection)
        await self._closing.wait(_CLOSE_SECONDS)

    def _end(self, connection: AmqpConnection) -> None:
        if connection in self._open:
            self._open.remove(connection)
            self._closing.start(connection.close())


async def purged(channel: Channel, queue: str) -> int:
    """Remove the ready messages of ``queue`` on a channel of :class:`IsolatedChannels`, which ends; their number.

    Raises UnsupportedByBroker for a stream, and the AMQP library's errors.
    """
    try:
        return (await channel.rpc.queue_purge(queue)).message_count or 0
    except Exception as error:
        raise unsupported(queue, error) or error from error
    finally:
        await channel.close()


class StatsChannel:
    """A channel for pings and counts, one at a time. It is separate because a missing queue closes it."""

    def __init__(self, connection: AmqpConnection, isolated: IsolatedChannels) -> None:
        """``isolated``: the channels of purges."""
        self._connection = connection
        self._isolated = isolated
        self._timeout_seconds = connection.timeout_seconds
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
