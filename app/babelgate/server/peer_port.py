"""The private port for peers: a Unix socket, and a TCP port when peers run on other hosts."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from babelgate.cluster.client import Address
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.errors import ConfigError
from babelgate.gateway.gateway import Gateway
from babelgate.http.peer import NewerPushes, PeerApi, ProcessMetrics
from babelgate.observe.logs import get_logger
from babelgate.server.protocol import GatewayProtocol
from babelgate.tokens.tokens import Tokens

log = get_logger(__name__)

BACKLOG = 1_024
KEEP_ALIVE_SECONDS = 120
_CLOSE_SECONDS = 5


class Listener:
    """Serves an ASGI application on uvicorn's connections, without its server and its signal handlers."""

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
        """Serve on ``listening``, a Unix or TCP socket, until :meth:`close`, which closes it."""
        loop = asyncio.get_running_loop()
        if listening.family == socket.AF_UNIX:
            server = await loop.create_unix_server(self._connection, sock=listening)
        else:
            server = await loop.create_server(self._connection, sock=listening)
        self._servers.append(server)

    async def close(self) -> None:
        """Stop listening, and wait at most 5 s for requests in flight; idempotent."""
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


class PeerPort:
    """Serves the peers of ``gateway``.

    ``needs_directory``: whether to refuse to start without the Unix socket. ``metrics``, ``pushes``, ``tokens``: see
    PeerApi.
    """

    def __init__(
        self,
        gateway: Gateway,
        signer: Signer,
        directory: SocketDirectory,
        listen: Address | None = None,
        needs_directory: bool = True,
        metrics: ProcessMetrics | None = None,
        pushes: NewerPushes | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._incarnation = gateway.incarnation
        self._listener = Listener(PeerApi(gateway, signer, metrics, pushes, tokens))
        self._directory = directory
        self._listen = listen
        self._needs_directory = needs_directory

    async def open(self) -> None:
        """Start listening. Raises ConfigError naming ``peers.directory`` or ``peers.listen``."""
        # The port is opened first, because the socket in the directory announces this gateway to others.
        if self._listen is not None:
            await self._listener.open(_bound(self._listen))
            log.info("listening for peers", address=self._listen)
        try:
            self._directory.open()
            await self._listener.open(self._directory.bind(self._incarnation))
        except ConfigError as error:
            if self._needs_directory:
                await self._listener.close()
                raise
            log.warning("other gateways on this host cannot call this one", error=error)

    async def close(self) -> None:
        """Refuse new calls of peers, and wait at most 5 s for those in flight; idempotent."""
        self._directory.remove(self._incarnation)
        await self._listener.close()


def _bound(address: Address) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(key="peers.listen", reason=f"cannot listen on {address}: {error.strerror}") from None
