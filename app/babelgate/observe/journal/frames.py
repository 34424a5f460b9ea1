"""Frames: the parts of a segment that are compressed, indexed and read alone.

A frame is about a quarter of a megabyte of whole lines. The bytes of a segment determine its frames.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Literal

import msgspec
import zstandard
from msgspec import Struct

from babelgate.observe.journal.kept_meta import joined
from babelgate.observe.journal.record import COMPRESSED

Compression = Literal["gzip", "zstd"]
Member = Literal["message_id", "trace_id", "job", "queue", "event", "meta"]
"""The members of a record that are indexed."""

FRAME_BYTES = 1 << 18
"""A frame ends with the line in which it reaches this size, some 700 records. Larger frames need fewer rows in the
index, because a message has fewer of them; smaller ones are indexed and read faster, each in half a millisecond."""
_READ_BYTES = 1 << 16
"""Compressed bytes that are unpacked at a time."""
_AT_ONCE_BYTES = 4 * FRAME_BYTES
"""Larger frames are unpacked in pieces: those with long lines, and those of earlier versions."""
_LEVELS: Mapping[Compression, int] = {"gzip": 1, "zstd": 3}
"""gzip's level 6 takes 2.5 times the CPU of level 1 for 12 % less on lines of a journal."""
_SEEDS: Mapping[Member, int] = {"message_id": 1, "trace_id": 2, "job": 3, "queue": 4, "event": 5, "meta": 6}
"""Start values of the CRC, so that the same text has another key in each member. Indexes on disk depend on them."""


Keys = memoryview
"""Keys of 32 bits each, sorted, each once."""


class SegmentFrame(Struct, frozen=True, array_like=True, gc=False):
    """Where a frame is: bytes ``start`` to ``end`` of the plain segment, and of its packed file. The times of its first
    and last record are Unix ms; a frame without any record has ``first_at`` above ``last_at``."""

    start: int
    end: int
    packed_start: int
    packed_end: int
    first_at: int
    last_at: int


class Contents(Struct, frozen=True, gc=False):
    """What the index knows of a frame: its times as in :class:`SegmentFrame`, and its keys."""

    first_at: int
    last_at: int
    keys: Keys


class _Indexed(Struct, gc=False):
    at: int
    event: str
    queue: str | None
    job: str | None
    message_id: str | None
    trace_id: str | None
    meta: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(_Indexed)
_LATEST = 2**63 - 1


def key(member: Member, text: str) -> int:
    """Return the key of a member's value, 32 bits. Different values may have the same key."""
    return zlib.crc32(text.encode("utf-8", "replace"), _SEEDS[member])


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the plain bytes of each frame of a segment, from its beginning. ``file`` is buffered."""
    while block := file.read(FRAME_BYTES):
        yield block if block.endswith(b"\n") else block + file.readline()


def contents(block: bytes) -> Contents:
    """Return what the index knows of a frame. Lines that are no records are left out."""
    try:
        records = _decoder.decode_lines(block)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        records = list(_readable(block))
    ats = [each.at for each in records]
    found: set[int] = set()
    for texts, seed in (
        ({each.message_id for each in records}, _SEEDS["message_id"]),
        ({each.trace_id for each in records}, _SEEDS["trace_id"]),
        ({each.job for each in records}, _SEEDS["job"]),
        ({each.queue for each in records}, _SEEDS["queue"]),
        ({each.event for each in records}, _SEEDS["event"]),
        ({text for each in records if each.meta for text in joined(each.meta)}, _SEEDS["meta"]),
    ):
        found.update(zlib.crc32(text.encode(), seed) for text in texts if text is not None)
    return Contents(min(ats, default=_LATEST), max(ats, default=-_LATEST), memoryview(array("I", sorted(found))))


def _readable(block: bytes) -> Iterator[_Indexed]:
    for line in block.split(b"\n"):
        try:
            yield _decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            continue


def pack(
    plain: IO[bytes], packed: IO[bytes], compression: Compression, most_bytes: int | None = None
) -> list[tuple[int, int]]:
    """Compress a segment frame by frame; return for each its plain and its packed size. The output is deterministic.

    The output is a file of several frames of zstd, or of several members of gzip, which every reader reads as one.
    ``most_bytes``: larger packed frames are divided; only one of a single line may be larger.
    """
    sizes = []
    zstd = zstandard.ZstdCompressor(_LEVELS["zstd"], write_checksum=True)

    def made_of(block: bytes) -> bytes:
        return zstd.compress(block) if compression == "zstd" else gzip.compress(block, _LEVELS["gzip"], mtime=0)

    for block in blocks(plain):
        for piece, made in _fitting(block, made_of, most_bytes):
            packed.write(made)
            sizes.append((len(piece), len(made)))
    return sizes


def _fitting(block: bytes, made_of: Callable[[bytes], bytes], most_bytes: int | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the block with its compressed form, in halves of whole lines for as long as that is too large."""
    made = made_of(block)
    if most_bytes is None or len(made) <= most_bytes:
        yield block, made
        return
    middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.find(b"\n") + 1
    if not 0 < middle < len(block):
        yield block, made
        return
    for half in (block[:middle], block[middle:]):
        yield from _fitting(half, made_of, most_bytes)


