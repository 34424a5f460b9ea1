"""Free ports, certificates and waiting, for servers that a test starts on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import httpx

from tests.harness.ci import missing


@cache
def authorities() -> ssl.SSLContext:
    """The certificate authorities that clients trust. Reading them takes 20 ms, so a process does it once."""
    return httpx.create_ssl_context()


def free_port() -> int:
    """A free port of the loopback; see :func:`free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """``count`` different free ports. On Linux this process reserves them until it ends.

    While a server starts or restarts, the system could give its port to another server or to a client's end of a
    connection. A socket that is bound and does not listen prevents that. The server can still bind the port if it sets
    SO_REUSEADDR. Other systems do not allow this, so there the ports are not reserved.
    """
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        if sys.platform == "linux":
            probe.detach()
        else:
            probe.close()
    return ports


def certify(directory: Path) -> None:
    """Make ``ca.crt``, and ``server.crt`` with ``server.key`` for 127.0.0.1 and localhost."""
    openssl = shutil.which("openssl")
    if openssl is None:
        missing("openssl", "install the system's package openssl")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=directory, check=True, capture_output=True)

    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    run("req", "-x509", *key, "-subj", "/CN=test ca", *usage, "-keyout", "ca.key", "-out", "ca.crt")
    run("req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    names = directory / "names.cnf"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    signer = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", str(names)]
    run("x509", "-req", "-in", "server.csr", *signer, "-out", "server.crt")


def suspend(pid: int, seconds: float = 60) -> None:
    """Send SIGSTOP, and wait until all threads of the process have stopped: one that runs goes on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    limit = time.monotonic() + seconds
    while _runs(pid):
        if time.monotonic() > limit:
            raise TimeoutError(f"process {pid} has not stopped within {seconds:g} s")
        time.sleep(0.001)


def _runs(pid: int) -> bool:
    """Whether a thread of the process has not stopped; False where there is no /proc."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The state follows the name in parentheses: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
            if stat.read_text().rpartition(") ")[2][0] not in "TtZX":
                return True
    return False


def wait_for(condition: Callable[[], object], seconds: float = 240) -> None:
    """Wait until ``condition`` holds, which must come true by itself within ``seconds``. Blocks this thread."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"it did not happen within {seconds:g} s")
        time.sleep(0.05)


async def eventually(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until ``condition`` holds, which must come true by itself within ``seconds``."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)
