"""A reverse proxy of Debian with a configuration of the documentation, in which only addresses are replaced."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.ci import missing
from tests.harness.local import free_port

GATEWAY = "127.0.0.1:8080"
_SECONDS = 120
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""Folders of nginx, which a user who is not root cannot write where Debian has them."""


@contextmanager
def nginx(directory: Path, text: str, gateway: str) -> Iterator[str]:
    """The URL of an nginx in front of the gateway at ``gateway``, a host and a port."""
    port = free_port()
    folders = "".join(f"  {name}_temp_path {directory}/{name};\n" for name in _TEMPORARY)
    text = text.replace("http {\n", f"http {{\n  access_log off;\n{folders}", 1)
    text = text.replace(GATEWAY, gateway).replace("listen 80;", f"listen 127.0.0.1:{port};")
    config = directory / "nginx.conf"
    config.write_text(text)
    log = directory / "nginx.log"
    settings = f"daemon off; pid {directory}/nginx.pid; error_log {log};"
    with running(["nginx", "-e", str(log), "-p", str(directory), "-c", str(config), "-g", settings], log, port) as url:
        yield url


@contextmanager
def haproxy(directory: Path, text: str, gateway: str) -> Iterator[str]:
    """The URL of an HAProxy in front of the gateway at ``gateway``, a host and a port."""
    port = free_port()
    config = directory / "haproxy.cfg"
    config.write_text(text.replace(GATEWAY, gateway).replace("bind :80\n", f"bind 127.0.0.1:{port}\n"))
    with running(["haproxy", "-db", "-f", str(config)], directory / "haproxy.log", port) as url:
        yield url


@contextmanager
def running(command: Sequence[str], log: Path, port: int) -> Iterator[str]:
    """The URL of a proxy that listens on ``port`` of this machine, once it does; what it prints is beside ``log``."""
    name, *arguments = command
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        missing(name, f"install the system's package {name}")
    with (
        log.with_suffix(".out").open("wb") as out,
        subprocess.Popen([program, *arguments], stdout=out, stderr=out) as process,
    ):
        try:
            deadline = time.monotonic() + _SECONDS
            while not _listens(port):
                assert process.poll() is None, log.with_suffix(".out").read_text()
                assert time.monotonic() < deadline, f"{name} does not listen"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            # nginx ends its workers at SIGTERM only.
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
