"""Gateways that refuse streams and answer the first receive only when the test says so, or that break every connection
instead of answering."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENVELOPE = {
    "job": "urn:babel:conformance:made",
    "trace_id": "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10",
    "data": {"producer": "test", "n": 1},
    "meta": {
        "id": "0192f0c1-6a1c-7c8e-9d67-0e6f7f0f1a2b",
        "queue": "late",
        "lang": "python",
        "schema_version": 1,
        "created_at": 1767225600000,
    },
    "attempts": 0,
}


class _Local(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class LateGateway(_Local):
    """``asked``: a receive has come. ``answers``: it is answered. ``settled``: the tokens that were settled.
    ``streams``: how many streams were asked for; each is answered with ``stream_status`` and ``stream_code``.
    """

    def __init__(self, stream_status: int, stream_code: str) -> None:
        super().__init__(_Handler)
        self.stream_status = stream_status
        self.stream_code = stream_code
        self.streams = 0
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.settled: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LateGateway

    def do_GET(self) -> None:
        self.server.streams += 1
        self._answer({"code": self.server.stream_code, "retryable": False}, self.server.stream_status)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith(":receive"):
            self._receive()
            return
        tokens = order["ack_tokens"]
        if not self.path.endswith(":extend"):
            self.server.settled += tokens
        results = [{"index": index, "action": "ack", "status": 200} for index in range(len(tokens))]
        self._answer({"settled": len(tokens), "failed": 0, "results": results})

    def _receive(self) -> None:
        again = self.server.asked.is_set()
        self.server.asked.set()
        self.server.answers.wait()
        message = {
            "ack_token": "late-token",
            "lease_expires_at": 4102444800000,
            "attempts": 0,
            "redelivered": False,
            "headers": {},
            "envelope": ENVELOPE,
        }
        self._answer({"messages": [] if again else [message]})

    def _answer(self, value: dict[str, Any], status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the test shows what matters."""


class BreakingGateway(_Local):
    """``requests``: the paths of what it has read, each without an answer."""

    def __init__(self) -> None:
        super().__init__(_Breaking)
        self.requests: list[str] = []


class _Breaking(BaseHTTPRequestHandler):
    server: BreakingGateway

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(self.path)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the test shows what matters."""


@contextmanager
def late_gateway(stream_status: int = 404, stream_code: str = "not_found") -> Iterator[LateGateway]:
    with LateGateway(stream_status, stream_code) as server, _served(server):
        try:
            yield server
        finally:
            server.answers.set()


@contextmanager
def breaking_gateway() -> Iterator[BreakingGateway]:
    with BreakingGateway() as server, _served(server):
        yield server


@contextmanager
def _served(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
