"""A real moto server in a process of its own, whose messages outlive its outages.

moto keeps its messages in memory, so that they would end with the process. The line ``stop`` ends the service on its
port, and ``start`` begins it again with the messages of before: as a client sees a service that keeps them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from threading import Lock, Thread
from typing import Any

from moto.core.utils import unix_time_millis
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.sqs import models
from werkzeug.serving import make_server

from tests.brokers.sqs.elasticmq import SqsServer, answers

_READY_SECONDS = 120.0


class MotoServer(SqsServer):
    """moto, whose process goes on while its service is stopped."""

    def start(self) -> None:
        if self._process is None:
            arguments = [sys.executable, "-m", "tests.brokers.sqs.moto_server", str(self.port)]
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        self._say("start")
        self._until(serving=True)

    def stop(self) -> None:
        """End the service, and its connections; the messages stay."""
        self._say("stop")
        self._until(serving=False)

    kill = stop

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _say(self, word: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()

    def _until(self, *, serving: bool) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while answers(self.port) is not serving:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("moto did not start" if serving else "moto did not stop")
            time.sleep(0.02)


@contextmanager
def moto_server() -> Iterator[MotoServer]:
    """A running server."""
    server = MotoServer()
    server.start()
    try:
        yield server
    finally:
        server.end()


class _OneByOne:
    """moto's application, one request at a time: moto loses messages of requests that run in parallel.

    A long poll is repeated short polls, so that it stands in nobody's way. Its pauses are longer than these.
    """

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        until = 0.0
        if environ.get("HTTP_X_AMZ_TARGET") == "AmazonSQS.ReceiveMessage":
            parameters = json.loads(body)
            until = time.monotonic() + parameters.get("WaitTimeSeconds", 0)
            body = json.dumps(parameters | {"WaitTimeSeconds": 0}).encode()
        while True:
            began = time.monotonic()
            head, parts = self._answer(environ, body)
            now = time.monotonic()
            if b'"Messages"' in b"".join(parts) or now >= until:
                start_response(*head)
                return parts
            time.sleep(min(max(0.02, 4 * (now - began)), until - now, 0.5))

    def _answer(self, environ: dict[str, Any], body: bytes) -> tuple[tuple[Any, ...], list[bytes]]:
        heads: list[tuple[Any, ...]] = []
        given = environ | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        with self._lock:
            parts = list(self._application(given, lambda *head: heads.append(head)))
        return heads[0], parts


def _now_ms(moment: datetime | None = None) -> float:
    """moto's clock, without the dates that it makes for each look: a receive asks it thousands of times."""
    return time.time() * 1000 if moment is None else unix_time_millis(moment)


def _serve(port: int) -> None:
    vars(models)["unix_time_millis"] = _now_ms
    application = _OneByOne()
    server: Any = None
    for line in sys.stdin:
        if line == "start\n" and server is None:
            server = make_server("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)
            Thread(target=server.serve_forever, daemon=True).start()
        elif line == "stop\n" and server is not None:
            server.shutdown()
            server.server_close()
            server = None


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
