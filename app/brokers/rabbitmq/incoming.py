"""The frames that arrive on an AMQP connection: the reader in front of aiormq.

The three kinds of frames of a message go directly to its channel. The properties of a message are arbitrary: a text
that is not UTF-8, or a time after the year 9999, would end the connection when aiormq decodes it, and, after
redelivery, the next connection. :func:`properties_of` omits unreadable properties instead. The reader also keeps the
broker's reasons for blocking publishers and for closing the connection. aiormq derives the liveness of the connection
from the frames that it gets, so it gets a heartbeat when it would get nothing else for a second.
"""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import decode
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from yarl import URL

from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

FRAME = struct.Struct(">BHI")
"""Frame type, channel and size; the payload and the end byte follow."""
METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
FRAME_OVERHEAD = 8
"""Bytes of a frame beside its payload (AMQP 0-9-1, section 4.2.3)."""
PROPERTIES = [
    (name, Basic.Properties.flags[name], Basic.Properties.amqp_type(name)) for name in Basic.Properties.attributes()
]
"""The name, flag and type of each property of a message, in their order."""

_HEARTBEAT = 8
_ALIVE = FRAME.pack(_HEARTBEAT, 0, 0) + END
_ALIVE_SECONDS = 1.0
_READ_BYTES = 65_536
_DELIVER, _GET_OK = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x47"
_CLOSE, _BLOCKED, _UNBLOCKED = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
_NO_FLAGS = b"\x00\x00"
FIXED = 12
"""Bytes of a content header before its flags: class, weight, body size (AMQP 0-9-1, section 4.2.6.1)."""
_TAG = struct.Struct(">QB")
_FLAGS = struct.Struct(">H")
_MORE_FLAGS = 1
_LENGTH = struct.Struct(">I")
_MOMENT = struct.Struct(">Q")
_SECONDS_MAX = 0xFFFFFFFF
"""pamqp takes a greater timestamp for milliseconds."""
_LONG_STRING = ord("S")
_NUMBERS = {
    ord("I"): struct.Struct(">i"),
    ord("l"): struct.Struct(">q"),
    ord("d"): struct.Struct(">d"),
    ord("t"): struct.Struct(">?"),
}

_UNREADABLE = (ValueError, OverflowError, OSError, IndexError, struct.error)

_throttled = LogThrottle(get_logger("babelgate.rabbitmq"))


class Arrival(NamedTuple):
    """The method of a received message. ``consumer``: its tag, or None after a get; ``left``: in the queue after a
    get."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    consumer: str | None = None
    left: int = 0


def arrival_of(payload: bytes) -> Arrival:
    """Decode the method Deliver or GetOk: AMQP 0-9-1, sections 1.8.3.14 and 1.8.3.16."""
    at, consumer = len(_DELIVER), None
    if payload.startswith(_DELIVER):
        consumer, at = _short_at(payload, at)
    tag, bits = _TAG.unpack_from(payload, at)
    exchange, at = _short_at(payload, at + _TAG.size)
    key, at = _short_at(payload, at)
    left = 0 if consumer is not None else int.from_bytes(payload[at : at + 4], "big")
    return Arrival(tag, bool(bits & 1), exchange, key, consumer, left)


class ContentHandler(Protocol):
    """Receives the messages of a channel."""

    def content_method(self, payload: bytes) -> bool:
        """The method Deliver or GetOk of the next message, for :func:`arrival_of`. False: aiormq has to get it."""

    def content_header(self, payload: bytes) -> None:
        """The header of the next message: its body's size, and its properties, for :func:`properties_of`."""

    def content_body(self, payload: bytes) -> None:
        """A part of its body."""


