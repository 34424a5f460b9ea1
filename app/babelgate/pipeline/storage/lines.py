"""Reads the lines of a file, plain or compressed, as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from babelgate.pipeline.storage.inputs import KEPT_BYTES, Body, ReadOptions, Split, fault_at, first_line, truncated

_CHUNK = 262_144
_STEP = 1024
"""Compressed data is unpacked in small steps, so that only a short damaged end is read again byte by byte."""


class _DamagedData(Exception):
    """Compressed data ends too early or cannot be unpacked."""


class LineReader:
    """Iterates over the non-blank lines that begin in ``split``, without line ends. Damaged data yields a fault last.

    ``opened``: opens the file; damaged data is opened twice. ``codec``: ``gzip`` or ``zstd``, None for plain data.
    """

    def __init__(self, opened: Callable[[], Any], codec: str | None, split: Split, reading: ReadOptions) -> None:
        self._opened = opened
        self._max_bytes = reading.max_bytes
        self._codec = codec
        self._end = split.end
        self._at = split.start
        self._count = 0
        self._peeked = b""
        self._damage: _DamagedData | None = None
        self._pieces = self._unpacked(codec) if codec else self._plain(split.start)

    def peek(self) -> bytes:
        """The beginning of the unpacked data."""
        try:
            self._peeked = next(self._pieces, b"")
        except _DamagedData as damage:
            self._damage = damage
        return self._peeked

    def __iter__(self) -> Iterator[Body]:
        line = _LineBuffer(self._max_bytes)
        try:
            yield from self._ended(line)
        except _DamagedData as damage:
            detail = f"Its {self._codec} data is damaged ({damage}); read: {self._at} bytes, {self._count} bodies."
            rest = line.body()
            yield rest._replace(content=rest.content[:KEPT_BYTES], fault=("truncated_file", detail))
        except OSError as error:
            yield fault_at("unreadable_file", f"It cannot be read past byte {self._at}: {first_line(error)}.", self._at)
        else:
            if not line.is_blank():
                yield line.body()

    def _ended(self, line: _LineBuffer) -> Iterator[Body]:
        """The lines that end in a newline. Data after the last newline is left in ``line``."""
        if self._damage is not None:
            raise self._damage
        began = False
        for piece in chain([self._peeked], self._pieces):
            if not began and piece:
                # Reading the first piece has set the offset of the first line.
                line.begin(self._at)
                began = True
                if self._end is not None and self._at >= self._end:
                    return
            *ended, rest = piece.split(b"\n")
            for part in ended:
                line.add(part)
                self._at += len(part) + 1
                if not line.is_blank():
                    self._count += 1
                    yield line.body()
                line.begin(self._at)
                if self._end is not None and self._at >= self._end:
                    return
            line.add(rest)
            self._at += len(rest)

    def _plain(self, start: int) -> Iterator[bytes]:
        # A line belongs to the split in which it begins. The byte before ``start`` shows whether a line begins there.
        with self._opened() as file:
            if start:
                file.seek(start - 1)
                self._at = start - 1
                while piece := file.read(_CHUNK):
                    cut = piece.find(b"\n") + 1
                    self._at += cut or len(piece)
                    if cut:
                        file.seek(self._at)
                        break
                    if self._end is not None and self._at >= self._end:
                        # The line continues after this split, and the next line begins in another split.
                        return
            while piece := file.read(_CHUNK):
                yield piece

    def _unpacked(self, codec: str) -> Iterator[bytes]:
        done, pending, size = 0, [], 0
        try:
            with pa.CompressedInputStream(self._opened(), codec) as stream:
                while piece := stream.read(_STEP):
                    pending.append(piece)
                    size += len(piece)
                    if size >= _CHUNK:
                        yield b"".join(pending)
                        done, pending, size = done + size, [], 0
            yield b"".join(pending)
            return
        except OSError as error:
            damage = _DamagedData(first_line(error))
        # The error discards readable data of the last step. Read again, and the end byte by byte.
        try:
            with pa.CompressedInputStream(self._opened(), codec) as stream:
                skip = done
                while skip:
                    skip -= len(stream.read(min(skip, _STEP)))
                yield b"".join(pending)
                while size:
                    size -= len(stream.read(min(size, _STEP)))
                while piece := stream.read(1):
                    yield piece
        except OSError:
            raise damage from None


class _LineBuffer:
    """Collects the parts of one line. Of a line that is too long, only the beginning is kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.begin(0)

    def begin(self, at: int) -> None:
        self.at = at
        self.size = 0
        self._parts: list[bytes] = []
        self._digest: Any = None

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self._digest is not None:
            self._digest.update(part)
            return
        self._parts.append(part)
        if self.size > self._max_bytes + 1:
            whole = b"".join(self._parts)
            self._digest = hashlib.sha256(whole)
            self._parts = [whole[:KEPT_BYTES]]

    def is_blank(self) -> bool:
        return self._digest is None and not any(part.strip() for part in self._parts)

    def body(self) -> Body:
        content = b"".join(self._parts)
        if self._digest is None:
            content = content.removesuffix(b"\r")
            return truncated(Body(self.at, content, len(content)), self._max_bytes)
        return truncated(Body(self.at, content, self.size, self._digest.hexdigest()), self._max_bytes)
