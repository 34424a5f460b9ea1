"""How a queue's messages are taken, and only while somebody wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiormq.exceptions import ChannelNotFoundEntity

from app.brokers.binding import Delivery
from app.brokers.rabbitmq.channel import ChannelGone, ChannelMessage
from app.brokers.rabbitmq.channel_pool import ChannelPool, ReceivingChannel
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.options import RabbitQueue
from app.brokers.rabbitmq.profile import DecodedMessage
from app.brokers.rabbitmq.topology import Declarer
from app.errors import BabelgateError, BrokerUnavailable
from app.runtime import turns

MANY = 8
"""From this many messages on, a consumer takes them with less work for the broker than so many gets."""

_LINGER_SECONDS = 0.1
"""How long a consumer that brought nothing stays, because who waits mostly waits on."""

_FILL_SECONDS = 0.5
"""How long at most messages that were counted a moment ago may take to arrive."""

_PATIENCE_SECONDS = 0.9
"""What a reserve may take beside its wait."""

_MAX_RECEIVERS = 10_000

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs something in the background, to its end."""


QUIET_SECONDS = 0.02
"""How long a message that was counted a moment ago is waited for; somebody else may have taken it."""


class TemporaryConsumer:
    """Started at once; gets at most ``prefetch`` messages. Whatever happens, it ends with :meth:`stop`.

    What is on its way when it ends is lost to the caller: a quorum queue takes it back, behind what is asked for next,
    as delivered once and in any order past 32 (``rabbit_fifo_client:handle_delivery/3``, RabbitMQ 3.10 and later). So
    it should get all that it may hold: one message, or as many as there are (:meth:`fill`).
    """

    def __init__(self, receiving: ReceivingChannel, queue: str, prefetch: int) -> None:
        self.receiving = receiving
        self.prefetch = prefetch
        self.ended_by_broker = False
        """Whether the broker has cancelled it: its queue was deleted, or moves."""
        self._queue = queue
        self._tag = ""
        self._arrived: list[ChannelMessage] = []
        self._woken: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[list[ChannelMessage]] | None = None
        self._started = asyncio.get_running_loop().create_task(self._start())
        self._started.add_done_callback(self._wake)
        receiving.watchers.add(self._wake)

    @property
    def arrived(self) -> bool:
        """Whether anything has."""
        return bool(self._arrived)

    @property
    def usable(self) -> bool:
        """Whether anything can still arrive: the channel is open, and the broker has not ended the consumer."""
        failed = self._started.done() and self._started.exception() is not None
        return not failed and self.receiving.channel.is_open and not self.ended_by_broker

    async def wait(self, until: float, count: int = 1) -> bool:
        """Until ``count`` have arrived, or the loop's time ``until``, or it is not usable: whether they have.

        Not before it was started: a broker that does not answer is no empty queue. Raises what the AMQP library raised
        when it could not be.
        """
        loop = asyncio.get_running_loop()
        while len(self._arrived) < count and self.usable and loop.time() < until:
            woken = self._woken = loop.create_future()
            timer = loop.call_at(until, self._wake)
            try:
                await woken
            finally:
                timer.cancel()
        await asyncio.shield(self._started)
        return len(self._arrived) >= count

    async def fill(self, until: float) -> None:
        """Until all that it may hold has arrived, or the loop's time ``until``, or it is not usable.

        Or nothing came for a while, and no more by the end of a round trip to the queue: somebody else has taken the
        rest. Raises as :meth:`wait`, ChannelGone, and ChannelNotFoundEntity for a queue that was deleted.
        """
        loop = asyncio.get_running_loop()
        while len(self._arrived) < self.prefetch and self.usable and loop.time() < until:
            next_one = len(self._arrived) + 1
            if not await self.wait(min(until, loop.time() + QUIET_SECONDS), next_one) and self.usable:
                # The queue answers behind what it sent to the channel, and the channel behind what it wrote.
                await self.receiving.channel.rpc.queue_declare(self._queue, passive=True)
                await self.receiving.channel.barrier()
                if len(self._arrived) < next_one:
                    break

    async def stop(self) -> list[ChannelMessage]:
        """End it: all that it has brought, for the caller alone; nothing comes any more.

        Nothing where its channel has ended, because the broker has taken it back. May be cancelled: it is ended all
        the same, and what it brought goes back.
        """
        self._stopping = asyncio.get_running_loop().create_task(self._stop())
        try:
            return await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self._stopping.add_done_callback(self._give_back)
            raise

    async def _start(self) -> None:
        async with self.receiving.consuming:
            self._tag = await self.receiving.channel.consume(self._queue, self.prefetch, self._arrive, self._cancelled)

    async def _stop(self) -> list[ChannelMessage]:
        receiving = self.receiving
        try:
            await self._started
            await receiving.channel.cancel(self._tag)
        except Exception:
            # Either the channel has ended, or the consumer has never begun.
            self._arrived = self._arrived if receiving.channel.is_open else []
        finally:
            receiving.watchers.discard(self._wake)
        arrived, self._arrived = self._arrived, []
        return arrived if receiving.channel.is_open else []

    def _give_back(self, stopping: asyncio.Task[list[ChannelMessage]]) -> None:
        give_back(self.receiving, stopping.result())

    def _arrive(self, message: ChannelMessage) -> None:
        self._arrived.append(message)
        self._wake()

    def _cancelled(self) -> None:
        self.ended_by_broker = True
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