class FrameReader:
    """Replaces the stream of aiormq, and passes on one frame after the other.

    ``contents``: the receivers of message content by channel number; for other channels aiormq gets a header without
    properties. ``blocked``: the broker's reason while it blocks publishers. ``closed``: its reason for closing the
    connection. ``heard``: how often bytes have arrived.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self.heard = 0
        self._stream = stream
        self._clock = asyncio.get_running_loop().time
        self._passed_at = self._clock()
        self._buffer = b""
        """What has been read. The bytes before ``_at`` are done."""
        self._at = 0
        self._frame = b""
        self._start = 0
        self.contents: dict[int, ContentHandler] = {}
        self.blocked: str | None = None
        self.closed: str | None = None

    def at_eof(self) -> bool:
        """Whether all frames have been read and no more will come."""
        return self._at == len(self._buffer) and self._stream.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """The next ``count`` bytes, which lie in one frame. Raises asyncio.IncompleteReadError."""
        if self._start == len(self._frame):
            self._frame, self._start = await self._next(), 0
        start, self._start = self._start, self._start + count
        return self._frame[start : self._start]

    async def _next(self) -> bytes:
        while True:
            await self._fill(FRAME_OVERHEAD)
            if self._buffer.startswith(b"AMQP", self._at):
                # A server of another protocol version answers with its protocol header instead of a frame.
                return self._cut(FRAME_OVERHEAD)
            kind, channel, size = FRAME.unpack_from(self._buffer, self._at)
            await self._fill(FRAME_OVERHEAD + size)
            head, payload, end = self._cut(FRAME.size), self._cut(size), self._cut(1)
            content = self.contents.get(channel) if end == END else None
            if content is None or not _takes(content, kind, payload):
                self._passed_at = self._clock()
                return self._passed(head, payload + end, kind, channel)
            if kind == METHOD and self._clock() - self._passed_at >= _ALIVE_SECONDS:
                self._passed_at = self._clock()
                return _ALIVE

    async def _fill(self, count: int) -> None:
        """Read until ``count`` bytes can be cut."""
        while len(self._buffer) - self._at < count:
            read = await self._stream.read(_READ_BYTES)
            left = self._cut(len(self._buffer) - self._at)
            if not read:
                raise asyncio.IncompleteReadError(left, count)
            self.heard += 1
            self._buffer, self._at = left + read, 0

    def _cut(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        return self._buffer[start : self._at]

    def _passed(self, head: bytes, rest: bytes, kind: int, channel: int) -> bytes:
        """The frame for aiormq."""
        if kind == HEADER:
            rest = rest[:FIXED] + _NO_FLAGS + rest[-1:]
            head = FRAME.pack(kind, channel, len(rest) - 1)
        elif channel == 0 and kind == METHOD:
            if rest.startswith(_BLOCKED):
                self.blocked = _text(rest, 4) or "no reason given"
            elif rest.startswith(_CLOSE):
                self.closed = _text(rest, 6)
            elif rest.startswith(_UNBLOCKED):
                self.blocked = None
        return head + rest


def _takes(content: ContentHandler, kind: int, payload: bytes) -> bool:
    """Give a frame to its channel. False: it is no part of a message."""
    if kind == BODY:
        content.content_body(payload)
    elif kind == HEADER:
        content.content_header(payload)
    else:
        return kind == METHOD and payload.startswith((_DELIVER, _GET_OK)) and content.content_method(payload)
    return True


def _text(payload: bytes, start: int) -> str:
    return _short_at(payload, start)[0]


def _short_at(payload: bytes, start: int) -> tuple[str, int]:
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
        stream, writer = await self._inner.create(url, **kwargs)
        self.reader = FrameReader(stream)
        return cast(asyncio.StreamReader, self.reader), writer


def size_of(header: bytes) -> int:
    """The body size in the payload of a content header, in bytes."""
    return int.from_bytes(header[4:FIXED], "big")


def properties_of(header: bytes) -> Basic.Properties:
    """The properties in the payload of a content header, without the unreadable ones. Never raises."""
    try:
        return _ordinary(header)
    except (KeyError, *_UNREADABLE):
        pass
    whole = ContentHeader()
    try:
        whole.unmarshal(header)
        return whole.properties
    except _UNREADABLE:
        return _readable(header[FIXED:])


def _ordinary(header: bytes) -> Basic.Properties:
    """The properties of a usual message, as pamqp would decode them. Raises an error for any other message."""
    found = Basic.Properties()
    (flags,) = _FLAGS.unpack_from(header, FIXED)
    at = FIXED + _FLAGS.size
    if flags & _MORE_FLAGS:
        raise ValueError
    for name, flag, kind in PROPERTIES:
        if not flags & flag:
            continue
        value: Any
        if kind == "shortstr":
            end = at + 1 + header[at]
            value = header[at + 1 : end].decode()
        elif kind == "table":
            end = at + 4 + _LENGTH.unpack_from(header, at)[0]
            value = _table_of(header, at + 4, end)
        elif kind == "timestamp":
            end = at + 8
            seconds: int = _MOMENT.unpack_from(header, at)[0]
            if seconds > _SECONDS_MAX:
                raise ValueError
            value = datetime.fromtimestamp(seconds, UTC)
        else:
            end = at + 1
            value = header[at]
        if end > len(header):
            raise ValueError
        setattr(found, name, value)
        at = end
    return found


def _table_of(data: bytes, at: int, end: int) -> dict[str, Any]:
    """The table in ``data[at:end]``, with values of the types that publishers use most."""
    table: dict[str, Any] = {}
    while at < end:
        start = at + 1
        at = start + data[at]
        name = data[start:at].decode()
        kind = data[at]
        at += 1
        if kind == _LONG_STRING:
            start = at + 4
            at = start + _LENGTH.unpack_from(data, at)[0]
            table[name] = data[start:at].decode()
        else:
            number = _NUMBERS[kind]
            (table[name],) = number.unpack_from(data, at)
            at += number.size
    if at != end:
        raise ValueError
    return table


def _readable(data: bytes) -> Basic.Properties:
    """Read the properties one by one: an error inside one property does not affect the position of the next."""
    found = Basic.Properties()
    try:
        (flags,) = struct.unpack_from(">H", data)
        rest = data[2:]
        for position, name in enumerate(Basic.Properties.attributes()):
            if flags & (1 << 15 - position):
                kind = Basic.Properties.amqp_type(name)
                size = _size(kind, rest)
                try:
                    setattr(found, name, decode.by_type(rest[:size], kind)[1])
                except _UNREADABLE as error:
                    _throttled.warning("property of a message unreadable", property=name, error=type(error).__name__)
                rest = rest[size:]
    except _UNREADABLE as error:
        _throttled.warning("properties of a message unreadable", error=type(error).__name__)
    return found


def _size(kind: str, data: bytes) -> int:
    if kind == "shortstr":
        return 1 + data[0]
    if kind == "table":
        return 4 + int(struct.unpack_from(">I", data)[0])
    return {"octet": 1, "timestamp": 8}[kind]
