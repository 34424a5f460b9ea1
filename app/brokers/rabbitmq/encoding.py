"""The frames that go out with every message, as bytes.

pamqp encodes whatever AMQP has, by looking at every field of every frame. These few frames are written here in a third
of its time, and two kinds of header values that it would change or refuse are kept: numbers of double precision, and
texts that are not UTF-8. Whatever else a table may hold is pamqp's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from pamqp import encode
from pamqp.commands import Basic

from app.brokers.rabbitmq.profile import Addressed

FRAME_OVERHEAD = 8
"""Bytes of a frame beside its payload (AMQP 0-9-1, section 4.2.3)."""

_SHORT_BYTES = 255
"""The longest short string (AMQP 0-9-1, section 4.2.5.3). Names in a table may have 128 bytes by section 4.2.5.5, but
RabbitMQ and its clients take all that a short string can hold, and a copy must keep them; pamqp cuts them off."""

_COPIES = ("CC", "BCC")
"""Sender-selected distribution: https://www.rabbitmq.com/docs/sender-selected"""

# Kind of the frame, channel and size; then the payload and the end.
_FRAME = struct.Struct(">BHI")
_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"
# Of class 60 (basic); the method, what follows, and the bits. AMQP 0-9-1, sections 1.8.3.13 and 1.8.3.7.
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY = b"\x01"
_SETTLE = struct.Struct(">BHIHHQBB")
_ACK, _NACK, _REQUEUE = 80, 120, 2
_CONTENT = struct.Struct(">HHQH")
_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
# Whole numbers as most clients write them. pamqp would take the smallest of nine kinds, and a peer that asks for an
# int32, as the Open Job Spec does for its attempts, would find a byte.
_INT32, _INT64 = struct.Struct(">ci"), struct.Struct(">cq")
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1

_PROPERTIES = [
    (name, Basic.Properties.flags[name], Basic.Properties.amqp_type(name)) for name in Basic.Properties.attributes()
]


def publish(message: Addressed, channel: int, frame_max: int) -> bytes:
    """The frames that publish ``message``, mandatory. Raises ValueError or TypeError for what AMQP cannot carry."""
    method = b"".join((_PUBLISH, _short(message.exchange), _short(message.routing_key), _MANDATORY))
    body = message.body
    header = _header(message.properties, len(body))
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    if frame_max and len(header) > room:
        # The broker would close the connection, and with it everything that is in flight there.
        raise ValueError(f"the headers and properties have {len(header)} bytes, and at most {room} fit into a frame")
    parts = [_frame(_METHOD, channel, method), _frame(_HEADER, channel, header)]
    for start in range(0, len(body), room or 1):
        parts.append(_frame(_BODY, channel, body[start : start + room]))
    return b"".join(parts)


def acks(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that ack deliveries: each a tag, and whether all before it are meant too."""
    return b"".join([_SETTLE.pack(_METHOD, channel, 13, 60, _ACK, tag, many, _END[0]) for tag, many in settled])


def requeues(settled: Iterable[tuple[int, bool]], channel: int) -> bytes:
    """The frames that give deliveries back to where they were, told as for :func:`acks`."""
    return b"".join(
        [_SETTLE.pack(_METHOD, channel, 13, 60, _NACK, tag, many | _REQUEUE, _END[0]) for tag, many in settled]
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"".join((_FRAME.pack(kind, channel, len(payload)), payload, _END))


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _SHORT_BYTES:
        raise ValueError(f"a property, an exchange or a routing key has more than {_SHORT_BYTES} bytes")
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
                    # The broker would close the channel, and with it everything that is in flight there.
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
        if len(encoded) > _SHORT_BYTES:
            raise ValueError(f"the name of a header has more than {_SHORT_BYTES} bytes")
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
