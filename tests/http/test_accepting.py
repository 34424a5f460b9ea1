"""Connections that wait while the event loop is busy."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time

import pytest

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from tests.harness.sockets import Connection, Secured, lifespan, serving

WAITING = 200
"""libuv accepts one of them in a turn."""

TURNS = 60

REQUEST = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"


class Application:
    """Its turns are long from the first request on, which waits for ``go_on``. ``turns``: their number until the others
    are answered."""

    def __init__(self, requests: int) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.turns = 0
        self._left = requests

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if not self.asked.is_set():
            self.asked.set()
            assert self.go_on.wait(60)
            self.turn()
        self._left -= 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def turn(self):
        if self._left:
            time.sleep(0.01)
            self.turns += 1
            asyncio.get_running_loop().call_soon(self.turn)


def test_they_are_accepted_in_a_few_turns_that_are_long(tmp_path):
    application = Application(WAITING + 1)
    loaded = settings.load(None, {"BABELGATE_STATE_DIR": str(tmp_path)})
    with serving(uvicorn_config(lambda: application, loaded)) as address:
        clients = [Connection(*address, timeout_seconds=60)]
        clients[0].send(REQUEST)
        assert application.asked.wait(60)
        for _ in range(WAITING):
            clients.append(Connection(*address, timeout_seconds=60))
            clients[-1].send(REQUEST)
        application.go_on.set()
        for client in clients:
            with client:
                assert client.head()[0] == 204
    assert application.turns < TURNS


async def test_all_are_served_and_who_hangs_up_is_no_error(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """With TLS, some hang up before the handshake has ended."""
    application = Application(WAITING // 2 + 1)
    with serving(uvicorn_config(lambda: application, settings.load(None, secured.environ))) as address:

        async def asked() -> bytes:
            reader, writer = await asyncio.open_connection(*address, ssl=secured.context)
            writer.write(REQUEST)
            answer = await reader.readline()
            writer.close()
            return answer

        first = asyncio.create_task(asked())
        assert await asyncio.to_thread(application.asked.wait, 60)
        gone = [socket.create_connection(address) for _ in range(WAITING // 2)]
        for each in gone:
            each.close()
        others = [asyncio.create_task(asked()) for _ in range(WAITING // 2)]
        application.go_on.set()
        async with asyncio.timeout(60):
            assert set(await asyncio.gather(first, *others)) == {b"HTTP/1.1 204 No Content\r\n"}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
