"""A configuration that is loaded again: what is under way goes on, and a bad file changes nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.harness.gateway import GatewayProcess
from tests.harness.local import wait_for

DRAFT = {"job": "x", "data": {}}

WAIT_SECONDS = 30
"""The longest that a receive waits."""


class Reloaded:
    """A gateway whose configuration file is changed while it runs."""

    def __init__(self, process: GatewayProcess, workers: int = 1) -> None:
        self.process = process
        self._workers = workers
        self.file = process.directory / "babelgate.yaml"

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the file, whose settings ``change`` gets."""
        settings = yaml.safe_load(self.file.read_text())
        change(settings)
        self.file.write_text(yaml.safe_dump(settings))

    def hang_up(self, says: str, lines: int = 1) -> None:
        """Send SIGHUP, and wait for so many more lines in the log that ``says`` this."""
        before = self.process.log_text().count(says)
        os.kill(self.process.pid, signal.SIGHUP)
        wait_for(lambda: self.process.log_text().count(says) >= before + lines)

    def load(self, change: Callable[[dict[str, Any]], object]) -> None:
        self.edit(change)
        self.hang_up("configuration loaded", self._workers)

    def refuse(self, change: Callable[[dict[str, Any]], object]) -> str:
        """The log since a change that is refused."""
        at = len(self.process.log_text())
        self.edit(change)
        self.hang_up("configuration refused")
        return self.process.log_text()[at:]


def sqlite(directory: Path, name: str) -> dict[str, Any]:
    return {"url": f"sqlite:///{directory}/{name}.db", "timeout_seconds": 30}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Reloaded]:
    config = {"brokers": {"one": sqlite(tmp_path, "one")}, "default": {"broker": "one"}}
    process = GatewayProcess(tmp_path, config)
    try:
        yield Reloaded(process.start())
        assert not process.unforeseen()
    finally:
        process.close()


def receive(client: httpx.Client, queue: str, **options: Any) -> list[dict[str, Any]]:
    answer = client.post(f"queues/{queue}/messages:receive", json=options, timeout=120).raise_for_status()
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def publish(client: httpx.Client, queue: str, number: int = 0, secret: str = "") -> int:
    body = {"job": "x", "data": {"number": number}}
    headers = bearer(secret) if secret else {}
    return client.post(f"queues/{queue}/messages", json=body, headers=headers).status_code


def waiters(client: httpx.Client) -> float:
    lines = client.get("metrics").raise_for_status().text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("babelgate_receive_waiters{"))


def test_a_queue_moves_with_its_leases_waiters_and_messages(gateway: Reloaded, tmp_path: Path) -> None:
    found: list[list[dict[str, Any]]] = []

    def wait() -> None:
        with gateway.process.client() as other:
            while not found:
                began = time.monotonic()
                if messages := receive(other, "waited", wait_seconds=WAIT_SECONDS):
                    found.append(messages)
                # The longest wait may be over before a slow machine has loaded the file.
                assert messages or time.monotonic() - began >= WAIT_SECONDS, "the change ended the wait"

    def move(settings: dict[str, Any]) -> None:
        settings["brokers"]["two"] = sqlite(tmp_path, "two")
        settings["queues"] = {"moved": {"broker": "two"}, "waited": {"broker": "two"}}

    with gateway.process.client() as client:
        assert [publish(client, "moved", number) for number in range(5)] == [201] * 5
        first, second = receive(client, "moved", max_messages=2, lease_seconds=600)
        nack = {"ack_tokens": [second["ack_token"]], "error": {"message": "failed once"}}
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_for(lambda: waiters(client) == 1)
        gateway.load(move)
        assert client.get("queues/moved").json()["broker"] == "two"
        assert publish(client, "waited") == 201
        waiting.join(120)
        assert [len(each) for each in found] == [1], "the waiting receive waits on the new broker"
        ack = {"ack_tokens": [first["ack_token"]]}
        assert client.post("queues/moved/messages:ack", json=ack).json()["settled"] == 1
        assert client.post("queues/moved/messages:ack", json=ack).json()["settled"] == 1, "twice is done"
        assert client.post("queues/moved/messages:nack", json=nack).json()["settled"] == 1
        came: dict[int, int] = {}

        def has_all() -> bool:
            for each in receive(client, "moved", max_messages=100, lease_seconds=600):
                assert each["envelope"]["data"]["number"] not in came, "handed out twice"
                came[each["envelope"]["data"]["number"]] = each["attempts"]
            return len(came) == 4

        wait_for(has_all)
        assert came == {1: 1, 2: 0, 3: 0, 4: 0}, "the attempts of a message go along"


