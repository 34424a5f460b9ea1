"""Runs uvicorn with our protocol class, as one process or several on one socket."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from babelgate import __version__
from babelgate.clock import now_ms
from babelgate.cluster.workers import workers_directory
from babelgate.config.origin import Origin
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.gateway.route_warnings import unused
from babelgate.gateway.routing import Route
from babelgate.observe import logs
from babelgate.server.certificate import date_warnings
from babelgate.server.healthcheck import reachable
from babelgate.server.lifecycle import GracefulStop, ignore_reload
from babelgate.server.protocol import GatewayProtocol
from babelgate.server.transport import Patience

log = logs.get_logger(__name__)

BACKLOG = 4_096
COLLECT_AFTER = (25_000, 20, 50)
"""Thresholds of the garbage collector. A request leaves no cycle, and with thousands of requests in flight the
interpreter's default of 700 objects would scan all of them again and again.
"""
WORKER_START_SECONDS = 30
"""Maximum time of a worker to answer its parent. A busy machine needs seconds to import the application."""
_LISTEN_HINTS = {
    errno.EADDRINUSE: ". End the program that uses the port, perhaps another babelgate, or choose another --port",
    errno.EACCES: ". Choose a --port from 1024 on, which needs no privileges",
    errno.EADDRNOTAVAIL: ". Choose a --host that is an address of this machine",
}


Announce = Callable[[str, Sequence[tuple[str, Route]]], None]
"""Called with the URL, and each configured rule and its route, when the port is bound."""


class _Supervisor(Multiprocess):
    """Starts the workers, and replaces those that end."""

    _waits = False
    """Whether a SIGHUP waits for a worker."""

    def handle_hup(self) -> None:
        """Let one worker load the configuration again, which sees to the others. uvicorn would restart them.

        Until a worker answers, the signal stays in the queue. :meth:`run` looks into it again once it has seen to its
        workers: it waits up to WORKER_START_SECONDS for a silent one, and replaces it.
        """
        for process in self.processes:
            # A worker that starts would be ended by the signal; one that has ended cannot take it.
            if process.process.is_alive() and process.is_ready(timeout=1) and process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)
                self._waits = False
                return
        if not self._waits:
            log.warning("SIGHUP waits", reason="no worker answers")
        self._waits = True
        if signal.SIGHUP not in self.signal_queue:
            self.signal_queue.append(signal.SIGHUP)


def serve(settings: Settings, announce: Announce = lambda url, routes: None, origin: Origin | None = None) -> int:
    """Serve until a stop signal; return the exit status. ``origin``: where a reload reads the configuration.

    Raises ConfigError when a start-up check fails, or the address cannot be bound, or ``announce`` does.
    """
    logs.configure(settings.log_level, settings.log_format)
    # Until the application or the supervisor has begun, which then see to it themselves.
    signal.signal(signal.SIGHUP, lambda *_: ignore_reload())
    routes = _prepare(settings)
    raise_file_limit()
    listener = _listen(settings)
    # uvicorn raises received signals again after its end; a requested stop is a success.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: sys.exit(0))
    address, port = listener.getsockname()[:2]
    announce(settings.url(reachable(address), port), routes)
    log.info("listening", url=settings.url(address, port), workers=settings.workers)
    # The command disabled it for the imports. With workers, create_app() runs in other processes.
    gc.enable()
    if settings.workers > 1:
        with workers_directory(settings.state_dir) as directory:
            config = uvicorn_config(partial(create_app, settings, directory, origin), settings)
            supervisor = _Supervisor(config, [listener])
            supervisor.run()
        failed = any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes)
        return int(failed)
    config = uvicorn_config(partial(create_app, settings, None, origin), settings)
    server = uvicorn.Server(config)
    try:
        server.run([listener])
    except SystemExit as ended:
        if ended.code != STARTUP_FAILURE:
            raise
    return int(not server.started)


def create_app(settings: Settings, workers_directory: Path | None = None, origin: Origin | None = None) -> ASGIApp:
    """Create the application inside its process. ``workers_directory``: shared by the workers of one ``serve``."""
    gc.disable()  # Imports make many objects and no garbage.
    from babelgate.server.reload import Reload
    from babelgate.server.wiring import build_app
    from babelgate.server.worker_group import settings_of, shared_configuration

    logs.configure(settings.log_level, settings.log_format)
    shared = None if workers_directory is None else shared_configuration(workers_directory, settings)
    accepted = None if shared is None else shared.accepted()
    if shared is not None and accepted is not None:
        # All workers have loaded it since the start.
        settings = settings_of(shared, accepted)
        logs.configure(settings.log_level, settings.log_format)
    app = build_app(settings, workers_directory=workers_directory)
    assert app.live is not None, "build_app() gives them"
    reload = Reload(app.live, settings, origin, shared, accepted)
    app.add(reload)
    # The objects that exist now are permanent, so the collector can skip them.
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()
    log.info("starting", version=__version__, incarnation=app.gateway.incarnation)
    return GracefulStop(app, app.gateway, settings, tls=app.tls, reload=reload)


def uvicorn_config(app: ASGIApp | Callable[[], ASGIApp], settings: Settings) -> uvicorn.Config:
    """The configuration with which uvicorn runs the application factory ``app``."""
    return uvicorn.Config(
        app,
        factory=True,
        loop="babelgate.server.accept:ServerLoop",
        # uvicorn calls this once per connection. Workers need it to be picklable, which a local class is not.
        http=cast(type[asyncio.Protocol], partial(GatewayProtocol, patience=_patience(settings))),
        ws="none",
        interface="asgi3",
        lifespan="on",
        workers=settings.workers,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
        timeout_worker_healthcheck=WORKER_START_SECONDS,
    )


def _patience(settings: Settings) -> Patience:
    return Patience(settings.head_seconds, settings.body_seconds, settings.body_bytes_per_second)


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard limit, because each waiting client needs one.

    Returns the resulting limit, and logs a change.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("soft limit on open files kept", limit=soft, error=error)
        return soft
    log.info("soft limit on open files raised", limit=hard, before=soft)
    return hard


def _listen(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        # The text of create_server() repeats the address.
        why = os.strerror(error.errno) if error.errno in _LISTEN_HINTS else error.strerror
        hint = _LISTEN_HINTS.get(error.errno or 0, "")
        raise ConfigError(key="host", reason=f"cannot listen on {settings.host}:{settings.port}: {why}{hint}") from None
    listener.set_inheritable(True)
    return listener


def _prepare(settings: Settings) -> list[tuple[str, Route]]:
    """Run the start-up checks, and create the token key that all workers share; return the routes.

    Schemas at a URL are read, which may take some 10 s: they are refused here and not in each worker.
    """
    from babelgate.config.token_keys import token_keys
    from babelgate.server.checks import check_settings
    from babelgate.server.job_schemas import job_schemas

    routes = check_settings(settings)
    if settings.schemas.url is not None:
        job_schemas(settings)
    token_keys(settings)
    if settings.tls_cert is not None and settings.tls_key is not None:
        for warning in date_warnings(settings.tls_cert, settings.tls_key, now_ms()):
            log.warning(warning)
    for warning in unused(key for key, _ in routes):
        log.warning("route never used", reason=warning)
    return routes
