"""The event loop of the server. It accepts all connections that wait, and shares them evenly among workers.

libuv accepts one connection in each turn of the event loop (https://github.com/libuv/libuv/pull/3696). Turns are long
in overload, so that thousands of connections would wait for seconds. Workers accept from one socket, and the one that
is awake would take most of them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import socket
from collections.abc import Callable, Coroutine
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks, error_seen
from babelgate.server.malformed import report_handshake
from babelgate.server.tls import context_of

if TYPE_CHECKING or importlib.util.find_spec("uvloop") is None:
    from asyncio import SelectorEventLoop as BaseLoop
else:
    from uvloop import Loop as BaseLoop

MOST = 256
"""Maximum connections accepted in one turn: some 10 ms of work."""
REST_SECONDS = 0.001
"""How long a worker leaves further connections to the others, after it has accepted some."""
RETRY_SECONDS = 1.0
"""The pause when the process has no file descriptor for a connection, which waits."""

_throttled = LogThrottle(get_logger(__name__))


class ServerLoop(BaseLoop):
    """The event loop of a process: one of several workers, or the only one."""

    async def create_server(self, protocol_factory: Any, *where: Any, sock: Any = None, **options: Any) -> Any:
        """Like asyncio's. A server on ``sock`` accepts by an :class:`Acceptor`."""
        if sock is None:
            return await super().create_server(protocol_factory, *where, **options)
        sock.listen(options.get("backlog", socket.SOMAXCONN))
        shared = multiprocessing.parent_process() is not None
        return Acceptor(sock, protocol_factory, options.get("ssl"), shared=shared)


class Acceptor:
    """Accepts connections from ``listening`` until it is closed. ``shared``: other processes accept from it, too.

    Then each takes one connection, leaves the next ones to the others for a millisecond, and takes one more each time,
    as long as more are waiting.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol_factory: Callable[[], asyncio.Protocol],
        tls: SSLContext | None = None,
        *,
        shared: bool = False,
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._rest_seconds = REST_SECONDS if shared else 0
        self._first = self._most = 1 if shared else MOST
        self._opening: BackgroundTasks[Any] = BackgroundTasks()
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more connections, and close the socket."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    async def wait_closed(self) -> None:
        """Nothing: the connections are not the acceptor's."""

    def _accept(self) -> None:
        for count in range(self._most):
            try:
                connection, peer = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                self._most = self._first
                self._rest(self._rest_seconds if count else 0)
                return
            except OSError as error:
                _throttled.warning("connections wait: they cannot be accepted", error=error)
                self._rest(RETRY_SECONDS)
                return
            opened: Coroutine[Any, Any, object]
            if self._tls is None:
                opened = self._loop.connect_accepted_socket(self._protocol_factory, connection)
            else:
                opened = self._secure(connection, peer, self._tls)
            # A client that hangs up at once is no failure of the server.
            self._opening.start(opened).add_done_callback(error_seen)
        self._most = min(self._most + 1, MOST)
        self._rest(self._rest_seconds)

    async def _secure(self, connection: socket.socket, peer: Any, tls: SSLContext) -> None:
        """Open a connection with TLS. The handshake may take as long as the head of a request."""
        protocol: Any = self._protocol_factory()
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context_of(protocol.app_state, tls),
                ssl_handshake_timeout=protocol.handshake_seconds,
            )
        except (OSError, UnicodeDecodeError) as error:
            report_handshake(protocol.app_state, error, peer[0])

    def _rest(self, seconds: float) -> None:
        """Look for connections again in ``seconds``; 0: when there are any."""
        if seconds:
            if self._resting is None:
                self._loop.remove_reader(self._listening)
            self._resting = self._loop.call_later(seconds, self._accept)
        elif self._resting is not None:
            self._resting = None
            self._loop.add_reader(self._listening, self._accept)
