"""A gateway in its own process that reports the stalls of its event loop.

``python -m tests.harness.stalls --config FILE`` serves that configuration as ``babelgate serve`` does, and answers
``GET /_stalls`` with the longest stall since the last such call.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from babelgate.config import settings
from babelgate.observe import logs
from babelgate.server import server
from tests.harness.gateway import GatewayProcess
from tests.harness.hostile_requests import Case, Prepare

TICK_SECONDS = 0.001


class Stall(Struct):
    """The longest time between two ticks of the event loop, in seconds.

    ``wall`` is by the clock, and counts what other processes took from this one. ``cpu`` is the CPU time that this
    process used in between, all threads together: a thread that keeps the interpreter to itself stalls the loop too.
    While the loop's own thread waits for a core, other threads do not stall it: ``cpu`` is at most ``wall`` without
    that time. ``used`` is all the CPU time since the last answer, ``garbage`` the number of objects that the
    garbage collector has freed since, and ``collection`` the CPU time of its longest run.
    """

    wall: float = 0.0
    cpu: float = 0.0
    used: float = 0.0
    garbage: int = 0
    collection: float = 0.0


class Watched:
    """An application, and a task that ticks beside it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._longest = Stall()
        self._since = time.process_time()
        self._ticking: asyncio.Task[None] | None = None
        self._collecting_since = 0.0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, facts: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting_since = now
        else:
            self._longest.collection = max(self._longest.collection, now - self._collecting_since)
            self._longest.garbage += facts["collected"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().create_task(self._tick())
        if scope["type"] == "http" and scope["path"] == "/_stalls":
            await self._answer(send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, send: Send) -> None:
        now = time.process_time()
        self._longest.used, self._since = now - self._since, now
        body = msgspec.json.encode(self._longest)
        self._longest = Stall()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _tick(self) -> None:
        schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        wall, cpu, waited = time.monotonic(), time.process_time(), _waited(schedstat)
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now, used, waits = time.monotonic(), time.process_time(), _waited(schedstat)
            stall = now - wall - TICK_SECONDS
            self._longest.wall = max(self._longest.wall, stall)
            self._longest.cpu = max(self._longest.cpu, min(used - cpu, stall - (waits - waited)))
            wall, cpu, waited = now, used, waits


def _waited(schedstat: Path) -> float:
    """Seconds that a thread was ready to run and had no core: the second field (Linux, sched-stats.rst)."""
    return int(schedstat.read_bytes().split()[1]) / 1e9


class WatchedGateway(GatewayProcess):
    """A gateway process that can be asked for its stalls."""

    program = ("tests.harness.stalls",)

    def __init__(self, directory: Path, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(directory, config)
        self._kept: dict[Prepare, str] = {}
        """Queues that are as they were prepared."""

    def prepared(self, client: httpx.Client, case: Case, name: str) -> str:
        """A queue for one run of ``case``: one that a run before has left as it was, or a new one with this name."""
        queue = self._kept.pop(case.prepare, None)
        if queue is None:
            queue = name
            case.prepare(client, queue)
        return queue

    def keep(self, case: Case, queue: str) -> None:
        """Let the next case have what ``case`` has left of its queue, if it leaves all as it was."""
        if case.keeps:
            self._kept[case.prepare] = queue

    def stall(self) -> Stall:
        """The longest stall since the last call."""
        with self.client() as client:
            return msgspec.json.decode(client.get("/_stalls").content, type=Stall)


def main(path: Path) -> None:
    """Serve until SIGTERM."""
    loaded = settings.load(path, os.environ)
    listener = socket.create_server((loaded.host, loaded.port), backlog=server.BACKLOG)
    logs.configure(loaded.log_level, loaded.log_format)
    logs.get_logger(server.__name__).info("listening", url=f"http://{loaded.host}:{loaded.port}")

    def create() -> ASGIApp:
        return Watched(server.create_app(loaded))

    uvicorn.Server(server.uvicorn_config(create, loaded)).run([listener])


if __name__ == "__main__":
    main(Path(sys.argv[sys.argv.index("--config") + 1]))
