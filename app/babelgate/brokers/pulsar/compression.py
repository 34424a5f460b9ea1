"""Decompresses the payloads of foreign producers. The gateway itself compresses none."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import zstandard


def decompressed(kind: int, payload: bytes, size: int) -> bytes:
    """``payload``, which has ``size`` bytes when it is decompressed; ``kind``: CompressionType of PulsarApi.proto.

    Raises ValueError for what cannot be decompressed to this size.
    """
    if kind == 0:
        return payload
    decompress = _BY_KIND.get(kind)
    if decompress is None:
        raise ValueError(f"the compression {kind} is unknown")
    try:
        found = decompress(payload, size)
    except (zlib.error, zstandard.ZstdError, IndexError) as error:
        raise ValueError(str(error)) from error
    if len(found) != size:
        raise ValueError(f"{len(found)} bytes instead of {size}")
    return found


def _zlib(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)


def _zstd(payload: bytes, size: int) -> bytes:
    if zstandard.frame_content_size(payload) not in (-1, size):
        raise ValueError("the frame has another size")
    return zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)


def _lz4(payload: bytes, size: int) -> bytes:
    """A block: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md"""
    made = bytearray()
    position = 0
    while len(made) <= size:
        token = payload[position]
        position += 1
        literals, position = _lz4_length(payload, position, token >> 4)
        made += payload[position : position + literals]
        position += literals
        if position >= len(payload):
            break
        offset = payload[position] | payload[position + 1] << 8
        length, position = _lz4_length(payload, position + 2, token & 15)
        _copy(made, offset, length + 4, size)
    return bytes(made)


def _lz4_length(payload: bytes, position: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            more = payload[position]
            position += 1
            length += more
            if more != 255:
                break
    return length, position


def _snappy(payload: bytes, size: int) -> bytes:
    """A raw block: https://github.com/google/snappy/blob/main/format_description.txt"""
    made = bytearray()
    position = 0
    while payload[position] > 127:
        position += 1
    position += 1
    while position < len(payload) and len(made) <= size:
        tag = payload[position]
        position += 1
        kind, length = tag & 3, tag >> 2
        if kind == 0:
            if length > 59:
                width = length - 59
                length = int.from_bytes(payload[position : position + width], "little")
                position += width
            made += payload[position : position + length + 1]
            position += length + 1
        elif kind == 1:
            _copy(made, (tag >> 5) << 8 | payload[position], (length & 7) + 4, size)
            position += 1
        else:
            width = 2 if kind == 2 else 4
            _copy(made, int.from_bytes(payload[position : position + width], "little"), length + 1, size)
            position += width
    return bytes(made)


def _copy(made: bytearray, offset: int, length: int, size: int) -> None:
    """Append ``length`` bytes that stand ``offset`` bytes before the end, and may overlap what is appended."""
    start = len(made) - offset
    if offset == 0 or start < 0 or len(made) + length > size:
        raise ValueError("a reference leads out of the block")
    if offset >= length:
        made += made[start : start + length]
        return
    piece = bytes(made[start:])
    made += (piece * (length // offset + 1))[:length]


_BY_KIND: dict[int, Callable[[bytes, int], bytes]] = {1: _lz4, 2: _zlib, 3: _zstd, 4: _snappy}
