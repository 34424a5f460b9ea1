"""Encodes and decodes AMQP 1.0 values: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html,
and finds the sections of a message: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html.

A value that is only copied stays in its encoded form, with its type and width.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
"""The descriptors of sections. APPLICATION has the application properties."""

PROPERTY_NAMES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""The fields of the section PROPERTIES, in their order."""

TRUE = b"\x41"
NULL = b"\x40"

_FIXED: dict[int, struct.Struct] = {
    0x50: struct.Struct(">B"),
    0x51: struct.Struct(">b"),
    0x52: struct.Struct(">B"),
    0x53: struct.Struct(">B"),
    0x54: struct.Struct(">b"),
    0x55: struct.Struct(">b"),
    0x56: struct.Struct(">?"),
    0x60: struct.Struct(">H"),
    0x61: struct.Struct(">h"),
    0x70: struct.Struct(">I"),
    0x71: struct.Struct(">i"),
    0x72: struct.Struct(">f"),
    0x80: struct.Struct(">Q"),
    0x81: struct.Struct(">q"),
    0x82: struct.Struct(">d"),
    0x83: struct.Struct(">q"),
}
_CONSTANT = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
STRINGS = frozenset({0xA1, 0xB1})
_TEXTS = frozenset({0xA1, 0xB1, 0xA3, 0xB3})
_MAPS = frozenset({0xC1, 0xD1})
_LISTS = frozenset({0x45, 0xC0, 0xD0})
_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZE = struct.Struct(">I")
_LONG = struct.Struct(">Bq")
_DEPTH = 32
"""How deep values may be nested. Ours: brokers have no bound."""


class Malformed(ValueError):
    """Bytes that are no AMQP value."""


def end_of(data: bytes, position: int) -> int:
    """Where the value at ``position`` ends. Raises Malformed."""
    try:
        code = data[position]
        while code == 0:
            position = end_of(data, position + 1)
            code = data[position]
        width = _WIDTHS.get(code >> 4)
        if width is not None:
            end = position + 1 + width
        elif code & 0x10:
            end = position + 5 + _SIZE.unpack_from(data, position + 1)[0]
        else:
            end = position + 2 + data[position + 1]
    except (IndexError, struct.error) as error:
        raise Malformed("a value ends too early") from error
    if end > len(data):
        raise Malformed("a value is longer than its message")
    return end


def decode(data: bytes, position: int = 0, depth: int = 0) -> Any:
    """The value at ``position``: a text, number, bool, None, bytes, uuid.UUID, list, or a map as a list of pairs in a
    tuple. A described value is its value. A type without a Python object (a decimal) is its bytes. Raises Malformed."""
    if depth > _DEPTH:
        raise Malformed("a value is nested too deep")
    end = end_of(data, position)
    try:
        while data[position] == 0:
            position = end_of(data, position + 1)
        code = data[position]
        fixed = _FIXED.get(code)
        if fixed is not None:
            return fixed.unpack_from(data, position + 1)[0]
        if code in _CONSTANT:
            return _CONSTANT[code]
        if code in _TEXTS:
            return data[position + (5 if code & 0x10 else 2) : end].decode()
        if code == 0xA0 or code == 0xB0:
            return data[position + (5 if code & 0x10 else 2) : end]
        if code == 0x98:
            return uuid.UUID(bytes=data[position + 1 : end])
        if code == 0x73:
            number = _SIZE.unpack_from(data, position + 1)[0]
            return chr(number) if number <= sys.maxunicode else None
        if code in _LISTS:
            return [decode(data, start, depth + 1) for start in items(data, position)]
        if code in _MAPS:
            found = [decode(data, start, depth + 1) for start in items(data, position)]
            return tuple(zip(found[::2], found[1::2], strict=True))
        if code in (0xE0, 0xF0):
            return _array(data, position, code, depth)
        return data[position + 1 : end]
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise Malformed(str(error)) from error


def items(data: bytes, position: int) -> list[int]:
    """Where the items of the list or map at ``position`` begin. Raises Malformed for another type."""
    code = data[position]
    if code == 0x45:
        return []
    if code not in _LISTS and code not in _MAPS:
        raise Malformed("a list or map is expected")
    end = end_of(data, position)
    if code & 0x10:
        count, start = _SIZE.unpack_from(data, position + 5)[0], position + 9
    else:
        count, start = data[position + 2], position + 3
    starts = []
    for _ in range(count):
        if start >= end:
            raise Malformed("a list or map ends too early")
        starts.append(start)
        start = end_of(data, start)
    return starts


