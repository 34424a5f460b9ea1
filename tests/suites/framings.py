"""The forms of a stream, over HTTP: messages come in each, settles open the window, and an end gives back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from babelgate.config import settings
from babelgate.gateway.gateway import Gateway
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.direct import DIRECT, DirectEndpoints
from babelgate.server.server import uvicorn_config
from babelgate.streams.serving import Streaming
from tests.harness.sockets import lifespan
from tests.harness.world import JOB, LIMIT_SECONDS, World, until

Event = dict[str, Any]
EVENTS_TYPE = "application/cloudevents+json"
LEASE_SECONDS = 180
"""Longer than a test waits: what comes again was given back."""


class TestFramings:
    @pytest.mark.parametrize("form", ["text/event-stream", "application/x-ndjson"])
    async def test_a_stream_of_lines(self, world: World, form: str) -> None:
        process = await world.process()
        async with serving(process.gateway) as client:
            queue = Client(client, world.queue)
            await queue.publish(5)
            async with queue.lines(form, 2) as stream:
                first, *others = await messages(stream, 2)
                await queue.ack(first)
                others += await messages(stream, 1)
            await goes_on(process.gateway, queue, lambda: queue.lines(form, 4), [first, *others])

    async def test_a_websocket_which_settles_and_extends_in_band(self, world: World) -> None:
        process = await world.process()
        async with serving(process.gateway) as client:
            queue = Client(client, world.queue)
            await queue.publish(5)
            async with queue.websocket(2) as stream:
                first, second = await messages(stream, 2)
                extend = {"ack_tokens": [second["ack_token"]], "lease_seconds": 300}
                (extended,) = (await stream.settled(extends=[extend]))["results"]
                assert extended["lease_expires_at"] > second["lease_expires_at"] + 100_000
                assert (await stream.settled(acks=[first["ack_token"]]))["settled"] == 1
                (third,) = await messages(stream, 1)
            await goes_on(process.gateway, queue, lambda: queue.websocket(4), [first, second, third])

    async def test_events_are_published_streamed_and_received(self, world: World) -> None:
        process = await world.process()
        event = {"specversion": "1.0", "id": "A-1", "source": "/shop", "type": "com.example.made", "data": {"n": 1}}
        async with serving(process.gateway) as client:
            queue = Client(client, world.queue)
            for headers, body in (
                ({"content-type": EVENTS_TYPE}, json.dumps(event)),
                ({f"ce-{name}": str(event[name]) for name in ("specversion", "id", "source", "type")}, '{"n": 1}'),
            ):
                sent = await client.post(f"{queue.url}/messages", headers=headers, content=body)
                assert sent.status_code == 201, sent.text
            async with queue.lines(f"application/x-ndjson, {EVENTS_TYPE}", 1) as stream:
                (given,) = await messages(stream, 1)
                assert given.items() >= event.items()
                await queue.ack(given)
                (given,) = await messages(stream, 1)
                assert given.items() >= event.items()

            async def received() -> bool:
                where = f"{queue.url}/messages:receive?wait_seconds=5"
                answer = await client.post(where, headers={"accept": EVENTS_TYPE})
                if answer.status_code != 200:
                    return False
                assert answer.json().items() >= {**event, "bqattempts": 0}.items()
                await queue.ack(answer.json())
                return True

            await until(received)


async def goes_on(
    gateway: Gateway, queue: Client, opened: Callable[[], AbstractAsyncContextManager[Stream]], seen: Sequence[Event]
) -> None:
    """What a stream has not settled comes at once, uncounted, beside the rest; a drain is told, and ends it.

    ``seen``: messages of five, of which the first is settled.
    """
    numbers = {number(each) for each in seen}
    assert len(numbers) == len(seen), "a message came twice"
    async with opened() as stream:
        again = await messages(stream, 4)
        assert {number(each) for each in again} == set(range(5)) - {number(seen[0])}
        assert [each["attempts"] for each in again] == [0] * 4, "a give-back is no attempt"
        await queue.ack(*again)
        await gateway.drain()
        assert (await stream.event())["event"] == "drain"
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await stream.is_over()


class Stream(Protocol):
    """A stream that is read event by event."""

    async def event(self) -> Event:
        """The next event, that is no keep-alive, as ``event`` and ``data``."""

    async def is_over(self) -> bool:
        """Whether the gateway ends it now, without another event."""


class Lines:
    """A stream of lines, in either form."""

    def __init__(self, answer: httpx.Response) -> None:
        self._events = self._parsed(answer)

    async def _parsed(self, answer: httpx.Response) -> AsyncIterator[Event]:
        name, data = "", None
        async for line in answer.aiter_lines():
            if answer.headers["content-type"] == "application/x-ndjson":
                yield json.loads(line)
            elif line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
            elif not line and data is not None:
                yield {"event": name, "data": data}
                data = None

    async def event(self) -> Event:
        event = await anext(self._events)
        return await self.event() if event["event"] == "keep_alive" else event

    async def is_over(self) -> bool:
        return await anext(self._events, None) is None


class Socket:
    """A stream over a WebSocket. Answers to commands and messages may come in any order."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._kept: list[Event] = []

    async def settled(self, **command: Any) -> Event:
        """The answer to a settle."""
        await self._socket.send(json.dumps(command))
        while (event := json.loads(await self._socket.recv()))["event"] == "message":
            self._kept.append(event)
        assert event["event"] == "settled", event
        return event["data"]

    async def event(self) -> Event:
        return self._kept.pop(0) if self._kept else json.loads(await self._socket.recv())

    async def is_over(self) -> bool:
        with pytest.raises(ConnectionClosed) as closed:
            await self._socket.recv()
        return closed.value.rcvd is not None and closed.value.rcvd.code == 1001


