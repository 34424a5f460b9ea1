"""The HTTP/1.1 protocol of the server: uvicorn's httptools protocol with limits and strict checks.

- A request that offers an upgrade (Java's ``HttpClient`` offers ``h2c`` by default) is served as plain HTTP/1.1 with
  its body intact, as RFC 9110, section 7.8 allows.
- Bytes that are not HTTP get a problem+json 400, and so does a head that two programs could read differently. Trailers
  are dropped. A head without end gets a 431.
- A client that sends its request too slowly gets a 408. A client that does not read its answer is disconnected.
- Publishes and receives that the process cannot serve in time get a 429 at a fraction of the cost of a request.
- A request of :mod:`babelgate.http.direct` whose body arrives with its head is served without ASGI.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn._types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from babelgate.clock import now_ms
from babelgate.http.direct import DIRECT, DirectEndpoints
from babelgate.http.exchange import DISCARDED_BYTES, WHOLE
from babelgate.http.heads import RequestTarget, check_head, target_of, without_upgrade
from babelgate.http.problems import HeadTooLarge, HttpError, MalformedHttp, RequestTimeout
from babelgate.server.cycle import Cycle, DirectCycle, GatewayConnection, Serving
from babelgate.server.malformed import answer_to, problem_of, report
from babelgate.server.overload import SHEDDER, Shedder
from babelgate.server.tls import certificate_of
from babelgate.server.transport import STALL_SECONDS, BufferedTransport, Patience, ReadingClock, ReadWatch

MAX_HEAD_BYTES = 65_536
MAX_PIPELINED = 256
"""Maximum requests that wait behind the one that is served (which may be a long poll), or are refused at once."""
PARSED_BYTES = 32_768
"""Maximum bytes parsed for one connection per turn of the event loop: some milliseconds as chunks of one byte."""
CHECK_SECONDS = 0.1
"""Minimum time between two checks of a connection's deadlines."""
_PATIENCE = Patience()


