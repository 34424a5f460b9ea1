"""Receives the messages of queues by ``basic.get`` and by consumers that exist only while a client waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiormq.exceptions import ChannelInvalidStateError, ChannelNotFoundEntity

from babelgate.brokers.binding import Delivery
from babelgate.brokers.bounded import GRACE_SECONDS, answering
from babelgate.brokers.rabbitmq.channel import Channel, ChannelGone
from babelgate.brokers.rabbitmq.channel_pool import MAX_CHANNELS, ChannelPool
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import translate
from babelgate.brokers.rabbitmq.isolation import QueueTrust
from babelgate.brokers.rabbitmq.options import RabbitQueue
from babelgate.brokers.rabbitmq.profile import NativeMessage
from babelgate.brokers.rabbitmq.topology import Declarer
from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.runtime import turns
from babelgate.runtime.cache import Recent

MANY = 8
"""From this many messages on, a consumer costs the broker less work than gets."""

_LINGER_SECONDS = 0.1
"""How long a consumer without messages is kept, because most clients wait again."""

_FILL_SECONDS = 0.5
"""How long messages that were just counted may take to arrive."""

_SLOW_SECONDS = 0.3
"""After a first answer that took longer, no more messages are asked for: a reserve has no time for many round trips.
The next one asks for all at once."""

_QUIET_SECONDS = 0.02
"""How long to wait for a message that was just counted; another consumer may have received it."""

_MAX_RECEIVERS = 10_000
"""Queues whose last count is remembered, of about 600 bytes each."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a background task."""


