"""A real gateway on a real port with a simulated clock, so that a day takes only as long as its work."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from babelgate.config.settings import load
from babelgate.observe import logs
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_app

START_SECONDS = 30
STOP_SECONDS = 30


class Clock:
    """A clock in Unix ms that stands still until it is advanced."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, to: int) -> None:
        """Set the clock to ``to``, Unix ms, unless that is earlier."""
        self.now = max(self.now, to)


def configuration(folder: Path, queues: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a gateway with its state and journal in ``folder``, at the usual address."""
    state = folder.absolute() / "gateway"
    return {
        "state_dir": str(state),
        # A disk that is busy for longer than the usual 2 s does not end a day.
        "brokers": {"local": {"url": f"sqlite:///{state / 'babelgate.db'}", "timeout_seconds": 30}},
        "queues": {name: {"broker": "local", **policy} for name, policy in queues.items()},
        "journal": {"landing": str(folder.absolute() / "landing"), "node": "demo"},
    }


@contextmanager
def gateway(folder: Path, clock: Clock, queues: dict[str, Any]) -> Iterator[str]:
    """Run a gateway with its state and journal in ``folder`` during the block. Yields its URL.

    Its journal has landed when the block has ended. Raises RuntimeError if it does not start or stop within 30 s.
    """
    given = configuration(folder, queues)
    Path(given["state_dir"]).mkdir()
    logs.configure("warning", "console")
    settings = load(None, {}, given | {"port": 0})
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(lambda: build_app(settings, clock=clock), settings))
    thread = threading.Thread(target=server.run, args=([listener],), name="gateway", daemon=True)
    thread.start()
    waiting = threading.Event()
    for _ in range(START_SECONDS * 20):
        if server.started or not thread.is_alive():
            break
        waiting.wait(0.05)
    if not server.started:
        raise RuntimeError("the gateway has not started")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        if thread.is_alive():
            raise RuntimeError("the gateway has not stopped")
