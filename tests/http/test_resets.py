"""Clients that reset their connection during the answer cause no error."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import struct
import threading
from functools import partial

import pytest

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_app
from tests.harness.sockets import Secured, lifespan, serving

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing sends a RST."""

CLIENTS = 200


class Client:
    """A connection that can be reset from any thread, TLS or not."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        plain = socket.create_connection(address, 10)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._socket.close()


class Application:
    """Resets its client, and answers in the same turn of the event loop."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.answered = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        # Not in the turn in which the request came: then the event loop reads nothing before it writes.
        await asyncio.sleep(0.05)
        assert self.client is not None
        self.client.reset()
        size = int(scope["path"][1:])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        for _ in range(2):
            await send({"type": "http.response.body", "body": bytes(size // 2), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
        await asyncio.sleep(0.05)
        self.answered.set()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.name}: {record.getMessage()}" for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("close", [b"", b"connection: close\r\n"], ids=["kept", "closed"])
@pytest.mark.parametrize("size", [10, 300_000])
def test_while_the_answer_is_written(
    secured: Secured, caplog: pytest.LogCaptureFixture, size: int, close: bytes
) -> None:
    application = Application()
    with serving(uvicorn_config(lambda: application, settings.load(None, secured.environ))) as address:
        client = application.client = Client(address, secured.context)
        client.send(b"GET /%d HTTP/1.1\r\nhost: h\r\n%s\r\n" % (size, close))
        assert application.answered.wait(60)
    assert told(caplog) == []


def test_long_polls(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """Many at once, reset while they wait, and about the time when they end."""
    found = settings.load(None, secured.environ)
    body = b'{"wait_seconds": 0.3}'
    head = b"POST /queues/q/messages:receive HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    with serving(uvicorn_config(partial(build_app, found), found)) as address:
        clients = [Client(address, secured.context) for _ in range(CLIENTS)]
        for client in clients:
            client.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        resets = [threading.Timer(random.uniform(0, 0.5), client.reset) for client in clients]
        for reset in resets:
            reset.start()
        for reset in resets:
            reset.join()
    assert told(caplog) == []
