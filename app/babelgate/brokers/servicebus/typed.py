"""Keeps the AMQP types of application properties, which the client library's decoder drops.

It reads a timestamp, a long and a byte alike, and a symbol like a string. It reads neither characters nor decimals of
32 and 64 bits, and decimals of 128 bits with a wrong exponent, mostly one out of range: a receive would fail at such a
message again and again. So a value that is no string is kept in its encoded form, and written as it was.
The encodings: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Mapping
from typing import Any

from babelgate.brokers.servicebus.sdk_internals import add_decoder, add_encoder

_APPLICATION, _DATA = 0x74, 0x75
_STRINGS = frozenset({0xA1, 0xB1})
_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZE = struct.Struct(">I")
_ENCODED = "ENCODED"
"""The type of a value in its encoded form, for the client library's encoder."""

_COEFFICIENT, _BIAS = (1 << 113) - 1, 6_176
"""Of a decimal of 128 bits, with a binary integer as its coefficient (IEEE 754-2008)."""

_NONE: Mapping[str, bytes] = {}


def _write_encoded(output: bytearray, value: bytes, **how: Any) -> None:
    output.extend(value)


def _read_char(buffer: memoryview, depth: int = 0) -> tuple[memoryview, str | None]:
    number = _SIZE.unpack_from(buffer)[0]
    # A value that is no character is shown as nothing.
    return buffer[4:], chr(number) if number < 0x11_0000 else None


def _read_decimal32(buffer: memoryview, depth: int = 0) -> tuple[memoryview, None]:
    return buffer[4:], None


def _read_decimal64(buffer: memoryview, depth: int = 0) -> tuple[memoryview, None]:
    return buffer[8:], None


def _read_decimal128(buffer: memoryview, depth: int = 0) -> tuple[memoryview, decimal.Decimal | None]:
    number = int.from_bytes(buffer[:16], "big")
    if number >> 125 & 3 == 3:
        # It is infinite, or no number.
        return buffer[16:], None
    digits = decimal.Decimal(number & _COEFFICIENT).as_tuple().digits
    return buffer[16:], decimal.Decimal((number >> 127, digits, (number >> 113 & 0x3FFF) - _BIAS))


add_encoder(_ENCODED, _write_encoded)
add_decoder(0x73, _read_char)
add_decoder(0x74, _read_decimal32)
add_decoder(0x84, _read_decimal64)
add_decoder(0x94, _read_decimal128)


def encoded(value: bytes) -> dict[str, Any]:
    """An encoded value for the client library's encoder."""
    return {"TYPE": _ENCODED, "VALUE": value}


def typed_properties(payload: bytes | memoryview) -> Mapping[str, bytes]:
    """The application properties of a message that are no strings, encoded. Empty for a malformed message."""
    try:
        position = 0
        while position < len(payload):
            # Each section has a descriptor: 0x00, then a small ulong, or one of eight bytes.
            content = _end(payload, position + 1)
            number = payload[content - 1]
            if number == _APPLICATION:
                return _pairs(payload, content)
            if number >= _DATA:
                return _NONE
            position = _end(payload, content)
    except (IndexError, struct.error, UnicodeDecodeError):
        pass
    return _NONE


def _pairs(payload: bytes | memoryview, position: int) -> Mapping[str, bytes]:
    is_wide = payload[position] & 0x10
    count = _SIZE.unpack_from(payload, position + 5)[0] if is_wide else payload[position + 2]
    position += 9 if is_wide else 3
    found: dict[str, bytes] = {}
    for _ in range(count // 2):
        start = position + (5 if payload[position] & 0x10 else 2)
        value = _end(payload, position)
        end = _end(payload, value)
        if payload[value] not in _STRINGS:
            found[bytes(payload[start:value]).decode()] = bytes(payload[value:end])
        position = end
    return found


def _end(payload: bytes | memoryview, position: int) -> int:
    """Where the value at ``position`` ends."""
    code = payload[position]
    if code == 0:
        return _end(payload, _end(payload, position + 1))
    width = _WIDTHS.get(code >> 4)
    if width is not None:
        return position + 1 + width
    if code & 0x10:
        return position + 5 + int(_SIZE.unpack_from(payload, position + 1)[0])
    return position + 2 + payload[position + 1]