async def end(consumer: TemporaryConsumer) -> None:
    """Stop it, and put back what it has brought."""
    give_back(consumer.receiving, await consumer.stop())


def give_back(receiving: ReceivingChannel, arrived: list[ChannelMessage]) -> None:
    """Put back what was never handed out."""
    if arrived and receiving.channel.is_open:
        receiving.channel.requeue([each.tag for each in arrived])


class ConsumerEnded(Exception):
    """The broker has cancelled a consumer: its queue was deleted, or moves."""


class QueueReceiver:
    """The reserves of one queue: any number of them at once.

    A consumer waits for one message, and what else is there by then is for the next reserve, so that nothing is on its
    way to a consumer that ends (see :class:`TemporaryConsumer`), except to one that nobody needs any more.
    """

    def __init__(self, queue: str, spawn: Spawn) -> None:
        self._queue = queue
        self._spawn = spawn
        self._left: int | None = None
        """How many were ready when they were last counted; None: nobody knows."""
        self._lingering: TemporaryConsumer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self, receiving: ReceivingChannel, limit: int, until: float) -> list[ChannelMessage]:
        """Up to ``limit`` messages of the channel, as soon as there is one; none at the loop's time ``until``.

        Raises ConsumerEnded, ChannelGone, and what the AMQP library raises. Whatever ends it, nothing stays behind.
        """
        if self._ending:
            # What they have brought goes back first, so that it comes first.
            await asyncio.wait(self._ending)
        waits = until > asyncio.get_running_loop().time()
        consumer = self._unlinger()
        if consumer is not None and not (waits and consumer.receiving is receiving and consumer.usable):
            if arrived := await consumer.stop():
                return arrived
            consumer = None
        if consumer is None:
            if (self._left != 0 or not waits) and (arrived := await self._get(receiving, limit)):
                return arrived
            if not waits:
                return []
            consumer = TemporaryConsumer(receiving, self._queue, 1)
        return await self._wait(consumer, until)

    def close(self) -> None:
        """End a consumer that lingers."""
        if (consumer := self._unlinger()) is not None:
            self._end(consumer)

    async def _get(self, receiving: ReceivingChannel, limit: int) -> list[ChannelMessage]:
        """What is there. A reply says how many are left, so that about as many are asked for as there are."""
        first = 1 if limit > MANY else max(1, min(limit, self._left or 0))
        arrived = await self._gets(receiving, first)
        more = min(limit - len(arrived), self._left or 0)
        if not more:
            return arrived
        try:
            if more < MANY:
                return arrived + await self._gets(receiving, more)
            consumer = TemporaryConsumer(receiving, self._queue, more)
            try:
                await consumer.fill(asyncio.get_running_loop().time() + _FILL_SECONDS)
            except BaseException:
                self._end(consumer)
                raise
            found = await consumer.stop()
        except BaseException:
            give_back(receiving, arrived)
            raise
        self._left = max(0, (self._left or 0) - len(found))
        return arrived + found

    async def _gets(self, receiving: ReceivingChannel, count: int) -> list[ChannelMessage]:
        arrived = await receiving.channel.get(self._queue, count)
        self._left = arrived[-1].left if len(arrived) == count else 0
        return arrived

    async def _wait(self, consumer: TemporaryConsumer, until: float) -> list[ChannelMessage]:
        try:
            if not await consumer.wait(until) and consumer.usable:
                # A consumer that brings nothing says nothing: the round trip tells an empty queue from a hung broker.
                await consumer.receiving.channel.barrier()
        except BaseException:
            self._end(consumer)
            raise
        if not consumer.arrived and consumer.usable:
            self._linger(consumer)
            return []
        ended = consumer.ended_by_broker
        self._left = None
        if arrived := await consumer.stop():
            return arrived
        raise ConsumerEnded("the broker has ended a consumer") if ended else ChannelGone("the channel was closed")

    def _linger(self, consumer: TemporaryConsumer) -> None:
        self.close()
        self._lingering = consumer
        self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.close)

    def _unlinger(self) -> TemporaryConsumer | None:
        consumer, self._lingering = self._lingering, None
        if self._timer is not None:
            self._timer.cancel()
        return consumer

    def _end(self, consumer: TemporaryConsumer) -> None:
        ending = self._spawn(end(consumer))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


