"""The servers that are measured, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.harness.gateway import gateway
from tests.harness.redis import redis_server


@dataclass(frozen=True)
class Server:
    """A server under measurement: its port, and the root of its process tree."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the process tree so far, to the nanosecond: a clock of 10 ms ticks is too coarse."""
        root = psutil.Process(self.pid)
        pids = [process.pid for process in [root, *root.children(recursive=True)]]
        threads = [stat for pid in pids for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(stat.read_text().split()[0]) for stat in threads) / 1e9


@contextmanager
def bare() -> Iterator[Server]:
    """uvicorn, as the gateway runs it, in front of an application that reads and answers."""
    command = [sys.executable, "-m", "uvicorn", "tests.bench.bare:app", "--port", "0", "--no-access-log"]
    command += ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--log-level", "info"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        yield Server(int(line.split("http://127.0.0.1:")[1].split()[0]), process.pid)
    finally:
        process.kill()
        process.wait()


@contextmanager
def all_servers(directory: Path) -> Iterator[dict[str, Server]]:
    """``bare``, ``sqlite`` and ``redis`` (append-only file on), all guarantees on; ``redis-server`` is the broker."""
    with ExitStack() as stack:
        servers = {"bare": stack.enter_context(bare())}
        redis = stack.enter_context(redis_server())
        for name, url in (("sqlite", f"sqlite:///{directory}/bench.db"), ("redis", redis.url())):
            home = directory / name
            home.mkdir(exist_ok=True)
            process = stack.enter_context(gateway(home, {"brokers": {"main": url}, "default": {"broker": "main"}}))
            servers[name] = Server(httpx.URL(process.url).port or 0, process.pid)
        servers["redis-server"] = Server(redis.port, 0)
        time.sleep(0.5)
        yield servers
