"""A namespace as Azure has it: behind TLS, by AMQP or WebSockets, with keys or credentials of Microsoft Entra ID."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import WSMsgType, web

from babelgate.brokers.binding import Delivery
from babelgate.brokers.servicebus.binding import ServiceBusBinding
from babelgate.brokers.servicebus.sdk_internals import _has_unread
from babelgate.errors import BrokerUnavailable
from tests.brokers.servicebus.harness import binding
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.brokers.servicebus.test_binding import none_of, outgoing
from tests.harness.local import certify, eventually
from tests.harness.proxy import Proxy
from tests.harness.world import until

pytestmark = pytest.mark.servicebus

HOST = "shop.servicebus.windows.net"
KEYED = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=gateway;SharedAccessKey=c2VjcmV0"
PATH = "/$servicebus/websocket"


class Front(NamedTuple):
    """``options`` lead a broker to it. ``proxy`` has what clients wrote, without TLS and WebSockets."""

    options: dict[str, Any]
    proxy: Proxy


@pytest.fixture(params=["amqp", "websocket"])
async def front(request: pytest.FixtureRequest, emulator: ServiceBusEmulator, tmp_path: Path) -> AsyncIterator[Front]:
    """What Azure has before its brokers."""
    await asyncio.to_thread(certify, tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    proxy, admin = Proxy("127.0.0.1", emulator.port), Proxy("127.0.0.1", emulator.control_port)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(proxy.stop)
        stack.push_async_callback(admin.stop)
        await admin.start(tls=tls)
        if request.param == "amqp":
            await proxy.start(tls=tls)
            port = proxy.port
        else:
            await proxy.start()
            port = await stack.enter_async_context(_websockets(proxy.port, tls))
        yield Front(
            {
                "transport": request.param,
                "endpoint_url": f"sb://127.0.0.1:{port}",
                "ssl_ca_certs": str(tmp_path / "ca.crt"),
                "admin_url": f"https://127.0.0.1:{admin.port}",
            },
            proxy,
        )


@asynccontextmanager
async def _websockets(to_port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """A server of WebSockets that carry AMQP: https://docs.oasis-open.org/amqp-bindmap/amqp-wsb/v1.0/amqp-wsb-v1.0.html"""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["AMQPWSB10"])
        await socket.prepare(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", to_port)

        async def answers() -> None:
            while chunk := await reader.read(65536):
                await socket.send_bytes(chunk)
            await socket.close()

        answering = asyncio.create_task(answers())
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    writer.write(message.data)
        finally:
            writer.transport.abort()
            await asyncio.wait([answering])
        return socket

    application = web.Application()
    application.router.add_get(PATH, serve)
    async with _serving(application, tls) as port:
        yield port


@asynccontextmanager
async def _serving(application: web.Application, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_a_message_goes_through_and_a_cut_connection_is_opened_again(front: Front, queue: str) -> None:
    async with binding("servicebus://", front.options | {"connection_string": KEYED}) as one:
        await _round_trip(one, queue)
        front.proxy.cut()
        await _round_trip(one, queue)
    assert b"SharedAccessSignature sr=" in front.proxy.sent


async def test_an_idle_link_that_was_detached_is_replaced_before_the_next_call(
    front: Front, emulator: ServiceBusEmulator, queue: str
) -> None:
    async with binding("servicebus://", front.options | {"connection_string": KEYED}) as one:
        await _round_trip(one, queue)
        assert await asyncio.to_thread(emulator.detach, queue) >= 2
        amqps = [each.client._handler for each in one._connections._handlers.values()]
        await eventually(lambda: all(_has_unread(amqp._connection._transport) for amqp in amqps))
        native = one.native_queue(queue, {})
        assert await one.publish(native, [outgoing(7)]) == [None]
        (delivery,) = await one.reserve(native, 1, 20, 60)
        assert await one.ack(native, [delivery.handle]) == [None]


@pytest.mark.parametrize(
    ("authorities", "reason"), [({}, "certificate verify failed"), ({"ssl_ca_certs": "/none"}, "ssl_ca_certs: No such")]
)
async def test_an_unknown_authority_is_refused(front: Front, authorities: dict[str, str], reason: str) -> None:
    del front.options["ssl_ca_certs"]
    front.options.update(authorities)
    with pytest.raises(BrokerUnavailable, match=reason):
        async with binding("servicebus://", front.options | {"connection_string": KEYED}):
            pass
    assert not front.proxy.sent


async def test_credentials_of_entra_id(front: Front, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service of Azure has them: its environment names where to ask for a token."""
    asked: list[tuple[str, str | None]] = []

    async def token(request: web.Request) -> web.Response:
        asked.append((request.query["resource"], request.headers.get("X-IDENTITY-HEADER")))
        body = {"access_token": "a token", "expires_on": int(time.time()) + 86_400, "token_type": "Bearer"}
        return web.json_response(body | {"resource": request.query["resource"]})

    application = web.Application()
    application.router.add_get("/token", token)
    async with _serving(application, None) as port:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{port}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        async with binding(f"servicebus://{HOST}", front.options) as one:
            await _round_trip(one, queue)
    assert set(asked) == {("https://servicebus.azure.net/", "secret")}
    assert b"a token" in front.proxy.sent and b"SharedAccessSignature" not in front.proxy.sent


async def _round_trip(one: ServiceBusBinding, queue: str) -> None:
    """Wait for nothing, publish, receive, extend, ack: each again while the connection is opened anew."""
    native = one.native_queue(queue, {})
    taken: list[Delivery] = []

    async def is_empty() -> bool:
        return not await one.reserve(native, 1, 0.2, 60)

    async def arrived() -> bool:
        taken.extend(await one.reserve(native, 1, 20, 60))
        return bool(taken)

    async def extended() -> bool:
        return isinstance((await one.extend(native, [taken[0].handle], 60))[0], int)

    await until(is_empty)
    await until(lambda: none_of(one.publish(native, [outgoing()])))
    assert (await one.stats(native)).depth == 1
    await until(arrived)
    assert taken[0].body == outgoing().body
    await until(extended)
    assert await one.ack(native, [taken[0].handle]) == [None]
