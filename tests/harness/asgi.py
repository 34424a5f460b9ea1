"""Calls an ASGI application without a client, to see in which order it reads and answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message

GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, more: bool = True) -> Message:
    """A piece of a request body."""
    return {"type": "http.request", "body": body, "more_body": more}


class Call:
    """One request: ``messages`` are what the server will hand in; afterwards it is silent until :meth:`hang_up`."""

    def __init__(self, method: str, path: str, messages: Iterable[Message] = (), **headers: str) -> None:
        route, _, query = path.partition("?")
        named = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": route,
            "raw_path": route.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        self.log: list[str] = []
        """``read`` and ``wrote``, as they happened."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self._messages = list(messages) or [part(b"", more=False)]
        self._gone = asyncio.Event()

    def hang_up(self) -> None:
        """The client closes the connection."""
        self._gone.set()

    async def run(self, app: ASGIApp) -> Call:
        """Let ``app`` serve it."""
        await app(self.scope, self._receive, self._send)
        return self

    def json(self) -> Any:
        """The answer's body."""
        return json.loads(self.body)

    async def _receive(self) -> Message:
        if not self._messages:
            await self._gone.wait()
            return GONE
        self.log.append("read")
        return self._messages.pop(0)

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"]:
            self.log.append("wrote")
            self.body += message["body"]
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
