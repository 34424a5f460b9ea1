"""A consumer that stands in for those who wait at a queue."""

from __future__ import annotations

import asyncio

from app.brokers.rabbitmq.channel import Arrived
from app.brokers.rabbitmq.channels import Held

QUIET_SECONDS = 0.02
"""How long a message that was counted a moment ago is waited for; somebody else may have taken it."""


class Waiting:
    """Started at once; gets at most ``prefetch`` messages. Whatever happens, it ends with :meth:`stop`.

    What is on its way when it ends is lost to the caller: a quorum queue takes it back, behind what is asked for next,
    as delivered once and in any order past 32 (``rabbit_fifo_client:handle_delivery/3``, RabbitMQ 3.10 and later). So
    it should get all that it may hold: one message, or as many as there are (:meth:`fill`).
    """

    def __init__(self, held: Held, queue: str, prefetch: int) -> None:
        self.held = held
        self.prefetch = prefetch
        self.ended_by_broker = False
        """Whether the broker has cancelled it: its queue was deleted, or moves."""
        self._queue = queue
        self._consumer = ""
        self._arrived: list[Arrived] = []
        self._woken: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[list[Arrived]] | None = None
        self._started = asyncio.get_running_loop().create_task(self._start())
        self._started.add_done_callback(self._wake)
        held.watchers.add(self._wake)

    @property
    def arrived(self) -> bool:
        """Whether anything has."""
        return bool(self._arrived)

    @property
    def usable(self) -> bool:
        """Whether anything can still arrive: the channel is open, and the broker has not ended the consumer."""
        failed = self._started.done() and self._started.exception() is not None
        return not failed and self.held.channel.is_open and not self.ended_by_broker

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
                await self.held.channel.rpc.queue_declare(self._queue, passive=True)
                await self.held.channel.barrier()
                if len(self._arrived) < next_one:
                    break

    async def stop(self) -> list[Arrived]:
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
        async with self.held.consuming:
            self._consumer = await self.held.channel.consume(self._queue, self.prefetch, self._arrive, self._cancelled)

    async def _stop(self) -> list[Arrived]:
        held = self.held
        try:
            await self._started
            await held.channel.cancel(self._consumer)
        except Exception:
            # Either the channel has ended, or the consumer has never begun.
            self._arrived = self._arrived if held.channel.is_open else []
        finally:
            held.watchers.discard(self._wake)
        arrived, self._arrived = self._arrived, []
        return arrived if held.channel.is_open else []

    def _give_back(self, stopping: asyncio.Task[list[Arrived]]) -> None:
        give_back(self.held, stopping.result())

    def _arrive(self, message: Arrived) -> None:
        self._arrived.append(message)
        self._wake()

    def _cancelled(self) -> None:
        self.ended_by_broker = True
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


async def end(waiting: Waiting) -> None:
    """Stop it, and put back what it has brought."""
    give_back(waiting.held, await waiting.stop())


def give_back(held: Held, arrived: list[Arrived]) -> None:
    """Put back what was never handed out."""
    if arrived and held.channel.is_open:
        held.channel.requeue([each.tag for each in arrived])