class Client:
    """Calls for one queue."""

    def __init__(self, client: httpx.AsyncClient, queue: str) -> None:
        self._client = client
        self.url = f"/queues/{queue}"

    async def publish(self, count: int) -> None:
        drafts = [{"job": JOB, "data": {"n": n}} for n in range(count)]
        answer = await self._client.post(f"{self.url}/messages:batch", json=drafts)
        assert answer.status_code == 201, answer.text

    async def ack(self, *messages: Event) -> None:
        tokens = [message.get("ack_token") or message["bqacktoken"] for message in messages]
        answer = await self._client.post(f"{self.url}/messages:ack", json={"ack_tokens": tokens})
        assert answer.status_code == 200, answer.text

    @asynccontextmanager
    async def lines(self, accept: str, window: int) -> AsyncIterator[Stream]:
        where = f"{self.url}/messages:stream?max_in_flight={window}&lease_seconds={LEASE_SECONDS}"
        async with self._client.stream("GET", where, headers={"accept": accept}) as answer:
            assert (answer.status_code, answer.headers["content-type"]) == (200, accept.partition(",")[0])
            yield Lines(answer)

    @asynccontextmanager
    async def websocket(self, window: int) -> AsyncIterator[Socket]:
        base = str(self._client.base_url).replace("http:", "ws:").rstrip("/")
        where = f"{base}{self.url}/messages:stream?max_in_flight={window}&lease_seconds={LEASE_SECONDS}"
        options: dict[str, Any] = {
            "compression": None,
            "proxy": None,
            "open_timeout": LIMIT_SECONDS,
            "ping_interval": None,
        }
        async with connect(where, subprotocols=["babelgate.v1"], **options) as opened:  # type: ignore[list-item]
            assert opened.subprotocol == "babelgate.v1"
            yield Socket(opened)


async def messages(stream: Stream, count: int) -> list[Event]:
    """The next ``count`` messages. A busy machine may keep a broker from answering in time: the stream tries again."""
    found: list[Event] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(found) < count:
            event = await stream.event()
            if event["event"] == "problem" and event["data"]["retryable"]:
                continue
            assert event["event"] == "message", event
            found.append(event["data"])
    return found


def number(message: Event) -> int:
    return message["envelope"]["data"]["n"]


class Server(uvicorn.Server):
    """Leaves signals to the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the gateway's API, served by the real server in this event loop."""
    api = create_api(gateway, auth=Auth(), limits=RequestLimits(), stream=Streaming(gateway).serve)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope["state"][DIRECT] = DirectEndpoints(gateway, Auth())
            await lifespan(receive, send)
            return
        await api(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(uvicorn_config(lambda: app, settings.load(None, {})))
        running = asyncio.create_task(server.serve([listener]))
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=url, timeout=LIMIT_SECONDS, trust_env=False, verify=False) as client:
                yield client
        finally:
            server.should_exit = True
            await running