def test_a_moved_queue_follows_after_a_restart(gateway: Reloaded, tmp_path: Path) -> None:
    def move(settings: dict[str, Any]) -> None:
        settings["brokers"]["two"] = sqlite(tmp_path, "two")
        settings["default"] = {"broker": "two"}

    with gateway.process.client() as client:
        assert [publish(client, "moved", number) for number in range(2)] == [201] * 2
        first, second = receive(client, "moved", max_messages=2, lease_seconds=600)
        gateway.load(move)
    assert gateway.process.stop() == 0
    again = GatewayProcess(tmp_path, yaml.safe_load(gateway.file.read_text()))
    try:
        with again.start().client() as client:
            ack = {"ack_tokens": [first["ack_token"]]}
            assert client.post("queues/moved/messages:ack", json=ack).json()["settled"] == 1
            nack = {"ack_tokens": [second["ack_token"]], "error": {"message": "failed once"}}
            assert client.post("queues/moved/messages:nack", json=nack).json()["settled"] == 1
            came: list[dict[str, Any]] = []

            def has_come() -> bool:
                came.extend(receive(client, "moved", lease_seconds=600))
                return bool(came)

            wait_for(has_come)
            assert (came[0]["envelope"]["data"]["number"], came[0]["attempts"]) == (1, 1)
            assert client.get("queues/moved").json()["broker"] == "two"
        assert again.stop() == 0
        assert not again.unforeseen()
    finally:
        again.close()


def test_what_goes_back_moves_again(gateway: Reloaded, tmp_path: Path) -> None:
    def route(broker: str) -> Callable[[dict[str, Any]], object]:
        def change(settings: dict[str, Any]) -> None:
            settings["brokers"]["two"] = sqlite(tmp_path, "two")
            settings["queues"] = {"moved": {"broker": broker}}

        return change

    with gateway.process.client() as client:
        tokens = []
        for number, broker in enumerate(("two", "one", "two", "one")):
            assert publish(client, "moved", number) == 201
            leased: list[dict[str, Any]] = []
            while not leased:
                leased = receive(client, "moved", wait_seconds=WAIT_SECONDS, lease_seconds=600)
            tokens += [each["ack_token"] for each in leased]
            gateway.load(route(broker))
        assert len(tokens) == 4
        answer = client.post("queues/moved/messages:ack", json={"ack_tokens": tokens}).json()
        assert (answer["settled"], answer["failed"]) == (4, 0), "leases of both brokers, in one call"


def test_a_removed_broker_stays_open_and_is_emptied(gateway: Reloaded, tmp_path: Path) -> None:
    def move(settings: dict[str, Any]) -> None:
        settings["brokers"] = {"two": sqlite(tmp_path, "two")}
        settings["default"] = {"broker": "two"}

    def put_back(settings: dict[str, Any]) -> None:
        settings["brokers"]["one"] = sqlite(tmp_path, "one")

    with gateway.process.client() as client:
        assert [publish(client, "moved", number) for number in range(4)] == [201] * 4
        (leased,) = receive(client, "moved", lease_seconds=600)
        gateway.load(move)
        assert [each["broker"] for each in client.get("brokers").json()["brokers"]] == ["two"]
        came: list[dict[str, Any]] = []

        def has_all() -> bool:
            came.extend(receive(client, "moved", max_messages=100, lease_seconds=600))
            return len(came) == 3

        wait_for(has_all)
        ack = {"ack_tokens": [leased["ack_token"]]}
        assert client.post("queues/moved/messages:ack", json=ack).json()["settled"] == 1
        said = '"event":"removed broker stays open until a restart","broker":"one"'
        assert gateway.process.log_text().count(said) == 1
        gateway.load(put_back)
        assert sorted(each["broker"] for each in client.get("brokers").json()["brokers"]) == ["one", "two"]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("port", {"port": 1}),
        ("queues.a", {"queues": {"a": {"broker": "one", "lease_second": 1}}}),
        ("queues.a.broker", {"queues": {"a": {"broker": "none"}}}),
        ("default.native_name", {"default": {"broker": "one", "native_name": "other"}}),
        ("brokers.two.url", {"brokers": {"two": {"url": "sqlite:////no/such/place.db"}}, "default": {"broker": "two"}}),
        ("auth", {"auth": {"tokens": [{"name": "a", "sha256": "ab" * 32, "rights": {"*": ["send"]}}]}}),
    ],
)
def test_a_refused_file_changes_nothing(gateway: Reloaded, key: str, change: dict[str, Any]) -> None:
    def apply(settings: dict[str, Any]) -> None:
        settings["default"] = {"broker": "one", "lease_seconds": 7}
        settings.update(change)

    with gateway.process.client() as client:
        before = client.get("queues/a").json()
        said = gateway.refuse(apply)
        assert f'"key":"{key}' in said
        assert client.get("queues/a").json() == before
        assert publish(client, "a") == 201


