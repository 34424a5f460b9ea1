"""One AMQP channel: aiormq opens, declares and closes; the frames of publish, get, deliver and settle are written here.

aiormq spends a task and several queue hops on each publish, get and delivery. The frames written here go to the
connection's transport, a batch as one write, and their answers come from :mod:`babelgate.brokers.rabbitmq.incoming`.
See docs/adr/0014-amqp-frames.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, cast

import pamqp.frame
from aiormq.abc import AbstractConnection
from aiormq.channel import Channel as RpcChannel
from aiormq.exceptions import ChannelClosed
from msgspec import Struct
from pamqp import commands as spec

from babelgate.brokers.held import Held, HolderEnded, State
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


class ChannelGone(HolderEnded):
    """The channel or its connection ended before the answer; text and ``__cause__`` give the broker's reason."""


class Unsettled(Held[None]):
    """The unsettled delivery tags of one channel, in ascending order, handed out or not."""

    def frames(self, tags: Sequence[int]) -> list[tuple[int, bool]]:
        """The frames that settle ``tags``, each as its tag and AMQP's ``multiple`` flag (all tags up to it).

        An unbroken run from the oldest tag on becomes one frame, and one command of a quorum queue. Every delivery of
        the channel is held here, so that such a frame never settles a delivery outside ``tags``.
        """
        run = [*takewhile(set(tags).__contains__, self._held)]
        if len(run) < 2:
            return [(tag, False) for tag in tags]
        return [(run[-1], True), *((tag, False) for tag in tags if tag > run[-1])]


class _PendingGets(Struct):
    remaining: int
    arrived: list[NativeMessage]
    future: asyncio.Future[list[NativeMessage]]


