"""Key files: what is indexed of a segment that has not landed. A block of a key file belongs to a frame of the segment.

The process that writes a segment writes its key file; each process of the host reads it.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Collection
from pathlib import Path
from struct import Struct as Packing

from msgspec import Struct

from babelgate.observe.journal.frames import FRAME_BYTES, contents
from babelgate.observe.logs import get_logger

INDEX = "index"
"""The folder of the index and of the key files, in the directory of open segments."""

_HEAD = Packing("=IQQqq")
"""The number of keys, start and end of the frame in the segment, and the times of its first and last record."""
_KEY_BYTES = 4
_LINE_BYTES = 1 << 16
"""Bytes of a segment that are read at a time to find the end of a line."""

log = get_logger(__name__)


class KeyBlock(Struct, frozen=True):
    """The keys of the frame at bytes ``start`` to ``end`` of a segment; its times are those of its Contents."""

    start: int
    end: int
    first_at: int
    last_at: int
    keys: memoryview

    def has(self, keys: Collection[int]) -> bool:
        """Whether the frame has all of ``keys``."""
        for key in keys:
            found = bisect_left(self.keys, key)
            if found == len(self.keys) or self.keys[found] != key:
                return False
        return True


class KeyWriter:
    """Writes the key file of the open segment. Its errors are logged and end the key file, not the segment."""

    def __init__(self, segment: Path) -> None:
        """``segment``: its path when it is closed."""
        self._path = key_file(segment)
        self._descriptor: int | None = None
        self._framed = 0
        self._failed = False

    def grow(self, segment: int, size: int, *, last: bool = False) -> None:
        """Write the keys of all complete frames among the first ``size`` bytes of the segment, an open descriptor.

        ``last``: the segment is complete, and so is its last frame.
        """
        try:
            while not self._failed and (size - self._framed >= FRAME_BYTES or (last and size > self._framed)):
                self._add(_block(segment, self._framed))
        except OSError as error:
            # The rest of the segment is searched without keys, and indexed when it lands.
            self._failed = True
            log.warning("the keys of a segment cannot be written", file=self._path.name, error=error)
        if self._descriptor is not None and (last or self._failed):
            os.close(self._descriptor)
            self._descriptor = None

    def _add(self, block: bytes) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        found, end = contents(block), self._framed + len(block)
        head = _HEAD.pack(len(found.keys), self._framed, end, found.first_at, found.last_at)
        written = memoryview(head + found.keys.tobytes())
        while written:
            written = written[os.write(self._descriptor, written) :]
        self._framed = end


def key_file(segment: Path) -> Path:
    """The path of the key file of a segment, given as its path while it is open or closed."""
    return segment.parent / INDEX / f"{segment.name.removesuffix('.open')}.keys"


def read_keys(segment: Path) -> list[KeyBlock]:
    """Return the blocks of the key file of ``segment``, up to the first that is incomplete; none without a key file.

    The keys stay in the file until they are used. Raises OSError.
    """
    try:
        with key_file(segment).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return []
            text = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        return []
    found: list[KeyBlock] = []
    at = framed = 0
    while at + _HEAD.size <= size:
        count, start, end, first_at, last_at = _HEAD.unpack_from(text, at)
        at += _HEAD.size
        until = at + count * _KEY_BYTES
        if until > size or start != framed or end <= start:
            break
        found.append(KeyBlock(start, end, first_at, last_at, text[at:until].cast("I")))
        at, framed = until, end
    return found


def _block(segment: int, start: int) -> bytes:
    """Return the frame that begins at ``start``, by the rule of :func:`babelgate.observe.journal.frames.blocks`."""
    block = os.pread(segment, FRAME_BYTES, start)
    while not block.endswith(b"\n"):
        more = os.pread(segment, _LINE_BYTES, start + len(block))
        if not more:
            break
        block += more[: more.find(b"\n") + 1] or more
    return block
