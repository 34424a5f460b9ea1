"""A raw socket for requests that no HTTP client would send, and a server for a small application."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp, Receive, Send


@dataclass(frozen=True)
class Reply:
    """One HTTP response. ``interim`` are the status codes of the 1xx answers before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: tuple[int, ...] = ()


class Secured(NamedTuple):
    """The settings of a server, and the context of its clients where it has TLS."""

    environ: dict[str, str]
    context: ssl.SSLContext | None


class Connection:
    """One TCP connection, with TLS where there is a ``context``; replies are read one by one."""

    def __init__(
        self, host: str, port: int, timeout_seconds: float = 10, context: ssl.SSLContext | None = None
    ) -> None:
        plain = socket.create_connection((host, port), timeout_seconds)
        self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *packets: bytes) -> int:
        """Write each packet with a write of its own; the number of bytes."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for packet in packets:
            self._socket.sendall(packet)
        return sum(map(len, packets))

    def readable(self, wait_seconds: float) -> bool:
        """Whether the server has sent something, or closed, within ``wait_seconds``."""
        return bool(select.select([self._socket], [], [], wait_seconds)[0])

    def head(self) -> tuple[int, dict[str, str]]:
        """The next status and headers (lower-case names). Raises ConnectionError at the end of the stream."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        headers = {}
        while (field := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers

    def reply(self) -> Reply:
        """The next final response, its body included."""
        interim = []
        status, headers = self.head()
        while status < 200:
            interim.append(status)
            status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._file.readline(), 16):
                body += self._file.read(size)
                self._file.readline()
            self._file.readline()
        else:
            body = self._file.read(int(headers.get("content-length", "0")))
        return Reply(status, headers, body, tuple(interim))

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes; fewer only at the end of the stream."""
        return self._file.read(size)

    def line(self) -> bytes:
        """The next line of a body; empty at the end of the stream."""
        return self._file.readline()

    def ended(self) -> bool:
        """Whether the server closed the connection; waits for it to do so."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def serving(config: uvicorn.Config) -> Iterator[tuple[str, int]]:
    """Run ``config`` on a free port of the loopback address in a thread; yields (host, port)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        # An application is built in that thread; FastAPI changes the filters of warnings then, which all threads share.
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()


async def lifespan(receive: Receive, send: Send) -> None:
    """Start and end, without work, as the lifespan of an application asks for it."""
    for kind in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{kind}.complete"})


def echo() -> ASGIApp:
    """An application that answers with the request's method, path and body, the body last."""

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        names = b",".join(sorted(name for name, _ in scope["headers"]))
        answer = f"{scope['method']} {scope['path']} ".encode() + body
        headers = [(b"content-length", b"%d" % len(answer)), (b"saw-headers", names)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app