class Channel:
    """An AMQP channel with a random ``generation``, which together with a delivery tag identifies a delivery: a
    :class:`babelgate.brokers.held.Holder`.

    All methods are safe to call concurrently from one event loop. When the channel ends, pending calls raise
    ChannelGone, and so does every later call. A tag must be settled at most once: the broker closes a channel that
    settles a tag twice, and requeues all of its deliveries. ``alone``: only one queue uses the channel and its
    connection. ``used_at`` and ``settled_at``: the loop's times of the last receive and of the last settle.
    """

    def __init__(self, rpc: RpcChannel, reader: FrameReader) -> None:
        self.rpc = rpc
        self._reader = reader
        self.generation = os.urandom(4).hex()
        self._number = rpc.number
        self._frame_max = rpc.connection.connection_tune.frame_max
        self._confirms = Confirms()
        self.alone = False
        self.used_at = 0.0
        self.settled_at = -math.inf
        self._unsettled = Unsettled()
        self._consuming = asyncio.Lock()
        """Locked from ``basic.qos`` to ``basic.consume``, because the first sets the prefetch of the second."""
        self._gets: deque[_PendingGets] = deque()
        self._consumers: dict[str, tuple[Callable[[NativeMessage], None], Callable[[], None]]] = {}
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

    @property
    def is_idle(self) -> bool:
        """Whether it has neither a delivery nor a consumer."""
        return not (self._unsettled or self._consumers)

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

    async def get(self, queue: str, count: int) -> list[NativeMessage]:
        """Up to ``count`` messages that are ready: ``count`` pipelined ``basic.get`` in one write."""
        self._check()
        future: asyncio.Future[list[NativeMessage]] = asyncio.get_running_loop().create_future()
        self._gets.append(_PendingGets(count, [], future))
        self._write(self._frame(spec.Basic.Get(queue=queue)) * count)
        try:
            return await future
        except asyncio.CancelledError:
            # The messages may have arrived in the same turn of the event loop.
            if future.done() and not future.cancelled() and future.exception() is None:
                self.put_back(future.result())
            raise

    async def consume(
        self,
        queue: str,
        prefetch: int,
        arrived: Callable[[NativeMessage], None],
        ended: Callable[[], None] = lambda: None,
    ) -> str:
        """Start a consumer; its tag. It receives at most ``prefetch`` unsettled messages.

        ``ended`` is called when the channel ends, or the broker ends the consumer: the queue was deleted or has lost
        its leader.
        """
        tag = f"babelgate-{os.urandom(6).hex()}"
        async with self._consuming:
            self._check()
            self._consumers[tag] = arrived, ended
            try:
                # In one round trip with the consumer, which it is for.
                self._write(self._frame(spec.Basic.Qos(prefetch_count=prefetch)))
                await self.rpc.rpc(spec.Basic.Consume(queue=queue, consumer_tag=tag))
            except BaseException:
                self._consumers.pop(tag, None)
                raise
        return tag

    async def ready(self, queue: str) -> int:
        """The number of ready messages. A missing queue raises ChannelNotFoundEntity and ends the channel."""
        return (await self.rpc.queue_declare(queue, passive=True)).message_count or 0

    async def cancel(self, tag: str) -> None:
        """Stop a consumer. When this returns, everything that the broker sent to it has arrived."""
        try:
            await self.rpc.rpc(spec.Basic.Cancel(consumer_tag=tag))
        finally:
            self._consumers.pop(tag, None)

    def handle(self, tag: int) -> str:
        """The handle of a delivery."""
        return f"{self.generation}.{tag}"

    def state(self, tag: int) -> State:
        return self._unsettled.state(tag)

    def accept(self, tags: Sequence[int]) -> None:
        """Write acks of unsettled tags. AMQP does not answer them; see :meth:`barrier`. Raises ChannelGone."""
        self._check()
        self._write(frames.acks(self._unsettled.frames(tags), self._number))
        self._unsettled.acked(tags)
        self.settled_at = asyncio.get_running_loop().time()

    def give_back(self, tags: Sequence[int], *, failed: bool = False) -> None:
        """Write nacks that return messages to their places in the queue, uncounted: AMQP cannot count. Raises
        ChannelGone."""
        assert not failed
        self._check()
        self._write(frames.requeues(self._unsettled.frames(tags), self._number))
        self._unsettled.returned(tags)
        self.settled_at = asyncio.get_running_loop().time()

    def put_back(self, messages: Sequence[NativeMessage]) -> None:
        """Return messages that were not handed out. Where the channel has ended, the broker has done so."""
        if messages and self.is_open:
            self.give_back([each.tag for each in messages])

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
            if (consumer := self._consumers.pop(short_at(payload, len(kind))[0], None)) is not None:
                consumer[1]()
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
        native = NativeMessage(body, properties_of(self._header), method.redelivered, method.tag, method.left)
        self._unsettled.hold(method.tag, None)
        if method.consumer is None:
            self._get_answered(native)
        elif (consumer := self._consumers.get(method.consumer)) is not None:
            consumer[0](native)
        else:
            # The consumer has ended: no caller would settle the message.
            self.put_back([native])

    def _get_answered(self, message: NativeMessage | None) -> None:
        gets = self._gets[0]
        gets.remaining -= 1
        if message is not None:
            gets.arrived.append(message)
        if gets.remaining == 0:
            self._gets.popleft()
            if not gets.future.done():
                gets.future.set_result(gets.arrived)
            else:
                # The caller was cancelled: no other one would settle these messages.
                self.put_back(gets.arrived)

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        cause = None if closing.cancelled() else closing.exception()
        gone = ChannelGone(" ".join(str(part) for part in cause.args if part is not None) if cause else "closed")
        gone.__cause__ = cause
        self._confirms.abandon(gone)
        self._unsettled.clear()
        # The rest of a message that is half read has no get to answer any more. The channel stays in the reader's
        # ``contents`` until its number is used again: it drops what arrives late, and aiormq would decode it.
        self._method = None
        for _, ended in self._consumers.values():
            ended()
        self._consumers.clear()
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
