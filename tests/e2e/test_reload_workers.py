"""Several workers load a configuration all together, or none does, whichever of them dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.e2e.test_reload import Reloaded, publish, sqlite
from tests.harness.gateway import GatewayProcess
from tests.harness.local import wait_for


def lease_seconds(seconds: int) -> Callable[[dict[str, Any]], object]:
    return lambda settings: settings.update(default={"broker": "one", "lease_seconds": seconds})


class Workers(Reloaded):
    """A gateway with several workers."""

    def served(self, client: httpx.Client) -> list[tuple[int | None, str | None]]:
        """The version and the digest of each worker, as one of them tells."""
        workers = client.get("/config").raise_for_status().json()["workers"]
        return [(each["version"], each["digest"]) for each in workers]

    def all_serve(self, client: httpx.Client, version: int, count: int = 2) -> None:
        """Wait until all workers serve this version, and it is the same."""
        served: list[tuple[int | None, str | None]] = []

        def all_do() -> bool:
            # A busy worker may have no answer in time.
            served[:] = self.served(client)
            return [each for each, _ in served] == [version] * count

        wait_for(all_do)
        assert len(set(served)) == 1

    def measures(self, client: httpx.Client, line: str) -> bool:
        """Whether the metrics of all workers have this line."""
        return line in client.get("metrics").text

    def prepared(self, since: int = 0) -> list[int]:
        """The workers that have prepared a configuration, by the log."""
        lines = [line for line in self.process.log_text()[since:].split("\n") if '"configuration prepared"' in line]
        return [json.loads(line)["pid"] for line in lines]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    started: list[GatewayProcess] = []

    def start(workers: int = 2, **config: Any) -> Workers:
        settings = {"brokers": {"one": sqlite(tmp_path, "one")}, "default": {"broker": "one"}, "workers": workers}
        process = GatewayProcess(tmp_path, settings | config)
        started.append(process)
        gateway = Workers(process.start())
        with process.client() as client:
            gateway.all_serve(client, 1, workers)
        return gateway

    yield start
    for process in started:
        assert not process.unforeseen()
        process.close()


def leases(gateway: Workers) -> set[float]:
    """What many connections, so that each worker has some, say of the policy."""
    found = set()
    for _ in range(12):
        with gateway.process.client() as client:
            found.add(client.get("queues/a").raise_for_status().json()["policy"]["lease_seconds"])
    return found


def test_all_workers_load_a_file_or_none_does(serving: Callable[..., Workers]) -> None:
    gateway = serving()
    port = yaml.safe_load(gateway.file.read_text())["port"]
    with gateway.process.client() as client:
        gateway.edit(lease_seconds(7))
        gateway.hang_up('"cause":"SIGHUP","version":2')
        gateway.all_serve(client, 2)
        assert leases(gateway) == {7}
        gateway.refuse(lambda settings: settings.update(port=1))
        gateway.all_serve(client, 2)
        assert leases(gateway) == {7}
        wait_for(lambda: gateway.measures(client, "babelgate_config_refused 2.0"))
        # Whichever worker answers.
        gateway.edit(lambda settings: settings.update(port=port))
        gateway.edit(lease_seconds(8))
        answer = client.post("/config:reload").raise_for_status().json()
        assert (answer["version"], answer["changed"]) == (3, ["default.lease_seconds"])
        assert {version for version, _ in gateway.served(client)} <= {3, None}, "all serve it before the answer"
        gateway.all_serve(client, 3)
        for line in ('reloads_total{outcome="applied"} 2.0', 'reloads_total{outcome="refused"} 1.0', "refused 0.0"):
            wait_for(partial(gateway.measures, client, f"babelgate_config_{line}"))


def test_a_worker_that_starts_later_starts_with_the_accepted_file(serving: Callable[..., Workers]) -> None:
    gateway = serving()
    with gateway.process.client() as client:
        gateway.edit(lease_seconds(7))
        gateway.edit(lambda settings: settings.update(log_level="warning"))
        assert client.post("/config:reload").raise_for_status().json()["version"] == 2
        gateway.file.write_text("brokers: [")
    victim = gateway.process.workers()[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(gateway.process.workers()) == 2 and victim not in gateway.process.workers())

    def is_whole() -> bool:
        try:
            with gateway.process.client() as client:
                return [version for version, _ in gateway.served(client)] == [2, 2]
        except httpx.TransportError:
            return False

    wait_for(is_whole)
    assert gateway.process.log_text().count('"event":"starting"') == 2, "the log level is that of the accepted file"
    assert leases(gateway) == {7}
    with gateway.process.client() as client:
        assert client.post("/config:reload").status_code == 422
        assert publish(client, "a") == 201


class SlowBroker:
    """Something where a Redis should be. It closes connections, but those of the third process that connects wait."""

    def __init__(self, workers: Sequence[int]) -> None:
        self._workers = workers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.seen: list[int] = []
        """The processes that have connected."""
        self._released = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, (_, port) = self._listening.accept()
                pid = self._pid(port)
                if pid is not None and pid not in self.seen:
                    self.seen.append(pid)
                if pid in self.seen[2:3]:
                    threading.Thread(target=self._hold, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _pid(self, port: int) -> int | None:
        for pid in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(each.laddr.port == port for each in psutil.Process(pid).net_connections("tcp")):
                    return pid
        return None

    def _hold(self, connection: socket.socket) -> None:
        self._released.wait(300)
        connection.close()

    def release(self) -> None:
        self._released.set()

    def close(self) -> None:
        self.release()
        self._listening.close()


@pytest.fixture
def held(serving: Callable[..., Workers]) -> Iterator[tuple[Workers, SlowBroker]]:
    """Three workers in the middle of a load: one has the turn, one has prepared, one still opens the new broker."""
    gateway = serving(workers=3)
    slow = SlowBroker(gateway.process.workers())

    def change(settings: dict[str, Any]) -> None:
        settings["brokers"]["slow"] = {"url": f"redis://127.0.0.1:{slow.port}/0", "timeout_seconds": 30}
        lease_seconds(7)(settings)

    gateway.edit(change)
    os.kill(gateway.process.pid, signal.SIGHUP)
    wait_for(lambda: len(slow.seen) == 3 and len(gateway.prepared()) >= 1)
    yield gateway, slow
    slow.close()


def whole(gateway: Workers, version: int) -> Callable[[], bool]:
    """Whether three workers serve this version."""

    def is_whole() -> bool:
        with contextlib.suppress(httpx.TransportError), gateway.process.client() as client:
            return [each for each, _ in gateway.served(client)] == [version] * 3
        return False

    return is_whole


@pytest.mark.slow
def test_a_worker_that_dies_prepared_is_replaced_by_one_that_serves_the_new_file(
    held: tuple[Workers, SlowBroker],
) -> None:
    gateway, slow = held
    victim = gateway.prepared()[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: victim not in gateway.process.workers())
    slow.release()
    wait_for(whole(gateway, 2))
    assert leases(gateway) == {7}


@pytest.mark.slow
def test_a_worker_that_dies_while_it_prepares_holds_up_nothing(held: tuple[Workers, SlowBroker]) -> None:
    gateway, slow = held
    os.kill(slow.seen[2], signal.SIGKILL)
    wait_for(whole(gateway, 2))
    assert leases(gateway) == {7}


@pytest.mark.slow
def test_what_the_worker_with_the_turn_has_not_accepted_is_dropped_when_it_dies(
    held: tuple[Workers, SlowBroker],
) -> None:
    gateway, slow = held
    os.kill(slow.seen[0], signal.SIGKILL)
    wait_for(lambda: "prepared configuration dropped" in gateway.process.log_text())
    slow.release()
    wait_for(whole(gateway, 1))
    assert leases(gateway) == {60}
    gateway.hang_up('"cause":"SIGHUP","version":2')
    wait_for(whole(gateway, 2))
    assert leases(gateway) == {7}
