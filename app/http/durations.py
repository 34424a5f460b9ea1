"""How long requests took, for the metrics."""

from __future__ import annotations

from app.http.exchange import Exchange
from app.http.problems import InternalError
from app.observe.metrics.recorder import CLIENT_GONE, Metrics


class Durations:
    """Told of each request at its end.

    As the conventions have it, an error is what the server could not do: of a refusal the status tells enough.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._request = metrics.request

    def refused(self, method: str, verb: str, scheme: str) -> None:
        """Count a request for a queue that was refused at its head."""
        self._request(method, f"/queues/{{queue}}/{verb}", 429, scheme, None, 0.0)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Count a request that took ``seconds``."""
        status, scope = exchange.status, exchange.scope
        error = None
        if not 0 < status < 500:
            error = exchange.error or (InternalError.code if status else CLIENT_GONE)
        self._request(
            scope["method"], exchange.route, status, scope.get("scheme", "http"), error, seconds, exchange.sampled
        )
