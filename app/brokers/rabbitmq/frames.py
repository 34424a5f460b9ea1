"""The frames of one AMQP connection as they come in, before aiormq sees them.

Three things are dealt with here. The content of messages goes straight to its channel: two frames of three that aiormq
need not look at. The properties of a message are whatever its publisher wrote: a text that is not UTF-8, or a time past
the year 9999, would end the connection when aiormq decodes it, and the message, delivered again, the next one; here
:func:`properties_of` leaves out what it cannot read. And what the broker says of the connection as a whole is kept in
its words: that it blocks publishers, that it closes. Methods are aiormq's, which tells a live connection by them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Protocol, cast

import pamqp.decode
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from yarl import URL

from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

_HEAD = struct.Struct(">BHI")
_METHOD, _HEADER, _BODY = 1, 2, 3
_CLOSE, _BLOCKED, _UNBLOCKED = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
_END = 0xCE
_NO_FLAGS = b"\x00\x00"
_FIXED = 12
"""Bytes of a content header before its flags: class, weight, body size (AMQP 0-9-1, section 4.2.6.1)."""

_UNREADABLE = (ValueError, OverflowError, OSError, IndexError, struct.error)

_throttled = LogThrottle(get_logger("babelgate.rabbitmq"))


class Content(Protocol):
    """Takes the content of a channel's messages; the method that announces one has come before, through aiormq."""

    def content_header(self, payload: bytes) -> None:
        """The header of the next message: its body's size, and its properties, for :func:`properties_of`."""

    def content_body(self, payload: bytes) -> None:
        """A part of its body."""


class FrameReader:
    """Stands where aiormq has its stream, and hands out one frame after the other.

    ``contents``, by channel number, get the content of messages; without one aiormq gets a header without properties.
    ``blocked`` is the broker's reason while it blocks publishers, ``closed`` the one it closed the connection with.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._frame = b""
        self._start = 0
        self.contents: dict[int, Content] = {}
        self.blocked: str | None = None
        self.closed: str | None = None
        self.at_eof: Callable[[], bool] = stream.at_eof

    async def readexactly(self, count: int) -> bytes:
        """The next ``count`` bytes, which lie in one frame. Raises asyncio.IncompleteReadError."""
        if self._start == len(self._frame):
            self._frame, self._start = await self._next(), 0
        start, self._start = self._start, self._start + count
        return self._frame[start : self._start]

    async def _next(self) -> bytes:
        while True:
            head = await self._stream.readexactly(_HEAD.size)
            if head.startswith(b"AMQP"):
                # No frame, but the version of the protocol that a server speaks which does not speak ours.
                return head + await self._stream.readexactly(1)
            kind, channel, size = _HEAD.unpack(head)
            rest = await self._stream.readexactly(size + 1)
            content = self.contents.get(channel) if kind in (_HEADER, _BODY) and rest[-1] == _END else None
            if content is None:
                return self._passed(head, rest, kind, channel)
            if kind == _HEADER:
                content.content_header(rest[:-1])
            else:
                content.content_body(rest[:-1])

    def _passed(self, head: bytes, rest: bytes, kind: int, channel: int) -> bytes:
        """The frame as aiormq gets it."""
        if kind == _HEADER:
            rest = rest[:_FIXED] + _NO_FLAGS + rest[-1:]
            head = _HEAD.pack(kind, channel, len(rest) - 1)
        elif channel == 0 and kind == _METHOD:
            if rest.startswith(_BLOCKED):
                self.blocked = _text(rest, 4) or "no reason given"
            elif rest.startswith(_CLOSE):
                self.closed = _text(rest, 6)
            elif rest.startswith(_UNBLOCKED):
                self.blocked = None
        return head + rest


def _text(payload: bytes, start: int) -> str:
    """The short string at ``start``."""
    return payload[start + 1 : start + 1 + payload[start]].decode("utf-8", "replace")


class Transport(TransportFactory):
    """Connects as aiormq does, and keeps the ``reader`` once it has."""

    def __init__(self, tls: bool) -> None:
        self._inner = TLSTransportFactory() if tls else TCPTransportFactory()
        self.reader: FrameReader | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The stream of frames, and the writer."""
        stream, writer = await self._inner.create(url, **kwargs)
        self.reader = FrameReader(stream)
        return cast(asyncio.StreamReader, self.reader), writer


def size_of(header: bytes) -> int:
    """The size of the body that the payload of a content header announces."""
    return int.from_bytes(header[4:_FIXED], "big")


def properties_of(header: bytes) -> Basic.Properties:
    """The properties in the payload of a content header; those that cannot be read are left out. Never raises."""
    whole = ContentHeader()
    try:
        whole.unmarshal(header)
        return whole.properties
    except _UNREADABLE:
        return _readable(header[_FIXED:])


def _readable(data: bytes) -> Basic.Properties:
    """Read one property after the other: what is broken inside one of them leaves the place of the next known."""
    found = Basic.Properties()
    try:
        (flags,) = struct.unpack_from(">H", data)
        rest = data[2:]
        for position, name in enumerate(Basic.Properties.attributes()):
            if flags & (1 << 15 - position):
                kind = Basic.Properties.amqp_type(name)
                size = _size(kind, rest)
                try:
                    setattr(found, name, pamqp.decode.by_type(rest[:size], kind)[1])
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
