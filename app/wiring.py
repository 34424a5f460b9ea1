"""Puts the parts together: the only module that knows them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from starlette.types import ASGIApp, Receive, Scope, Send

from app.admission import Admission, Bounds
from app.brokers.binding import Binding
from app.brokers.registry import connect
from app.checks import check
from app.clock import Clock, now_ms
from app.envelope import Limits
from app.errors import ConfigError
from app.gateway import Gateway
from app.http.api import create_api
from app.http.auth import Auth
from app.http.body import RequestLimits
from app.keys import token_keys
from app.leases import TokenSealer
from app.observe.events import Observe
from app.observe.metrics import Metrics
from app.rights import Caller
from app.routing import Policy, Router, Rule
from app.settings import QueueSettings, Settings


def resolve(settings: Settings, clock: Clock = now_ms) -> Router:
    """The routes, checked against what their brokers can do; no I/O. Raises ConfigError naming the key."""
    return _router(settings, _bindings(settings, clock))


def build_gateway(settings: Settings, *, clock: Clock = now_ms, observe: Observe = lambda event: None) -> Gateway:
    """The gateway, not yet started. Makes the token key when there is none. Raises ConfigError."""
    bindings = _bindings(settings, clock)
    limits = Limits(settings.limits.max_message_bytes, settings.limits.max_depth)
    return Gateway(
        bindings,
        _router(settings, bindings),
        TokenSealer(token_keys(settings)),
        required=frozenset(name for name, broker in settings.brokers.items() if broker.required),
        urls={name: broker.masked_url for name, broker in settings.brokers.items()},
        limits=limits,
        clock=clock,
        observe=observe,
        admission=Admission(_bounds(settings), len(bindings)),
    )


def build_app(settings: Settings, *, clock: Clock = now_ms) -> App:
    """The ASGI application: the HTTP API, and a lifespan that starts and closes its gateway. Raises ConfigError."""
    metrics = Metrics()
    gateway = build_gateway(settings, clock=clock, observe=metrics.observe)
    limits = RequestLimits(
        max_message_bytes=settings.limits.max_message_bytes,
        max_request_bytes=settings.limits.max_request_bytes,
        max_stream_bytes=settings.limits.max_stream_bytes,
    )
    api = create_api(gateway, auth=_auth(settings), limits=limits, prefix=settings.prefix, metrics=metrics)
    return App(api, gateway)


class App:
    """The API with a lifespan."""

    def __init__(self, api: ASGIApp, gateway: Gateway) -> None:
        self.gateway = gateway
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._api(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.gateway.start()
        except ConfigError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.gateway.close()
        await send({"type": "lifespan.shutdown.complete"})


def _bounds(settings: Settings) -> Bounds:
    return Bounds(**{field.name: getattr(settings.limits, field.name) for field in fields(Bounds)})


def _bindings(settings: Settings, clock: Clock) -> dict[str, Binding]:
    return {name: connect(name, broker.url, broker.options, clock) for name, broker in settings.brokers.items()}


def _router(settings: Settings, bindings: Mapping[str, Binding]) -> Router:
    rules = [_rule(match, queue, bindings) for match, queue in settings.queues.items()]
    default = _rule("*", settings.default, bindings) if settings.default is not None else None
    router = Router(rules, default)
    check(router)
    return router


def _rule(match: str, queue: QueueSettings, bindings: Mapping[str, Binding]) -> Rule:
    policy = Policy(
        lease_seconds=queue.lease_seconds,
        max_attempts=queue.max_attempts,
        backoff_seconds=queue.backoff_seconds,
        ttl_seconds=queue.ttl_seconds,
        dead_letter_retention_seconds=queue.dead_letter_retention_seconds,
    )
    return Rule(match, bindings[queue.broker], policy, queue.native_name, queue.options)


def _auth(settings: Settings) -> Auth:
    # The address that was asked for is one's own name too; one that stands for all addresses is nobody's.
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    hosts = frozenset((*settings.hosts, address.lower())) - {"0.0.0.0", "[::]"}
    if settings.auth is None or settings.auth == "none":
        return Auth(hosts=hosts)
    callers = {
        token.sha256.lower(): Caller(token.name, {queue: frozenset(rights) for queue, rights in token.rights.items()})
        for token in settings.auth.tokens
    }
    return Auth(callers, hosts)
