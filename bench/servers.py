"""The servers that are measured, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.brokers.registry import ORDINARY
from tests.harness.broker import Broker, ServerBroker
from tests.harness.gateway import GatewayProcess, gateway


@dataclass(frozen=True)
class Server:
    """A server under measurement: its port, the roots of its process trees, and those of the broker behind it."""

    port: int
    pids: Sequence[int]
    broker: Sequence[int] = ()


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of the process trees so far, to the nanosecond: a clock of 10 ms ticks is too coarse.

    Without that of threads that have ended.
    """
    roots = [psutil.Process(pid) for pid in pids]
    everyone = {process.pid for root in roots for process in [root, *root.children(recursive=True)]}
    threads = [stat for pid in everyone for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    total = 0
    for stat in threads:
        # A thread may end between the listing and the reading.
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(stat.read_text().split()[0])
    return total / 1e9


@contextmanager
def bare(workers: int = 1) -> Iterator[Server]:
    """uvicorn, as the gateway runs it, in front of an application that reads and answers."""
    command = [sys.executable, "-m", "uvicorn", "bench.bare:app", "--port", "0", "--no-access-log"]
    command += ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--log-level", "info"]
    command += ["--workers", str(workers)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        yield Server(int(line.split("http://127.0.0.1:")[1].split()[0]), (process.pid,))
    finally:
        # The workers end with their parent only if it can tell them.
        process.terminate()
        process.wait()


def foreign(url: str) -> Server:
    """A server that somebody else has started: the processes of this machine that listen on its port, if any do."""
    port = httpx.URL(url).port or 80
    listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return Server(port, sorted({each.pid for each in listening if each.pid is not None and each.laddr[1:] == (port,)}))


@contextmanager
def all_servers(directory: Path, kinds: Container[str]) -> Iterator[dict[str, Server]]:
    """``bare``; a gateway over each broker of ``kinds``, all guarantees on; ``<kind>-server``, its server itself.

    ``<kind>-peer`` is another gateway over RabbitMQ or Azure Service Bus, to settle what the first one handed out. Its
    CPU is that of both.
    """
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(variant.start(directory)) for variant in ORDINARY if variant.broker.kind in kinds
        ]
        servers = {"bare": stack.enter_context(bare())}

        def serve(name: str, broker: Broker, others: Sequence[int] = ()) -> None:
            home = directory / name
            home.mkdir()
            # One state directory for all: so they find each other and open each other's tokens.
            # A local server of SQS takes some hundred calls a second; what 64 connections send waits for its turn.
            main = {"url": broker.url, "timeout_seconds": 30}
            config = {"brokers": {"main": main}, "default": broker.route(), "state_dir": str(directory)}
            process = stack.enter_context(gateway(home, config, kind=GatewayProcess))
            behind = (broker.server.pid,) if isinstance(broker, ServerBroker) else ()
            servers[name] = Server(httpx.URL(process.url).port or 0, (process.pid, *others), behind)

        for broker in brokers:
            serve(broker.kind, broker)
            servers[f"{broker.kind}-server"] = Server(0, ())
            if isinstance(broker, ServerBroker):
                servers[f"{broker.kind}-server"] = Server(broker.server.port, (broker.server.pid,))
            if broker.kind in ("rabbitmq", "servicebus"):
                serve(f"{broker.kind}-peer", broker, servers[broker.kind].pids)
        time.sleep(0.5)
        yield servers
