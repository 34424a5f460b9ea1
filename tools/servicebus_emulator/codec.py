"""Encodes and decodes AMQP 1.0 values with their types: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html.

A value is a pair of its type's name and a Python object; see :data:`Value`. Lists, maps and arrays hold such pairs, so
that what a client wrote keeps its types.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Value = tuple[str, Any]

NULL: Value = ("null", None)

_UNPACK: dict[int, tuple[str, struct.Struct]] = {
    0x50: ("ubyte", struct.Struct(">B")),
    0x51: ("byte", struct.Struct(">b")),
    0x52: ("uint", struct.Struct(">B")),
    0x53: ("ulong", struct.Struct(">B")),
    0x54: ("int", struct.Struct(">b")),
    0x55: ("long", struct.Struct(">b")),
    0x56: ("boolean", struct.Struct(">?")),
    0x60: ("ushort", struct.Struct(">H")),
    0x61: ("short", struct.Struct(">h")),
    0x70: ("uint", struct.Struct(">I")),
    0x71: ("int", struct.Struct(">i")),
    0x72: ("float", struct.Struct(">f")),
    0x73: ("char", struct.Struct(">I")),
    0x80: ("ulong", struct.Struct(">Q")),
    0x81: ("long", struct.Struct(">q")),
    0x82: ("double", struct.Struct(">d")),
    0x83: ("timestamp", struct.Struct(">q")),
}
_EMPTY: dict[int, Value] = {
    0x40: NULL,
    0x41: ("boolean", True),
    0x42: ("boolean", False),
    0x43: ("uint", 0),
    0x44: ("ulong", 0),
    0x45: ("list", []),
}
_BYTES = {0xA0: "binary", 0xA1: "string", 0xA3: "symbol", 0xB0: "binary", 0xB1: "string", 0xB3: "symbol"}
_DECIMALS = {0x74: ("decimal32", 4), 0x84: ("decimal64", 8), 0x94: ("decimal128", 16)}
_COMPOUND = {0xC0: "list", 0xC1: "map", 0xD0: "list", 0xD1: "map"}
_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
# The one constructor of the elements of an array that this module writes.
_WIDE = {
    "ubyte": 0x50,
    "byte": 0x51,
    "boolean": 0x56,
    "ushort": 0x60,
    "short": 0x61,
    "uint": 0x70,
    "int": 0x71,
    "float": 0x72,
    "char": 0x73,
    "ulong": 0x80,
    "long": 0x81,
    "double": 0x82,
    "timestamp": 0x83,
}
_WIDE_BYTES = {"binary": 0xB0, "string": 0xB1, "symbol": 0xB3}
_SIZE = struct.Struct(">I")


class Malformed(ValueError):
    """Bytes that are no AMQP value."""


def decode(data: bytes, position: int = 0) -> tuple[Value, int]:
    """The value at ``position``, and where the next one begins."""
    try:
        return _decode(data, position)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error


def _decode(data: bytes, position: int) -> tuple[Value, int]:
    code = data[position]
    if code == 0:
        descriptor, position = _decode(data, position + 1)
        value, position = _decode(data, position)
        return ("described", (descriptor, value)), position
    return _content(data, position + 1, code)


def _content(data: bytes, position: int, code: int) -> tuple[Value, int]:
    known = _UNPACK.get(code)
    if known is not None:
        name, pattern = known
        return (name, pattern.unpack_from(data, position)[0]), position + pattern.size
    empty = _EMPTY.get(code)
    if empty is not None:
        return empty, position
    if code == 0x98:
        return ("uuid", uuid.UUID(bytes=data[position : position + 16])), position + 16
    if code in _DECIMALS:
        name, width = _DECIMALS[code]
        return (name, data[position : position + width]), position + width
    size, position = _size(data, position, code)
    end = position + size
    if end > len(data):
        raise Malformed("a value is longer than its message")
    if code in _BYTES:
        name = _BYTES[code]
        raw = data[position:end]
        return (name, raw if name == "binary" else raw.decode()), end
    count, position = _size(data, position, code)
    if code in _COMPOUND:
        items = list(_items(data, position, count))
        if _COMPOUND[code] == "list":
            return ("list", items), end
        return ("map", list(zip(items[::2], items[1::2], strict=True))), end
    if code not in (0xE0, 0xF0):
        raise Malformed(f"unknown constructor 0x{code:02x}")
    element = data[position]
    position += 1
    values = []
    for _ in range(count):
        value, position = _content(data, position, element)
        values.append(value)
    return ("array", (values[0][0] if values else "null", [value for _, value in values])), end


def _size(data: bytes, position: int, code: int) -> tuple[int, int]:
    if code & 0x10:
        return _SIZE.unpack_from(data, position)[0], position + 4
    return data[position], position + 1


def _items(data: bytes, position: int, count: int) -> Iterator[Value]:
    for _ in range(count):
        value, position = _decode(data, position)
        yield value


def skip(data: bytes, position: int) -> int:
    """Where the value after the one at ``position`` begins."""
    try:
        code = data[position]
        if code == 0:
            return skip(data, skip(data, position + 1))
        width = _WIDTHS.get(code >> 4)
        if width is None:
            size, position = _size(data, position + 1, code)
            width = size - 1
    except (IndexError, struct.error) as error:
        raise Malformed(str(error)) from error
    if position + 1 + width > len(data):
        raise Malformed("a value is longer than its message")
    return position + 1 + width


def _encode_bytes(short: int, long: int) -> Callable[[bytes], bytes]:
    def encoder(raw: bytes) -> bytes:
        if len(raw) < 256:
            return bytes((short, len(raw))) + raw
        return bytes((long,)) + _SIZE.pack(len(raw)) + raw

    return encoder


def compound(code: int, count: int, body: bytes) -> bytes:
    """A list (``0xD0``) or a map (``0xD1``) of encoded elements."""
    return struct.pack(">BII", code, len(body) + 4, count) + body


def _encode_array(array: tuple[str, Iterable[Any]]) -> bytes:
    name, values = array
    items = list(values)
    if name in _WIDE:
        code = _WIDE[name]
        body = b"".join(_UNPACK[code][1].pack(item) for item in items)
    elif name == "uuid":
        code, body = 0x98, b"".join(item.bytes for item in items)
    else:
        code = _WIDE_BYTES[name]
        raw = [item if name == "binary" else item.encode() for item in items]
        body = b"".join(_SIZE.pack(len(item)) + item for item in raw)
    return struct.pack(">BIIB", 0xF0, len(body) + 5, len(items), code) + body


def _small(name: str, tiny: int, wide: int, zero: int | None = None) -> Callable[[int], bytes]:
    low, high = (-128, 127) if name in ("int", "long") else (0, 255)
    pattern, large = _UNPACK[tiny][1], _UNPACK[wide][1]

    def encoder(number: int) -> bytes:
        if number == 0 and zero is not None:
            return bytes((zero,))
        if low <= number <= high:
            return bytes((tiny,)) + pattern.pack(number)
        return bytes((wide,)) + large.pack(number)

    return encoder


_binary = _encode_bytes(0xA0, 0xB0)
_string = _encode_bytes(0xA1, 0xB1)
_symbol = _encode_bytes(0xA3, 0xB3)

_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"\x40",
    "boolean": lambda value: b"\x41" if value else b"\x42",
    "uint": _small("uint", 0x52, 0x70, 0x43),
    "ulong": _small("ulong", 0x53, 0x80, 0x44),
    "int": _small("int", 0x54, 0x71),
    "long": _small("long", 0x55, 0x81),
    "uuid": lambda value: b"\x98" + value.bytes,
    "binary": lambda value: _binary(bytes(value)),
    "string": lambda value: _string(value.encode()),
    "symbol": lambda value: _symbol(value.encode()),
    "list": lambda items: compound(0xD0, len(items), b"".join(map(encode, items))) if items else b"\x45",
    "map": lambda pairs: compound(0xD1, 2 * len(pairs), b"".join(encode(item) for pair in pairs for item in pair)),
    "array": _encode_array,
    "described": lambda parts: b"\x00" + encode(parts[0]) + encode(parts[1]),
    "decimal32": lambda raw: b"\x74" + raw,
    "decimal64": lambda raw: b"\x84" + raw,
    "decimal128": lambda raw: b"\x94" + raw,
}


def encode(value: Value) -> bytes:
    """The bytes of a value."""
    name, content = value
    encoder = _ENCODERS.get(name)
    if encoder is not None:
        return encoder(content)
    code = _WIDE[name]
    return bytes((code,)) + _UNPACK[code][1].pack(content)


def plain(value: Value) -> Any:
    """The Python object of a value, without types: maps become dictionaries, described values their value."""
    name, content = value
    if name == "list":
        return [plain(item) for item in content]
    if name == "map":
        return {plain(key): plain(item) for key, item in content}
    if name == "array":
        return list(content[1])
    if name == "described":
        return plain(content[1])
    return content


def fields(**values: Value) -> Value:
    """A map of strings; ``_`` in a name stands for ``-``."""
    return ("map", [(("string", name.replace("_", "-")), value) for name, value in values.items()])
