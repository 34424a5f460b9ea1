"""The frames that arrive on an AMQP connection: the reader in front of aiormq.

The three kinds of frames of a message go directly to its channel, and so do confirms and the answers to gets and
barriers. The properties of a message are arbitrary: a text that is not UTF-8, or a time after the year 9999, would end
the connection when aiormq decodes it, and, after redelivery, the next connection. :func:`properties_of` omits
unreadable properties instead. The reader also keeps the broker's reasons for blocking publishers and for closing the
connection. aiormq derives the liveness of the connection from the frames that it gets, so it gets a heartbeat when it
would get nothing else for a second.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp.commands import Basic
from yarl import URL

from babelgate.brokers.rabbitmq import tables
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

FRAME = struct.Struct(">BHI")
"""Frame type, channel and size; the payload and the end byte follow."""
METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
_END = END[0]
_PROTOCOL = ord("A")
FRAME_OVERHEAD = 8
"""Bytes of a frame beside its payload (AMQP 0-9-1, section 4.2.3)."""
PROPERTIES = [
    (name, Basic.Properties.flags[name], Basic.Properties.amqp_type(name)) for name in Basic.Properties.attributes()
]
"""The name, flag and type of each property of a message, in their order."""

_HEARTBEAT = 8
_ALIVE = FRAME.pack(_HEARTBEAT, 0, 0) + END
_ALIVE_SECONDS = 1.0
_DELIVER, _GET_OK, RETURN = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x47", b"\x00\x3c\x00\x32"
ACK, NACK, GET_EMPTY = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78", b"\x00\x3c\x00\x48"
QOS_OK, FLOW_OK, CANCEL = b"\x00\x3c\x00\x0b", b"\x00\x14\x00\x15", b"\x00\x3c\x00\x1e"
_TAKEN = frozenset((_DELIVER, _GET_OK, RETURN, ACK, NACK, GET_EMPTY, QOS_OK, FLOW_OK, CANCEL))
"""The methods that a channel takes: class and method (AMQP 0-9-1, section 4.2.4)."""
_CLOSE, _BLOCKED, _UNBLOCKED = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
_USUAL = 256
"""Size of the cache of decoded property tables."""
_USUAL_BYTES = 512
"""Larger tables are not kept."""
FIXED = 12
"""Bytes of a content header before its flags: class, weight, body size (AMQP 0-9-1, section 4.2.6.1)."""
TAG = struct.Struct(">QB")
"""A delivery tag, and bits."""
_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")

_UNREADABLE = (ValueError, OverflowError, OSError, IndexError, RecursionError, struct.error)

_throttled = LogThrottle(get_logger(__name__))


class Arrival(NamedTuple):
    """The method of a received message. ``consumer``: its tag, or None after a get; ``left``: in the queue after a
    get."""

    tag: int
    redelivered: bool
    consumer: str | None = None
    left: int = 0


def arrival_of(payload: bytes) -> Arrival:
    """Decode the method Deliver or GetOk: AMQP 0-9-1, sections 1.8.3.14 and 1.8.3.16."""
    at, consumer, left = len(_DELIVER), None, 0
    if payload.startswith(_DELIVER):
        consumer, at = short_at(payload, at)
    else:
        # Exchange and routing key stand before it, and are not needed.
        left = int.from_bytes(payload[-4:], "big")
    tag, bits = TAG.unpack_from(payload, at)
    return Arrival(tag, bool(bits & 1), consumer, left)


class ContentHandler(Protocol):
    """Receives the messages of a channel, and the answers to what it writes."""

    def content_method(self, payload: bytes) -> bool:
        """The method Deliver or GetOk of the next message, for :func:`arrival_of`, or Return; or an answer, such as
        Ack. False: aiormq has to get it."""

    def content_header(self, payload: bytes) -> None:
        """The header of the next message: its body's size, and its properties, for :func:`properties_of`."""

    def content_body(self, payload: bytes) -> None:
        """A part of its body."""


