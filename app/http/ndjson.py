"""Publish an NDJSON upload of any length in little memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO

import msgspec

from app.errors import BabelgateError, BodyTooLarge
from app.gateway import Gateway
from app.http.body import RequestLimits, pieces
from app.http.exchange import Exchange
from app.http.problems import HttpError
from app.http.results import entry_result
from app.http.upload import CHUNK_LINES, Line, Upload
from app.model import Receipt

CHUNK_BYTES = 262_144
SPOOLED_BYTES = 1_048_576
"""Results up to this size stay in memory; more go to a file without a name, and are gone with the request."""
_PART = 65_536


class Lines:
    """Cuts pieces into lines of at most ``limit`` bytes; a longer one is counted, not kept. Blank lines are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Line]:
        """The lines that end in ``piece``."""
        *ended, last = piece.split(b"\n")
        for text in ended:
            self._keep(text)
            yield from self.end()
        self._keep(last)

    def end(self) -> Iterator[Line]:
        """The line collected so far, which needs no line feed at the end of the upload."""
        line, size = self._rest, self._size
        self._rest, self._size = b"", 0
        if size > self._limit:
            yield BodyTooLarge(actual=size, limit=self._limit)
        elif not line.isspace() and line:
            yield line

    def _keep(self, text: bytes) -> None:
        self._size += len(text)
        self._rest = self._rest + text if self._size <= self._limit else b""


class Results:
    """The results of an upload so far, as JSON text, spooled."""

    def __init__(self, spool: IO[bytes]) -> None:
        self.accepted = 0
        self.failed = 0
        self._spool = spool

    def add(self, outcomes: Sequence[Receipt | BabelgateError]) -> None:
        """Append the outcomes of the next lines."""
        first = self.accepted + self.failed
        texts = [msgspec.json.encode(entry_result(index, outcome)) for index, outcome in enumerate(outcomes, first)]
        failed = sum(isinstance(outcome, BabelgateError) for outcome in outcomes)
        self.failed += failed
        self.accepted += len(outcomes) - failed
        self._spool.write((b"," if first else b"") + b",".join(texts))

    async def answer(self, exchange: Exchange) -> None:
        """Send them."""
        head = b'{"accepted":%d,"failed":%d,"results":[' % (self.accepted, self.failed)
        length = len(head) + self._spool.tell() + 2
        self._spool.seek(0)
        await exchange.answer_stream(207 if self.failed else 201, length, self._parts(head))

    async def _parts(self, head: bytes) -> AsyncIterator[bytes]:
        yield head
        while part := self._spool.read(_PART):
            yield part
        yield b"]}"


async def publish_stream(exchange: Exchange, gateway: Gateway, limits: RequestLimits) -> None:
    """Publish line by line, in order and in chunks; the answer starts after the last line.

    What was published stays so when the upload breaks off, and when it turns out too long or badly packed: that problem
    then says how many entries were accepted before.
    """
    with SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spool:
        results = Results(spool)
        upload = Upload(exchange, gateway)
        try:
            async for chunk in _chunks(exchange, limits):
                results.add(await upload.publish(chunk))
        except (BodyTooLarge, HttpError) as error:
            await exchange.fail(error, {"accepted": results.accepted, "failed": results.failed})
        else:
            await results.answer(exchange)


async def _chunks(exchange: Exchange, limits: RequestLimits) -> AsyncIterator[list[Line]]:
    lines = Lines(limits.max_entry_bytes)
    chunk: list[Line] = []
    size = 0
    async for piece in pieces(exchange, limits.max_stream_bytes):
        for line in lines.feed(piece):
            chunk.append(line)
            size += len(line) if isinstance(line, bytes) else 0
            if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    chunk += lines.end()
    if chunk:
        yield chunk
