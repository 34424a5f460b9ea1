"""Reads request bodies within their limits, and decompresses gzip."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.types import Message

from babelgate.envelope.publication import ENTRY_ALLOWANCE
from babelgate.errors import BodyTooLarge, EnvelopeSyntaxError, Problem
from babelgate.gateway.admission import Permit
from babelgate.http.exchange import JSON, ClientGone, Exchange
from babelgate.http.problems import CompressionRatioTooHigh, InvalidEncoding, UnsupportedMediaType
from babelgate.http.schemas import syntax_error
from babelgate.runtime import turns

_PIECE = 262_144
"""Bytes per piece of decompressed gzip, so that a decompression bomb cannot fill the memory."""

MAX_RATIO = 200
"""Maximum ratio of decompressed to compressed size, after the first MiB. Repetitive messages reach 100; decompression
bombs reach 1,000."""
_RATIO_FROM_BYTES = 1_048_576

_OF_FORMS = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""The types that ``curl`` sends with ``-d`` and ``-F``: https://curl.se/docs/manpage.html#-d"""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of request bodies in bytes, after decompression.

    ``max_message_bytes``: one envelope; ``max_request_bytes``: a JSON batch; ``max_stream_bytes``: an NDJSON upload
    with at most ``max_stream_lines`` entries.
    """

    max_message_bytes: int = 1_048_576
    max_request_bytes: int = 16_777_216
    max_stream_bytes: int = 1_073_741_824
    max_stream_lines: int = 2_500_000

    @property
    def max_entry_bytes(self) -> int:
        """One envelope with the members of its entry."""
        return self.max_message_bytes + ENTRY_ALLOWANCE

    def adopt(self, other: RequestLimits) -> None:
        """Have the values of ``other`` from now on, for all who hold this. Bodies that are being read keep theirs."""
        for name in ("max_message_bytes", "max_request_bytes", "max_stream_bytes", "max_stream_lines"):
            object.__setattr__(self, name, getattr(other, name))


def arrived(exchange: Exchange, limit: int, permit: Permit) -> bytes | None:
    """The whole body, if it has arrived with its head; else None, and :func:`read` must be used.

    Raises BodyTooLarge, Overloaded.
    """
    whole = exchange.whole
    if whole is None or b"content-encoding" in exchange.headers or (body := whole.take_body()) is None:
        return None
    return _taken(exchange, body, limit, permit)


async def read(exchange: Exchange, limit: int, permit: Permit) -> bytes:
    """Read the whole body. ``permit`` grows when the body is larger than its head announced.

    Raises BodyTooLarge, InvalidEncoding, UnsupportedMediaType, Overloaded, ClientGone.
    """
    body = arrived(exchange, limit, permit)
    if body is not None:
        return body
    headers = exchange.headers
    if b"content-encoding" in headers:
        return await _whole(pieces(exchange, limit), permit)
    length = headers.get(b"content-length")
    if length is not None and int(length) > limit:
        raise BodyTooLarge(actual=int(length), limit=limit)
    message = await exchange.receive()
    if message["type"] != "http.request" or message.get("more_body", False):
        return await _whole(_bounded(_received(exchange, message), limit), permit)
    return _taken(exchange, message.get("body", b""), limit, permit)


def _taken(exchange: Exchange, body: bytes, limit: int, permit: Permit) -> bytes:
    exchange.unread = False
    if len(body) > limit:
        raise BodyTooLarge(actual=len(body), limit=limit)
    if len(body) > permit.size:
        permit.grow(len(body))
    return body


async def pieces(exchange: Exchange, limit: int) -> AsyncIterator[bytes]:
    """Read the body in pieces. Raises the errors of :func:`read`, also between pieces."""
    encoding = exchange.headers.get(b"content-encoding", b"identity").strip().lower()
    length = exchange.headers.get(b"content-length")
    if encoding not in (b"identity", b"gzip", b"x-gzip"):
        raise UnsupportedMediaType(reason="The only supported Content-Encoding is gzip.", accept_encoding="gzip")
    if length is not None and int(length) > limit:
        raise BodyTooLarge(actual=int(length), limit=limit)
    source = _bounded(_received(exchange, await exchange.receive()), limit)
    async for piece in source if encoding == b"identity" else _bounded(_unpacked(exchange, source), limit):
        yield piece


async def _whole(source: AsyncIterator[bytes], permit: Permit) -> bytes:
    body = bytearray()
    async for piece in source:
        body += piece
        permit.grow(len(body))
    return await turns.run(bytes, body, size=0)


async def _bounded(source: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in source:
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(actual=f"at least {size}", limit=limit)
        yield piece


async def _received(exchange: Exchange, message: Message) -> AsyncIterator[bytes]:
    yield _body(exchange, message)
    while exchange.unread:
        yield _body(exchange, await exchange.receive())


def _body(exchange: Exchange, message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    exchange.unread = message.get("more_body", False)
    body: bytes = message.get("body", b"")
    return body


async def _unpacked(exchange: Exchange, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    used = False
    packed = unpacked = 0
    try:
        async for data in source:
            packed += len(data)
            while data:
                exchange.check_connected()
                # A gzip file may have several members in sequence.
                if unpacker.eof:
                    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                used = True
                piece = await turns.run(unpacker.decompress, data, _PIECE, size=0, background=True)
                unpacked += len(piece)
                if unpacked > packed * MAX_RATIO + _RATIO_FROM_BYTES:
                    raise CompressionRatioTooHigh(limit=MAX_RATIO)
                yield piece
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        # The last input may be consumed before all of its output is produced.
        while used and not unpacker.eof and (piece := unpacker.decompress(b"", _PIECE)):
            yield piece
    except zlib.error:
        raise InvalidEncoding(reason="it is not valid gzip data") from None
    if used and not unpacker.eof:
        raise InvalidEncoding(reason="the gzip data is truncated")


def require_utf8(body: bytes) -> None:
    """Raise EnvelopeSyntaxError unless ``body`` is UTF-8, without NUL.

    JSON has a NUL only in another encoding. Python's parser would guess UTF-16 and UTF-32; other programs do not.
    """
    if b"\0" in body:
        detail = f"The body is not one JSON object: it has a NUL at byte {body.index(0)}."
        raise EnvelopeSyntaxError([Problem("", "invalid_json", detail)])
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise syntax_error(error, "one JSON object", body) from None


def is_null(body: bytes) -> bool:
    """Whether a body of parameters is ``null``, which generated clients send for an unset body."""
    return len(body) <= 8 and body.strip() == b"null"


def media_type(exchange: Exchange) -> bytes:
    """The media type of the body in lower case, without parameters; JSON when the client sent none."""
    given = exchange.headers.get(b"content-type", JSON)
    return given if given == JSON else given.partition(b";")[0].strip().lower()


def require_json(exchange: Exchange, *others: str) -> bytes:
    """The media type of the body, which is JSON. Raises UnsupportedMediaType for another one.

    ``others``: the further types of the endpoint, for the error.
    """
    kind = media_type(exchange)
    if kind != JSON and not kind.endswith(b"+json"):
        accepted = ", ".join(["application/json", *others])
        reason = f"The body must be {accepted} or another type that ends in +json, not {kind.decode('latin-1')}."
        if kind in _OF_FORMS:
            reason += " curl sends this type unless it gets another one: add -H 'Content-Type: application/json'."
        raise UnsupportedMediaType(reason=reason)
    return kind
