"""A request's place in a trace: its server span, by OpenTelemetry's stable conventions for HTTP.

https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.http.problems import RawHeaders
from app.observe.tracing.context import Context
from app.observe.tracing.request import TRACEPARENT, Trace, Tracing, of_request, travels

if TYPE_CHECKING:
    from app.http.exchange import Exchange
    from app.observe.tracing.recorder import Recorded

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
GONE = "client_gone"


class RequestTrace(Trace):
    """The trace of an exchange. Its span is made when it is decided that there is one, and begins with the request."""

    __slots__ = ("_exchange", "_server")

    def __init__(self, tracing: Tracing, exchange: Exchange) -> None:
        headers = exchange.headers
        if travels(headers):
            super().__init__(tracing, *of_request(headers, exchange.scope["headers"]))
        else:
            super().__init__(tracing)
        self._exchange = exchange
        self._server: Recorded | None = None

    def head(self) -> RawHeaders:
        """What the answer says of it: the request's span, else the context that the request came with."""
        if self.is_undecided:
            self.decide()
        context = self.context if self._server is None else self._server.context
        return [] if context is None else [(TRACEPARENT, context.traceparent.encode())]

    def end(self) -> None:
        """The request is over."""
        if self.is_undecided:
            self.decide()
        server, exchange = self._server, self._exchange
        if server is None:
            return
        method = _method(exchange.scope)
        if exchange.route:
            server.span.update_name(f"{method} {exchange.route}")
            server.add({"http.route": exchange.route})
        if not exchange.status:
            server.fail(GONE)
        else:
            server.add({"http.response.status_code": exchange.status})
            # What the client did wrong is no error of the server.
            if exchange.status >= 500:
                server.fail(exchange.error or str(exchange.status))
        server.end()

    def _begin(self, parent: Context | None, root: int) -> Recorded:
        recorder = self.tracing.recorder
        assert recorder is not None
        exchange = self._exchange
        method = _method(exchange.scope)
        name = f"{method} {exchange.route}" if exchange.route else method
        attributes = _attributes(exchange.scope, exchange.headers, method)
        self._server = server = recorder.start(name, "SERVER", parent, self.began, attributes, root=root)
        exchange.sampled = (server.context.trace_id, server.context.span_id)
        return server


def _method(scope: Any) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "_OTHER"


def _attributes(scope: Any, headers: dict[bytes, bytes], method: str) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {
        "http.request.method": method,
        "url.path": scope["path"],
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if scope["query_string"]:
        attributes["url.query"] = scope["query_string"].decode("latin-1")
    # Behind the last bracket, because an address may have colons of its own.
    host = headers.get(b"host", b"").decode("latin-1")
    bare, colon, port = host.rpartition(":")
    has_port = bool(colon) and port.isdecimal() and len(port) <= 5
    if host:
        attributes["server.address"] = (bare if has_port else host).strip("[]")
    if has_port:
        attributes["server.port"] = int(port)
    if client := scope.get("client"):
        attributes["client.address"] = client[0]
    if agent := headers.get(b"user-agent"):
        attributes["user_agent.original"] = agent.decode("latin-1")
    return attributes
