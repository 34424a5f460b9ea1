"""Compressed payloads: what is read, and that none takes more memory than the size that it declares."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.pulsar.message import MAX_BYTES, decompressed

COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: lambda data: bytes(lz4.block.compress(data, store_size=False)),
    2: zlib.compress,
    3: zstandard.ZstdCompressor().compress,
    4: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
KINDS = pytest.mark.parametrize("kind", COMPRESS)

_MADE = random.Random(1)
CONTENTS = [
    b"a",
    b"abc" * 10_000,
    _MADE.randbytes(70_000),
    b"".join(_MADE.randbytes(20) * _MADE.randrange(1, 9) for _ in range(3_000)),
]


@KINDS
@pytest.mark.parametrize("content", CONTENTS, ids=["one byte", "alike", "random", "both"])
def test_what_was_compressed_is_read(kind: int, content: bytes) -> None:
    payload = COMPRESS[kind](content)
    assert decompressed(kind, payload, len(content)) == content
    for size in (len(content) - 1, len(content) + 1, 0):
        with pytest.raises(ValueError):
            decompressed(kind, payload, size)


@KINDS
@given(payload=st.binary(max_size=200), size=st.integers(0, 2_000))
def test_any_bytes_are_refused_or_have_the_declared_size(kind: int, payload: bytes, size: int) -> None:
    with contextlib.suppress(ValueError):
        assert len(decompressed(kind, payload, size)) == size


@KINDS
@pytest.mark.parametrize("declared", [100, 2 * MAX_BYTES], ids=["less than it has", "too much"])
def test_a_bomb_is_refused_before_it_takes_memory(kind: int, declared: int) -> None:
    payload = COMPRESS[kind](bytes(8_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            decompressed(kind, payload, declared)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_snappy_block_that_claims_more_than_was_declared_is_refused() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(ValueError):
        decompressed(4, claims_4_gib, 1_000)


def test_another_kind_is_unknown() -> None:
    assert decompressed(0, b"as it is", 1) == b"as it is"
    with pytest.raises(ValueError):
        decompressed(5, b"", 0)
