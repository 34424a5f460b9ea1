"""HTTP/1.1 as clients of every language speak it: uvicorn's httptools protocol, hardened in three places.

A request that offers an upgrade (Java's ``HttpClient`` offers ``h2c`` by default) is served as plain HTTP/1.1 with its
body intact, as RFC 9110 section 7.8 allows; bytes that are no HTTP get a problem+json 400; and a request head that
never ends gets a 431 instead of memory.
"""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import CONTENT_TYPE as PROBLEM
from app.http.problems import HeadTooLarge, HttpError, MalformedHttp, problem
from app.transport import JoinedWrites

MAX_HEAD_BYTES = 65_536
_HOP_HEADERS = frozenset({b"upgrade", b"http2-settings"})


class GatewayProtocol(HttpToolsProtocol):
    """One connection. ``config.ws`` must be ``none``: every upgrade is declined."""

    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak over ``transport``."""
        joined = JoinedWrites(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, joined))

    def data_received(self, data: bytes) -> None:
        """Feed the parser; whatever it finds wrong is answered, and then the connection is closed."""
        self._unset_keepalive_if_required()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(limit=MAX_HEAD_BYTES))
                return
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(MalformedHttp(reason="CONNECT is for proxies."))
                    return
                # The parser takes what follows for another protocol: a new one reads it as this request's body.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._new_parser()
            except httptools.HttpParserError:
                self._refuse(MalformedHttp(reason="The bytes received are not a valid HTTP request."))
                return

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn sets it: a client may send its next request behind one that closes the connection.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name in _HOP_HEADERS:
                continue
            if name == b"connection":
                kept = [token.strip() for token in value.split(b",") if token.strip().lower() not in _HOP_HEADERS]
                if not kept:
                    continue
                value = b", ".join(kept)
            lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _refuse(self, error: HttpError) -> None:
        """Answer with a problem and close; when an answer to an earlier request is still due, only close after it."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and (cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        status, more, body = problem(error, instance="")
        headers = [
            (b"content-type", PROBLEM),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", secrets.token_hex(16).encode()),
            (b"connection", b"close"),
            *more,
        ]
        lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()
