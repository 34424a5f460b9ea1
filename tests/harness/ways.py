"""The two ways to serve an ordinary request, directly and by the application, each on a server of its own."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from babelgate.clock import now_ms
from babelgate.server.wiring import build_app
from tests.harness.sockets import Connection

DRAFT = b'{"job":"count","data":{"n":1}}'
JSON = "Content-Type: application/json\r\n"


class Served:
    """A server, its application, and what became of the requests that its connections offered to be served directly."""

    app: Any
    loop: asyncio.AbstractEventLoop
    address: tuple[str, int]

    def __init__(self, found, *, direct=True, clock=now_ms):
        self.directly: list[bool] = []
        self._settings = found
        self._direct = direct
        self._clock = clock

    def build(self):
        self.loop = asyncio.get_running_loop()
        self.app = build_app(self._settings, clock=self._clock)
        if not self._direct:
            self.app.direct = None
        else:
            begin = self.app.direct.begin

            def noted(request, body):
                left = begin(request, body)
                self.directly.append(left is None)
                return left

            self.app.direct.begin = noted
        return self.app

    @property
    def publishing(self):
        return self.app.gateway.admission.publishing("local")


def post(path, body=DRAFT, headers=JSON, token="all", version="1.1", host="localhost"):
    size = f"Content-Length: {len(body)}\r\n"
    head = f"POST {path} HTTP/{version}\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{headers}{size}\r\n"
    return head.encode() + body


def answer(served, request):
    """The reply, without what differs from request to request."""
    with Connection(*served.address) as connection:
        connection.send(request)
        reply = connection.reply()
        ends = reply.headers.get("connection") == "close"
        assert not ends or connection.ended()
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "content-length")}
    assert re.fullmatch(r"[0-9a-f]+(-[0-9a-f]+)?|mine", headers.pop("x-request-id"))
    body = json.loads(reply.body)
    for name in ("id", "created_at"):
        body.pop(name, None)
    if body.get("trace_id") != "t":
        body.pop("trace_id", None)
    return reply.status, headers, body
