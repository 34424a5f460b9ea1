"""Decompresses the payloads of foreign producers. The gateway itself compresses none."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import zstandard

MAX_BYTES = 67_108_864
"""The most bytes of a payload, ours: a producer declares up to 4 GiB, and a broker takes 5 MiB of compressed ones
(``maxMessageSize``, https://pulsar.apache.org/reference/#/4.0.x/config/reference-configuration-broker)."""

_ERRORS = (zlib.error, zstandard.ZstdError, lz4.block.LZ4BlockError, cramjam.DecompressionError)


def decompressed(kind: int, payload: bytes, size: int) -> bytes:
    """``payload``, which has ``size`` bytes when it is decompressed; ``kind``: CompressionType of PulsarApi.proto.

    Takes little more memory than ``size`` bytes, whatever the payload says. Raises ValueError for what cannot be
    decompressed to this size, and for a size beyond MAX_BYTES.
    """
    if kind == 0:
        return payload
    decompress = _BY_KIND.get(kind)
    if decompress is None:
        raise ValueError(f"the compression {kind} is unknown")
    if size > MAX_BYTES:
        raise ValueError(f"{size} bytes are more than {MAX_BYTES}")
    try:
        found = decompress(payload, size)
    except _ERRORS as error:
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
    """A block without a size before it."""
    found: bytes = lz4.block.decompress(payload, uncompressed_size=size)
    return found


def _snappy(payload: bytes, size: int) -> bytes:
    """A raw block, which has its size before it."""
    if cramjam.snappy.decompress_raw_len(payload) != size:
        raise ValueError("the block has another size")
    return bytes(cramjam.snappy.decompress_raw(payload))


_BY_KIND: dict[int, Callable[[bytes, int], bytes]] = {1: _lz4, 2: _zlib, 3: _zstd, 4: _snappy}
