"""One AMQP channel: aiormq opens, declares and closes; the frames of publish, get, deliver and settle are written here.

aiormq spends a task and several queue hops on each publish, get and delivery. The frames written here go to the
connection's transport, a batch as one write, and their answers come from :mod:`babelgate.brokers.rabbitmq.incoming`.
See docs/adr/0014-amqp-frames.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import pamqp.frame
from aiormq.abc import AbstractConnection
from aiormq.channel import Channel as RpcChannel
from aiormq.exceptions import ChannelClosed
from msgspec import Struct
from pamqp import commands as spec

from babelgate.brokers.held import HolderEnded
from babelgate.brokers.rabbitmq import frames
from babelgate.brokers.rabbitmq.confirms import UNCONFIRMED, Confirmed, Confirms
from babelgate.brokers.rabbitmq.incoming import (
    ACK,
    CANCEL,
    FLOW_OK,
    GET_EMPTY,
    NACK,
    QOS_OK,
    RETURN,
    TAG,
    Arrival,
    FrameReader,
    arrival_of,
    properties_of,
    short_at,
    size_of,
)
from babelgate.brokers.rabbitmq.profile import AddressedMessage, NativeMessage

_CLOSE_SECONDS = 2.0


class ChannelMessage(Struct, frozen=True):
    """A received message, its delivery ``tag`` on this channel, and how many were ``left`` in the queue after a get."""

    tag: int
    message: NativeMessage
    left: int = 0


class ChannelGone(HolderEnded):
    """The channel or its connection ended before the answer; text and ``__cause__`` give the broker's reason."""


class Unsettled:
    """The unsettled delivery tags of one channel, in ascending order."""

    def __init__(self) -> None:
        self._tags: OrderedDict[int, None] = OrderedDict()

    def arrived(self, tag: int) -> None:
        """Add the tag of a received message."""
        self._tags[tag] = None

    def settle(self, tags: Sequence[int]) -> list[tuple[int, bool]]:
        """Remove ``tags``; the frames to write, each as its tag and AMQP's ``multiple`` flag (all tags up to it).

        An unbroken run from the oldest tag on becomes one frame, and one command of a quorum queue. Every delivery of
        the channel is registered here, so that such a frame never settles a delivery outside ``tags``.
        """
        wanted = set(tags)
        run = 0
        count = 0
        for tag in self._tags:
            if tag not in wanted:
                break
            run = tag
            count += 1
        for tag in wanted:
            self._tags.pop(tag, None)
        if count < 2:
            return [(tag, False) for tag in tags]
        return [(run, True), *((tag, False) for tag in tags if tag > run)]


class _PendingGets(Struct):
    remaining: int
    arrived: list[ChannelMessage]
    future: asyncio.Future[list[ChannelMessage]]


