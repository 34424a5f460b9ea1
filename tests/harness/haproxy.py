"""HAProxy in front of gateways, as a Service or an ingress is: which of them serve is told at run time."""

from __future__ import annotations

import csv
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.ci import missing
from tests.harness.local import free_port

_SECONDS = 120
_CONFIG = """
global
    stats socket {directory}/haproxy.sock mode 600 level admin
defaults
    timeout connect 5s
    timeout client 120s
    timeout server 120s
frontend clients
    mode http
    bind 127.0.0.1:{port}
    bind {address}:{service}
    default_backend gateways
backend gateways
    mode http
    balance roundrobin
    option redispatch
{servers}
listen broker
    mode tcp
    timeout client 1h
    timeout server 1h
    bind {address}:{broker}
    server broker 127.0.0.1:{broker}
"""

_NORMALIZERS = (
    "fragment-strip",
    "percent-decode-unreserved strict",
    "percent-to-uppercase strict",
    "path-merge-slashes",
    "path-strip-dot",
    "path-strip-dotdot full",
)
"""All that HAProxy has for a path: https://docs.haproxy.org/2.6/configuration.html#http-request%20normalize-uri"""
_GUARD = """
global
    expose-experimental-directives
defaults
    mode http
    timeout connect 5s
    timeout client 120s
    timeout server 120s
listen guarded
    bind 127.0.0.1:{port}
    option accept-invalid-http-request
{normalizers}
    http-request deny deny_status 410 if {{ path -m reg {denied} }}
    server gateway {host}:{to}
"""


class HAProxy:
    """A running HAProxy with a place for each server; none of them serves yet."""

    def __init__(self, directory: Path, port: int, servers: Sequence[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._socket = directory / "haproxy.sock"
        self._names = {address: f"server-{number}" for number, address in enumerate(servers)}

    def add(self, address: str) -> None:
        """Send it new requests."""
        self._command(f"set server gateways/{self._names[address]} state ready")

    def remove(self, address: str) -> None:
        """Send it no new requests. Those in flight are answered."""
        self._command(f"set server gateways/{self._names[address]} state maint")

    def counts(self) -> Mapping[str, str]:
        """What HAProxy counted at its clients' side, in the columns of its statistics."""
        lines = self._command("show stat").removeprefix("# ").splitlines()
        (row,) = [row for row in csv.DictReader(lines) if (row["pxname"], row["svname"]) == ("clients", "FRONTEND")]
        return row

    def _command(self, text: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(f"{text}\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        assert text.startswith("show") or not answer.strip(), answer
        return answer


@contextmanager
def haproxy(directory: Path, address: str, service: int, broker: int, servers: Sequence[str]) -> Iterator[HAProxy]:
    """A running HAProxy, ended with the block.

    It listens on the loopback and at ``address:service`` for ``servers``, addresses with port 8080, and leads
    ``address:broker`` to the same port of the loopback.
    """
    port = free_port()
    lines = "\n".join(f"    server server-{n} {each}:8080 disabled" for n, each in enumerate(servers))
    given = {"directory": directory, "port": port, "address": address, "service": service, "broker": broker}
    with _running(directory, port, _CONFIG.format(**given, servers=lines)):
        yield HAProxy(directory, port, servers)


@contextmanager
def guarding(directory: Path, server: tuple[str, int], denied: str) -> Iterator[tuple[str, int]]:
    """An HAProxy in front of ``server``, which normalizes paths as far as it can, and answers 410 where a path then
    matches ``denied``. Yields its address; it ends with the block."""
    port = free_port()
    normalizers = "\n".join(f"    http-request normalize-uri {each}" for each in _NORMALIZERS)
    given = {"port": port, "host": server[0], "to": server[1], "normalizers": normalizers, "denied": denied}
    with _running(directory, port, _GUARD.format(**given)):
        yield "127.0.0.1", port


@contextmanager
def _running(directory: Path, port: int, text: str) -> Iterator[None]:
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        missing("haproxy", "install the system's package haproxy")
    config = directory / "haproxy.cfg"
    config.write_text(text)
    with (
        (directory / "haproxy.log").open("wb") as log,
        subprocess.Popen([program, "-db", "-f", str(config)], stdout=log, stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + _SECONDS
            while not _listens(port):
                assert process.poll() is None, "HAProxy has ended"
                assert time.monotonic() < deadline, "HAProxy does not listen"
                time.sleep(0.02)
            yield
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