class QueueReceivers:
    """The reserves of all queues of one broker."""

    def __init__(self, connection: AmqpConnection, declarer: Declarer, channels: ChannelPool, spawn: Spawn) -> None:
        self._broker = connection.broker
        self._declarer = declarer
        self._channels = channels
        self._spawn = spawn
        self._receivers: dict[str, QueueReceiver] = {}

    async def reserve(self, queue: RabbitQueue, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`app.brokers.binding.Binding.reserve`. A queue or a channel that is gone is tried once more."""
        until = asyncio.get_running_loop().time() + wait_seconds
        try:
            async with asyncio.timeout(wait_seconds + _PATIENCE_SECONDS):
                try:
                    receiving, arrived = await self._take(queue, limit, until)
                except BabelgateError:
                    raise
                except Exception as error:
                    if isinstance(error, ConsumerEnded) or isinstance(error.__cause__ or error, ChannelNotFoundEntity):
                        self._declarer.forget(queue.profile.topology)
                    receiving, arrived = await self._take(queue, limit, until)
        except TimeoutError:
            raise BrokerUnavailable(broker=self._broker, reason="no answer in time") from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(self._broker, error, written=False) from error
        # From here on they can be settled, whatever becomes of this call.
        handles = [receiving.handle(each.tag) for each in arrived]
        read = await turns.mapped(queue.profile.read, [each.message for each in arrived], size=lambda m: len(m.body))
        return [_delivery(*each) for each in zip(handles, arrived, read, strict=True)]

    def close(self) -> None:
        """End the consumers that linger."""
        for receiver in self._receivers.values():
            receiver.close()
        self._receivers.clear()

    async def _take(
        self, queue: RabbitQueue, limit: int, until: float
    ) -> tuple[ReceivingChannel, list[ChannelMessage]]:
        name = queue.profile.queue
        await self._declarer.ensure(queue.profile.topology, queue.declare)
        receiving = await self._channels.of_queue(name)
        receiver = self._receivers.get(name)
        if receiver is None:
            if len(self._receivers) >= _MAX_RECEIVERS:
                self._receivers.clear()
            receiver = self._receivers[name] = QueueReceiver(name, self._spawn)
        return receiving, await receiver.take(receiving, limit, until)


def _delivery(handle: str, arrived: ChannelMessage, read: DecodedMessage) -> Delivery:
    redelivered = arrived.message.redelivered
    return Delivery(read.body, handle, 0, read.headers, read.delivery_count, redelivered, read.carried)
