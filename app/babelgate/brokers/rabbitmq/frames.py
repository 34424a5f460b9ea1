"""The frames that a channel sends, as bytes. What arrives: :mod:`babelgate.brokers.rabbitmq.incoming`.

Publish, ack and nack are encoded here in a fraction of pamqp's time, see docs/adr/0014-amqp-frames.md. Headers:
:mod:`babelgate.brokers.rabbitmq.tables`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter

from pamqp import encode
from pamqp.commands import Basic

from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.rabbitmq import tables
from babelgate.brokers.rabbitmq.incoming import (
    BODY,
    END,
    FIXED,
    FRAME,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
    PROPERTIES,
    properties_of,
)
from babelgate.brokers.rabbitmq.profile import AddressedMessage
from babelgate.brokers.rabbitmq.tables import OCTETS, SHORT_BYTES

COPIES = ("CC", "BCC")
"""Sender-selected distribution: https://www.rabbitmq.com/docs/sender-selected"""

# Class 60 (basic), method and reserved field of publish, and its bits. AMQP 0-9-1, sections 1.8.3.3 and 1.8.3.13.
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY = b"\x01"
_SETTLE = struct.Struct(">BHIHHQBB")
_ACK, _NACK, _REQUEUE = 80, 120, 2
_CONTENT, FLAGS = struct.Struct(">HHQ"), struct.Struct(">H")

_TYPES = {b"S": "longstr", b"I": "int32", b"l": "int64", b"d": "double", b"t": "boolean", b"F": "table", b"A": "array"}
"""The types of header values by their octet: https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""

_PUBLIC_NAMES = {"message_type": "type"}
"""Names of properties that pamqp changes."""


class HeaderFrameTooLarge(ValueError):
    """Headers and properties have ``size`` bytes, and a frame of the connection, which has them all, has ``room``."""

    def __init__(self, size: int, room: int) -> None:
        super().__init__(f"all headers and properties together have {size} bytes, and at most {room} fit into a frame")


_values = attrgetter(*Basic.Properties.attributes())


def publish(message: AddressedMessage, channel: int, frame_max: int) -> bytes:
    """The frames that publish ``message``, mandatory, of at most ``frame_max`` bytes, where that is not 0.

    Raises HeaderFrameTooLarge, and ValueError or TypeError when AMQP cannot carry it.
    """
    method = _publish_method(message.exchange, message.routing_key, channel)
    body, given = message.body, message.given
    header = _CONTENT.pack(60, 0, len(body)) + (given if isinstance(given, bytes) else encoded_properties(given))
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    if frame_max and len(header) > room:
        # The broker would close the connection, with everything that is in flight on it.
        raise HeaderFrameTooLarge(len(header), room)
    parts = [method, FRAME.pack(HEADER, channel, len(header)), header, END]
    for start in range(0, len(body), room or 1):
        part = body[start : start + room]
        parts += (FRAME.pack(BODY, channel, len(part)), part, END)
    return b"".join(parts)


@lru_cache(1024)
def _publish_method(exchange: str, routing_key: str, channel: int) -> bytes:
    """The first frame of a publish; the latest ones are kept, because most messages go the same ways."""
    method = b"".join((_PUBLISH, short(exchange), short(routing_key), _MANDATORY))
    return FRAME.pack(METHOD, channel, len(method)) + method + END


def projection(message: AddressedMessage, assigned: frozenset[str], frame_max: int) -> NativeWrite:
    """What :func:`publish` writes; its properties are decoded from the bytes. ``assigned``: see NativeWrite.

    Raises as :func:`publish`.
    """
    publish(message, 1, frame_max)
    given = message.given if isinstance(message.given, bytes) else encoded_properties(message.given)
    found = properties_of(bytes(FIXED) + given)
    properties = {name: getattr(found, name) for name, _, kind in PROPERTIES if kind != "table"}
    if isinstance(found.timestamp, datetime):
        properties["timestamp"] = int(found.timestamp.timestamp())
    headers = {
        name: NativeHeader(_TYPES.get(tables.encoded_value(value)[:1], "other"), value)
        for name, value in (found.headers or {}).items()
    }
    return NativeWrite(
        "basic.publish",
        {"exchange": message.exchange, "routing_key": message.routing_key, "mandatory": True},
        {_PUBLIC_NAMES.get(name, name): value for name, value in properties.items() if value not in (None, "")},
        headers,
        message.body,
        sorted(assigned & headers.keys()),
    )


def acks(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that ack deliveries; ``settled``: pairs of a tag and the ``multiple`` flag."""
    return b"".join([_SETTLE.pack(METHOD, channel, 13, 60, _ACK, tag, many, END[0]) for tag, many in settled])


def requeues(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that requeue deliveries; ``settled`` as for :func:`acks`."""
    return b"".join(
        [_SETTLE.pack(METHOD, channel, 13, 60, _NACK, tag, many | _REQUEUE, END[0]) for tag, many in settled]
    )


def short(text: str) -> bytes:
    """A short string. Raises ValueError for one that is too long."""
    encoded = text.encode()
    if len(encoded) > SHORT_BYTES:
        raise ValueError(f"a property, an exchange or a routing key has more than {SHORT_BYTES} bytes")
    return OCTETS[len(encoded)] + encoded


def encoded_properties(properties: Basic.Properties) -> bytes:
    """The flags and the values of ``properties``, as they are in a content header. Raises ValueError or TypeError."""
    flags, parts = 0, [b""]
    for value, (_, flag, kind) in zip(_values(properties), PROPERTIES, strict=True):
        if value is None or value == "":
            continue
        flags |= flag
        if kind == "shortstr":
            parts.append(short(value))
        elif kind == "table":
            for copies in COPIES:
                if copies in value and not isinstance(value[copies], list):
                    # The broker would close the channel, with everything that is in flight on it.
                    raise ValueError(f"the header {copies} is the broker's own: it names further queues")
            parts.append(tables.encoded(value))
        elif kind == "timestamp" and type(value) is datetime and value.tzinfo is UTC:
            parts.append(tables.TIME.pack(int(value.timestamp())))
        elif isinstance(value, tables.WireTime):
            parts.append(value.wire[1:])
        else:
            parts.append(encode.by_type(value, kind))
    parts[0] = FLAGS.pack(flags)
    return b"".join(parts)