class Channel:
    """An AMQP channel with a random ``generation``, which together with a delivery tag identifies a delivery.

    All methods are safe to call concurrently from one event loop. When the channel ends, pending calls raise
    ChannelGone, and so does every later call.
    """

    def __init__(self, rpc: RpcChannel, reader: FrameReader) -> None:
        self.rpc = rpc
        self._reader = reader
        self.generation = os.urandom(4).hex()
        self._number = rpc.number
        self._frame_max = rpc.connection.connection_tune.frame_max
        self._confirms = Confirms()
        self._unsettled = Unsettled()
        self._gets: deque[_PendingGets] = deque()
        self._consumers: dict[str, tuple[Callable[[ChannelMessage], None], Callable[[], None] | None]] = {}
        self._barrier: asyncio.Future[None] | None = None
        self._barriers: deque[asyncio.Future[None]] = deque()
        self._method: Arrival | spec.Basic.Return | None = None
        self._header = b""
        self._parts: list[bytes] = []
        self._missing = 0
        reader.contents[self._number] = self
        rpc.closing.add_done_callback(self._ended)

    @classmethod
    async def open(
        cls, connection: AbstractConnection, reader: FrameReader, number: int, *, confirms: bool = False
    ) -> Channel:
        """Open the channel ``number``; ``confirms`` enables publisher confirms. Raises aiormq's errors."""
        return cls(cast(RpcChannel, await connection.channel(number, publisher_confirms=confirms)), reader)

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return not self.rpc.is_closed

    async def close(self) -> None:
        """Close the channel within 2 s; the broker requeues its unsettled deliveries. Never raises."""
        # A broker that does not answer here does not answer on the rest of the connection either. aiormq passes over
        # all other errors of a close.
        with contextlib.suppress(TimeoutError):
            await self.rpc.close(ChannelClosed(200, "closed"), timeout=_CLOSE_SECONDS)

    def publish(self, messages: Sequence[AddressedMessage]) -> Confirmed:
        """Write all messages in one piece, mandatory. Each result is None, Returned, Nacked or ChannelGone, or why AMQP
        cannot carry the message (ValueError, TypeError …), which is then not written."""
        self._check()
        batch = Confirmed(len(messages), UNCONFIRMED)
        written: list[bytes] = []
        for position, message in enumerate(messages):
            try:
                written.append(frames.publish(message, self._number, self._frame_max))
            except Exception as error:
                # Any error is caught: the messages before it have their tags already and must be written.
                batch.settle(position, error)
            else:
                self._confirms.expect(message, batch, position)
        self._write(b"".join(written))
        return batch

    async def get(self, queue: str, count: int) -> list[ChannelMessage]:
        """Up to ``count`` messages that are ready: ``count`` pipelined ``basic.get`` in one write."""
        self._check()
        future: asyncio.Future[list[ChannelMessage]] = asyncio.get_running_loop().create_future()
        self._gets.append(_PendingGets(count, [], future))
        self._write(self._frame(spec.Basic.Get(queue=queue)) * count)
        try:
            return await future
        except asyncio.CancelledError:
            # The messages may have arrived in the same turn of the event loop.
            if future.done() and not future.cancelled() and future.exception() is None and self.is_open:
                self.requeue([arrived.tag for arrived in future.result()])
            raise

    async def consume(
        self,
        queue: str,
        prefetch: int,
        arrived: Callable[[ChannelMessage], None],
        cancelled: Callable[[], None] | None = None,
    ) -> str:
        """Start a consumer; its tag. It receives at most ``prefetch`` unsettled messages.

        ``cancelled`` is called when the broker ends the consumer: the queue was deleted or has lost its leader.
        """
        self._check()
        tag = f"babelgate-{os.urandom(6).hex()}"
        self._consumers[tag] = arrived, cancelled
        try:
            # In one round trip with the consumer, which it is for.
            self._write(self._frame(spec.Basic.Qos(prefetch_count=prefetch)))
            await self.rpc.rpc(spec.Basic.Consume(queue=queue, consumer_tag=tag))
        except BaseException:
            self._consumers.pop(tag, None)
            raise
        return tag

    async def cancel(self, tag: str) -> None:
        """Stop a consumer. When this returns, everything that the broker sent to it has arrived."""
        try:
            await self.rpc.rpc(spec.Basic.Cancel(consumer_tag=tag))
        finally:
            self._consumers.pop(tag, None)

    def ack(self, tags: Sequence[int]) -> None:
        """Write acks. AMQP does not answer them; see :meth:`barrier`."""
        self._check()
        self._write(frames.acks(self._unsettled.settle(tags), self._number))

    def requeue(self, tags: Sequence[int]) -> None:
        """Write nacks that return the messages to their places in the queue."""
        self._check()
        self._write(frames.requeues(self._unsettled.settle(tags), self._number))

    async def barrier(self) -> None:
        """Wait for a round trip: the broker has read everything written before. Calls in one loop turn share it."""
        self._check()
        if self._barrier is None:
            self._barrier = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._send_barrier)
        await asyncio.shield(self._barrier)

    def _send_barrier(self) -> None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None and not barrier.done():
            self._barriers.append(barrier)
            # The broker answers channel.flow at once, and it changes nothing: the flow is active already.
            self._write(self._frame(spec.Channel.Flow(active=True)))

    def content_method(self, payload: bytes) -> bool:
        """See :class:`babelgate.brokers.rabbitmq.incoming.ContentHandler`."""
        if self.rpc.is_closed:
            return True
        kind = payload[:4]
        if kind in (ACK, NACK):
            tag, bits = TAG.unpack_from(payload, len(kind))
            self._confirms.confirmed(tag, bool(bits & 1), taken=kind == ACK)
        elif kind == GET_EMPTY:
            self._get_answered(None)
        elif kind == RETURN:
            self._method = spec.Basic.Return()
            self._method.unmarshal(payload[len(kind) :])
        elif kind == FLOW_OK:
            barrier = self._barriers.popleft()
            if not barrier.done():
                barrier.set_result(None)
        elif kind == CANCEL:
            _, cancelled = self._consumers.pop(short_at(payload, len(kind))[0], (None, None))
            if cancelled is not None:
                cancelled()
            return False
        elif kind != QOS_OK:
            self._method = arrival_of(payload)
        return True

    def content_header(self, payload: bytes) -> None:
        """See :class:`babelgate.brokers.rabbitmq.incoming.ContentHandler`."""
        self._header, self._parts, self._missing = payload, [], size_of(payload)
        if not self._missing:
            self._complete()

    def content_body(self, payload: bytes) -> None:
        """See :class:`babelgate.brokers.rabbitmq.incoming.ContentHandler`."""
        self._parts.append(payload)
        self._missing -= len(payload)
        if self._missing <= 0:
            self._complete()

    def _complete(self) -> None:
        """Process a message whose body is complete."""
        method, body = self._method, b"".join(self._parts)
        self._method, self._parts = None, []
        if isinstance(method, spec.Basic.Return):
            self._confirms.returned(method, body)
            return
        if method is None:
            # The channel is closing.
            return
        properties = properties_of(self._header)
        native = NativeMessage(body, properties, method.exchange, method.routing_key, method.redelivered)
        tag = method.tag
        self._unsettled.arrived(tag)
        if method.consumer is None:
            self._get_answered(ChannelMessage(tag, native, method.left))
            return
        arrived, _ = self._consumers.get(method.consumer, (None, None))
        if arrived is not None:
            arrived(ChannelMessage(tag, native))
        elif self.is_open:
            # The consumer has ended: no caller would settle the message.
            self.requeue([tag])

    def _get_answered(self, message: ChannelMessage | None) -> None:
        gets = self._gets[0]
        gets.remaining -= 1
        if message is not None:
            gets.arrived.append(message)
        if gets.remaining == 0:
            self._gets.popleft()
            if not gets.future.done():
                gets.future.set_result(gets.arrived)
            elif gets.arrived and self.is_open:
                # The caller was cancelled: no other one would settle these messages.
                self.requeue([arrived.tag for arrived in gets.arrived])

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        cause = None if closing.cancelled() else closing.exception()
        gone = ChannelGone(" ".join(str(part) for part in cause.args if part is not None) if cause else "closed")
        gone.__cause__ = cause
        self._confirms.abandon(gone)
        pending: list[asyncio.Future[Any]] = [gets.future for gets in self._gets]
        pending += self._barriers
        if self._barrier is not None:
            pending.append(self._barrier)
        self._gets.clear()
        self._barriers.clear()
        for future in pending:
            if not future.done():
                future.set_exception(gone)
                future.exception()

    def _check(self) -> None:
        if self.rpc.is_closed:
            raise ChannelGone("closed")

    def _frame(self, method: Any) -> bytes:
        return pamqp.frame.marshal(method, self._number)

    def _write(self, payload: bytes) -> None:
        # A connection that is closing ends the channel.
        if not self._reader.transport.is_closing():
            self._reader.transport.write(payload)
