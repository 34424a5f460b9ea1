"""How many calls of ours one request makes: the cost of a request is their number, and none of them stands out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

import babelgate as ours
from babelgate.gateway.authorization import ANYONE
from babelgate.http.direct import DIRECT
from babelgate.server.application import App
from babelgate.server.overload import SHEDDER, Pacer, Shedder
from babelgate.server.protocol import GatewayProtocol
from tests.harness.local import eventually

_OURS = str(Path(ours.__file__).parent)
_TRACE = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
_DRAFT = f'{{"job":"urn:babel:orders:created","trace_id":"{_TRACE}","data":{{"n":1}},"meta":{{}}}}'.encode()
AT_ONCE = 64
"""Requests that are served together, and share what is done once for a batch."""


class Transport(asyncio.Transport):
    """The client's end: collects what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def _request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class _Steps:
    """Counts the calls of functions below ``app`` in one thread; ``counts``: it does so now."""

    def __init__(self) -> None:
        self.counts = False
        self.calls: Counter[str] = Counter()
        self._starts: dict[CodeType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_OURS):
            return
        # A coroutine that goes on is not called again: it is behind the place where it was first entered.
        if self._starts.setdefault(code, frame.f_lasti) == frame.f_lasti and self.counts:
            self.calls[f"{code.co_filename[len(_OURS) + 1 :]} {code.co_qualname}"] += 1

    def of_one(self) -> dict[str, int]:
        """The calls that each request makes; what is done once for a batch is less than half a call of each."""
        return {name: number for name, count in self.calls.items() if (number := round(count / AT_ONCE))}


async def _counted(served: App, request: Callable[[], bytes]) -> dict[str, int]:
    """The calls of one of many requests that are served at once, each on a connection of its own."""
    config = Config(served, http=GatewayProtocol, ws="none", interface="asgi3")
    config.load()
    state, app_state = (
        ServerState(),
        {
            SHEDDER: Shedder(Pacer(time.thread_time), served.gateway.has_backlog),
            DIRECT: served.direct,
        },
    )
    clients = []
    for _ in range(AT_ONCE):
        protocol, transport = GatewayProtocol(config, state, app_state), Transport()
        protocol.connection_made(transport)
        clients.append((protocol, transport))
    steps = _Steps()
    # The first round finds the routes, opens connections, and meets each function for the first time.
    for steps.counts in (False, True):
        for _, transport in clients:
            transport.written = b""
        sys.setprofile(steps)
        try:
            for protocol, _ in clients:
                protocol.data_received(request())
            await eventually(lambda: all(transport.written for _, transport in clients))
        finally:
            sys.setprofile(None)
        answers = {transport.written[9:12] for _, transport in clients}
        assert answers <= {b"200", b"201"}, clients[0][1].written
    for protocol, _ in clients:
        protocol.connection_lost(None)
    return steps.of_one()


def _envelope() -> bytes:
    meta = {
        "id": str(uuid.uuid4()),
        "queue": "steps",
        "lang": "go",
        "schema_version": 1,
        "created_at": 1_750_000_000_000,
    }
    envelope = {"job": "urn:babel:orders:created", "trace_id": _TRACE, "data": {"n": 1}, "meta": meta, "attempts": 0}
    return json.dumps(envelope, separators=(",", ":")).encode()


async def _publishing(served: App) -> dict[str, int]:
    return await _counted(served, lambda: _request("/queues/steps/messages", _envelope()))


async def _publishing_drafts(served: App) -> dict[str, int]:
    return await _counted(served, lambda: _request("/queues/steps/messages", _DRAFT))


async def _publishing_by_the_application(served: App) -> dict[str, int]:
    served.direct = None
    return await _publishing(served)


async def _receiving(served: App) -> dict[str, int]:
    for _ in range(2 * AT_ONCE):
        await served.gateway.publish(ANYONE, "steps", _DRAFT)
    return await _counted(served, lambda: _request("/queues/steps/messages:receive", b""))


async def _acking(served: App) -> dict[str, int]:
    for _ in range(2 * AT_ONCE):
        await served.gateway.publish(ANYONE, "steps", _DRAFT)
    tokens = [
        message.ack_token
        for _ in range(2)
        for message in await served.gateway.receive(ANYONE, "steps", max_messages=AT_ONCE)
    ]
    return await _counted(served, lambda: _request("/queues/steps/messages:ack", _ack(tokens.pop())))


def _ack(token: str) -> bytes:
    return json.dumps({"ack_tokens": [token]}).encode()


@pytest.mark.parametrize(
    ("way", "most_calls", "most_files"),
    [
        (_publishing, 44, 15),
        (_publishing_drafts, 46, 17),
        (_publishing_by_the_application, 60, 21),
        (_receiving, 66, 22),
        (_acking, 32, 14),
    ],
    ids=["publish", "publish a draft", "publish by the application", "receive", "ack"],
)
async def test_a_request_makes_few_calls(
    app: App, way: Callable[[App], Awaitable[dict[str, int]]], most_calls: int, most_files: int
) -> None:
    """Raise a figure only for what the request must do, and lower it with each step that goes."""
    calls = await way(app)
    route = "\n".join(f"{number} {name}" for name, number in calls.items())
    print(route)
    assert sum(calls.values()) <= most_calls, route
    assert len({name.partition(" ")[0] for name in calls}) <= most_files, route
