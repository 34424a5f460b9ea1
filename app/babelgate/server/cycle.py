"""One request on the gateway's own server: with ASGI, by uvicorn's cycle, or directly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from uvicorn._types import HTTPScope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from babelgate.http.heads import RequestTarget
from babelgate.http.problems import RawHeaders
from babelgate.identities.certificates import ClientCertificate


class GatewayConnection(HttpToolsProtocol):
    """What a request knows of its connection, beside what is uvicorn's. ``certificate``: that of the client, if it has
    shown one, and callers are known by theirs."""

    certificate: ClientCertificate | None = None


class Serving:
    """What a connection knows of a request that it serves, whichever way that is."""

    transport: asyncio.Transport
    flow: FlowControl
    default_headers: RawHeaders
    on_response: Callable[..., None]
    keep_alive = True
    more_body = True
    disconnected = False
    response_started = False
    response_complete = False
    certificate: ClientCertificate | None = None

    def lost(self) -> None:
        """The client has disconnected."""
        self.disconnected = True

    def answer(self, status: int, fields: bytes, body: bytes) -> bool:
        """Write the whole answer, unless it is too late for that. ``fields``: the lines of its head, with its length,
        without the empty line."""
        if self.response_started or self.disconnected:
            return False
        self.response_started = self.response_complete = True
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(b"%b%b%b%b%b" % (STATUS_LINE[status], _lines(*self.default_headers), fields, end, body))
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


class Cycle(Serving, RequestResponseCycle):
    """Also the ASGI extension :data:`babelgate.http.exchange.WHOLE`, which saves the messages of small requests."""

    access_log = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _chunks = False
    _reads = True

    def __init__(
        self, connection: GatewayConnection, scope: HTTPScope, fields: dict[bytes, bytes], keep_alive: bool
    ) -> None:
        """Sets what uvicorn's constructor sets, except for what is the same at the start of each request."""
        self.scope = scope
        self.fields = fields
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.default_headers = connection.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = connection.on_response_complete
        self.certificate = connection.certificate
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self.body = bytearray()

    def lost(self) -> None:
        super().lost()
        self.message_event.set()

    def take_body(self) -> bytes | None:
        """The whole body, if it has arrived; else None, and ``receive`` returns it in pieces."""
        if self.more_body or self.disconnected or self.response_complete or self.waiting_for_100_continue:
            return None
        if self.flow.read_paused:
            self.flow.resume_reading()
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    def answer(self, status: int, fields: bytes, body: bytes) -> bool:
        """Write the whole answer. False: nothing is written, and ``send`` must be used."""
        if self.flow.write_paused or self.scope["method"] == "HEAD" or not super().answer(status, fields, body):
            return False
        self.waiting_for_100_continue = False
        self.message_event.set()
        return True

    def begin(self, status: int, fields: bytes) -> None:
        """Write the head of an answer of unknown length. In HTTP/1.0 its end is that of the connection."""
        if self.disconnected:
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        self._chunks = self.scope["http_version"] != "1.0"
        end = b"" if self.keep_alive else b"connection: close\r\n"
        end += b"transfer-encoding: chunked\r\n\r\n" if self._chunks else b"\r\n"
        self.transport.write(b"%b%b%b%b" % (STATUS_LINE[status], _lines(*self.default_headers), fields, end))

    async def write(self, part: bytes) -> None:
        """Write a part of this answer, as fast as the client reads."""
        if self.disconnected:
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunks else part)
        if self.flow.write_paused:
            await self.flow.drain()

    def end(self) -> None:
        """End this answer."""
        if self.disconnected or self.response_complete:
            return
        self.response_complete = True
        if self._chunks:
            self.transport.write(b"0\r\n\r\n")
        if not self.keep_alive:
            self.transport.close()
        self.message_event.set()
        self.on_response()

    def switch(self, fields: bytes, received: Callable[[bytes], None]) -> None:
        """Write the head of an answer 101. ``received`` is called with all later bytes of the client."""
        self.keep_alive = False
        self.response_started = True
        self.transport.write(b"%b%b%b\r\n" % (STATUS_LINE[101], _lines(*self.default_headers), fields))
        before = cast(HttpToolsProtocol, self.transport.get_protocol())
        self.transport.set_protocol(_Switched(before, received, self.adjust_reading))
        self.read(True)

    def write_now(self, part: bytes) -> None:
        """Write a part, and do not wait."""
        if not self.disconnected:
            self.transport.write(part)

    def read(self, reads: bool) -> None:
        """Read from the client, or do not. It is never read while it has too much to read itself."""
        self._reads = reads
        self.adjust_reading()

    def adjust_reading(self) -> None:
        """Read from the client if that is wanted, and it reads itself; else the answers to its pings fill memory."""
        if self.disconnected:
            return
        if self._reads and not self.flow.write_paused:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()


class _Switched(asyncio.Protocol):
    """A connection that is no longer HTTP. What is not about its bytes stays with the protocol ``before``.

    ``turned``: called when the client has too much to read, and when it has no longer.
    """

    def __init__(
        self, before: HttpToolsProtocol, received: Callable[[bytes], None], turned: Callable[[], None]
    ) -> None:
        self._before = before
        self._received = received
        self._turned = turned

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()
        self._turned()

    def resume_writing(self) -> None:
        self._before.resume_writing()
        self._turned()


class DirectCycle(Serving):
    """A request that may be served directly: an :class:`babelgate.http.direct.DirectRequest`. ``body``: what has
    arrived."""

    more_body = False
    body: Any = b""
    _when_gone: Callable[[], object] | None = None

    def __init__(
        self, connection: GatewayConnection, version: str, fields: dict[bytes, bytes], target: RequestTarget
    ) -> None:
        """Sets what the answer needs, except for ``keep_alive``."""
        self.version = version
        self.fields = fields
        self.target = target
        self.scheme: str = connection.scheme or "http"
        self.transport = connection.transport
        self.flow = connection.flow
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.certificate = connection.certificate

    def lost(self) -> None:
        super().lost()
        if self._when_gone is not None:
            self._when_gone()

    def when_gone(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the client disconnects; also after the answer, when it must do nothing."""
        self._when_gone = call

    async def answer_parts(self, status: int, fields: bytes, parts: Iterable[bytes]) -> None:
        """Send a large answer as fast as the client reads, and let the event loop serve other requests meanwhile."""
        self.response_started = True
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(b"%b%b%b%b" % (STATUS_LINE[status], _lines(*self.default_headers), fields, end))
        for part in parts:
            self.transport.write(part)
            await self.flow.drain()
            await asyncio.sleep(0)
            if self.disconnected:
                return
        self.response_complete = True
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


@lru_cache(maxsize=8)
def _lines(*headers: tuple[bytes, bytes]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])
