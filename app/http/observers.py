"""Observers of finished requests: their durations for the metrics, and the access log."""

from __future__ import annotations

import contextlib
from typing import TextIO

from app.http.exchange import Exchange
from app.http.problems import InternalError
from app.observe.logs import Format, get_logger, is_console, json_line
from app.observe.metrics.recorder import CLIENT_GONE, Metrics

NAME = "babelgate.access"

log = get_logger(NAME)


class Durations:
    """Records the durations of requests.

    By OpenTelemetry's conventions, only a failure of the server has an error type; a refusal has only its status.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._request = metrics.request

    def refused(self, method: str, verb: str, scheme: str) -> None:
        """Record a request for a queue that was refused at its head."""
        self._request(method, f"/queues/{{queue}}/{verb}", 429, scheme, None, 0.0)

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
    """Logs one line per finished request, without query, headers and bodies."""

    def __init__(self, format: Format, stream: TextIO) -> None:
        """``stream``: the stream of the log."""
        self._stream = stream
        self._people = is_console(format, stream.isatty())

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Log a request that took ``seconds``. JSON lines are written without the loggers, which cost five times as
        much."""
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
        if self._people:
            log.info("request", **fields)
        else:
            # The answer has been sent, so a closed log stream is ignored.
            with contextlib.suppress(OSError):
                self._stream.write(json_line("info", NAME, "request", fields).decode())
                self._stream.flush()
