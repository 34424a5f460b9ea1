"""The configuration is loaded again and again under load: nothing is lost, nothing is acked twice, nothing is refused.

``BABELGATE_TEST_RELOADS=200 pytest tests/e2e/test_reload_load.py`` runs it for longer.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_reload import Reloaded, sqlite
from tests.harness.gateway import GatewayProcess
from tests.harness.local import wait_for

pytestmark = pytest.mark.slow

RELOADS = int(os.environ.get("BABELGATE_TEST_RELOADS", "10"))
QUEUE = "queues/load/messages"
LEASE = 600


class Load:
    """Publishers and consumers in threads, and what they have seen."""

    def __init__(self, process: GatewayProcess) -> None:
        self._process = process
        self._numbers = itertools.count()
        self.accepted: set[int] = set()
        self.acked: Counter[int] = Counter()
        self.statuses: Counter[str] = Counter()
        self.refused: list[str] = []
        self.publishing = True
        self.consuming = True
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._publish, self._publish, self._poll, self._poll, self._hold, self._stream)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self.consuming = False
        for thread in self._threads:
            thread.join(120)

    def has_acked_more_than(self, count: int) -> bool:
        assert not self.refused
        return sum(self.acked.values()) > count

    def has_acked_all(self) -> bool:
        assert not self.refused
        return self.accepted <= self.acked.keys()

    def _post(self, client: httpx.Client, verb: str, body: Any) -> httpx.Response:
        answer = client.post(f"{QUEUE}{verb}", json=body, timeout=120)
        self.statuses[f"{verb or 'publish'} {answer.status_code} {threading.current_thread().name}"] += 1
        if answer.status_code not in (200, 201):
            self.refused.append(f"{verb or 'publish'} {answer.text}")
        return answer

    def _publish(self) -> None:
        with self._process.client() as client:
            while self.publishing:
                number = next(self._numbers)
                if self._post(client, "", {"job": "x", "data": {"number": number}}).status_code == 201:
                    self.accepted.add(number)

    def _received(self, client: httpx.Client) -> list[dict[str, Any]]:
        body = {"max_messages": 5, "wait_seconds": 2, "lease_seconds": LEASE}
        found: list[dict[str, Any]] = self._post(client, ":receive", body).json()["messages"]
        return found

    def _ack(self, client: httpx.Client, message: dict[str, Any]) -> None:
        answer = self._post(client, ":ack", {"ack_tokens": [message["ack_token"]]})
        if answer.status_code == 200:
            self.acked[message["envelope"]["data"]["number"]] += 1

    def _poll(self) -> None:
        with self._process.client() as client:
            while self.consuming:
                for message in self._received(client):
                    self._ack(client, message)

    def _hold(self) -> None:
        """Hold leases over several reloads; ack some of them, and let the others come again."""
        held: list[dict[str, Any]] = []
        with self._process.client() as client:
            while self.consuming:
                held += self._received(client)
                while len(held) > 40 or (held and not self.publishing):
                    message = held.pop(0)
                    if message["attempts"] == 0 and message["envelope"]["data"]["number"] % 3 == 0:
                        self._post(client, ":nack", {"ack_tokens": [message["ack_token"]], "error": {"message": "no"}})
                    else:
                        self._ack(client, message)

    def _stream(self) -> None:
        headers = {"accept": "application/x-ndjson"}
        with self._process.client() as client, self._process.client() as other:
            while self.consuming:
                query = {"max_in_flight": 10, "lease_seconds": LEASE}
                with client.stream("POST", f"{QUEUE}:stream", params=query, headers=headers, timeout=60) as stream:
                    self.statuses[f":stream {stream.status_code}"] += 1
                    for event in self._events(stream):
                        self._ack(other, event["data"])

    def _events(self, stream: httpx.Response) -> Iterator[dict[str, Any]]:
        for line in stream.iter_lines():
            if not self.consuming:
                return
            event = json.loads(line) if line.strip() else {}
            if event.get("event") == "message":
                yield event
            else:
                assert event.get("event") != "problem", event


@pytest.mark.parametrize("workers", [1, 2])
def test_reloads_under_load(tmp_path: Path, workers: int) -> None:
    brokers = {name: sqlite(tmp_path, name) for name in ("one", "two")}
    default = {"broker": "one", "max_attempts": 1000}
    process = GatewayProcess(tmp_path, {"brokers": brokers, "default": default, "workers": workers})
    try:
        gateway = Reloaded(process.start(), workers)
        load = Load(process)
        load.start()
        wait_for(lambda: len(load.acked) > 20)
        for number in range(RELOADS):

            def change(settings: dict[str, Any], number: int = number) -> None:
                settings.pop("port_", None)
                broker = ("one", "two")[number // 2 % 2]
                native_name = ("{queue}", "moved-{queue}")[number // 3 % 2]
                # Another connection to the same file.
                settings["brokers"]["one"]["timeout_seconds"] = 29 + number % 2
                settings["default"] = {"broker": broker, "max_attempts": 1000, "lease_seconds": 30 + number}
                settings["default"]["native_name"] = native_name
                settings["queues"] = {f"other-{number}": {"broker": "two"}}

            if number % 5 == 4:
                gateway.refuse(lambda settings: settings.update(port_=1))
            gateway.load(change)
            # So that every configuration serves something.
            seen = sum(load.acked.values())
            wait_for(partial(load.has_acked_more_than, seen))
        load.publishing = False
        wait_for(load.has_acked_all)
        load.join()
        assert load.accepted == load.acked.keys(), "lost, or never accepted"
        assert [number for number, count in load.acked.items() if count > 1] == []
        assert not load.refused
        assert load.statuses[":stream 200"] == 1, "the stream was never opened again"
        print(len(load.accepted), load.statuses)
        assert process.stop() == 0
        assert not process.unforeseen()
    finally:
        process.close()