def _array(data: bytes, position: int, code: int, depth: int) -> list[Any]:
    wide = code & 0x10
    count = _SIZE.unpack_from(data, position + 5)[0] if wide else data[position + 2]
    position += 9 if wide else 3
    constructor = data[position : position + 1]
    if constructor == b"\0":
        raise Malformed("an array of described values")
    position += 1
    values = []
    for _ in range(min(count, len(data))):
        element = constructor + data[position:]
        values.append(decode(element, 0, depth + 1))
        position += end_of(element, 0) - 1
    return values


def sections(message: bytes) -> Iterator[tuple[int, int]]:
    """The descriptor of each section of a message, and where its value begins. Raises Malformed."""
    position = 0
    while position < len(message):
        if message[position] != 0:
            raise Malformed("a section is expected")
        descriptor, start = decode(message, position + 1), end_of(message, position + 1)
        if not isinstance(descriptor, int):
            raise Malformed("an unknown section")
        yield descriptor, start
        position = end_of(message, start)


def pairs(data: bytes, position: int) -> list[tuple[str, int]]:
    """The keys of the map at ``position``, and where their values begin. Raises Malformed."""
    starts = items(data, position)
    if len(starts) % 2:
        raise Malformed("a key without a value")
    return [(text_of(decode(data, key)) or "", value) for key, value in zip(starts[::2], starts[1::2], strict=True)]


class MessageParts(Struct):
    """Where the values in the sections of a message begin. ``body``: what all data sections have together, or the text
    of another value. ``is_data``: it came as bytes."""

    header: Sequence[int] = ()
    annotations: Sequence[tuple[str, int]] = ()
    properties: Sequence[int] = ()
    application: Sequence[tuple[str, int]] = ()
    body: bytes = b""
    is_data: bool = False


def parts_of(message: bytes) -> MessageParts:
    """The parts of a message. Raises Malformed."""
    parts = MessageParts()
    for section, start in sections(message):
        if section == HEADER:
            parts.header = items(message, start)
        elif section == ANNOTATIONS:
            parts.annotations = pairs(message, start)
        elif section == PROPERTIES:
            parts.properties = items(message, start)
        elif section == APPLICATION:
            parts.application = pairs(message, start)
        elif section in (DATA, VALUE, SEQUENCE):
            value = decode(message, start)
            parts.is_data = isinstance(value, bytes)
            content = value if parts.is_data else (text_of(value) or "").encode()
            parts.body = parts.body + content if parts.body else content
    return parts


def text_of(value: Any) -> str | None:
    """A decoded value as a header's text; None for null. Bytes that are no UTF-8 are shown in Base64, maps and lists as
    JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return {text_of(key) or "": _plain(each) for key, each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return text_of(value)


def string(value: str) -> bytes:
    """A string."""
    return _sized(0xA1, value.encode())


def text(value: bytes) -> bytes:
    """A string, given in UTF-8."""
    return _sized(0xA1, value)


def symbol(value: str) -> bytes:
    """A symbol."""
    return _sized(0xA3, value.encode("ascii"))


def binary(value: bytes) -> bytes:
    """Bytes."""
    return _sized(0xA0, value)


def ubyte(value: int) -> bytes:
    """Encode an integer of one byte without a sign."""
    return bytes((0x50, value))


def long(value: int) -> bytes:
    """A number of 64 bits. Raises struct.error for a larger one."""
    return _LONG.pack(0x81, value)


def timestamp(value: int) -> bytes:
    """A time in Unix ms. Raises struct.error for one of more than 64 bits."""
    return _LONG.pack(0x83, value)


def sequence(values: list[bytes]) -> bytes:
    """A list of encoded values."""
    return _compound(0xC0, values)


def mapping(pairs: Mapping[bytes, bytes]) -> bytes:
    """A map of encoded keys and values."""
    return _compound(0xC1, [each for pair in pairs.items() for each in pair])


def described(descriptor: int, value: bytes) -> bytes:
    """A value with a descriptor of one byte, such as a section of a message."""
    return bytes((0, 0x53, descriptor)) + value


def named(descriptor: str, value: bytes) -> bytes:
    """A value with a symbol as its descriptor, such as a filter."""
    return b"\0" + symbol(descriptor) + value


def _sized(code: int, content: bytes) -> bytes:
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code | 0x10,)) + _SIZE.pack(len(content)) + content


def _compound(code: int, values: list[bytes]) -> bytes:
    content = b"".join(values)
    if len(content) < 255 and len(values) < 256:
        return bytes((code, len(content) + 1, len(values))) + content
    return bytes((code | 0x10,)) + _SIZE.pack(len(content) + 4) + _SIZE.pack(len(values)) + content
