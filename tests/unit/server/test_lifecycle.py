"""A process whose shutdown hangs is killed."""

from __future__ import annotations

import subprocess
import sys

HANGS = """
import asyncio, os, signal, sys
from babelgate.config import settings
from babelgate.server.lifecycle import GracefulStop
from babelgate.observe.logs import configure
from babelgate.server.server import uvicorn_config
import uvicorn

class Gateway:
    async def drain(self):
        pass

async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
    await receive()
    HANG

found = settings.load(None, {"BABELGATE_PORT": "0", "BABELGATE_SHUTDOWN_SECONDS": "0.5"})
configure(found.log_level, found.log_format)
stop = GracefulStop(app, Gateway(), found, close_seconds=0.5)
uvicorn.Server(uvicorn_config(lambda: stop, found)).run()
"""


def run(hang: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", HANGS.replace("HANG", hang)], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_close_that_never_returns_does_not_keep_the_process():
    status, log = run("await asyncio.sleep(3600)")
    assert (status, "ending the process" in log) == (1, True)


def test_nor_does_a_blocked_event_loop():
    status, log = run("import time; time.sleep(3600)")
    assert (status, "ending the process" in log) == (1, True)