class GatewayProtocol(GatewayConnection):
    """One connection. ``config.ws`` must be ``none``, because upgrades are declined."""

    stall_seconds: float = STALL_SECONDS

    flow: ReadingClock
    _in_head = False
    _in_request = False
    _head_bytes = 0
    _shedder: Shedder | None = None
    _direct: DirectEndpoints | None = None
    _kept: DirectCycle | None = None
    """A request that may be served directly, until all data that has arrived is parsed."""
    _shedding = False
    _discarded = 0
    _refused = 0
    cycle: Any
    """The latest request, a Cycle or a DirectCycle; None before the first."""
    _served: Serving | None = None
    _reading: ReadWatch
    _idle_since: float | None = None
    """When the server started to wait for the client, in time of ``flow``; None when it does not wait."""
    _due: float | None = None
    """When the current head or body must be complete, in time of ``flow``; None when nothing is missing."""
    _checked_at = 0.0
    _unparsed = b""
    _is_reported = False
    _is_over = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        patience: Patience = _PATIENCE,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience = patience
        self.handshake_seconds = patience.head_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a connection."""
        joined = BufferedTransport(cast(asyncio.Transport, transport), self.stall_seconds)
        super().connection_made(cast(asyncio.Transport, joined))
        self.flow = ReadingClock(self.transport, self.loop)
        self._reading = joined.reading
        self._shedder = self.app_state.get(SHEDDER)
        self._direct = self.app_state.get(DIRECT)
        self.certificate = certificate_of(self.app_state, transport)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn knows only the last request.
        for cycle in (self._served, self.cycle):
            if cycle is not None:
                cycle.lost()
        # uvicorn would wake the task of the request, which a DirectCycle does not have.
        self.cycle = None
        self._reading.stop()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        super().pause_writing()
        self._reading.start()

    def resume_writing(self) -> None:
        """The client has read."""
        self._reading.stop()
        if self.transport.is_closing():
            self._reading.finish()
        super().resume_writing()
        if not self._refused and (self.cycle is None or self.cycle.response_complete):
            self.flow.resume_reading()

    def wake(self) -> None:
        """Continue reading after a refusal, when the client has read it."""
        self._refused = 0
        if not self.flow.write_paused:
            self.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Parse ``data``: a long piece in parts, one per turn of the event loop, because it may have many chunks. An
        error of the parser is answered, and the connection is closed."""
        size = len(data)
        if self._unparsed or size > PARSED_BYTES:
            if not self._unparsed:
                self.loop.call_soon(self._parse_part)
            self._unparsed += data
            self.transport.pause_reading()
            return
        if self._in_request:
            self._head_bytes += size
        while data:
            try:
                self.parser.feed_data(data)
                if self._in_request:
                    if self._kept is not None:
                        self._hand_over(self._kept, self._kept.body, more_body=True)
                    self._expect_rest(size)
                    # A head that starts in this data has not been counted yet.
                    if self._head_bytes > MAX_HEAD_BYTES:
                        self._refuse(HeadTooLarge(kind="head_too_large", limit=MAX_HEAD_BYTES))
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(MalformedHttp(kind="connect", reason="CONNECT is supported only by proxies."))
                    return
                # The parser treats the following bytes as another protocol. A new parser reads them as the body.
                version = self.parser.get_http_version()
                head = without_upgrade(self.parser.get_method(), self.url, version, self.headers)
                data = head + data[upgrade.args[0] :]
                self._new_parser()
            except httptools.HttpParserError as error:
                self._refuse(problem_of(error, self._in_head))
                return

    def _parse_part(self) -> None:
        unparsed, self._unparsed = self._unparsed, b""
        if self.parser is None or self.transport.is_closing():
            return
        self.data_received(unparsed[:PARSED_BYTES])
        self._unparsed = unparsed[PARSED_BYTES:]
        if self._unparsed:
            self.loop.call_soon(self._parse_part)
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = True
        self._head_bytes = 0
        self._due = None
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._in_head = False
            return
        # The parser passes exceptions on to `data_received`.
        if len(self.pipeline) + self._refused >= MAX_PIPELINED:
            reason = f"More than {MAX_PIPELINED} requests were sent without waiting for an answer."
            raise MalformedHttp(kind="pipelined", reason=reason)
        version = self.parser.get_http_version()
        fields = check_head(version, self.url, self.headers)
        target = target_of(self.url)
        self._in_head = False
        self._due = None
        self._is_over = self.certificate is not None and not self.certificate.is_kept(now_ms())
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not self.pipeline:
                self._served = cycle
        elif self._shedder is not None and self._shedder.should_shed(target.queue, target.verb):
            self._shed(self._shedder, fields, target)
            return
        elif (
            self._direct is not None
            and self._direct.takes(self.parser.get_method(), target.verb, target.query, fields)
            and not self.flow.write_paused
        ):
            self._kept = DirectCycle(self, version, fields, target)
            return
        self._begin(version, fields, target)

    def _hand_over(self, kept: DirectCycle, body: bytes, *, more_body: bool) -> None:
        """Let the application serve a request that was kept. ``body``: what has arrived of its body."""
        self._kept = None
        self._begin(kept.version, kept.fields, kept.target)
        cycle = self.cycle
        cycle.body += body
        cycle.more_body = more_body
        cycle.message_event.set()

    def _begin(self, version: str, fields: dict[bytes, bytes], target: RequestTarget) -> None:
        """Start to serve the request, or let it wait for the answers before it."""
        before = self.cycle
        extensions: dict[str, Any] = {}
        scope: HTTPScope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme or "http",
            "path": target.path,
            "raw_path": target.raw_path,
            "query_string": target.query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state,
            "extensions": extensions,
        }
        keep_alive = version != "1.0" and not self._is_over and self.parser.should_keep_alive()
        self.cycle = extensions[WHOLE] = Cycle(self, scope, fields, keep_alive)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        # The application keeps the fields of the head. Trailers go to a new list, which is never read.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        # Bytes that are neither head nor body, such as trailers, count towards the limit of a head.
        self._head_bytes = 0
        if self._kept is not None:
            self._kept.body += body
            return
        if not self._shedding:
            cycle = self.cycle
            if not cycle.response_complete:
                cycle.body += body
                if len(cycle.body) > HIGH_WATER_LIMIT:
                    self.flow.pause_reading()
                cycle.message_event.set()
            return
        # The rest of a refused request is discarded, because a client that is still writing would not see the answer.
        self._discarded += len(body)
        if self._discarded > DISCARDED_BYTES:
            self.transport.close()

    def on_message_complete(self) -> None:
        self._in_request = False
        self._idle_since = None
        if (kept := self._kept) is not None:
            assert self._direct is not None
            kept.keep_alive = kept.version != "1.0" and not self._is_over and self.parser.should_keep_alive()
            left = self._direct.begin(kept, kept.body)
            if left is None:
                self.cycle, self._kept = kept, None
            else:
                self._hand_over(kept, left, more_body=False)
            return
        if self.parser.should_upgrade():
            return
        if not self._shedding:
            cycle = self.cycle
            if not cycle.response_complete:
                cycle.more_body = False
                cycle.message_event.set()
            return
        self._shedding = False
        self._expect_more()
        if self._is_over or not self.parser.should_keep_alive():
            self.transport.close()

    def _shed(self, shedder: Shedder, fields: dict[bytes, bytes], target: RequestTarget) -> None:
        self._shedding = True
        self._discarded = 0
        keep_alive = not self.expect_100_continue and not self._is_over and self.parser.should_keep_alive()
        method, scheme = self.parser.get_method(), self.scheme or "http"
        self.transport.write(shedder.answer(keep_alive, method, target, fields, scheme))
        if self.expect_100_continue:
            self.transport.close()
            return
        if not self._refused:
            self.flow.pause_reading()
            shedder.wake_later(self)
        self._refused += 1

    def on_response_complete(self) -> None:
        """Continue with the next request, like uvicorn except for the timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._served = cast(Cycle, cycle)
            self._start_asgi_task(cycle, app)
        else:
            self._expect_more()

    def _expect_more(self) -> None:
        """Wait for a request, at most the keep-alive time."""
        self._idle_since = self.flow.time()
        if self.timeout_keep_alive_task is None:
            self._check_within(self.timeout_keep_alive)

    def _expect_rest(self, received: int) -> None:
        """Wait for the rest of a request after ``received`` more bytes: until the deadline of the head or body, and at
        most the keep-alive time for the next byte."""
        now = self._idle_since = self.flow.time()
        if self._due is None:
            seconds = self._patience.head_seconds if self._in_head else self._patience.body_seconds
            self._due = now + seconds
            self._check_within(min(seconds, self.timeout_keep_alive))
        elif not self._in_head:
            self._due += received / self._patience.body_bytes_per_second

    def _check_within(self, seconds: float) -> None:
        """Check the deadlines after at most ``seconds``. One timer serves many requests, because most find it set."""
        at = self.loop.time() + seconds
        if self.timeout_keep_alive_task is not None:
            if self._checked_at <= at:
                return
            self.timeout_keep_alive_task.cancel()
        self._checked_at = at
        self.timeout_keep_alive_task = self.loop.call_at(at, self._check)

    def _check(self) -> None:
        """Answer 408 or close when a deadline has passed; else check again later."""
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
            reason = (
                f"nothing arrived for {self.timeout_keep_alive} s" if silent else self._patience.rule(self._in_head)
            )
            self._refuse(RequestTimeout(kind="head_timeout" if self._in_head else "body_timeout", reason=reason))
        else:
            self.timeout_keep_alive_handler()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        # Like uvicorn: a client may send its next request after one that closes the connection.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _refuse(self, error: HttpError) -> None:
        """Answer with a problem and close the connection. When an earlier answer is still due, close after that one."""
        cycle = self.cycle
        under_way = cycle is not None and not cycle.response_complete
        if self._in_request and not self._in_head and not under_way:
            # This request was answered before its body was complete.
            self.transport.close()
            return
        if under_way:
            if cycle.response_started or not cycle.more_body:
                cycle.keep_alive = False
                self.flow.pause_reading()
                self._report(error, None)
                return
            # The server answers, so the application sees a disconnected client.
            cycle.lost()
        answer, request_id = answer_to(error)
        self.transport.write(answer)
        self.transport.close()
        self._report(error, request_id)

    def _report(self, error: HttpError, request_id: str | None) -> None:
        # The rest of what has arrived may be refused, too.
        if not self._is_reported:
            self._is_reported = True
            report(self.app_state, error, self.client[0] if self.client else None, request_id)
