"""The frames of one AMQP connection: those of the hot path as bytes, and the reader in front of aiormq.

Outgoing: publish, ack and nack are encoded here in a fraction of pamqp's time, see docs/adr/0014-amqp-frames.md. Header
values that pamqp would change or refuse are kept: numbers of double precision, and texts that are not UTF-8. All other
values of a table are encoded by pamqp.

Incoming: the content of messages goes directly to its channel; these are two of three frames. The properties of a
message are arbitrary: a text that is not UTF-8, or a time after the year 9999, would end the connection when aiormq
decodes it, and, after redelivery, the next connection. :func:`properties_of` omits unreadable properties instead. The
reader also keeps the broker's reasons for blocking publishers and for closing the connection. aiormq gets all methods,
because it derives the liveness of the connection from them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import decode, encode
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from yarl import URL

from app.brokers.projection import NativeHeader, NativeWrite
from app.brokers.rabbitmq.profile import SHORT_BYTES, AddressedMessage
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

# Frame type, channel and size; the payload and the end byte follow.
_FRAME = struct.Struct(">BHI")
_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"
_CLOSE, _BLOCKED, _UNBLOCKED = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
_NO_FLAGS = b"\x00\x00"
_FIXED = 12
"""Bytes of a content header before its flags: class, weight, body size (AMQP 0-9-1, section 4.2.6.1)."""

_UNREADABLE = (ValueError, OverflowError, OSError, IndexError, struct.error)

_throttled = LogThrottle(get_logger("babelgate.rabbitmq"))

FRAME_OVERHEAD = 8
"""Bytes of a frame beside its payload (AMQP 0-9-1, section 4.2.3)."""

_COPIES = ("CC", "BCC")
"""Sender-selected distribution: https://www.rabbitmq.com/docs/sender-selected"""

# Class 60 (basic), method and reserved field of publish, and its bits. AMQP 0-9-1, sections 1.8.3.3 and 1.8.3.13.
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY = b"\x01"
_SETTLE = struct.Struct(">BHIHHQBB")
_ACK, _NACK, _REQUEUE = 80, 120, 2
_CONTENT = struct.Struct(">HHQH")
_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
# Whole numbers are written as int32 or int64, like most clients do. pamqp would take the smallest of nine types, and a
# peer that expects an int32, as the Open Job Spec does for its attempts, would read a byte.
_INT32, _INT64 = struct.Struct(">ci"), struct.Struct(">cq")
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1

_TYPES = {b"S": "longstr", b"I": "int32", b"l": "int64", b"d": "double", b"t": "boolean", b"F": "table", b"A": "array"}
"""The types of header values by their octet: https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""

_PUBLIC_NAMES = {"message_type": "type"}
"""Names of properties that pamqp changes."""

_PROPERTIES = [
    (name, Basic.Properties.flags[name], Basic.Properties.amqp_type(name)) for name in Basic.Properties.attributes()
]


def publish(message: AddressedMessage, channel: int, frame_max: int) -> bytes:
    """The frames that publish ``message``, mandatory. Raises ValueError or TypeError when AMQP cannot carry it."""
    method = b"".join((_PUBLISH, _short(message.exchange), _short(message.routing_key), _MANDATORY))
    body = message.body
    header = _header(message.properties, len(body))
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    if frame_max and len(header) > room:
        # The broker would close the connection, with everything that is in flight on it.
        raise ValueError(f"the headers and properties have {len(header)} bytes, and at most {room} fit into a frame")
    parts = [_frame(_METHOD, channel, method), _frame(_HEADER, channel, header)]
    for start in range(0, len(body), room or 1):
        parts.append(_frame(_BODY, channel, body[start : start + room]))
    return b"".join(parts)


def projection(message: AddressedMessage, assigned: frozenset[str]) -> NativeWrite:
    """The message that the frames of :func:`publish` carry, decoded from them. ``assigned``: see NativeWrite.

    Raises ValueError or TypeError when AMQP cannot carry ``message``.
    """
    wire = publish(message, 1, 0)
    payloads: list[bytes] = []
    while wire:
        _, _, size = _FRAME.unpack_from(wire)
        payloads.append(wire[_FRAME.size : _FRAME.size + size])
        wire = wire[_FRAME.size + size + len(_END) :]
    method, header, *body = payloads
    sent = Basic.Publish()
    sent.unmarshal(method[4:])
    found = properties_of(header)
    properties = {name: getattr(found, name) for name, _, kind in _PROPERTIES if kind != "table"}
    if isinstance(found.timestamp, datetime):
        properties["timestamp"] = int(found.timestamp.timestamp())
    table = found.headers or {}
    headers = {name: NativeHeader(_TYPES.get(_value(value)[:1], "other"), value) for name, value in table.items()}
    target: dict[str, str | bool] = {
        "exchange": sent.exchange or "",
        "routing_key": sent.routing_key or "",
        "mandatory": bool(sent.mandatory),
    }
    return NativeWrite(
        "basic.publish",
        target,
        {_PUBLIC_NAMES.get(name, name): value for name, value in properties.items() if value not in (None, "")},
        headers,
        b"".join(body),
        sorted(assigned & headers.keys()),
    )


def acks(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that ack deliveries; ``settled``: pairs of a tag and the ``multiple`` flag."""
    return b"".join([_SETTLE.pack(_METHOD, channel, 13, 60, _ACK, tag, many, _END[0]) for tag, many in settled])


