"""HTTP/1.1 as clients of every language speak it: uvicorn's httptools protocol, hardened.

A request that offers an upgrade (Java's ``HttpClient`` offers ``h2c`` by default) is served as plain HTTP/1.1 with its
body intact, as RFC 9110 section 7.8 allows; bytes that are no HTTP get a problem+json 400; a request head that never
ends gets a 431 instead of memory; a head that two programs could read differently gets a 400, and trailers are dropped;
a client that sends its request too slowly gets a 408; one that does not read its answer is cut off; and past what this
process can serve in time, publishes and receives get a 429 that costs a fraction of a request.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.http.exchange import DISCARDED_BYTES
from app.http.heads import check_head
from app.http.problems import HeadTooLarge, HttpError, MalformedHttp, RequestTimeout, raw_problem
from app.server.overload import SHEDDER, Shedder
from app.server.transport import BufferedTransport, ReadingClock

MAX_HEAD_BYTES = 65_536
MAX_PIPELINED = 256
"""Requests that may stand behind the one that is served, which may be a long poll, or be refused in one go."""
STALL_SECONDS = 30
"""A client that has read nothing of what waits for it for so long is gone, as far as anybody can tell."""
PARSED_BYTES = 32_768
"""What one turn of the event loop parses for one connection: as chunks of one byte it takes some milliseconds."""
CHECK_SECONDS = 0.1
"""A connection is looked at no more often, however little time is left for it."""
_INVALID = "The bytes received are not a valid HTTP request."
_HOP_HEADERS = frozenset({b"upgrade", b"http2-settings"})


@dataclass(frozen=True, slots=True)
class Patience:
    """Time that a client may take to send one request, counted only while the server reads.

    A head must be complete ``head_seconds`` after its first bytes. A body must be complete ``body_seconds`` after its
    head, and one second later for each ``body_bytes_per_second`` bytes that have arrived after the head.
    """

    head_seconds: float = 30
    body_seconds: float = 30
    body_bytes_per_second: float = 1024

    def rule(self, head: bool) -> str:
        """The rule for a head, or else for a body, as a clause."""
        if head:
            return f"a head may take {self.head_seconds:g} s"
        return f"a body may take {self.body_seconds:g} s, and 1 s more for each {self.body_bytes_per_second:g} bytes"


class GatewayProtocol(HttpToolsProtocol):
    """One connection. ``config.ws`` must be ``none``: every upgrade is declined."""

    stall_seconds: float = STALL_SECONDS

    flow: ReadingClock
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
    """When the server began to wait for the client, in time of ``flow``; None while it does not."""
    _due: float | None = None
    """When the head or body that has begun must be complete, in time of ``flow``; None until some of it is missing."""
    _checked_at = 0.0
    _unparsed = b""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        patience: Patience = Patience(),
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience = patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak over ``transport``."""
        joined = BufferedTransport(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, joined))
        self.flow = ReadingClock(self.transport, self.loop)
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
        size = len(data)
        if self._in_request:
            self._head_bytes += size
        while data:
            try:
                self.parser.feed_data(data)
                if self._in_request:
                    self._expect_rest(size)
                    # A head that begins in this data has not counted anything yet.
                    if self._head_bytes > MAX_HEAD_BYTES:
                        self._refuse(HeadTooLarge(limit=MAX_HEAD_BYTES))
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(MalformedHttp(reason="CONNECT is for proxies."))
                    return
                # The parser takes what follows for another protocol: a new one reads it as this request's body.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._new_parser()
            except httptools.HttpParserError as error:
                found = error.__context__
                self._refuse(found if isinstance(found, HttpError) else MalformedHttp(reason=_INVALID))
                return

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = True
        self._head_bytes = 0
        self._due = None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._in_head = False
            return
        # What is raised reaches data_received by way of the parser.
        if len(self.pipeline) + self._refused >= MAX_PIPELINED:
            raise MalformedHttp(reason=f"More than {MAX_PIPELINED} requests came without waiting for an answer.")
        check_head(self.parser.get_http_version(), self.url, self.headers)
        self._in_head = False
        self._due = None
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not self.pipeline:
                self._served = cycle
        elif self._shedder is not None and self._shedder.sheds(self.url):
            self._shed(self._shedder)
            return
        super().on_headers_complete()
        # The application has the fields of the head; trailers come to a list that nobody reads.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        # Trailers, and whatever else is neither head nor body, count like a head.
        self._head_bytes = 0
        if not self._shedding:
            super().on_body(body)
            return
        # What is left of a refused request is read and dropped: a client that still writes would not see the answer.
        self._discarded += len(body)
        if self._discarded > DISCARDED_BYTES:
            self.transport.close()

    def on_message_complete(self) -> None:
        self._in_request = False
        self._idle_since = None
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
        """Wait for a request, at most for the keep-alive time."""
        self._idle_since = self.flow.time()
        if self.timeout_keep_alive_task is None:
            self._check_within(self.timeout_keep_alive)

    def _expect_rest(self, received: int) -> None:
        """Wait for the rest of a request, of which ``received`` bytes came now: for a head or body in all, and at most
        the keep-alive time for the next of it."""
        now = self._idle_since = self.flow.time()
        if self._due is None:
            seconds = self._patience.head_seconds if self._in_head else self._patience.body_seconds
            self._due = now + seconds
            self._check_within(min(seconds, self.timeout_keep_alive))
        elif not self._in_head:
            self._due += received / self._patience.body_bytes_per_second

    def _check_within(self, seconds: float) -> None:
        """Look at the time that is left at the latest then. One timer serves many requests: most find it set."""
        at = self.loop.time() + seconds
        if self.timeout_keep_alive_task is not None:
            if self._checked_at <= at:
                return
            self.timeout_keep_alive_task.cancel()
        self._checked_at = at
        self.timeout_keep_alive_task = self.loop.call_at(at, self._check)

    def _check(self) -> None:
        """Cut the client off when it has let its time pass; else look again later."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        now = self.flow.time()
        left = self._idle_since + self.timeout_keep_alive - now
        if self._in_request and self._due is not None:
            left = min(left, self._due - now)
        if left > 0 or self._unparsed:
            self._check_within(max(left, CHECK_SECONDS))
        elif self._in_request:
            silent = now - self._idle_since >= self.timeout_keep_alive
            reason = f"nothing came for {self.timeout_keep_alive} s" if silent else self._patience.rule(self._in_head)
            self._refuse(RequestTimeout(reason=reason))
        else:
            self.timeout_keep_alive_handler()

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
        under_way = cycle is not None and not cycle.response_complete
        if self._in_request and not self._in_head and not under_way:
            # This request was answered before all of its body came.
            self.transport.close()
            return
        if under_way:
            if cycle.response_started or not cycle.more_body:
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            # The answer is given here: for the application the client is gone.
            cycle.disconnected = True
            cycle.message_event.set()
        head, body = raw_problem(error)
        request_id = b"x-request-id: %b\r\n" % secrets.token_hex(16).encode()
        self.transport.write(head + request_id + b"connection: close\r\n\r\n" + body)
        self.transport.close()
