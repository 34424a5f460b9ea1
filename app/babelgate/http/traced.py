"""The trace of an HTTP request: its server span, by OpenTelemetry's stable conventions for HTTP.

https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.types import Scope

from babelgate.http.heads import MAX_QUERY_BYTES
from babelgate.http.problems import RawHeaders
from babelgate.observe.tracing.context import Context
from babelgate.observe.tracing.trace import TRACEPARENT, Trace, Tracing, of_request, travels

if TYPE_CHECKING:
    from babelgate.observe.tracing.span_recorder import RecordedSpan

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
GONE = "client_gone"


class RequestTrace(Trace):
    """The trace of one HTTP request. Its span is created when the request is sampled, and starts with the request."""

    __slots__ = ("_headers", "_scope", "_server")

    def __init__(self, tracing: Tracing, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """``headers``: those of ``scope``, by name."""
        if travels(headers):
            super().__init__(tracing, *of_request(headers, scope["headers"]))
        else:
            super().__init__(tracing)
        self._scope = scope
        self._headers = headers
        self._server: RecordedSpan | None = None

    @property
    def sampled(self) -> tuple[str, str] | None:
        """The trace id and span id in hexadecimal; None when the request is not sampled, or not decided yet."""
        return None if self._server is None else (self._server.context.trace_id, self._server.context.span_id)

    def head(self) -> RawHeaders:
        """The answer's ``traceparent``: the request's span, else the context of the request's own headers."""
        if self.is_undecided:
            self.decide()
        context = self.context if self._server is None else self._server.context
        return [] if context is None else [(TRACEPARENT, context.traceparent.encode())]

    def end(self, route: str, status: int, error: str | None) -> None:
        """End the span. ``route``: path template, or empty; ``status``: 0 without an answer; ``error``: its code."""
        if self.is_undecided:
            self.decide()
        server = self._server
        if server is None:
            return
        if route:
            server.span.update_name(f"{_method(self._scope)} {route}")
            server.add({"http.route": route})
        if not status:
            server.fail(GONE)
        else:
            server.add({"http.response.status_code": status})
            # A client's mistake (4xx) is no error of the server.
            if status >= 500:
                server.fail(error or str(status))
        server.end()

    def _begin(self, parent: Context | None, root: int) -> RecordedSpan:
        recorder = self.tracing.recorder
        assert recorder is not None
        method = _method(self._scope)
        attributes = _attributes(self._scope, self._headers, method)
        self._server = recorder.start(method, "SERVER", parent, self.began, attributes, root=root)
        return self._server


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "_OTHER"


def _attributes(scope: Scope, headers: Mapping[bytes, bytes], method: str) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {
        "http.request.method": method,
        "url.path": scope["path"],
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if scope["query_string"]:
        attributes["url.query"] = scope["query_string"][:MAX_QUERY_BYTES].decode("latin-1")
    # The port is after the last colon, because an IPv6 address has colons itself.
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
