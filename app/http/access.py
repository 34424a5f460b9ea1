"""One log line per request, for those who want it."""

from __future__ import annotations

import contextlib
from typing import TextIO

from app.http.exchange import Exchange
from app.observe.logs import Format, get_logger, is_for_people, json_line

NAME = "babelgate.access"

log = get_logger(NAME)


class AccessLog:
    """Tells of each request that is over: nothing of its query, headers and body; of the answer, status and length."""

    def __init__(self, format: Format, stream: TextIO) -> None:
        """``stream``: where the other lines go as well."""
        self._stream = stream
        self._people = is_for_people(format, stream.isatty())

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Log a request that took ``seconds``. It goes past the loggers, which cost five times as much, unless the line
        is for people."""
        scope = exchange.scope
        client = scope.get("client")
        caller = getattr(exchange, "caller", None)
        fields = {
            "method": scope["method"],
            "path": exchange.path[:500],
            "route": exchange.route or None,
            # None: the client hung up before there was an answer.
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
            # The answer has been given: nothing is to come of a reader of logs who is gone.
            with contextlib.suppress(OSError):
                self._stream.write(json_line("info", NAME, "request", fields).decode())
                self._stream.flush()
