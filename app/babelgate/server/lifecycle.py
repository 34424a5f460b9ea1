"""Handles stop signals: reports not ready at once, continues serving for a while, then lets uvicorn stop."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from babelgate.config.settings import Settings
from babelgate.observe.logs import get_logger
from babelgate.server.tls import ServerTls

log = get_logger(__name__)

CLOSE_SECONDS = 20
"""Maximum seconds for closing before the process is killed: the private port (5 s), all brokers at once (5 s), then the
last metrics, the last spans and the journal at once (5 s), with a margin."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], object]


class Drains(Protocol):
    """The part of the gateway that a stop signal uses."""

    async def drain(self) -> None:
        """Become not ready, and end waiting receives; idempotent."""


STARTING = "the gateway is starting; send it again once it is ready"
STOPPING = "the gateway is stopping"


class Reloads(Protocol):
    """Loads the configuration again. See :class:`babelgate.server.reload.Reload`."""

    def begin(self, cause: str) -> None:
        """Load it in the background; ``cause``: for the log."""


def ignore_reload(reason: str = STARTING) -> None:
    """Warn that SIGHUP, which makes a gateway load its configuration again, does nothing now."""
    log.warning("SIGHUP ignored", reason=reason)


class GracefulStop:
    """Wraps an ASGI application that has a lifespan.

    After the start, the first SIGTERM or SIGINT drains ``gateway``, waits ``drain_seconds``, and then calls uvicorn's
    signal handler, which stops listening, waits for requests in flight and ends the lifespan. A second signal skips the
    wait. A worker whose parent process is gone stops in the same way. SIGHUP loads the configuration and the
    certificates again.
    """

    def __init__(
        self,
        app: ASGIApp,
        gateway: Drains,
        settings: Settings,
        close_seconds: float = CLOSE_SECONDS,
        tls: ServerTls | None = None,
        reload: Reloads | None = None,
    ) -> None:
        """``reload`` None: SIGHUP only reads certificates again."""
        self._app = app
        self._reload = reload
        self._gateway = gateway
        self._drain_seconds = settings.drain_seconds
        self._end_seconds = settings.drain_seconds + settings.shutdown_seconds + close_seconds
        self._stopping: asyncio.Task[None] | None = None
        self._stop_at_once = asyncio.Event()
        self._tls = tls
        self._reloading: asyncio.Task[bool] | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """No coroutine of its own, because that would be one more step of each request."""
        if scope["type"] == "lifespan" and threading.current_thread() is threading.main_thread():
            self._listen(asyncio.get_running_loop())
        return self._app(scope, receive, send)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        def installed(signum: signal.Signals) -> None:
            before = signal.getsignal(signum)
            assert callable(before)
            signal.signal(signum, lambda number, _: loop.call_soon_threadsafe(self._stop, number, before))

        for signum in _SIGNALS:
            installed(signum)
        signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(self._hang_up))
        parent = multiprocessing.parent_process()
        if parent is not None:
            loop.add_reader(parent.sentinel, self._orphaned, loop, parent.sentinel)

    def _hang_up(self) -> None:
        if self._reload is None:
            ignore_reload()
        else:
            self._reload.begin("SIGHUP")
        if self._tls is not None:
            self._reloading = asyncio.get_running_loop().create_task(self._tls.reload_certificates())

    def _orphaned(self, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
        loop.remove_reader(sentinel)
        log.error("parent process gone: stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    def _stop(self, signum: int, before: _Handler) -> None:
        if self._stopping is None:
            log.info("draining", signal=signal.Signals(signum).name)
            self._stopping = asyncio.get_running_loop().create_task(self._drain(signum, before))
        else:
            self._stop_at_once.set()
            if self._stopping.done():
                before(signum, None)

    async def _drain(self, signum: int, before: _Handler) -> None:
        self._end_after(self._end_seconds)
        try:
            await self._gateway.drain()
            if self._drain_seconds:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_at_once.wait(), self._drain_seconds)
        finally:
            before(signum, None)

    @staticmethod
    def _end_after(seconds: float) -> None:
        """Kill the process after ``seconds``. A thread does it, because the event loop may hang."""

        def end() -> None:
            log.error("not stopped: ending the process", seconds=seconds)
            os._exit(1)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
