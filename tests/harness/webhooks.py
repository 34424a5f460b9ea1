"""A receiver of webhooks that answers as a test says, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from babelgate.clock import now_ms
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Message
from babelgate.observe.events import Facts
from babelgate.push.addresses import AddressGuard
from babelgate.push.pushes import Pushes
from babelgate.push.signing import secret_of
from babelgate.push.targets import PushTarget
from babelgate.push.transport import Poster, Resolve, addresses_of

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
ANYWHERE = AddressGuard(allow_http=True, allow_private=True)
"""Receivers of tests listen on the loopback."""


@dataclass(frozen=True)
class Post:
    """A request that has arrived. ``headers``: by their names in lower case; ``connection``: a number."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def data(self) -> Any:
        """The payload of an envelope."""
        return json.loads(self.body)["data"]


Script = Callable[[Post, asyncio.StreamWriter], Awaitable[bytes | None]]
"""Returns the bytes of the answer; None closes the connection. It may write itself, too."""


def answer(status: int = 204, body: bytes = b"", **headers: str) -> bytes:
    """An answer. Underscores in the names of headers are hyphens."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Receiver:
    """Keeps each post, and answers by ``script``. By default it accepts everything."""

    def __init__(self, script: Script | None = None) -> None:
        self.posts: list[Post] = []
        self.script = script
        self.connections = 0
        self.url = ""
        self.port = 0
        self._arrived = asyncio.Condition()

    async def arrived(self, count: int, seconds: float = 120) -> list[Post]:
        """The first posts, once there are ``count``."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.posts) >= count)
        return self.posts[:count]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        number = self.connections
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
                }
                body = await reader.readexactly(int(headers["content-length"]))
                post = Post(head[0].split(" ")[1], headers, body, number)
                async with self._arrived:
                    self.posts.append(post)
                    self._arrived.notify_all()
                said = answer() if self.script is None else await self.script(post, writer)
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def receiver(script: Script | None = None) -> AsyncIterator[Receiver]:
    """A receiver on a port of the loopback."""
    made = Receiver(script)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=4 * 2**20)
    made.port = server.sockets[0].getsockname()[1]
    made.url = f"http://127.0.0.1:{made.port}/hook"
    try:
        yield made
    finally:
        server.close()


def target(url: str, **more: Any) -> PushTarget:
    """A target of a receiver."""
    return PushTarget(url, [secret_of(SECRET)], **more)


@contextlib.asynccontextmanager
async def pushing(gateway: Gateway, queue: str, url: str, **more: Any) -> AsyncIterator[Pushes]:
    """The gateway pushes the queue to ``url``."""
    pushes = Pushes(gateway, {queue: target(url, **more)}, ANYWHERE, lambda *post: None)
    await pushes.start()
    try:
        yield pushes
    finally:
        await pushes.close()


@contextlib.asynccontextmanager
async def poster(
    url: str, guard: AddressGuard = ANYWHERE, seconds: float = 60, resolve: Resolve = addresses_of
) -> AsyncIterator[Poster]:
    """A poster to ``url``."""
    made = Poster(url, guard, now_ms, timeout_seconds=seconds, connections=4, resolve=resolve)
    try:
        yield made
    finally:
        await made.close()


def pushed_message(data: bytes) -> Message:
    """A message with this payload, as a receive returns it."""
    body = b'{"job":"urn:babel:test:made","trace_id":"t","data":%s,"meta":{"id":"id-1"},"attempts":0}' % data
    facts = Facts(0, "id-1", "t", "urn:babel:test:made", 0, "python", len(body))
    return Message(Lease("orders", "", "", "", 0, 0, facts), "", 0, 0, False, {}, body, "t")
