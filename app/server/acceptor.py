"""Accepts the connections that wait. libuv accepts one in each turn of the event loop, and in overload turns are long.

See https://github.com/libuv/libuv/pull/3696.
"""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import Any, Protocol

from uvicorn.config import Config

from app.runtime.background import BackgroundTasks

TURN_SECONDS = 0.00025
"""One more connection is accepted for so much of the time since the last one: about five times what it costs."""
MOST = 256
"""Maximum connections accepted in one turn: some 10 ms of work."""


class ProtocolFactory(Protocol):
    """Makes the protocol of a connection, as uvicorn calls it."""

    def __call__(self, *, config: Config, **given: Any) -> asyncio.Protocol:
        """``given``: what uvicorn passes on beside its configuration."""


class Acceptor:
    """A factory of protocols. After a connection it accepts those that wait behind it: the longer the turns are, the
    more, but at first only one. So workers with short turns share a few connections evenly."""

    def __init__(self, listener: socket.socket, protocol: ProtocolFactory) -> None:
        """``listener`` does not block, and belongs to the server, which closes it."""
        self._listener = listener
        self._protocol = protocol
        self._accepting = False
        self._accepted_at = 0.0
        self._most = 0
        self._opening: BackgroundTasks[Any] = BackgroundTasks()

    def __call__(self, *, config: Config, **given: Any) -> asyncio.Protocol:
        """The protocol of a connection that the event loop has accepted."""
        made = partial(self._protocol, config=config, **given)
        if not self._accepting:
            self._accepting = True
            asyncio.get_running_loop().call_soon(self._accept, made, config)
        return made()

    def _accept(self, made: partial[asyncio.Protocol], config: Config) -> None:
        self._accepting = False
        now = time.monotonic()
        seconds, self._accepted_at = now - self._accepted_at, now
        self._most = min(2 * self._most + 1, int(seconds / TURN_SECONDS), MOST)
        loop = asyncio.get_running_loop()
        for _ in range(self._most):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # None waits, or the process has no more file descriptors, which the event loop handles.
                self._most = 0
                return
            opening = self._opening.start(loop.connect_accepted_socket(made, connection, ssl=config.ssl))
            # A client that ends the TLS handshake is no failure of the server.
            opening.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
