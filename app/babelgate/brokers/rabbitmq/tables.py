"""Tables of headers, as bytes. Values keep what pamqp would change or refuse: the width of numbers, the unit of times,
the scale and sign of decimals, and texts that are not UTF-8. All other values are encoded and decoded by pamqp."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pamqp import decode, encode

SHORT_BYTES = 255
"""The longest short string, such as a property, an exchange or a routing key (AMQP 0-9-1, section 4.2.5.3)."""

OCTETS = [bytes((octet,)) for octet in range(256)]


class WireInt(int):
    """A whole number that is no int32. ``wire``: the octet of its type, and its bytes."""

    wire: bytes


class WireFloat(float):
    """A number of single precision. ``wire``: as for WireInt."""

    wire: bytes


class WireDecimal(Decimal):
    """A decimal with its scale. ``wire``: as for WireInt."""

    wire: bytes


class WireTime(datetime):
    """A time that was written in milliseconds. ``wire``: as for WireInt."""

    wire: bytes


WireValue = WireInt | WireFloat | WireDecimal | WireTime

_NUMBERS: Mapping[int, tuple[type[WireInt | WireFloat], struct.Struct]] = {
    ord("b"): (WireInt, struct.Struct(">b")),
    ord("B"): (WireInt, struct.Struct(">B")),
    ord("s"): (WireInt, struct.Struct(">h")),
    ord("u"): (WireInt, struct.Struct(">H")),
    ord("i"): (WireInt, struct.Struct(">I")),
    ord("l"): (WireInt, struct.Struct(">q")),
    ord("L"): (WireInt, struct.Struct(">Q")),
    ord("f"): (WireFloat, struct.Struct(">f")),
}
"""Numbers other than int32 and double: https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""

_PLAIN = {ord("I"): struct.Struct(">i"), ord("d"): struct.Struct(">d"), ord("t"): struct.Struct(">?")}
"""Types whose Python value is written in the same way again."""

TIME = struct.Struct(">Q")
_SECONDS_MAX = 0xFFFFFFFF
"""A greater time is in milliseconds, because some clients write these: it would be one after the year 2106."""
_DECIMAL = struct.Struct(">Bi")
_DECIMAL_OCTET, _TIME_OCTET = ord("D"), ord("T")

_TEXT, _TABLE, _LIST = ord("S"), ord("F"), ord("A")
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
        table[data[start:at].decode()], at = value_at(data, at)
    if at != len(data):
        raise ValueError
    return table


def value_at(data: bytes, at: int) -> tuple[Any, int]:
    """The value at ``at``, and where it ends."""
    kind = data[at]
    if kind == _TEXT:
        start = at + 1 + _LENGTH.size
        end = start + _LENGTH.unpack_from(data, at + 1)[0]
        try:
            return data[start:end].decode(), end
        except UnicodeDecodeError:
            return data[start:end], end
    if kind in _PLAIN:
        plain = _PLAIN[kind]
        return plain.unpack_from(data, at + 1)[0], at + 1 + plain.size
    if kind in _NUMBERS:
        made, number = _NUMBERS[kind]
        return _kept(made(*number.unpack_from(data, at + 1)), data, at, number)
    if kind == _DECIMAL_OCTET:
        scale, digits = _DECIMAL.unpack_from(data, at + 1)
        return _kept(WireDecimal(f"{digits}E-{scale}"), data, at, _DECIMAL)
    if kind == _TIME_OCTET:
        (count,) = TIME.unpack_from(data, at + 1)
        try:
            moment = moment_of(count)
        except (ValueError, OverflowError, OSError):
            return _kept(WireInt(count), data, at, TIME)  # after the year 9999
        return moment, at + 1 + TIME.size
    if kind not in (_TABLE, _LIST):
        size, other = decode.embedded_value(data[at:])
        return other, at + size
    start = at + 1 + _LENGTH.size
    end = start + _LENGTH.unpack_from(data, at + 1)[0]
    inner = data[start:end]
    return decoded(inner) if kind == _TABLE else _values(inner), end


def _kept(value: WireValue, data: bytes, at: int, layout: struct.Struct) -> tuple[WireValue, int]:
    """``value`` with its bytes, and where they end."""
    end = at + 1 + layout.size
    value.wire = data[at:end]
    return value, end


def moment_of(count: int) -> datetime:
    """The time that ``count`` stands for: seconds since 1970, or milliseconds where it is too great for these. Raises
    ValueError, OverflowError or OSError for one after the year 9999."""
    if count <= _SECONDS_MAX:
        return datetime.fromtimestamp(count, UTC)
    moment = WireTime.fromtimestamp(count / 1000, UTC)
    moment.wire = b"T" + TIME.pack(count)
    return moment


def whole_number(value: Any) -> int | None:
    """``value`` if it is a whole number of any width, else None."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _values(data: bytes) -> list[Any]:
    values, at = [], 0
    while at < len(data):
        value, at = value_at(data, at)
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
    if isinstance(value, WireInt | WireFloat | WireDecimal | WireTime):
        return value.wire
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
