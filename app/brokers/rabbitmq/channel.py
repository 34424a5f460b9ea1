"""One AMQP channel. Opening, declaring and closing are aiormq's; the frames of the hot path are ours.

aiormq spends a task and several queue hops on each publish, get and delivery. Its connection hands frames to a channel
by ``channel.frames.put`` and writes what is put into ``channel.write_queue``. The one is replaced here and the other
used, so that a batch is one write and its answers arrive without a task each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import pamqp.frame
from aiormq.abc import AbstractConnection, ChannelFrame
from aiormq.channel import Channel as RpcChannel
from aiormq.exceptions import ChannelClosed
from msgspec import Struct
from pamqp import commands as spec

from app.brokers.rabbitmq import frames
from app.brokers.rabbitmq.confirms import Confirms
from app.brokers.rabbitmq.frames import FrameReader, properties_of, size_of
from app.brokers.rabbitmq.profile import AddressedMessage, NativeMessage

_CLOSE_SECONDS = 2.0


class ChannelMessage(Struct, frozen=True):
    """A message that came in: its delivery ``tag`` on this channel; ``left`` in the queue when it was got."""

    tag: int
    message: NativeMessage
    left: int = 0


class ChannelGone(Exception):
    """The channel or its connection ended before the answer; the text, and ``__cause__``, are the broker's reason."""