class FrameReader(asyncio.Protocol):
    """Replaces the stream of aiormq, and passes on what it does not take.

    ``transport``: that of the connection, to write to. ``contents``: the receivers of message content by channel
    number. ``blocked``: the broker's reason while it blocks publishers. ``closed``: its reason for closing the
    connection. ``heard``: how often bytes have arrived.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.heard = 0
        self.contents: dict[int, ContentHandler] = {}
        self.blocked: str | None = None
        self.closed: str | None = None
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        """The start of a frame."""
        self._passed: deque[bytes] = deque()
        """Frames for aiormq."""
        self._passed_at = self._loop.time()
        self._frame = b""
        """The frame that aiormq reads. The bytes before ``_start`` are read."""
        self._start = 0
        self._reading: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        """Why no more frames will come."""
        self._streams = cast(asyncio.Protocol, transport.get_protocol())
        """The protocol of aiormq's writer."""
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        """Give each frame to its channel or to aiormq."""
        if self._error is not None:
            # Where the next frame begins is not known any more.
            return
        self.heard += 1
        try:
            self._rest = self._read(self._rest + data if self._rest else data)
        except Exception as error:
            # As if aiormq had read the frame: it ends the connection.
            self._end(error)
            return
        if self._passed:
            self._passed_at = self._loop.time()
            self._wake()
        elif self._loop.time() - self._passed_at >= _ALIVE_SECONDS:
            self._passed_at = self._loop.time()
            self._passed.append(_ALIVE)
            self._wake()

    def eof_received(self) -> None:
        """No more frames will come; the transport closes itself."""
        self._end(asyncio.IncompleteReadError(self._rest, None))

    def connection_lost(self, exc: Exception | None) -> None:
        """No more frames will come."""
        self._streams.connection_lost(exc)
        self._end(exc or asyncio.IncompleteReadError(self._rest, None))

    def pause_writing(self) -> None:
        """For aiormq's writer."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """For aiormq's writer."""
        self._streams.resume_writing()

    def at_eof(self) -> bool:
        """Whether aiormq has read all frames and no more will come."""
        ended = isinstance(self._error, asyncio.IncompleteReadError) and not self._rest
        return ended and not self._passed and self._start == len(self._frame)

    async def readexactly(self, count: int) -> bytes:
        """The next ``count`` bytes for aiormq, which lie in one frame. Raises asyncio.IncompleteReadError, and why the
        connection was lost."""
        if self._start == len(self._frame):
            while not self._passed:
                if self._error is not None:
                    raise self._error
                self._reading = self._loop.create_future()
                await self._reading
            self._frame, self._start = self._passed.popleft(), 0
        start, self._start = self._start, self._start + count
        return self._frame[start : self._start]

    def _read(self, data: bytes) -> bytes:
        """Pass on the complete frames in ``data``; return the remaining bytes."""
        at, end = 0, len(data)
        while end - at >= FRAME_OVERHEAD:
            kind, channel, size = FRAME.unpack_from(data, at)
            # A server of another protocol version answers with its protocol header instead of a frame.
            stop = at + FRAME_OVERHEAD + (size if kind != _PROTOCOL else 0)
            if stop > end:
                break
            content = self.contents.get(channel)
            if content is not None and data[stop - 1] == _END:
                payload = data[at + FRAME.size : stop - 1]
                if kind == BODY:
                    content.content_body(payload)
                elif kind == HEADER:
                    content.content_header(payload)
                elif kind != METHOD or payload[:4] not in _TAKEN or not content.content_method(payload):
                    self._passed.append(data[at:stop])
            else:
                if channel == 0 and kind == METHOD:
                    self._note(data[at + FRAME.size : stop])
                self._passed.append(data[at:stop])
            at = stop
        return data[at:]

    def _note(self, method: bytes) -> None:
        """Note a block, its end, or the reason for a close."""
        if method.startswith(_BLOCKED):
            self.blocked = short_at(method, 4)[0] or "no reason given"
        elif method.startswith(_CLOSE):
            self.closed = short_at(method, 6)[0]
        elif method.startswith(_UNBLOCKED):
            self.blocked = None

    def _end(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)


def short_at(payload: bytes, start: int) -> tuple[str, int]:
    """The short string at ``start``, and where it ends."""
    end = start + 1 + payload[start]
    return payload[start + 1 : end].decode("utf-8", "replace"), end


class Transport(TransportFactory):
    """Connects like aiormq, and keeps the ``reader`` of the connection."""

    def __init__(self, tls: bool) -> None:
        self._inner = TLSTransportFactory() if tls else TCPTransportFactory()
        self.reader: FrameReader | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The stream of frames, and the writer."""
        _, writer = await self._inner.create(url, **kwargs)
        self.reader = FrameReader(cast(asyncio.Transport, writer.transport))
        return cast(asyncio.StreamReader, self.reader), writer


def size_of(header: bytes) -> int:
    """The body size in the payload of a content header, in bytes."""
    return int.from_bytes(header[4:FIXED], "big")


def properties_of(header: bytes) -> Basic.Properties:
    """The properties in the payload of a content header, without the unreadable ones. Never raises."""
    found = Basic.Properties()
    at = FIXED + _FLAGS.size
    value: Any
    for name, kind in _present(int.from_bytes(header[FIXED:at], "big")):
        # An error inside a property does not affect the position of the next.
        try:
            if kind == "shortstr":
                start, at = at + 1, at + 1 + header[at]
                value = header[start:at].decode()
            elif kind == "table":
                start, at = at + 4, at + 4 + _LENGTH.unpack_from(header, at)[0]
                table = header[start:at]
                # A copy, because its reader may change it. Nested tables are shared, and must not be changed.
                value = dict(_table_of(table)) if len(table) <= _USUAL_BYTES else tables.decoded(table)
            elif kind == "timestamp":
                start, at = at, at + tables.TIME.size
                value = tables.moment_of(*tables.TIME.unpack_from(header, start))
            else:
                start, at = at, at + 1
                value = header[start]
            if at > len(header):
                raise ValueError("the header ends too early")
        except _UNREADABLE as error:
            _throttled.warning("property of a message unreadable", property=name, error=type(error).__name__)
        else:
            setattr(found, name, value)
    return found


@lru_cache(_USUAL)
def _present(flags: int) -> Sequence[tuple[str, str]]:
    """The names and types of the properties that are there."""
    return [(name, kind) for name, flag, kind in PROPERTIES if flags & flag]


@lru_cache(_USUAL)
def _table_of(data: bytes) -> Mapping[str, Any]:
    """The table in ``data``, shared by all messages that have the same: callers copy it before they change it."""
    return tables.decoded(data)
