"""One request on the gateway's own server: uvicorn's cycle, which takes the body and writes the answer in one piece."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from app.http.problems import RawHeaders

_MAX_REMEMBERED = 256
"""Maximum bytes of a target whose parts are remembered."""


class Cycle(RequestResponseCycle):
    """Also the ASGI extension :data:`app.http.exchange.WHOLE`, which saves the messages of small requests."""

    def take_body(self) -> bytes | None:
        """The whole body, if it has arrived; else None, and ``receive`` returns it in pieces."""
        if self.more_body or self.disconnected or self.response_complete or self.waiting_for_100_continue:
            return None
        if self.flow.read_paused:
            self.flow.resume_reading()
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    def answer(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """Write the whole answer; ``headers`` have its length. False: nothing is written, and ``send`` must be used.

        Raises RuntimeError for a control character in a header.
        """
        if self.response_started or self.disconnected or self.flow.write_paused or self.scope["method"] == "HEAD":
            return False
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            raise RuntimeError("Invalid HTTP header value.")
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(lines))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


def target_of(url: bytes) -> tuple[str, bytes, bytes]:
    """The decoded path of a request's target, its bytes, and the query. Raises httptools.HttpParserInvalidURLError."""
    return _remembered(url) if len(url) <= _MAX_REMEMBERED else _parsed(url)


def _parsed(url: bytes) -> tuple[str, bytes, bytes]:
    target = httptools.parse_url(url)
    raw_path = target.path
    return unquote(raw_path.decode("ascii")), raw_path, target.query or b""


_remembered = lru_cache(maxsize=1024)(_parsed)
