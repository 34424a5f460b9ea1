"""A small HTTP/1.1 server on the emulator's event loop: the control API and the entities' descriptions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

JSON = "application/json"
_HEAD_LIMIT = 64 * 1024


class Failure(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Call:
    """A request. ``path`` is decoded."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body; an empty one is an empty object."""
        loaded: dict[str, Any] = json.loads(self.body) if self.body else {}
        return loaded


Handler = Callable[[Call], tuple[str, bytes]]


async def serve(port: int, handler: Handler) -> asyncio.Server:
    """Listen; ``handler`` answers with a content type and a body, or raises :class:`Failure`."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (call := await _read(reader)) is not None:
                try:
                    kind, body = handler(call)
                    status = 200
                except Failure as failure:
                    kind, body, status = "text/plain; charset=utf-8", failure.text.encode(), failure.status
                except (ValueError, KeyError, TypeError) as error:
                    kind, body, status = "text/plain; charset=utf-8", repr(error).encode(), 400
                head = (
                    f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(client, "127.0.0.1", port, reuse_address=True, limit=_HEAD_LIMIT, backlog=256)


async def _read(reader: asyncio.StreamReader) -> Call | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length") or 0))
    parts = urlsplit(target)
    return Call(method, unquote(parts.path), dict(parse_qsl(parts.query)), body)
