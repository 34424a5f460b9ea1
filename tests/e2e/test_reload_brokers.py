"""The connection to a broker or the native name of a queue changes while a gateway runs: leases, waits and messages go
on, on real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers import registry
from tests.brokers.registry import HARNESSES, Servers
from tests.e2e.test_reload import Reloaded, publish, receive, waiters
from tests.harness.broker import Broker, Variant
from tests.harness.gateway import GatewayProcess
from tests.harness.local import wait_for

pytestmark = pytest.mark.slow

VARIANTS = [HARNESSES[kind][0] for kind in ("sqlite", "redis", "rabbitmq")]
"""Leases are kept by the broker, by the process with the broker's deadlines, and by a connection."""


def other_address(broker: Broker, tmp_path: Path) -> str:
    """Another URL of the same server, of which the text does not say so."""
    if broker.embedded:
        (tmp_path / "link").symlink_to(tmp_path)
        return broker.url.replace(str(tmp_path), f"{tmp_path}/link")
    return broker.url.replace("127.0.0.1", "localhost")


class Site:
    """A gateway of one queue, whose broker or native name changes."""

    def __init__(self, gateway: Reloaded, queue: str, client: httpx.Client) -> None:
        self._gateway = gateway
        self._path = f"queues/{queue}/messages"
        self.queue = queue
        self.client = client
        self.waited: list[dict[str, Any]] = []

    def settle(self, verb: str, message: dict[str, Any], **members: Any) -> None:
        body = {"ack_tokens": [message["ack_token"]], **members}
        answer = self.client.post(f"{self._path}:{verb}", json=body, timeout=120)
        assert answer.json().get("settled") == 1, answer.text

    def wait(self) -> threading.Thread:
        def received() -> None:
            with self._gateway.process.client() as other:
                while not self.waited:
                    self.waited += receive(other, self.queue, wait_seconds=30, lease_seconds=600)

        waiting = threading.Thread(target=received, daemon=True)
        waiting.start()
        wait_for(lambda: waiters(self.client) == 1)
        return waiting

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the configuration with three leases and a receive that waits. Each lease is settled afterwards."""
        assert [publish(self.client, self.queue, number) for number in range(3)] == [201] * 3
        held: list[dict[str, Any]] = []
        while len(held) < 3:
            held += receive(self.client, self.queue, max_messages=3, wait_seconds=30, lease_seconds=600)
        waiting = self.wait()
        self._gateway.load(change)
        self.settle("extend", held[2], lease_seconds=500)
        self.settle("ack", held[0])
        self.settle("nack", held[1], error={"message": "failed once"})
        waiting.join(120)
        assert [(each["envelope"]["data"]["number"], each["attempts"]) for each in self.waited] == [
            (held[1]["envelope"]["data"]["number"], 1)
        ]
        self.settle("ack", self.waited.pop())
        self.settle("ack", held[2])


def site_of(variant: Variant, servers: Servers, tmp_path: Path, queue: str) -> tuple[Broker, GatewayProcess]:
    broker = servers.broker(variant, tmp_path)
    config = {
        "brokers": {"main": {"url": broker.url, "timeout_seconds": 20}},
        "queues": {queue: {**broker.route(), "max_attempts": 1000}},
    }
    return broker, GatewayProcess(tmp_path, config)


@pytest.mark.parametrize("variant", registry.params(VARIANTS))
def test_a_connection_and_a_native_name_change(variant: Variant, servers: Servers, tmp_path: Path, queue: str) -> None:
    _, process = site_of(variant, servers, tmp_path, queue)
    try:
        with process.start().client() as client:
            site = Site(Reloaded(process), queue, client)
            # As other credentials do, this opens another connection to the same server.
            site.change(lambda settings: settings["brokers"]["main"].update(timeout_seconds=25))
            assert "queue drained" not in process.log_text()
            site.change(lambda settings: settings["queues"][queue].update(native_name=f"{queue}-new"))
            site.change(lambda settings: settings["queues"][queue].pop("native_name"))
            assert receive(client, queue) == []
        assert process.stop() == 0
        assert not process.unforeseen()
    finally:
        process.close()


@pytest.mark.parametrize("variant", registry.params(VARIANTS))
def test_two_addresses_of_one_server_make_no_circle(
    variant: Variant, servers: Servers, tmp_path: Path, queue: str
) -> None:
    broker, process = site_of(variant, servers, tmp_path, queue)
    try:
        with process.start().client() as client:
            site = Site(Reloaded(process), queue, client)
            assert [publish(client, queue, number) for number in range(20)] == [201] * 20
            (first,) = receive(client, queue, wait_seconds=30, lease_seconds=600)
            (second,) = receive(client, queue, wait_seconds=30, lease_seconds=600)
            site.settle("nack", first, error={"message": "failed once"})
            url = other_address(broker, tmp_path)
            Reloaded(process).load(lambda settings: settings["brokers"]["main"].update(url=url))
            wait_for(lambda: "queue not drained: it leads back to itself" in process.log_text())
            site.settle("ack", second)
            came: dict[int, int] = {}
            while len(came) < 19:
                for each in receive(client, queue, max_messages=10, wait_seconds=30, lease_seconds=600):
                    number = each["envelope"]["data"]["number"]
                    assert number not in came, "handed out twice"
                    came[number] = each["attempts"]
                    site.settle("ack", each)
            expected = dict.fromkeys(set(range(20)) - {second["envelope"]["data"]["number"]}, 0)
            assert came == {**expected, first["envelope"]["data"]["number"]: 1}
            assert receive(client, queue) == []
        assert process.stop() == 0
        assert not process.unforeseen()
    finally:
        process.close()
