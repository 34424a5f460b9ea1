"""The ASGI application: serves the hot endpoints itself and passes all other requests to FastAPI."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.resources.abc import Traversable
from typing import Any

from starlette.types import Receive, Scope, Send

from babelgate.cluster.scrape import Scraping
from babelgate.errors import BabelgateError, Forbidden, InvalidParameter
from babelgate.gateway.authorization import Caller
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.rate_limits import RateLimits
from babelgate.http import docs, health, site
from babelgate.http.accepted_bodies import AcceptedBodies
from babelgate.http.audited import AuditedExchange, HttpAudit
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits, media_type
from babelgate.http.consume import Consuming
from babelgate.http.cors import CorsRules
from babelgate.http.exchange import Exchange, carry_out
from babelgate.http.heads import path_of
from babelgate.http.openapi.document import document
from babelgate.http.preflight import answer_preflight, is_preflight
from babelgate.http.problems import MethodNotAllowed
from babelgate.http.publish import PAGE_VERBS, Publishing
from babelgate.http.rest import create_rest, serve_rest
from babelgate.http.tokens import NO_CREDENTIALS
from babelgate.http.traced import RequestTrace
from babelgate.observe.tracing.trace import BAGGAGE, TRACEPARENT
from babelgate.push.pushes import Pushes
from babelgate.tokens.tokens import Tokens

Handler = Callable[[Exchange], Awaitable[None]]
Ended = Callable[[Exchange, float], None]
"""Called with a finished request and its duration in seconds. Must not block or raise."""

OPEN = health.PROBES | docs.PATHS
"""Paths that require no credential, beside those of the documentation site."""
_QUEUES = "/queues/"
_CONSOLE = "/console"


def is_open(path: str) -> bool:
    """Whether ``path`` requires no credential."""
    return path in OPEN or site.is_of_site(path)


def create_api(
    gateway: Gateway,
    *,
    auth: Auth,
    limits: RequestLimits,
    prefix: str = "",
    scraping: Scraping | None = None,
    ended: Sequence[Ended] = (),
    console: Handler | None = None,
    cors: CorsRules | None = None,
    pushes: Pushes | None = None,
    stream: Handler | None = None,
    accepting: AcceptedBodies | None = None,
    tokens: Tokens | str = NO_CREDENTIALS,
    audit: HttpAudit | None = None,
    archive: Traversable = site.ARCHIVE,
) -> Api:
    """Create the application for ``http`` scopes. The caller starts and closes the gateway.

    The server must give ``raw_path``, which ASGI leaves optional: in ``path`` an escaped slash looks like a slash.

    ``prefix``: a path prefix (``/mq``) that a proxy leaves on requests; requests without it are served as well.
    ``scraping``: the source of ``/metrics``; None: there is no such path. ``ended``: called at the end of each request,
    including refused ones. ``console``: serves ``/console`` and what is below, and authenticates its users itself;
    None: there are no such paths. ``cors``: the pages of other origins that may call; None: none. ``pushes``: those of
    the process; None: there are no such paths. ``stream``: serves ``messages:stream`` of a queue; None: there is no
    such path. ``accepting``: the bodies of other senders that routes accept; None: none. ``tokens``: those that calls
    make, or why they cannot. ``audit``: records what is changed and who is refused; None: nothing does. ``archive``:
    the documentation site; where there is no such file, its paths answer how to get it.
    """
    parts = scraping, ended, console, cors, pushes, stream, accepting, tokens, audit, archive
    return Api(gateway, auth, limits, prefix.rstrip("/"), *parts)


class Api:
    """Dispatches requests, and converts errors to problems."""

    def __init__(
        self,
        gateway: Gateway,
        auth: Auth,
        limits: RequestLimits,
        prefix: str,
        scraping: Scraping | None,
        ended: Sequence[Ended],
        console: Handler | None,
        cors: CorsRules | None,
        pushes: Pushes | None,
        stream: Handler | None,
        accepting: AcceptedBodies | None,
        tokens: Tokens | str,
        audit: HttpAudit | None,
        archive: Traversable,
    ) -> None:
        self._tracing = gateway.tracing
        self._records = gateway.tracing.recorder is not None
        self._audit = audit
        self._ended = ended if audit is None else (*ended, audit.ended)
        self._auth = auth
        self._limits = limits
        self._gateway = gateway
        self._prefix = prefix
        self._console = console
        self.cors = cors
        self.accepting = accepting
        publishing, consuming = Publishing(gateway, limits), Consuming(gateway)
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
        if stream is not None:
            self._hot["messages:stream"] = {"POST": stream, "GET": stream}
        self._routes = {verb: f"{_QUEUES}{{queue}}/{verb}" for verb in self._hot}
        self._rest = create_rest(scraping, [*self._routes.values()], pushes, tokens)
        readers = docs.Readers()
        self._rest.include_router(site.routes(readers, archive))
        self._rest.include_router(docs.routes(self.document, readers, has_site=archive.is_file()))

    def document(self) -> dict[str, Any]:
        """The OpenAPI document of all that is served. Takes some 150 ms."""
        return document(self._rest, self._routes.values(), self._prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise ValueError(f"only http is served, not {scope['type']}")
        path, raw_path = scope["path"], scope["raw_path"]
        if b"%" in raw_path:
            path = path_of(raw_path)
        prefix = self._prefix or scope.get("root_path", "")
        if prefix and path.startswith(prefix + "/"):
            path = path[len(prefix) :]
        if self._audit is None:
            exchange = Exchange(scope, receive, send, path)
        else:
            is_hot = path.startswith(_QUEUES) and path[len(_QUEUES) :].partition("/")[2] in self._hot
            exchange = self._audit.exchange(scope, receive, send, path, is_hot)
        trace = None
        headers = exchange.headers
        if self.cors is not None:
            exchange.crossing = self.cors.of_path(path, headers.get(b"origin"))
        if self._records or TRACEPARENT in headers or BAGGAGE in headers:
            trace = exchange.trace = RequestTrace(self._tracing, scope, headers)
            if (is_open(path) or path.startswith(_CONSOLE)) and trace.context is None:
                # Otherwise most traces would be probes, and pages that update themselves.
                trace.decline()
        elif not self._ended:
            await carry_out(exchange, self._serve)
            return
        began = time.perf_counter()
        try:
            await carry_out(exchange, self._serve)
        finally:
            took = time.perf_counter() - began
            if trace is not None:
                # The span ends first, because the observers may use its ids.
                trace.end(exchange.route, exchange.status, exchange.error)
            for observe in self._ended:
                observe(exchange, took)

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.path
        if exchange.crossing is not None and is_preflight(exchange):
            await answer_preflight(exchange)
            return
        if self._auth.signed is not None and path != _CONSOLE and not path.startswith(f"{_CONSOLE}/"):
            await self._learn(exchange)
        if path.startswith(_QUEUES):
            queue, _, verb = path[len(_QUEUES) :].partition("/")
            if self.accepting is not None and verb == "messages":
                exchange.accepted = self.accepting.of(queue, media_type(exchange), exchange.headers)
            exchange.caller = self._admitted(exchange, verb)
            if self._gateway.rate_limits is not None:
                self._count(self._gateway.rate_limits, exchange, queue.partition(":")[0])
            if "%" in queue:
                raise InvalidParameter(name="queue", reason="no character of a queue name needs an escape")
            methods = self._hot.get(verb)
            if methods is not None:
                exchange.route = self._routes[verb]
                handler = methods.get(exchange.scope["method"])
                if handler is None:
                    raise MethodNotAllowed(allow=", ".join(methods))
                exchange.queue = queue
                await handler(exchange)
                return
        elif path == health.READYZ:
            exchange.caller = self._auth.prober(exchange.headers, exchange.certificate)
        elif self._console is not None and (path == _CONSOLE or path.startswith(f"{_CONSOLE}/")):
            await self._console(exchange)
            return
        elif not is_open(path):
            exchange.caller = self._admitted(exchange)
            if self._gateway.rate_limits is not None:
                self._count(self._gateway.rate_limits, exchange)
        if isinstance(exchange, AuditedExchange):
            exchange.require_record()
        await serve_rest(self._rest, self._gateway, exchange, self._limits)

    def _count(self, limits: RateLimits, exchange: Exchange, queue: str = "") -> None:
        """Count a request, which may be about a queue. Raises RateExceeded."""
        exchange.quota = limits.of_request(exchange.caller, queue)
        if exchange.quota is not None:
            exchange.quota.spend(requests=1)

    async def _learn(self, exchange: Exchange) -> None:
        if not is_open(exchange.path):
            await self._auth.learn(exchange.headers)
        elif exchange.path == health.READYZ:
            # It shows less to a caller without a valid token, but refuses none, and a probe has little time.
            with suppress(BabelgateError):
                await self._auth.learn(exchange.headers, may_wait=False)

    def _admitted(self, exchange: Exchange, verb: str = "") -> Caller:
        """The caller of a request. ``verb``: what it asks of a queue. Raises Unauthenticated, Forbidden."""
        crossing, accepted = exchange.crossing, exchange.accepted
        if accepted is not None and accepted.sender is not None and b"authorization" not in exchange.headers:
            return self._auth.admit_sender(exchange.headers, accepted.sender)
        is_allowed_page = crossing is not None and crossing.allowed
        caller = self._auth.admit(exchange.headers, is_allowed_page=is_allowed_page, certificate=exchange.certificate)
        if caller.page is not None and verb not in PAGE_VERBS:
            raise Forbidden(reason="The token of a page can only publish: POST …/messages and …/messages:batch.")
        return caller