def requeues(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that requeue deliveries; ``settled`` as for :func:`acks`."""
    return b"".join(
        [_SETTLE.pack(_METHOD, channel, 13, 60, _NACK, tag, many | _REQUEUE, _END[0]) for tag, many in settled]
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"".join((_FRAME.pack(kind, channel, len(payload)), payload, _END))


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > SHORT_BYTES:
        raise ValueError(f"a property, an exchange or a routing key has more than {SHORT_BYTES} bytes")
    return bytes((len(encoded),)) + encoded


def _header(properties: Basic.Properties, body_size: int) -> bytes:
    flags, parts = 0, [b""]
    for name, flag, kind in _PROPERTIES:
        value = getattr(properties, name)
        if value is None or value == "":
            continue
        flags |= flag
        if kind == "shortstr":
            parts.append(_short(value))
        elif kind == "table":
            for copies in _COPIES:
                if copies in value and not isinstance(value[copies], list):
                    # The broker would close the channel, with everything that is in flight on it.
                    raise ValueError(f"the header {copies} is the broker's own: it names further queues")
            parts.append(_table(value))
        else:
            parts.append(encode.by_type(value, kind))
    parts[0] = _CONTENT.pack(60, 0, body_size, flags)
    return b"".join(parts)


def _table(table: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in table.items():
        encoded = name.encode()
        # Section 4.2.5.5 says 128, but RabbitMQ and its clients accept a short string; pamqp would truncate it.
        if len(encoded) > SHORT_BYTES:
            raise ValueError(f"the name of a header has more than {SHORT_BYTES} bytes")
        parts += (bytes((len(encoded),)), encoded, _value(value))
    return _sized(b"".join(parts))


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return b"S" + _sized(value.encode())
    if type(value) is int:
        if _INT32_MIN <= value <= _INT32_MAX:
            return _INT32.pack(b"I", value)
        return _INT64.pack(b"l", value)
    if isinstance(value, bytes):
        return b"S" + _sized(value)
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, dict):
        return b"F" + _table(value)
    if isinstance(value, list):
        return b"A" + _sized(b"".join([_value(each) for each in value]))
    return encode.encode_table_value(value)


def _sized(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class ContentHandler(Protocol):
    """Receives the content of a channel's messages. The method frame of a message arrives earlier, through aiormq."""

    def content_header(self, payload: bytes) -> None:
        """The header of the next message: its body's size, and its properties, for :func:`properties_of`."""

    def content_body(self, payload: bytes) -> None:
        """A part of its body."""


class FrameReader:
    """Replaces the stream of aiormq, and passes on one frame after the other.

    ``contents``: the receivers of message content by channel number; for other channels aiormq gets a header without
    properties. ``blocked``: the broker's reason while it blocks publishers. ``closed``: its reason for closing the
    connection. ``heard``: the number of frames that have arrived.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self.heard = 0
        self._stream = stream
        self._frame = b""
        self._start = 0
        self.contents: dict[int, ContentHandler] = {}
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
            head = await self._stream.readexactly(_FRAME.size)
            if head.startswith(b"AMQP"):
                # A server of another protocol version answers with its protocol header instead of a frame.
                return head + await self._stream.readexactly(1)
            self.heard += 1
            kind, channel, size = _FRAME.unpack(head)
            rest = await self._stream.readexactly(size + 1)
            content = self.contents.get(channel) if kind in (_HEADER, _BODY) and rest.endswith(_END) else None
            if content is None:
                return self._passed(head, rest, kind, channel)
            if kind == _HEADER:
                content.content_header(rest[:-1])
            else:
                content.content_body(rest[:-1])

    def _passed(self, head: bytes, rest: bytes, kind: int, channel: int) -> bytes:
        """The frame for aiormq."""
        if kind == _HEADER:
            rest = rest[:_FIXED] + _NO_FLAGS + rest[-1:]
            head = _FRAME.pack(kind, channel, len(rest) - 1)
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
    return int.from_bytes(header[4:_FIXED], "big")


def properties_of(header: bytes) -> Basic.Properties:
    """The properties in the payload of a content header, without the unreadable ones. Never raises."""
    whole = ContentHeader()
    try:
        whole.unmarshal(header)
        return whole.properties
    except _UNREADABLE:
        return _readable(header[_FIXED:])


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
