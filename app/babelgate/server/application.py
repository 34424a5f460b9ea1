"""The application of one serving process: the API, and the parts that start and stop with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from babelgate.cluster.peers import Peers
from babelgate.errors import ConfigError
from babelgate.gateway.gateway import Gateway
from babelgate.http.direct import DIRECT, DirectEndpoints
from babelgate.http.observers import MalformedRequest
from babelgate.observe.journal.writer import Journal
from babelgate.observe.metrics.otlp import OtlpMetrics
from babelgate.server.live import LiveParts
from babelgate.server.malformed import MALFORMED
from babelgate.server.overload import SHEDDER, Shedder
from babelgate.server.peer_port import PeerPort
from babelgate.server.tls import TLS, ServerTls


class Part(Protocol):
    """A part that starts and stops with the application."""

    async def start(self) -> None:
        """Start."""

    async def close(self) -> None:
        """Stop. The brokers are still open."""


class App:
    """The API with its lifespan, and the private port on which peers call the gateway."""

    def __init__(
        self,
        api: ASGIApp,
        gateway: Gateway,
        shedder: Shedder,
        parts: Sequence[Part] = (),
        journal: Journal | None = None,
        otlp: OtlpMetrics | None = None,
        port: PeerPort | None = None,
        peers: Peers | None = None,
        *,
        direct: DirectEndpoints | None = None,
        malformed: Sequence[Callable[[MalformedRequest], None]] = (),
        tls: ServerTls | None = None,
        live: LiveParts | None = None,
    ) -> None:
        """``live``: what a reload of the configuration changes."""
        self.gateway = gateway
        self._api = api
        self._shedder = shedder
        self.direct = direct
        self.tls = tls
        if tls is not None:
            gateway.overview.certificate_ends_at = tls.ends_at
        self._malformed = malformed
        self._parts = parts if tls is None else [*parts, tls]
        self._journal = journal
        self._otlp = otlp
        self._port = port
        self._peers = peers
        self.live = live

    def add(self, part: Part) -> None:
        """Let ``part`` start after all others, and stop before them."""
        self._parts = (*self._parts, part)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request, or the lifespan."""
        if scope["type"] != "lifespan":
            return self._api(scope, receive, send)
        state = {SHEDDER: self._shedder, DIRECT: self.direct, MALFORMED: self._malformed, TLS: self.tls}
        scope.setdefault("state", {}).update(state)
        return self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            if self._journal is not None:
                self._journal.start()
            await self.gateway.start()
            if self._port is not None:
                await self._port.open()
            for part in self._parts:
                await part.start()
        except ConfigError as error:
            await self._close()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _close(self) -> None:
        """Close all parts, outermost first. A failure does not stop the rest; it is raised afterwards."""
        async with AsyncExitStack() as ending:
            # Last, because closing the gateway still produces spans and records.
            ending.push_async_callback(self._stop_observing)
            if self._peers is not None:
                ending.push_async_callback(self._peers.close)
            ending.push_async_callback(self.gateway.close)
            for part in reversed(self._parts):
                ending.push_async_callback(part.close)
            # Peers can settle here until the gateway closes and its brokers take the messages back.
            if self._port is not None:
                ending.push_async_callback(self._port.close)
            await self.gateway.drain()

    async def _stop_observing(self) -> None:
        """Send and write the rest. All at once, so that a hanging collector delays the stop only once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.gateway.tracing.close())
            if self._otlp is not None:
                group.create_task(self._otlp.sent())
            if self._journal is not None:
                group.create_task(self._journal.close())
