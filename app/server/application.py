"""The application as the server runs it: the API, and all that lives and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from app.cluster.peers import Peers
from app.errors import ConfigError
from app.gateway.gateway import Gateway
from app.observe.journal.writer import Journal
from app.server.overload import SHEDDER, Shedder
from app.server.peer_port import PeerPort


class Part(Protocol):
    """What lives as long as the application."""

    async def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """End; the brokers can still be asked."""


class App:
    """The API with a lifespan, and the private side on which peers ask ``gateway`` and it asks them."""

    def __init__(
        self,
        api: ASGIApp,
        gateway: Gateway,
        shedder: Shedder,
        parts: Sequence[Part] = (),
        journal: Journal | None = None,
        port: PeerPort | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.gateway = gateway
        self._api = api
        self._shedder = shedder
        self._parts = parts
        self._journal = journal
        self._port = port
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan."""
        if scope["type"] == "lifespan":
            scope.setdefault("state", {})[SHEDDER] = self._shedder
            await self._live(receive, send)
        else:
            await self._api(scope, receive, send)

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
        """End all of it, from the outside in; what fails to end keeps nothing else from it, and is raised then."""
        async with AsyncExitStack() as ending:
            # Nothing happens any more that either would miss.
            ending.push_async_callback(self._stop_observing)
            if self._peers is not None:
                ending.push_async_callback(self._peers.close)
            ending.push_async_callback(self.gateway.close)
            for part in reversed(self._parts):
                ending.push_async_callback(part.close)
            # Others settle here for as long as there is something to settle: until the brokers take it back.
            if self._port is not None:
                ending.push_async_callback(self._port.close)
            await self.gateway.drain()

    async def _stop_observing(self) -> None:
        await asyncio.gather(self.gateway.tracing.close(), *([self._journal.close()] if self._journal else []))
