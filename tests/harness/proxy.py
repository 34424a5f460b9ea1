"""A TCP proxy between a client and a broker, which records what was written. It delays, drops or holds replies, resets
connections, and leaves them half open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

_CHUNK = 65536
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 s: a close sends RST."""


class _Connection:
    """The two sockets of one forwarded connection. ``vanished``: nothing is forwarded any more."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker: asyncio.StreamWriter | None = None
        self.vanished = False

    def abort(self) -> None:
        """Close both sockets now."""
        for each in (self.client, self.broker):
            if each is not None:
                each.transport.abort()

    def reset(self) -> None:
        """Close both sockets with RST."""
        for each in (self.client, self.broker):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.abort()


class Proxy:
    """Forwards ``host:port`` on a free port of the loopback.

    ``sent``: all bytes that clients have written, in order of arrival. ``drop_replies``: a connection is cut as soon as
    the broker answers on it, so the client never learns the outcome of its write. ``hold_replies``: answers are held.
    ``latency_seconds``: each answer is delayed by that; answers overtake none. ``reset_on``: a connection is reset
    (RST) as soon as the client writes on it, and nothing is forwarded, or as soon as the broker answers. ``alter``:
    makes what is forwarded of each piece of an answer.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[_Connection] = set()
        self.sent = bytearray()
        self.connections = 0
        self.drop_replies = False
        self.hold_replies = False
        self.latency_seconds = 0.0
        self.reset_on: Literal["request", "reply"] | None = None
        self.alter: Callable[[bytes], bytes] = bytes

    def lead_to(self, host: str, port: int) -> None:
        """Forward new connections there; those that are open stay where they are."""
        self._host, self._port = host, port

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen, on any free port unless one is given, with ``tls`` for clients."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=tls)

    async def stop(self) -> None:
        """Refuse new connections and cut those that are open."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)

    def cut(self) -> None:
        """Cut all connections now."""
        for connection in self._open:
            connection.abort()

    def vanish(self, *, end_at_broker: bool) -> None:
        """Make the open connections half open: clients see no end, no reset and no answer. New ones are forwarded.

        ``end_at_broker``: the broker sees the end of its connection. Otherwise it stays open there, too.
        """
        for connection in self._open:
            connection.vanished = True
            if end_at_broker and connection.broker is not None:
                connection.broker.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = _Connection(writer)
        self._open.add(connection)
        try:
            upstream_reader, connection.broker = await asyncio.open_connection(self._host, self._port)
            answers: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, connection, connection.broker))
                group.create_task(self._replies(upstream_reader, connection, answers))
                group.create_task(self._answer(connection, answers))
        except* OSError:
            pass
        finally:
            connection.abort()
            self._open.discard(connection)

    async def _requests(
        self, reader: asyncio.StreamReader, connection: _Connection, broker: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if connection.vanished:
                    continue
                self.sent += chunk
                if self.reset_on == "request":
                    connection.reset()
                    break
                broker.write(chunk)
                await broker.drain()
        # The end of a vanished client is not forwarded: the broker's socket stays open until the proxy stops.
        if not connection.vanished:
            broker.transport.abort()

    async def _replies(
        self, reader: asyncio.StreamReader, connection: _Connection, answers: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if connection.vanished or self.hold_replies:
                    continue
                if self.drop_replies:
                    break
                if self.reset_on == "reply":
                    connection.reset()
                    break
                answers.put_nowait((now() + self.latency_seconds, self.alter(chunk)))
        answers.put_nowait((now() + self.latency_seconds, b""))

    async def _answer(self, connection: _Connection, answers: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Write each answer when it is due. An empty one is the end of the broker's side."""
        while True:
            due, chunk = await answers.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if connection.vanished and chunk:
                continue
            if not chunk:
                if not connection.vanished:
                    connection.abort()
                return
            connection.client.write(chunk)
            await connection.client.drain()


class Relay:
    """A proxy in a thread of its own: a service on ``port`` that goes and comes back while its server runs."""

    def __init__(self, port: int, server_port: int) -> None:
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._proxy = Proxy("127.0.0.1", server_port)
        self._serving = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Serve; idempotent."""
        if not self._serving:
            asyncio.run_coroutine_threadsafe(self._proxy.start(self.port), self._loop).result(60)
            self._serving = True

    def stop(self) -> None:
        """Refuse new connections and cut those that are open; idempotent."""
        if self._serving:
            asyncio.run_coroutine_threadsafe(self._proxy.stop(), self._loop).result(60)
            self._serving = False

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@asynccontextmanager
async def proxy(host: str, port: int, own_port: int = 0) -> AsyncIterator[Proxy]:
    """A running proxy, on any free port unless one is given."""
    running = Proxy(host, port)
    await running.start(own_port)
    try:
        yield running
    finally:
        await running.stop()