def test_a_file_that_is_no_yaml_changes_nothing(gateway: Reloaded) -> None:
    gateway.file.write_text("brokers: [")
    gateway.hang_up("configuration refused")
    with gateway.process.client() as client:
        assert publish(client, "a") == 201


def token(secret: str, name: str, *rights: str) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), "rights": {"*": list(rights)}}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_identities_and_policies(tmp_path: Path) -> None:
    auth = {"tokens": [token("stays", "stays", "send", "listen", "manage"), token("goes", "goes", "send", "listen")]}
    config = {"auth": auth, "brokers": {"one": sqlite(tmp_path, "one")}, "default": {"broker": "one"}}
    process = GatewayProcess(tmp_path, config)
    ended: list[str] = []

    def change(settings: dict[str, Any]) -> None:
        settings["auth"]["tokens"] = [auth["tokens"][0], token("comes", "comes", "send")]
        settings["default"] = {"broker": "one", "max_attempts": 1, "lease_seconds": 5}

    def stream(secret: str) -> None:
        with process.client() as other:
            headers = bearer(secret)
            ended.append(other.post("queues/s/messages:stream", headers=headers, timeout=None).text)

    def streams(client: httpx.Client) -> float:
        lines = client.get("metrics", headers=bearer("stays")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("babelgate_open_streams{"))

    try:
        gateway = Reloaded(process.start())
        with process.client() as client:
            assert publish(client, "q", secret="goes") == 201
            leased = client.post(
                "queues/q/messages:receive", json={"lease_seconds": 600}, headers=bearer("goes")
            ).json()
            reading = [threading.Thread(target=stream, args=(name,), daemon=True) for name in ("stays", "goes")]
            for each in reading:
                each.start()
            wait_for(lambda: streams(client) == 2)
            gateway.load(change)
            statuses = [publish(client, "q", secret=name) for name in ("stays", "goes", "comes")]
            assert statuses == [201, 401, 201]
            reading[1].join(120)
            assert len(ended) == 1
            assert streams(client) == 1, "that of the other token goes on"
            nack = {"ack_tokens": [leased["messages"][0]["ack_token"]], "error": {"message": "no"}}
            client.post("queues/q/messages:nack", json=nack, headers=bearer("stays")).raise_for_status()
            letters = client.get("queues/q/dead-letters", headers=bearer("stays")).json()["dead_letters"]
            assert len(letters) == 1, "the new max_attempts counts for an old lease"
        assert process.stop() == 0
    finally:
        process.close()


def test_a_watched_file_is_loaded(tmp_path: Path) -> None:
    """As Kubernetes updates a ConfigMap: the file is a link into a directory that is replaced by another one."""
    config = {"brokers": {"one": sqlite(tmp_path, "one")}, "default": {"broker": "one"}, "reload": {"watch": True}}
    process = GatewayProcess(tmp_path, config)

    def publish_map(number: int, text: str) -> None:
        directory = tmp_path / f"..{number}"
        directory.mkdir()
        (directory / "babelgate.yaml").write_text(text)
        link = tmp_path / "..new"
        link.symlink_to(directory.name)
        link.rename(tmp_path / "..data")

    try:
        gateway = Reloaded(process.start())
        settings = yaml.safe_load(gateway.file.read_text())
        publish_map(1, gateway.file.read_text())
        gateway.file.unlink()
        gateway.file.symlink_to("..data/babelgate.yaml")
        publish_map(2, yaml.safe_dump(settings | {"default": {"broker": "one", "lease_seconds": 7}}))
        with process.client() as client:
            wait_for(lambda: client.get("queues/a").json()["policy"]["lease_seconds"] == 7)
            publish_map(3, "brokers: [")
            wait_for(lambda: "babelgate_config_refused 1.0" in client.get("metrics").text)
            publish_map(4, yaml.safe_dump(settings))
            wait_for(lambda: client.get("queues/a").json()["policy"]["lease_seconds"] == 60)
            text = client.get("metrics").text
            assert 'babelgate_config_reloads_total{outcome="applied"} 2.0' in text
            assert 'babelgate_config_reloads_total{outcome="refused"} 1.0' in text
            assert "babelgate_config_refused 0.0" in text
        assert process.stop() == 0
        assert not process.unforeseen()
    finally:
        process.close()
