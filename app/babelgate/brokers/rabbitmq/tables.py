"""Tables of headers, as bytes. Values keep what pamqp would change or refuse: the width of numbers, and texts that are
not UTF-8. All other values are encoded and decoded by pamqp."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from pamqp import decode, encode

SHORT_BYTES = 255
"""The longest short string, such as a property, an exchange or a routing key (AMQP 0-9-1, section 4.2.5.3)."""

OCTETS = [bytes((octet,)) for octet in range(256)]


class SizedInt(int):
    """A whole number whose type is another than int32 or int64. ``kind``: its octet."""

    kind: int


class SizedFloat(float):
    """A number of single precision. ``kind``: the octet of its type."""

    kind: int


_NUMBERS: Mapping[int, tuple[type[SizedInt | SizedFloat], struct.Struct]] = {
    ord("b"): (SizedInt, struct.Struct(">b")),
    ord("B"): (SizedInt, struct.Struct(">B")),
    ord("s"): (SizedInt, struct.Struct(">h")),
    ord("u"): (SizedInt, struct.Struct(">H")),
    ord("i"): (SizedInt, struct.Struct(">I")),
    ord("f"): (SizedFloat, struct.Struct(">f")),
}
"""Types of numbers that publishers use rarely: https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""

_TABLE, _LIST = ord("F"), ord("A")
_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
# Whole numbers are written as int32 or int64, like most clients do. pamqp would take the smallest of nine types, and a
# peer that expects an int32, as the Open Job Spec does for its attempts, would read a byte.
_INT32, _INT64 = struct.Struct(">ci"), struct.Struct(">cq")
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


def decoded(data: bytes) -> dict[str, Any]:
    """The table in ``data``, which is without its length. Raises an error for one that is cut, or unreadable."""
    table: dict[str, Any] = {}
    at = 0
    while at < len(data):
        start = at + 1
        at = start + data[at]
        table[data[start:at].decode()], at = _value_at(data, at)
    if at != len(data):
        raise ValueError
    return table


def _value_at(data: bytes, at: int) -> tuple[Any, int]:
    """The value at ``at``, and where it ends."""
    kind = data[at]
    if kind in _NUMBERS:
        made, number = _NUMBERS[kind]
        value = made(*number.unpack_from(data, at + 1))
        value.kind = kind
        return value, at + 1 + number.size
    if kind not in (_TABLE, _LIST):
        size, other = decode.embedded_value(data[at:])
        return other, at + size
    start = at + 1 + _LENGTH.size
    end = start + _LENGTH.unpack_from(data, at + 1)[0]
    inner = data[start:end]
    return decoded(inner) if kind == _TABLE else _values(inner), end


def _values(data: bytes) -> list[Any]:
    values, at = [], 0
    while at < len(data):
        value, at = _value_at(data, at)
        values.append(value)
    return values


def encoded(table: Mapping[str, Any]) -> bytes:
    """``table`` with its length. Raises ValueError or TypeError when AMQP cannot carry it."""
    parts: list[bytes] = []
    for name, value in table.items():
        short = name.encode()
        # Section 4.2.5.5 says 128, but RabbitMQ and its clients accept a short string; pamqp would truncate it.
        if len(short) > SHORT_BYTES:
            raise ValueError(f"the name of a header has more than {SHORT_BYTES} bytes")
        parts += (OCTETS[len(short)], short, encoded_value(value))
    return _sized(b"".join(parts))


def encoded_value(value: Any) -> bytes:
    """A value behind the octet of its type."""
    if isinstance(value, str):
        return b"S" + _sized(value.encode())
    if type(value) is int:
        if _INT32_MIN <= value <= _INT32_MAX:
            return _INT32.pack(b"I", value)
        return _INT64.pack(b"l", value)
    if isinstance(value, SizedInt | SizedFloat):
        return OCTETS[value.kind] + _NUMBERS[value.kind][1].pack(value)
    if isinstance(value, bytes):
        return b"S" + _sized(value)
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, dict):
        return b"F" + encoded(value)
    if isinstance(value, list):
        return b"A" + _sized(b"".join([encoded_value(each) for each in value]))
    return encode.encode_table_value(value)


def _sized(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload
