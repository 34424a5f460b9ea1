"""A real Redis server: one for a test session, or one of a test's own that it may kill and start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import redis

from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.clock import now_ms
from tests.harness.broker import ServerBroker, Variant
from tests.harness.ci import missing
from tests.harness.local import certify, free_port, suspend

_READY_SECONDS = 120.0


class RedisServer:
    """A ``redis-server`` on a directory and a port of its own, the append-only file on.

    ``appendfsync`` as the server's setting; ``tls`` serves TLS only, with a certificate for 127.0.0.1 signed by
    ``ca_file``; ``arguments`` go to the command line as they are.
    """

    def __init__(
        self, directory: Path, *, appendfsync: str = "everysec", tls: bool = False, arguments: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.ca_file = directory / "ca.crt"
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments = ["--bind", "127.0.0.1", "--dir", str(directory), "--save", "", "--daemonize", "no"]
        self._arguments += ["--appendonly", "yes", "--appendfsync", appendfsync, "--logfile", str(self._log)]
        if tls:
            certify(directory)
            self._arguments += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            self._arguments += ["--tls-cert-file", str(directory / "server.crt")]
            self._arguments += [
                "--tls-key-file",
                str(directory / "server.key"),
                "--tls-ca-cert-file",
                str(self.ca_file),
            ]
        else:
            self._arguments += ["--port", str(self.port)]
        self._arguments += arguments

    @property
    def _log(self) -> Path:
        return self.directory / "redis.log"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: int = 0) -> str:
        """The URL of a database."""
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start on what the directory holds; returns when the server answers."""
        program = shutil.which("redis-server")
        if program is None:
            missing("redis-server", "install the system's package redis-server")
        self._process = subprocess.Popen(
            [program, *self._arguments], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
                self.kill()
                raise RuntimeError(f"redis-server did not start:\n{log[-2000:]}")
            time.sleep(0.01)

    def ensure(self) -> None:
        """Start it or resume it, and empty it."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        self.resume()
        with client(self) as plain:
            plain.flushall()

    def kill(self) -> None:
        """SIGKILL: what the server had not written is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: the server writes what it has."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers stop."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def _ready(self) -> bool:
        """The log says when the append-only file is loaded: unlike PING, also behind TLS and a password."""
        try:
            ready = "Ready to accept connections" in self._log.read_text("utf-8", "replace").rpartition("oO0O")[2]
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return ready
        except OSError:
            return False


@contextmanager
def redis_server(
    *, appendfsync: str = "everysec", tls: bool = False, arguments: Sequence[str] = ()
) -> Iterator[RedisServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-redis-") as directory:
        server = RedisServer(Path(directory), appendfsync=appendfsync, tls=tls, arguments=arguments)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def client(server: RedisServer, database: int = 0) -> Iterator[redis.Redis]:
    """A plain client, bytes in and out, as a foreign program or an operator would use."""
    plain = redis.Redis.from_url(server.url(database), socket_timeout=60)
    try:
        yield plain
    finally:
        plain.close()


@asynccontextmanager
async def binding(url: str, options: Mapping[str, Any] | None = None) -> AsyncIterator[RedisBinding]:
    """An open binding, as one process has it."""
    opened = connect("cache", url, options or {}, now_ms)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


def _elements(plain: redis.Redis, key: bytes) -> list[bytes]:
    return [element for element in plain.lrange(key, 0, -1) if isinstance(element, bytes)]


class RedisBroker(ServerBroker):
    """A server, with queues in the list layout of the SDKs."""

    kind = "redis"
    sample = "redis://127.0.0.1/0"
    name = "cache"
    prefix = ""
    server: RedisServer

    @property
    def header_options(self) -> Mapping[str, Any] | None:
        return {**self.queue_options, "frames": True}

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[RedisServer]:
        return redis_server(appendfsync="always" if durable else "everysec")

    async def inject(self, queue: str, *bodies: bytes) -> None:
        with client(self.server) as plain:
            plain.rpush(self.prefix + queue, *bodies)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        with client(self.server) as plain:
            found: list[NativeWrite] = []
            for key in sorted(cast(list[bytes], plain.keys(f"{self.prefix}{queue}*"))):
                target = {"key": key.decode()}
                if plain.type(key) == b"list":
                    found += [NativeWrite("RPUSH", target, body=element) for element in _elements(plain, key)]
                else:
                    members = cast(list[tuple[bytes, float]], plain.zrange(key, 0, -1, withscores=True))
                    found += [NativeWrite("ZADD", target, self._properties(*each), body=each[0]) for each in members]
            return found

    def _properties(self, member: bytes, score: float) -> Mapping[str, Any]:
        return {"score": score, "id": member[:32].decode()}

    async def dead(self, queue: str) -> Sequence[bytes]:
        with client(self.server) as plain:
            return _elements(plain, f"{self.prefix}{queue}.dlq".encode())


class LaravelBroker(RedisBroker):
    """The same in the layout of Laravel, which keeps leased and delayed messages as members of a set."""

    prefix = "queues:"
    merges_equal_bodies = True

    @property
    def header_options(self) -> Mapping[str, Any] | None:
        return None

    def _properties(self, member: bytes, score: float) -> Mapping[str, Any]:
        return {"score": score}


VARIANTS = (
    Variant("redis", RedisBroker, {"layout": "list"}, "Redis"),
    Variant("redis-laravel", LaravelBroker, {"layout": "laravel"}, "Redis, Laravel layout", replicas=False),
)
