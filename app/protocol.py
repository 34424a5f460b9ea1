"""HTTP/1.1 as clients of every language speak it: uvicorn's httptools protocol, hardened.

A request that offers an upgrade (Java's ``HttpClient`` offers ``h2c`` by default) is served as plain HTTP/1.1 with its
body intact, as RFC 9110 section 7.8 allows; bytes that are no HTTP get a problem+json 400; a request head that never
ends gets a 431 instead of memory; a client that does not read its answer, or does not go on with its request, is cut
off; and past what this process can serve in time, publishes and receives get a 429 that costs a fraction of a request.
"""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.http.exchange import DISCARDED_BYTES
from app.http.problems import CONTENT_TYPE as PROBLEM
from app.http.problems import HeadTooLarge, HttpError, MalformedHttp, problem
from app.http.shedding import SHEDDER, Shedder
from app.transport import JoinedWrites

MAX_HEAD_BYTES = 65_536
MAX_PIPELINED = 256
"""Requests that may stand behind the one that is served, which may be a long poll, or be refused in one go."""
STALL_SECONDS = 30
"""A client that has read nothing of what waits for it for so long is gone, as far as anybody can tell."""
PARSED_BYTES = 32_768
"""What one turn of the event loop parses for one connection: as chunks of one byte it takes some milliseconds."""
_INVALID = "The bytes received are not a valid HTTP request."
_HOP_HEADERS = frozenset({b"upgrade", b"http2-settings"})


class GatewayProtocol(HttpToolsProtocol):
    """One connection. ``config.ws`` must be ``none``: every upgrade is declined."""

    stall_seconds: float = STALL_SECONDS

    _in_head = False
    _in_request = False
    _head_bytes = 0
    _shedder: Shedder | None = None
    _shedding = False
    _discarded = 0
    _refused = 0
    _served: RequestResponseCycle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _idle_since: float | None = None
    _unparsed = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak over ``transport``."""
        joined = JoinedWrites(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, joined))
        self._shedder = self.app_state.get(SHEDDER)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._served is not None:
            # uvicorn tells the last request only.
            self._served.disconnected = True
            self._served.message_event.set()
        self._forget_stall()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        super().pause_writing()
        self._watch_stall(-1)

    def resume_writing(self) -> None:
        """The client has read."""
        self._forget_stall()
        super().resume_writing()
        if not self._refused and (self.cycle is None or self.cycle.response_complete):
            self.flow.resume_reading()

    def wake(self) -> None:
        """Go on reading after a refusal, when the client has read it."""
        self._refused = 0
        if not self.flow.write_paused:
            self.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Feed the parser: what is long in parts, one in a turn of the event loop, because it may hold many chunks."""
        if not self._unparsed and len(data) <= PARSED_BYTES:
            self._parse(data)
            return
        if not self._unparsed:
            self.loop.call_soon(self._parse_part)
        self._unparsed += data
        self.transport.pause_reading()

    def _parse_part(self) -> None:
        if self.parser is None or self.transport.is_closing():
            self._unparsed = b""
            return
        part, self._unparsed = self._unparsed[:PARSED_BYTES], self._unparsed[PARSED_BYTES:]
        self._parse(part)
        if self._unparsed:
            self.loop.call_soon(self._parse_part)
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Whatever the parser finds wrong is answered, and then the connection is closed."""
        self._idle_since = None
        if self._in_head:
            self._head_bytes += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                if self._in_request:
                    self._expect_more()
                    # A head that begins in this data has not counted anything yet.
                    if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
                        self._refuse(HeadTooLarge(limit=MAX_HEAD_BYTES))
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(MalformedHttp(reason="CONNECT is for proxies."))
                    return
                # The parser takes what follows for another protocol: a new one reads it as this request's body.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._new_parser()
            except httptools.HttpParserError:
                many = len(self.pipeline) + self._refused >= MAX_PIPELINED
                reason = f"More than {MAX_PIPELINED} requests came without waiting for an answer." if many else _INVALID
                self._refuse(MalformedHttp(reason=reason))
                return

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) + self._refused >= MAX_PIPELINED:
            # Taken for a parser's error: what is before it is answered, and then the connection is closed.
            raise OverflowError
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not self.pipeline:
                self._served = cycle
        elif self._shedder is not None and self._shedder.sheds(self.url):
            self._shed(self._shedder)
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._shedding:
            super().on_body(body)
            return
        # What is left of a refused request is read and dropped: a client that still writes would not see the answer.
        self._discarded += len(body)
        if self._discarded > DISCARDED_BYTES:
            self.transport.close()

    def on_message_complete(self) -> None:
        self._in_request = False
        if self.parser.should_upgrade():
            return
        if not self._shedding:
            super().on_message_complete()
            return
        self._shedding = False
        self._expect_more()
        if not self.parser.should_keep_alive():
            self.transport.close()

    def _shed(self, shedder: Shedder) -> None:
        self._shedding = True
        self._discarded = 0
        keep_alive = not self.expect_100_continue and self.parser.should_keep_alive()
        self.transport.write(shedder.answer(keep_alive, self.parser.get_method(), self.url, self.scheme or "http"))
        if self.expect_100_continue:
            self.transport.close()
            return
        if not self._refused:
            self.flow.pause_reading()
            shedder.rest(self)
        self._refused += 1

    def on_response_complete(self) -> None:
        """Go on to the next request. As uvicorn does, but for the timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._served = cycle
            self._start_asgi_task(cycle, app)
        else:
            self._expect_more()

    def _expect_more(self) -> None:
        """Close the connection when nothing comes for the keep-alive time, before a request or within one. One timer
        serves many requests."""
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since is not None:
            if self.flow.read_paused:
                self._idle_since = self.loop.time()
            left = self._idle_since + self.timeout_keep_alive - self.loop.time()
            if left <= 0:
                self.timeout_keep_alive_handler()
            else:
                self.timeout_keep_alive_task = self.loop.call_later(left, self._check_idle)

    def _watch_stall(self, unread: int) -> None:
        """Cut the client off when it still has ``unread`` bytes to read; else look again later."""
        left = self.transport.get_write_buffer_size()
        if left == unread:
            self.transport.abort()
        else:
            self._stalled = self.loop.call_later(self.stall_seconds, self._watch_stall, left)

    def _forget_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

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
