"""Gateways that refuse streams and answer the first receive only when the test says so, that are behind a proxy without
a backend, or that break every connection instead of answering."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
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
MESSAGE = {
    "ack_token": "late-token",
    "lease_expires_at": 4102444800000,
    "attempts": 0,
    "redelivered": False,
    "headers": {},
    "envelope": ENVELOPE,
}

KEEP_ALIVE = json.dumps({"event": "keep_alive", "data": {}}).encode()


class _Local(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class LateGateway(_Local):
    """``asked``: a receive has come. ``answers``: it is answered. ``settled``: the tokens that were settled.

    ``streams``: how many streams were asked for. The first ones meet a proxy, which answers with ``first_streams``, but
    for a 200, which is a stream that ends after its keep-alive. Each other one is answered with ``stream_status`` and
    ``stream_code`` (None: by a proxy); a 200 is a stream of ``lines``, which lasts until ``ends``. ``refusals``: with
    what a proxy answers the first calls. ``problem``: status and code with which the gateway refuses every receive, not
    to be repeated.
    """

    def __init__(
        self,
        stream_status: int,
        stream_code: str | None,
        first_streams: Sequence[int],
        refusals: Sequence[int],
        lines: Sequence[bytes],
        problem: tuple[int, str] | None,
    ) -> None:
        super().__init__(_Handler)
        self.stream_status = stream_status
        self.stream_code = stream_code
        self.first_streams = [*first_streams]
        self.refusals = [*refusals]
        self.lines = lines
        self.problem = problem
        self.streams = 0
        self.ends = threading.Event()
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.settled: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LateGateway

    def do_GET(self) -> None:
        server = self.server
        server.streams += 1
        status = server.first_streams.pop(0) if (is_first := bool(server.first_streams)) else server.stream_status
        if status == 200:
            self._stream(is_first)
        elif is_first or server.stream_code is None:
            self._refuse(status)
        else:
            self._answer({"code": server.stream_code, "retryable": False}, status)

    def _stream(self, is_first: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("connection", "close")
        self.end_headers()
        lines = [KEEP_ALIVE] if is_first else self.server.lines
        self.wfile.write(b"".join(line + b"\n" for line in lines))
        self.wfile.flush()
        if not is_first:
            self.server.ends.wait()

    def _refuse(self, status: int) -> None:
        """What a proxy answers."""
        self._send(b"<html><body>This is a proxy.</body></html>", "text/html", status)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.refusals:
            self._refuse(self.server.refusals.pop(0))
            return
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
        if self.server.problem is not None:
            status, code = self.server.problem
            self._answer({"code": code, "retryable": False}, status)
            return
        self.server.answers.wait()
        self._answer({"messages": [] if again else [MESSAGE]})

    def _answer(self, value: dict[str, Any], status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, text: bytes, content_type: str, status: int) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
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
def late_gateway(
    stream_status: int = 404,
    stream_code: str | None = "not_found",
    first_streams: Sequence[int] = (),
    refusals: Sequence[int] = (),
    lines: Sequence[bytes] = (json.dumps({"event": "message", "data": MESSAGE}).encode(),),
    problem: tuple[int, str] | None = None,
) -> Iterator[LateGateway]:
    settings = (stream_status, stream_code, first_streams, refusals, lines, problem)
    with LateGateway(*settings) as server, _served(server):
        try:
            yield server
        finally:
            server.answers.set()
            server.ends.set()


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
