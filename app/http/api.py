"""The ASGI application: one callable in front of the hot endpoints and of FastAPI, which serves the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import InvalidParameter
from app.gateway import Gateway
from app.http.auth import Auth
from app.http.body import RequestLimits
from app.http.consume import Consuming
from app.http.exchange import Exchange, carry_out
from app.http.problems import MethodNotAllowed
from app.http.publish import Publishing
from app.http.rest import OPEN, create_rest, serve_rest
from app.observe.metrics import Metrics

Handler = Callable[[Exchange], Awaitable[None]]

_QUEUES = "/queues/"


def create_api(
    gateway: Gateway,
    *,
    auth: Auth,
    limits: RequestLimits,
    prefix: str = "",
    metrics: Metrics | None = None,
) -> ASGIApp:
    """The application for ``http`` scopes; starting and closing the gateway is the caller's.

    ``prefix``: a path prefix (``/mq``) that a proxy leaves on requests; requests without it are served too.
    ``metrics``: what ``/metrics`` shows, fed by the gateway's events.
    """
    return Api(gateway, auth, limits, prefix.rstrip("/"), metrics or Metrics())


class Api:
    """Dispatches requests and turns whatever goes wrong into a problem."""

    def __init__(self, gateway: Gateway, auth: Auth, limits: RequestLimits, prefix: str, metrics: Metrics) -> None:
        self._auth = auth
        self._limits = limits
        self._admission = gateway.admission
        self._prefix = prefix
        self._rest = create_rest(gateway, metrics, prefix)
        publishing, consuming = Publishing(gateway, limits), Consuming(gateway, limits)
        self._hot: dict[str, dict[str, Handler]] = {
            "messages": {"POST": publishing.one},
            "messages:batch": {"POST": publishing.batch},
            "messages:receive": {"POST": consuming.receive, "GET": consuming.receive},
            "messages:ack": {"POST": consuming.ack},
            "messages:nack": {"POST": consuming.nack},
            "messages:reject": {"POST": consuming.reject},
            "messages:extend": {"POST": consuming.extend},
            "messages:settle": {"POST": consuming.settle},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise ValueError(f"only http is served, not {scope['type']}")
        path = scope["path"]
        prefix = self._prefix or scope.get("root_path", "")
        if prefix and path.startswith(prefix + "/"):
            path = path[len(prefix) :]
        exchange = Exchange(scope, receive, send, path)
        await carry_out(exchange, self._serve)

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.path
        if path not in OPEN:
            exchange.caller = self._auth.admit(exchange.headers)
            if path.startswith(_QUEUES):
                # Once decoded, an escaped slash is one, and would name another queue than the client meant.
                raw = exchange.scope.get("raw_path")
                if raw and b"%" in raw and b"%2f" in raw.lower():
                    raise InvalidParameter(name="queue", reason="a queue name has no slash")
                queue, _, verb = path[len(_QUEUES) :].partition("/")
                methods = self._hot.get(verb)
                if methods is not None:
                    handler = methods.get(exchange.scope["method"])
                    if handler is None:
                        raise MethodNotAllowed(allow=", ".join(methods))
                    exchange.queue = queue
                    await handler(exchange)
                    return
        await serve_rest(self._rest, exchange, self._limits, self._admission)
