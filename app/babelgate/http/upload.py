"""Splits a batch (a JSON array, or NDJSON of any length) into chunks, and publishes them one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cache
from itertools import compress
from typing import Any, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerUnavailable,
    EnvelopeError,
    EnvelopeSyntaxError,
    InvalidParameter,
    Problem,
    TooManyFailures,
    TooManyLines,
)
from babelgate.gateway.access import Access
from babelgate.gateway.buckets import RateExceeded
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Receipt
from babelgate.gateway.outages import is_silence
from babelgate.gateway.page_tokens import PageTerms
from babelgate.http.body import RequestLimits, pieces
from babelgate.http.exchange import Exchange
from babelgate.http.results import log_defects
from babelgate.http.schemas import MAX_ENTRIES, MAX_NESTED, syntax_error
from babelgate.runtime import turns

CHUNK_LINES = 500
CHUNK_BYTES = 262_144
MAX_BLANK_LINES = 10_000
"""Maximum blank lines of an upload, besides one per entry. Clients may send some to keep a connection open."""
MAX_FAILED_ENTRIES = 10_000
"""An upload with more failed entries ends: its answer lists as many. A backfill of millions of
entries may have some thousand invalid ones."""
MAX_FAILED_BYTES = 67_108_864
"""Maximum bytes of invalid entries of an upload. Refusing an entry takes up to a second of CPU time per MiB."""
_CUT_BYTES = 4_096
"""A piece is split into lines in parts of this size, so that many short lines do not block the event loop."""
_SOON_SPLIT_BYTES = 4_194_304
"""Any array up to this size is split in less than 10 ms."""

Line = bytes | BodyTooLarge | EnvelopeError | RateExceeded
"""The text of an entry, or its error."""


class Upload:
    """Publishes the chunks of one request in order.

    After a chunk of which an unavailable broker accepted nothing, the remaining entries fail without a call: each call
    to a broker that hangs takes seconds, so that a long upload would take hours.

    Publishing ends with ClientGone once the client has disconnected.
    """

    def __init__(self, exchange: Exchange, access: Access, gateway: Gateway) -> None:
        self._exchange = exchange
        self._access = access
        self._gateway = gateway
        self._down: BrokerUnavailable | None = None
        self._failed_bytes = 0

    def check_failures(self, accepted: int, failed: int) -> None:
        """Raise the error that ends an upload, if too many of its entries have ``failed``.

        BrokerUnavailable, which clients take for leave to repeat the request, only if nothing was accepted.
        """
        if self._failed_bytes > MAX_FAILED_BYTES:
            raise TooManyFailures(limit=MAX_FAILED_BYTES, kind="bytes of entries")
        if failed >= MAX_FAILED_ENTRIES:
            if self._down is not None and not accepted:
                raise self._down
            raise TooManyFailures(limit=MAX_FAILED_ENTRIES, kind="entries")

    def counted(self, chunk: Sequence[Line]) -> Sequence[Line]:
        """``chunk``, as it was sent, with the errors of those lines that the token of a page may not publish."""
        page = self._exchange.caller.page
        return chunk if page is None else [_taken(page, line) for line in chunk]

    async def publish(self, chunk: Sequence[Line]) -> list[Receipt | BabelgateError]:
        """Publish one chunk; return one outcome per line. Raises only Forbidden, QueueNotFound, InvalidParameter."""
        self._exchange.check_connected()
        if self._down is not None:
            return [self._down if isinstance(line, bytes) else line for line in chunk]
        bodies = [line for line in chunk if isinstance(line, bytes)]
        published = await self._gateway.publish_many(self._exchange.caller, self._access, bodies, self._exchange.trace)
        self._down = _given_up(published)
        log_defects(self._exchange, self._access.route.queue, published)
        failed = (isinstance(outcome, BabelgateError) for outcome in published)
        self._failed_bytes += sum(map(len, compress(bodies, failed)))
        outcomes = iter(published)
        return [next(outcomes) if isinstance(line, bytes) else line for line in chunk]


def _taken(page: PageTerms, line: Line) -> Line:
    if isinstance(line, bytes):
        try:
            page.take(len(line))
        except (BodyTooLarge, RateExceeded) as error:
            return error.without_frames()
    return line


def _given_up(outcomes: Sequence[Receipt | BabelgateError]) -> BrokerUnavailable | None:
    """The error of the entries after ``outcomes``; None when publishing continues."""
    accepted = any(isinstance(outcome, Receipt) for outcome in outcomes)
    lost = next((outcome for outcome in outcomes if is_silence(outcome)), None)
    if accepted or lost is None:
        return None
    return BrokerUnavailable(lost.broker, "it accepted none of the previous entries, so this one was not sent")


class Lines:
    """Splits pieces into lines, and drops blank lines.

    A line of more than ``max_bytes`` becomes BodyTooLarge. After ``max_lines`` entries, or too many blank lines,
    ``error`` is set, and no further line is returned.
    """

    def __init__(self, max_bytes: int, max_lines: int) -> None:
        self.error: TooManyLines | None = None
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._entries = 0
        self._blank = 0
        self._rest = bytearray()
        self._size = 0

    def feed(self, piece: bytes) -> list[Line]:
        """Return the lines that end in ``piece``."""
        lines: list[Line] = []
        *ended, last = piece.split(b"\n")
        for text in ended:
            if self._size:
                self._keep(text)
                lines += self.rest()
            else:
                self._add(lines, text, len(text))
            if self.error is not None:
                return lines
        if last:
            self._keep(last)
        return lines

    def rest(self) -> list[Line]:
        """Return the last line, which needs no line feed."""
        lines: list[Line] = []
        if self._size:
            text, size = bytes(self._rest), self._size
            self._rest, self._size = bytearray(), 0
            self._add(lines, text, size)
        return lines

    def _add(self, lines: list[Line], text: bytes, size: int) -> None:
        if not size or text.isspace():
            self._blank += 1
            if self._blank > self._entries + MAX_BLANK_LINES:
                self.error = TooManyLines(limit=MAX_BLANK_LINES, kind="blank lines without an entry")
            return
        self._entries += 1
        if self._entries > self._max_lines:
            self.error = TooManyLines(limit=self._max_lines, kind="lines")
            return
        lines.append(text if size <= self._max_bytes else BodyTooLarge(actual=size, limit=self._max_bytes))

    def _keep(self, text: bytes) -> None:
        self._size += len(text)
        if self._size <= self._max_bytes:
            self._rest += text
        else:
            self._rest.clear()


async def line_chunks(exchange: Exchange, limits: RequestLimits) -> AsyncIterator[list[Line]]:
    """Read the lines of the body in chunks. Raises TooManyLines after the lines within the limits, and the errors of
    :func:`babelgate.http.body.pieces`."""
    lines = Lines(limits.max_entry_bytes, limits.max_stream_lines)
    chunk: list[Line] = []
    size = 0
    async for piece in pieces(exchange, limits.max_stream_bytes):
        for start in range(0, len(piece), _CUT_BYTES):
            exchange.check_connected()
            for line in await turns.run(lines.feed, piece[start : start + _CUT_BYTES], size=0, background=True):
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


_decoder = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _bounded_decoder() -> msgspec.json.Decoder[Any]:
    """A decoder that stops at the first entry beyond MAX_ENTRIES, by means of a class with as many fields.

    The class takes 4 MiB, and decoding into it twice the time of a list, so it is made when the first body needs it.
    """
    fields = [(f"entry_{number}", msgspec.Raw, UNSET) for number in range(MAX_ENTRIES)]
    entries = msgspec.defstruct("_Entries", fields, array_like=True, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(entries)


async def array_chunks(body: bytes) -> AsyncIterator[list[bytes]]:
    """Read the elements of a JSON array in chunks. An empty array has one empty chunk.

    Raises EnvelopeSyntaxError when the body is not an array, InvalidParameter for too many elements, objects or arrays.
    """
    await _check_nested(body)
    # An array has a comma between each two entries.
    few = body.count(b",") < MAX_ENTRIES
    decoder = _decoder if few else await turns.run(_bounded_decoder, size=0, background=True)
    array = await turns.run(_split, decoder, body, size=0, background=True)
    for start in range(0, max(len(array), 1), CHUNK_LINES):
        yield await turns.run(_copied, array[start : start + CHUNK_LINES], size=0, background=True)


async def _check_nested(body: bytes) -> None:
    """Raise InvalidParameter for a large array with too many objects and arrays, because splitting it takes long."""
    if len(body) > _SOON_SPLIT_BYTES:
        counts = await turns.mapped(body.count, (b"{", b"["), background=True)
        if sum(counts) > MAX_NESTED:
            reason = f"more than {MAX_NESTED} objects and arrays in one JSON array; send them as application/x-ndjson"
            raise InvalidParameter(name="body", reason=reason, pointer="")


def _copied(entries: Sequence[msgspec.Raw]) -> list[bytes]:
    return [bytes(entry) for entry in entries]


def _split(decoder: msgspec.json.Decoder[Any], body: bytes) -> Sequence[msgspec.Raw]:
    """The texts of the elements of a JSON array. Each is validated later."""
    try:
        decoded = decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        # Any element is valid here, so a ValidationError of an array means too many elements.
        if isinstance(error, msgspec.ValidationError) and body.lstrip()[:1] == b"[":
            reason = f"more than {MAX_ENTRIES} entries in one JSON array; send them as application/x-ndjson"
            raise InvalidParameter(name="body", reason=reason, pointer="") from None
        if isinstance(error, msgspec.ValidationError):
            detail = "The body is not one JSON array: it is another JSON value. Put the entries between [ and ]."
            raise EnvelopeSyntaxError([Problem("", "invalid_json", detail)]) from None
        raise syntax_error(error, "one JSON array", body) from None
    if isinstance(decoded, list):
        return cast(list[msgspec.Raw], decoded)
    entries = astuple(decoded)
    # The fields without an entry are the last ones.
    return entries[: len(entries) - entries.count(UNSET)]
