"""An NDJSON upload of any length, read line by line in little memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from app.errors import BodyTooLarge, TooManyLines
from app.http.body import RequestLimits, pieces
from app.http.exchange import Exchange
from app.http.upload import CHUNK_LINES, Line
from app.runtime import turns

CHUNK_BYTES = 262_144
MAX_BLANK_LINES = 10_000
"""Blank lines that an upload may have beside one for each entry: a client may send some to keep a connection open."""
_CUT_BYTES = 16_384
"""A piece is cut into lines in parts of this size, so that many short lines take no long turn."""


class Lines:
    """Cuts pieces into lines. Blank lines are dropped.

    A line of more than ``max_bytes`` is counted, not kept. Once there are more than ``max_lines`` entries, or too many
    blank lines, ``error`` says so, and no further line is given out.
    """

    def __init__(self, max_bytes: int, max_lines: int) -> None:
        self.error: TooManyLines | None = None
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._entries = 0
        self._blank = 0
        self._rest = b""
        self._size = 0

    def feed(self, piece: bytes) -> list[Line]:
        """The lines that end in ``piece``."""
        lines: list[Line] = []
        *ended, last = piece.split(b"\n")
        for text in ended:
            self._keep(text)
            lines += self._end()
            if self.error is not None:
                return lines
        self._keep(last)
        return lines

    def rest(self) -> list[Line]:
        """The last line, which needs no line feed."""
        return self._end() if self._size else []

    def _end(self) -> list[Line]:
        line, size = self._rest, self._size
        self._rest, self._size = b"", 0
        if not size or line.isspace():
            self._blank += 1
            if self._blank > self._entries + MAX_BLANK_LINES:
                self.error = TooManyLines(limit=MAX_BLANK_LINES, kind="blank lines without an entry")
            return []
        self._entries += 1
        if self._entries > self._max_lines:
            self.error = TooManyLines(limit=self._max_lines, kind="lines")
            return []
        return [line if size <= self._max_bytes else BodyTooLarge(actual=size, limit=self._max_bytes)]

    def _keep(self, text: bytes) -> None:
        self._size += len(text)
        self._rest = self._rest + text if self._size <= self._max_bytes else b""


async def chunks(exchange: Exchange, limits: RequestLimits) -> AsyncIterator[list[Line]]:
    """The lines of the body, some at a time. Raises TooManyLines after those that are within the bounds, and as
    :func:`app.http.body.pieces` does."""
    lines = Lines(limits.max_entry_bytes, limits.max_stream_lines)
    chunk: list[Line] = []
    size = 0
    async for piece in pieces(exchange, limits.max_stream_bytes):
        for start in range(0, len(piece), _CUT_BYTES):
            for line in await turns.run(lines.feed, piece[start : start + _CUT_BYTES], size=0):
                chunk.append(line)
                size += len(line) if isinstance(line, bytes) else 0
                if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
                    yield chunk
                    chunk, size = [], 0
            if lines.error is not None:
                break
        if lines.error is not None:
            break
    else:
        chunk += lines.rest()
    if chunk:
        yield chunk
    if lines.error is not None:
        raise lines.error
