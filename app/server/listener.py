"""Serves one more ASGI application inside a running event loop, on sockets of its own."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from app.server.protocol import GatewayProtocol

KEEP_ALIVE_SECONDS = 120
_CLOSE_SECONDS = 5


class Listener:
    """uvicorn's connections without its server, which would take the process's signals a second time."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = uvicorn.Config(
            app,
            http=GatewayProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def open(self, listening: socket.socket) -> None:
        """Serve on ``listening`` too, a Unix or TCP socket, until :meth:`close`, which closes it."""
        loop = asyncio.get_running_loop()
        if listening.family == socket.AF_UNIX:
            server = await loop.create_unix_server(self._connection, sock=listening)
        else:
            server = await loop.create_server(self._connection, sock=listening)
        self._servers.append(server)

    async def close(self) -> None:
        """Take no more connections, let requests in flight finish for at most 5 s; idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._state.connections):
            connection.shutdown()
        if in_flight := set(self._state.tasks):
            _, late = await asyncio.wait(in_flight, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()

    def _connection(self) -> asyncio.Protocol:
        return GatewayProtocol(self._config, self._state, {})