def compression_of(path: str) -> Compression | None:
    """Return the compression of a landed file by the suffix of its name; None for any other file."""
    return next((name for name, suffix in _SUFFIXES if path.endswith(suffix)), None)


_SUFFIXES: tuple[tuple[Compression, str], ...] = (("gzip", COMPRESSED["gzip"]), ("zstd", COMPRESSED["zstd"]))


class Unpacking:
    """Unpacks a landed file, and finds its frames: also the single large one of a file of an earlier version."""

    def __init__(self, compression: Compression) -> None:
        self._zstd = compression == "zstd"

    def plain(self, packed: Iterable[bytes]) -> Iterator[tuple[bytes, int, bool]]:
        """Yield pieces of whole lines, of about :data:`FRAME_BYTES` at most, each with the number of packed bytes up to
        the end of its frame and whether it is the last of its frame.

        Before the end of a frame that number is unknown, and 0. Raises ValueError for damaged data.
        """
        done, unpacker, pending = 0, self._unpacker(), bytearray()
        for read in packed:
            piece = read
            while piece:
                try:
                    pending += unpacker.decompress(piece)
                except (zlib.error, zstandard.ZstdError) as error:
                    raise ValueError(str(error)) from None
                if unpacker.eof:
                    piece = unpacker.unused_data
                    used = len(read) - len(piece)
                    yield bytes(pending), done + used, True
                    pending, unpacker = bytearray(), self._unpacker()
                    continue
                piece = b""
                while len(pending) >= FRAME_BYTES and (end := pending.rfind(b"\n") + 1):
                    yield bytes(pending[:end]), 0, False
                    del pending[:end]
            done += len(read)
        if pending:
            raise ValueError("the file ends within a frame")

    def _unpacker(self) -> zlib._Decompress | zstandard.ZstdDecompressionObj:
        return zstandard.ZstdDecompressor().decompressobj() if self._zstd else zlib.decompressobj(zlib.MAX_WBITS | 16)


def unpacked(packed: bytes, size: int, compression: Compression) -> Iterator[bytes]:
    """Yield the ``size`` plain bytes of a frame, in pieces of whole lines. Raises ValueError for damaged data."""
    if size <= _AT_ONCE_BYTES:
        try:
            if compression == "zstd":
                yield zstandard.ZstdDecompressor().decompress(packed, size)
            else:
                yield zlib.decompress(packed, zlib.MAX_WBITS | 16, size)
        except (zlib.error, zstandard.ZstdError) as error:
            raise ValueError(str(error)) from None
        return
    pieces = (packed[at : at + _READ_BYTES] for at in range(0, len(packed), _READ_BYTES))
    for plain, _, _ in Unpacking(compression).plain(pieces):
        yield plain
