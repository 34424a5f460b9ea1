"""Observers of finished requests: their durations for the metrics, and the access log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from babelgate.errors import InternalError
from babelgate.http.exchange import Exchange
from babelgate.observe.log_throttle import LineBudget
from babelgate.observe.logs import Format, get_logger, is_console, json_line
from babelgate.observe.metrics.recorder import CLIENT_GONE, Metrics
from babelgate.terminal import guarded

NAME = "babelgate.access"

log = get_logger(NAME)


class MalformedRequest(NamedTuple):
    """A request that the server refused before any endpoint saw it.

    ``kind``: one of :data:`babelgate.observe.metrics.catalogue.MALFORMED_KINDS`; ``client``: its address, without port;
    ``status`` and ``request_id``: of the answer, None without one; ``reason``: a sentence of ours, or OpenSSL's name of
    the fault.
    """

    kind: str
    client: str | None
    status: int | None
    reason: str
    request_id: str | None


class Durations:
    """Records the durations of requests.

    By OpenTelemetry's conventions, only a failure of the server has an error type; a refusal has only its status.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._request = metrics.request
        self._malformed = metrics.malformed

    def refused(self, method: str, verb: str, scheme: str) -> None:
        """Record a request for a queue that was refused at its head."""
        self._request(method, f"/queues/{{queue}}/{verb}", 429, scheme, None, 0.0)

    def malformed(self, request: MalformedRequest) -> None:
        """Count a malformed request."""
        self._malformed(request.kind)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Record a request that took ``seconds``."""
        status, scope = exchange.status, exchange.scope
        error = None
        if not 0 < status < 500:
            error = exchange.error or (InternalError.code if status else CLIENT_GONE)
        self._request(
            scope["method"],
            exchange.route,
            status,
            scope.get("scheme", "http"),
            error,
            seconds,
            None if exchange.trace is None else exchange.sampled,
        )


class AccessLog:
    """Logs one line per finished or malformed request, without query, headers and bodies.

    Lines of malformed requests are limited, because anyone who can connect can cause them at little cost.
    """

    def __init__(self, format: Format, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """``stream``: the stream of the log; ``clock``: seconds."""
        self._stream = guarded(stream) if stream.isatty() else stream
        self._people = is_console(format, stream.isatty())
        self._malformed = LineBudget(clock)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Log a request that took ``seconds``."""
        scope = exchange.scope
        client = scope.get("client")
        caller = getattr(exchange, "caller", None)
        fields = {
            "method": scope["method"],
            "path": exchange.path[:500],
            "route": exchange.route or None,
            # None: the client disconnected before the answer.
            "status": exchange.status or None,
            "code": exchange.error,
            "duration_ms": round(seconds * 1000, 3),
            "bytes": exchange.sent,
            **exchange.ids(),
            "client": client[0] if client else None,
            "caller": caller.name if caller else None,
        }
        self._write("request", fields)

    def malformed(self, request: MalformedRequest) -> None:
        """Log a malformed request, with the number of those since the previous line; or only count it for the next."""
        if count := self._malformed.take():
            self._write("malformed request", {**request._asdict(), "count": count})

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        """Write a line. JSON is written without the loggers, which cost five times as much."""
        if self._people:
            log.info(event, **fields)
        else:
            # The answer has been sent, so a closed log stream is ignored.
            with contextlib.suppress(OSError):
                self._stream.write(json_line("info", NAME, event, fields).decode())
                self._stream.flush()
