"""A TCP proxy between a client and a broker, which records what was written and can drop or hold replies."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK = 65536


class Proxy:
    """Forwards ``host:port`` on a free port of the loopback.

    ``sent``: all bytes that clients have written, in order of arrival. ``drop_replies``: a connection is cut as soon as
    the broker answers on it, so the client never learns the outcome of its write. ``hold_replies``: answers are held.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.sent = bytearray()
        self.connections = 0
        self.drop_replies = False
        self.hold_replies = False

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
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(upstream)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, upstream))
                group.create_task(self._replies(upstream_reader, writer, upstream))
        except* OSError:
            pass
        finally:
            for each in (writer, upstream):
                each.transport.abort()
                self._writers.discard(each)

    async def _requests(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            self.sent += chunk
            upstream.write(chunk)
            await upstream.drain()
        upstream.transport.abort()

    async def _replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(_CHUNK):
            if self.drop_replies:
                break
            if self.hold_replies:
                continue
            writer.write(chunk)
            await writer.drain()
        writer.transport.abort()
        upstream.transport.abort()


class Relay:
    """A proxy in a thread of its own: a service on ``port`` that goes and comes back while its server runs."""

    def __init__(self, port: int, server_port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._proxy = Proxy("127.0.0.1", server_port)
        self._serving = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Serve; idempotent."""
        if not self._serving:
            asyncio.run_coroutine_threadsafe(self._proxy.start(self._port), self._loop).result(60)
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