class Unsettled:
    """Delivery tags in the order of their arrival, which is their own."""

    def __init__(self) -> None:
        self._tags: OrderedDict[int, None] = OrderedDict()

    def arrived(self, tag: int) -> None:
        """A message has come."""
        self._tags[tag] = None

    def settle(self, tags: Sequence[int]) -> list[tuple[int, bool]]:
        """What to write to settle ``tags``: tag, and whether it stands for all before it.

        All from the oldest on are one frame, and one command where the queue has replicas. Nothing that arrived is
        unknown here, so a frame for many never settles what somebody else still has.
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
    waited_for: int
    arrived: list[ChannelMessage]
    future: asyncio.Future[list[ChannelMessage]]


class Channel:
    """A channel of its own ``generation``: a delivery tag means something only together with it.

    All methods are safe to call concurrently from one event loop. When the channel ends, whatever waits raises
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
        self._method: spec.Basic.GetOk | spec.Basic.Deliver | spec.Basic.Return | None = None
        self._header = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._unwritten: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None
        rpc.frames = cast("asyncio.Queue[Any]", _FrameInterceptor(rpc.frames, self._take))
        reader.contents[self._number] = self
        rpc.closing.add_done_callback(self._ended)

    @classmethod
    async def open(
        cls, connection: AbstractConnection, reader: FrameReader, number: int, *, confirms: bool = False
    ) -> Channel:
        """Open the channel ``number``; with ``confirms`` it is one to publish on. Raises aiormq's errors."""
        return cls(cast(RpcChannel, await connection.channel(number, publisher_confirms=confirms)), reader)

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return not self.rpc.is_closed

    async def close(self) -> None:
        """Close it, within 2 s: the broker takes back what it delivered here and was not settled. Never raises."""
        # Without an answer the channel counts as open at the broker; its connection does not answer either.
        with contextlib.suppress(Exception):
            await self.rpc.close(ChannelClosed(200, "closed"), timeout=_CLOSE_SECONDS)

    def publish(self, messages: Sequence[AddressedMessage]) -> list[asyncio.Future[None]]:
        """Write all, mandatory, in one piece; each future is done at its confirm, or raises Returned or Nacked.

        The future of a message that AMQP cannot carry raises why (ValueError, TypeError …); it is not written.
        """
        self._check()
        loop = asyncio.get_running_loop()
        written: list[bytes] = []
        futures: list[asyncio.Future[None]] = []
        for message in messages:
            future: asyncio.Future[None] = loop.create_future()
            futures.append(future)
            try:
                written.append(frames.publish(message, self._number, self._frame_max))
            except Exception as error:
                # Whatever it is: the others, which are counted already, must be written.
                future.set_exception(error)
            else:
                self._confirms.expect(message, future)
        self._write(b"".join(written))
        return futures

    async def get(self, queue: str, count: int) -> list[ChannelMessage]:
        """Up to ``count`` messages that are ready: ``count`` pipelined ``basic.get`` in one write."""
        self._check()
        future: asyncio.Future[list[ChannelMessage]] = asyncio.get_running_loop().create_future()
        self._gets.append(_PendingGets(count, [], future))
        self._write(self._frame(spec.Basic.Get(queue=queue)) * count)
        try:
            return await future
        except asyncio.CancelledError:
            # They may have come in the same turn of the loop.
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
        """Start a consumer that gets at most ``prefetch`` messages until some are settled; its tag.

        ``cancelled`` is called when the broker ends it: the queue was deleted, or has lost its leader.
        """
        self._check()
        tag = f"babelgate-{os.urandom(6).hex()}"
        self._consumers[tag] = arrived, cancelled
        try:
            await self.rpc.basic_qos(prefetch_count=prefetch)
            await self.rpc.rpc(spec.Basic.Consume(queue=queue, consumer_tag=tag))
        except BaseException:
            self._consumers.pop(tag, None)
            raise
        return tag

    async def cancel(self, tag: str) -> None:
        """Stop a consumer; once this returns, all that the broker ever sent it has arrived."""
        try:
            await self.rpc.rpc(spec.Basic.Cancel(consumer_tag=tag))
        finally:
            self._consumers.pop(tag, None)

    def ack(self, tags: Sequence[int]) -> None:
        """Write acks; AMQP answers none of them (see :meth:`barrier`)."""
        self._check()
        self._write(frames.acks(self._unsettled.settle(tags), self._number))

    def requeue(self, tags: Sequence[int]) -> None:
        """Write nacks that put the messages back where they were."""
        self._check()
        self._write(frames.requeues(self._unsettled.settle(tags), self._number))

    async def barrier(self) -> None:
        """A round trip behind all that was written before: the broker has read it. Callers of one turn share it."""
        self._check()
        if self._barrier is None:
            self._barrier = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._send_barrier)
        await asyncio.shield(self._barrier)

    def _send_barrier(self) -> None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None and not barrier.done():
            self._barriers.append(barrier)
            # Of the methods that the broker answers at once this one changes nothing: the flow is on already.
            self._write(self._frame(spec.Channel.Flow(active=True)))

    def _take(self, frame: Any) -> bool:
        """Deal with a frame of the hot path; False for all others."""
        kind = type(frame)
        if kind is spec.Basic.Ack:
            self._confirms.confirmed(frame.delivery_tag, frame.multiple, taken=True)
        elif kind is spec.Basic.GetOk or kind is spec.Basic.Deliver or kind is spec.Basic.Return:
            self._method = frame
        elif kind is spec.Basic.GetEmpty:
            self._got(None)
        elif kind is spec.Channel.FlowOk:
            barrier = self._barriers.popleft()
            if not barrier.done():
                barrier.set_result(None)
        elif kind is spec.Basic.Cancel:
            _, cancelled = self._consumers.pop(frame.consumer_tag, (None, None))
            if cancelled is not None:
                cancelled()
            return False
        elif kind is spec.Basic.Nack:
            self._confirms.confirmed(frame.delivery_tag, frame.multiple, taken=False)
        else:
            return False
        return True

    def content_header(self, payload: bytes) -> None:
        """See :class:`app.brokers.rabbitmq.frames.ContentHandler`."""
        self._header, self._parts, self._missing = payload, [], size_of(payload)
        if not self._missing:
            self._complete()

    def content_body(self, payload: bytes) -> None:
        """See :class:`app.brokers.rabbitmq.frames.ContentHandler`."""
        self._parts.append(payload)
        self._missing -= len(payload)
        if self._missing <= 0:
            self._complete()

    def _complete(self) -> None:
        """A message is whole."""
        method, body = self._method, b"".join(self._parts)
        self._method, self._parts = None, []
        if isinstance(method, spec.Basic.Return):
            self._confirms.returned(method, body)
            return
        if method is None:
            # aiormq has closed the channel meanwhile, and kept its method to itself.
            return
        native = NativeMessage(
            body,
            properties_of(self._header),
            method.exchange or "",
            method.routing_key or "",
            bool(method.redelivered),
        )
        tag = method.delivery_tag or 0
        self._unsettled.arrived(tag)
        if isinstance(method, spec.Basic.GetOk):
            self._got(ChannelMessage(tag, native, method.message_count or 0))
            return
        arrived, _ = self._consumers.get(method.consumer_tag or "", (None, None))
        if arrived is not None:
            arrived(ChannelMessage(tag, native))
        elif self.is_open:
            # Its consumer is gone: nobody would ever settle it.
            self.requeue([tag])

    def _got(self, message: ChannelMessage | None) -> None:
        gets = self._gets[0]
        gets.waited_for -= 1
        if message is not None:
            gets.arrived.append(message)
        if gets.waited_for == 0:
            self._gets.popleft()
            if not gets.future.done():
                gets.future.set_result(gets.arrived)
            elif gets.arrived and self.is_open:
                # Whoever asked is gone: nobody would ever settle these.
                self.requeue([arrived.tag for arrived in gets.arrived])

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        cause = None if closing.cancelled() else closing.exception()
        gone = ChannelGone(" ".join(str(part) for part in cause.args if part is not None) if cause else "closed")
        gone.__cause__ = cause
        if self._reader.contents.get(self._number) is self:
            del self._reader.contents[self._number]
        waiting: list[asyncio.Future[Any]] = [*self._confirms.abandon()]
        waiting += [gets.future for gets in self._gets]
        waiting += self._barriers
        if self._barrier is not None:
            waiting.append(self._barrier)
        self._gets.clear()
        self._barriers.clear()
        if self._writing is not None:
            self._writing.cancel()
        for future in waiting:
            if not future.done():
                future.set_exception(gone)
                future.exception()

    def _check(self) -> None:
        if self.rpc.is_closed:
            raise ChannelGone("closed")

    def _frame(self, method: Any) -> bytes:
        return pamqp.frame.marshal(method, self._number)

    def _write(self, payload: bytes) -> None:
        """Hand over to the connection, in order; what its short queue has no room for follows as one piece."""
        if self._writing is None:
            with contextlib.suppress(asyncio.QueueFull):
                self.rpc.write_queue.put_nowait(ChannelFrame(payload=payload, should_close=False))
                return
            self._writing = asyncio.get_running_loop().create_task(self._write_rest())
        self._unwritten.append(payload)

    async def _write_rest(self) -> None:
        try:
            while self._unwritten:
                rest = b"".join(self._unwritten)
                self._unwritten.clear()
                await self.rpc.write_queue.put(ChannelFrame(payload=rest, should_close=False))
        finally:
            self._writing = None


class _FrameInterceptor:
    """Stands where aiormq has a channel's queue of frames."""

    def __init__(self, inner: asyncio.Queue[Any], take: Callable[[Any], bool]) -> None:
        self._inner = inner
        self._take = take
        self.get = inner.get
        self.task_done = inner.task_done

    async def put(self, weighted: tuple[int, Any]) -> None:
        if not self._take(weighted[1]):
            await self._inner.put(weighted)
