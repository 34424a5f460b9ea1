"""Reads end when their client disconnects; what may write goes on."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from babelgate.brokers.binding import DeadRecord
from babelgate.config import settings
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.server.server import uvicorn_config
from tests.harness.asgi import Call, part
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.sockets import Connection, lifespan, serving

RECORD = DeadRecord(1, b'{"job":"a","data":{}}')
DRAFT = b'{"job":"urn:babel:test:made","data":{}}'
UNKNOWN = "0" * 32
READS = [
    ("GET", "/queues/q/messages:peek", b""),
    ("GET", "/queues/q/dead-letters", b""),
    ("GET", f"/queues/q/dead-letters/{UNKNOWN}", b""),
    ("HEAD", f"/queues/q/dead-letters/{UNKNOWN}", b""),
    ("GET", "/queues", b""),
    ("GET", "/queues/q", b""),
    ("GET", "/brokers", b""),
    ("GET", "/readyz", b""),
    ("POST", "/queues/q/messages:validate", DRAFT),
    ("POST", "/queues/q/dead-letters:redrive", b'{"dry_run":true}'),
]
WRITES = [
    ("POST", "/queues/q:purge", b""),
    ("POST", "/queues/q/dead-letters:purge", b""),
    ("POST", "/queues/q/dead-letters:redrive", b""),
    ("POST", "/queues/q/dead-letters:delete", json.dumps({"ids": [UNKNOWN]}).encode()),
    ("DELETE", f"/queues/q/dead-letters/{UNKNOWN}", b""),
    ("POST", f"/queues/q/dead-letters/{UNKNOWN}:redrive", b""),
]


class Holding(MemoryBinding):
    """Holds each call until it is let go; its dead letters never end. Events of threads tell what happens."""

    def __init__(self):
        super().__init__()
        self.began, self.cancelled, self.let_go = threading.Event(), threading.Event(), threading.Event()
        self.done = threading.Event()

    async def _hold(self):
        self.began.set()
        try:
            await eventually(self.let_go.is_set)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.done.set()

    async def ping(self):
        await self._hold()

    async def stats(self, queue):
        await self._hold()
        return await super().stats(queue)

    async def projection(self, queue, message):
        await self._hold()
        return []

    async def peek(self, queue, limit):
        await self._hold()
        return []

    async def purge(self, queue):
        await self._hold()
        return 0

    async def read_dead(self, queue, cursor, limit):
        await self._hold()
        return [RECORD], None

    async def remove_dead(self, queue, records, cursor):
        return [True for _ in records], cursor

    async def purge_dead(self, queue, before_ms=None):
        await self._hold()
        return 0


def gateway_over(binding):
    sealer = TokenSealer([TokenKey("k", bytes(32))])
    return Gateway({"memory": binding}, Router([Rule("q", binding)]), sealer, required=frozenset({"memory"}))


def api_over(gateway):
    return create_api(gateway, auth=Auth(hosts=frozenset({"localhost"})), limits=RequestLimits())


class Asgi:
    """A request of a client that calls the application itself."""

    def __init__(self, binding):
        self.binding = binding
        self.gateway = gateway_over(binding)

    async def __aenter__(self):
        await self.gateway.start()
        return self

    async def __aexit__(self, *_):
        self.binding.let_go.set()
        await self.gateway.close()

    async def request_and_leave(self, method, path, body):
        call = Call(method, path, [part(body, more=False)], content_type="application/json")
        serving_it = asyncio.create_task(call.run(api_over(self.gateway)))
        await told(self.binding.began)
        call.hang_up()
        self.left = serving_it, call


class Socket:
    """A request of a client of the gateway's own server."""

    def __init__(self, binding, state):
        self.binding = binding
        self._environ = {"BABELGATE_STATE_DIR": str(state)}

    def _application(self):
        gateway = gateway_over(self.binding)
        api = api_over(gateway)

        async def app(scope, receive, send):
            if scope["type"] == "http":
                await api(scope, receive, send)
                return
            await gateway.start()
            await lifespan(receive, send)
            await gateway.close()

        return app

    async def __aenter__(self):
        self._serving = serving(uvicorn_config(self._application, settings.load(None, self._environ)))
        self._address = await asyncio.to_thread(self._serving.__enter__)
        return self

    async def __aexit__(self, *_):
        self.binding.let_go.set()
        await asyncio.to_thread(self._serving.__exit__, None, None, None)

    async def request_and_leave(self, method, path, body):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with Connection(*self._address) as connection:
            connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await told(self.binding.began)


async def told(event):
    """Wait for an event of a thread."""
    assert await asyncio.to_thread(event.wait, 60)


@pytest.fixture(params=["asgi", "socket"])
def way(request, tmp_path):
    """How requests come to a gateway over a binding that holds them."""
    binding = Holding()
    return Asgi(binding) if request.param == "asgi" else Socket(binding, tmp_path)


@pytest.mark.parametrize(("method", "path", "body"), READS)
async def test_a_read_ends_with_its_client(way, method, path, body):
    async with way:
        await way.request_and_leave(method, path, body)
        await told(way.binding.cancelled)
        if isinstance(way, Asgi):
            serving_it, call = way.left
            await asyncio.wait_for(serving_it, 60)
            assert (call.status, call.body) == (0, b"")


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_a_write_goes_on_without_its_client(way, method, path, body):
    async with way:
        await way.request_and_leave(method, path, body)
        # Longer than it takes to notice that the client has gone.
        assert not await asyncio.to_thread(way.binding.cancelled.wait, 0.2)
        way.binding.let_go.set()
        await told(way.binding.done)
        assert not way.binding.cancelled.is_set()
        if isinstance(way, Asgi):
            await asyncio.wait_for(way.left[0], 60)


async def test_a_read_of_a_client_that_waits_is_answered(way):
    async with way:
        way.binding.let_go.set()
        if isinstance(way, Asgi):
            call = await Call("GET", "/queues/q/dead-letters").run(api_over(way.gateway))
            assert (call.status, len(call.json()["dead_letters"])) == (200, 1)
            return
        with Connection(*way._address) as connection:
            for _ in range(2):
                connection.send(b"GET /queues/q/dead-letters HTTP/1.1\r\nHost: localhost\r\n\r\n")
                reply = await asyncio.to_thread(connection.reply)
                assert (reply.status, len(json.loads(reply.body)["dead_letters"])) == (200, 1)