class TemporaryConsumer:
    """A consumer that starts at once and receives at most ``prefetch`` messages. It must be ended with :meth:`stop`.

    Messages in flight when it ends are requeued: a quorum queue puts them behind the messages delivered next, counted
    as delivered once, and past 32 in any order (``rabbit_fifo_client:handle_delivery/3``, RabbitMQ 3.10 and later).
    To avoid this, ``prefetch`` is 1 or the number of ready messages (:meth:`fill`).
    """

    def __init__(self, channel: Channel, queue: str, prefetch: int) -> None:
        self.channel = channel
        self.arrived: list[NativeMessage] = []
        self._queue = queue
        self._prefetch = prefetch
        self._ended = False
        """Whether the broker has ended the consumer or its channel."""
        self._woken: asyncio.Future[None] | None = None
        self._started = asyncio.get_running_loop().create_task(
            channel.consume(queue, prefetch, self._arrive, self._end_reported)
        )
        self._started.add_done_callback(self._wake)

    @property
    def usable(self) -> bool:
        """Whether messages can still arrive: neither the channel nor the consumer has ended."""
        failed = self._started.done() and self._started.exception() is not None
        return not failed and not self._ended

    async def wait(self, until: float, count: int = 1) -> bool:
        """Wait until ``count`` messages have arrived, at most until the loop's time ``until``; whether they have.

        Returns early when the consumer is not usable, but not before the broker has answered its start. Raises the
        AMQP library's error when the start failed.
        """
        loop = asyncio.get_running_loop()
        while len(self.arrived) < count and self.usable and loop.time() < until:
            self._woken = loop.create_future()
            timer = loop.call_at(until, self._wake)
            try:
                await self._woken
            finally:
                timer.cancel()
        await asyncio.shield(self._started)
        return len(self.arrived) >= count

    async def fill(self, until: float) -> None:
        """Wait until ``prefetch`` messages have arrived, at most until the loop's time ``until``.

        Ends early when nothing arrives for _QUIET_SECONDS and a round trip to the queue: another consumer has received
        the rest. Raises like :meth:`wait`, ChannelGone, and ChannelNotFoundEntity for a deleted queue.
        """
        loop = asyncio.get_running_loop()
        while len(self.arrived) < self._prefetch and self.usable and loop.time() < until:
            next_one = len(self.arrived) + 1
            if not await self.wait(min(until, loop.time() + _QUIET_SECONDS), next_one) and self.usable:
                # The queue answers after the messages it sent to the channel, and the channel after those it wrote.
                await self.channel.ready(self._queue)
                await self.channel.barrier()
                if len(self.arrived) < next_one:
                    break

    async def stop(self) -> list[NativeMessage]:
        """End the consumer; all messages that it received. No message arrives later.

        Empty where the channel has ended, because the broker has requeued them. When the caller is cancelled the
        consumer still ends, and its messages are requeued.
        """
        stopping = asyncio.get_running_loop().create_task(self._stop())
        try:
            return await asyncio.shield(stopping)
        except asyncio.CancelledError:
            stopping.add_done_callback(self._put_back)
            raise

    async def end(self) -> None:
        """End the consumer, and requeue its messages."""
        self.channel.put_back(await self.stop())

    async def _stop(self) -> list[NativeMessage]:
        try:
            await self.channel.cancel(await self._started)
        except ChannelInvalidStateError:
            # The channel is about to end.
            pass
        except Exception:
            # aiormq raises what has ended the channel or its connection, which is any error. No consumer is left.
            if self.channel.is_open:
                raise
        return self.arrived if self.channel.is_open else []

    def _put_back(self, stopping: asyncio.Task[list[NativeMessage]]) -> None:
        # It is cancelled with a connection that ends.
        if not stopping.cancelled():
            self.channel.put_back(stopping.result())

    def _arrive(self, message: NativeMessage) -> None:
        self.arrived.append(message)
        self._wake()

    def _end_reported(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class ConsumerEnded(Exception):
    """The broker has cancelled a consumer: its queue was deleted, or moves."""


class QueueReceiver:
    """Receives the messages of one queue, for one caller that waits and one that does not.

    A consumer waits for one message only; the next call gets the others. So no message is in flight to a consumer that
    ends (see :class:`TemporaryConsumer`), except to one whose callers are gone.
    """

    def __init__(self, queue: str, spawn: Spawn) -> None:
        self._queue = queue
        self._spawn = spawn
        self._left: int | None = None
        """The number of ready messages at the last count; None: unknown."""
        self._slow = False
        """Whether the last answer took longer than _SLOW_SECONDS."""
        self._lingering: TemporaryConsumer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._taking = 0

    @property
    def is_busy(self) -> bool:
        """Whether a caller is served, or a consumer has not ended."""
        return bool(self._taking or self._lingering or self._ending)

    async def take(self, channel: Channel, limit: int, until: float) -> list[NativeMessage]:
        """Up to ``limit`` messages as soon as there is one; none at the loop's time ``until``.

        Raises ConsumerEnded, ChannelGone and AMQP errors; messages that it does not return are requeued.
        """
        self._taking += 1
        try:
            return await self._take(channel, limit, until)
        finally:
            self._taking -= 1

    async def _take(self, channel: Channel, limit: int, until: float) -> list[NativeMessage]:
        if self._ending:
            # Their messages are requeued first, so that they keep their order.
            await asyncio.wait(self._ending)
        waits = until > asyncio.get_running_loop().time()
        consumer = self._unlinger()
        if consumer is not None and not (waits and consumer.channel is channel and consumer.usable):
            if arrived := await consumer.stop():
                return arrived
            consumer = None
        if consumer is None:
            if (self._left != 0 or not waits) and (arrived := await self._get(channel, limit)):
                return arrived
            # The answer may have taken all of the wait.
            if until <= asyncio.get_running_loop().time():
                return []
            consumer = TemporaryConsumer(channel, self._queue, 1)
        return await self._wait(consumer, until)

    def close(self) -> None:
        """End a lingering consumer."""
        if (consumer := self._unlinger()) is not None:
            self._end(consumer)

    async def _get(self, channel: Channel, limit: int) -> list[NativeMessage]:
        """The ready messages. Each reply counts the rest, so that about as many are requested as there are."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = 1 if limit > MANY and not self._slow else max(1, min(limit, self._left or 0))
        arrived = await self._gets(channel, first)
        self._slow = loop.time() - began > _SLOW_SECONDS
        more = min(limit - len(arrived), self._left or 0)
        if not more or self._slow:
            return arrived
        try:
            found = await (self._gets(channel, more) if more < MANY else self._consume(channel, more))
        except BaseException:
            channel.put_back(arrived)
            raise
        return arrived + found

    async def _gets(self, channel: Channel, count: int) -> list[NativeMessage]:
        arrived = await channel.get(self._queue, count)
        self._left = arrived[-1].left if len(arrived) == count else 0
        return arrived

    async def _consume(self, channel: Channel, count: int) -> list[NativeMessage]:
        consumer = TemporaryConsumer(channel, self._queue, count)
        try:
            await consumer.fill(asyncio.get_running_loop().time() + _FILL_SECONDS)
        except BaseException:
            self._end(consumer)
            raise
        found = await consumer.stop()
        self._left = max(0, (self._left or 0) - len(found))
        return found

    async def _wait(self, consumer: TemporaryConsumer, until: float) -> list[NativeMessage]:
        try:
            if not await consumer.wait(until) and consumer.usable:
                # The round trip distinguishes an empty queue from a broker that does not answer.
                await consumer.channel.barrier()
        except BaseException:
            self._end(consumer)
            raise
        if not consumer.arrived and consumer.usable:
            self.close()
            self._lingering = consumer
            self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.close)
            return []
        is_cancelled = not consumer.usable and consumer.channel.is_open
        self._left = None
        if arrived := await consumer.stop():
            return arrived
        if is_cancelled:
            raise ConsumerEnded("the broker has ended a consumer")
        raise ChannelGone("the channel was closed")

    def _unlinger(self) -> TemporaryConsumer | None:
        consumer, self._lingering = self._lingering, None
        if self._timer is not None:
            self._timer.cancel()
        return consumer

    def _end(self, consumer: TemporaryConsumer) -> None:
        ending = self._spawn(consumer.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


class QueueReceivers:
    """Receives the messages of all queues of one broker."""

    def __init__(
        self,
        connection: AmqpConnection,
        declarer: Declarer,
        channels: ChannelPool,
        spawn: Spawn,
        max_receivers: int = _MAX_RECEIVERS,
    ) -> None:
        self._broker = connection.broker
        self._timeout_seconds = connection.timeout_seconds
        self._trust = QueueTrust(connection.broker)
        self._declarer = declarer
        self._channels = channels
        self._spawn = spawn
        self._receivers: Recent[str, QueueReceiver] = Recent(max_receivers, lambda each: each.is_busy)

    async def reserve(self, queue: RabbitQueue, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.binding.Binding.reserve`. Tries once more without the queue or a channel."""
        until = asyncio.get_running_loop().time() + wait_seconds
        seconds = wait_seconds + self._timeout_seconds - GRACE_SECONDS
        async with answering(seconds, translate, self._broker, reason="no answer in time"):
            try:
                channel, arrived = await self._take(queue, limit, until)
            except BabelgateError:
                raise
            except Exception as error:
                if any(isinstance(each, ConsumerEnded | ChannelNotFoundEntity) for each in (error, error.__cause__)):
                    self._declarer.forget(queue.profile.topology)
                    self._trust.forget(queue.profile.queue)
                channel, arrived = await self._take(queue, limit, until)
        # From here on the deliveries can be settled, even if this call is cancelled.
        return await turns.mapped(
            lambda native: queue.profile.read(native, channel.handle(native.tag)), arrived, size=size_of_body
        )

    def close(self) -> None:
        """End all lingering consumers."""
        for receiver in self._receivers.values():
            receiver.close()
        self._receivers.clear()

    async def _take(self, queue: RabbitQueue, limit: int, until: float) -> tuple[Channel, list[NativeMessage]]:
        name = queue.profile.queue
        self._trust.check(name)
        await self._declarer.ensure(queue.profile.topology, queue.declare)
        alone = not self._trust.shares(queue) and self._can_isolate(name)
        channel = await self._channels.of_queue(name, alone)
        receiver = self._receivers.obtain(name, lambda: QueueReceiver(name, self._spawn))
        try:
            arrived = await receiver.take(channel, limit, until)
        except Exception as error:
            self._trust.failed(name, error, alone)
            raise
        if alone:
            self._trust.answered(name)
        return channel, arrived

    def _can_isolate(self, name: str) -> bool:
        """Whether another queue may have a connection of its own. Raises BrokerUnavailable for one that must."""
        if self._channels.isolated < MAX_CHANNELS:
            return True
        if self._trust.is_suspect(name):
            raise BrokerUnavailable(broker=self._broker, reason=f"{MAX_CHANNELS} queues have a connection of their own")
        return False


def size_of_body(message: NativeMessage) -> int:
    """The bytes of its body."""
    return len(message.body)
