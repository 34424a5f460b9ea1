"""A pause holds on all replicas and workers, over kills and restarts, and loses nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.gateway import GatewayProcess
from tests.harness.local import free_ports, wait_for

pytestmark = pytest.mark.slow

KEYS = [{"id": "shared", "secret": "a secret that all the replicas share"}]
MESSAGES = 40
LIMIT_SECONDS = 100


def receive(client: httpx.Client, queue: str, wait: float = 0, most: int = 1) -> dict[str, Any]:
    asked = {"wait_seconds": wait, "max_messages": most}
    answer: dict[str, Any] = client.post(f"queues/{queue}/messages:receive", json=asked).raise_for_status().json()
    return answer


def act(client: httpx.Client, queue: str, verb: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.post(f"queues/{queue}:{verb}").raise_for_status().json()
    return answer


def publish(client: httpx.Client, queue: str, count: int) -> None:
    drafts = [{"job": "x", "data": {"n": n}} for n in range(count)]
    assert client.post(f"queues/{queue}/messages:batch", json=drafts).status_code == 201


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Two gateways over one file, with nothing else in common but the keys."""
    places = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with ExitStack() as stack:
        found = []
        for number, place in enumerate(places):
            directory = tmp_path / str(number)
            directory.mkdir()
            config = {
                "brokers": {"local": f"sqlite:///{tmp_path}/shared.db"},
                "default": {"broker": "local", "lease_seconds": 600},
                "token_keys": KEYS,
                "peers": {"listen": place, "addresses": places},
            }
            process = GatewayProcess(directory, config)
            stack.callback(process.close)
            found.append(process.start())
        yield found


def test_replicas_agree_over_kills(replicas: list[GatewayProcess], queue: str) -> None:
    one, two = replicas
    with one.client() as here, two.client() as there:
        publish(here, queue, 1)
        outcome = act(there, queue, "pause")
        assert (outcome["told"], outcome["silent"], outcome["kept"]) == (1, [], True)
        assert receive(here, queue) == receive(there, queue, 0.2) == {"messages": [], "paused": True}
        one.kill()
        one.start()
        assert receive(here, queue)["paused"], "its own file has it"
        two.kill()
        outcome = act(here, queue, "resume")
        assert (outcome["told"], len(outcome["silent"])) == (0, 1)
        serving = here.get("replicas").raise_for_status().json()
        assert (len(serving["processes"]), serving["silent"]) == (1, outcome["silent"])
        two.start()
        (message,) = receive(there, queue, 30)["messages"]
        assert message["attempts"] == 0, "it has learned the resume before it served"
        two.kill()
        act(here, queue, "pause")
        two.start()
        assert receive(there, queue) == {"messages": [], "paused": True}
        # Who waits at one replica is served at once after a resume at the other.
        done: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: done.append(receive(here, queue, 30)))
        waiting.start()
        publish(there, queue, 1)
        act(there, queue, "resume")
        waiting.join(LIMIT_SECONDS)
        assert len(done[0]["messages"]) == 1


@contextmanager
def consumers(replicas: list[GatewayProcess], queue: str, acked: Counter[int]) -> Iterator[None]:
    """Two for each replica, until the end of the block. A replica that is killed is tried again."""
    over = threading.Event()

    def consume(process: GatewayProcess) -> None:
        while not over.is_set():
            try:
                with process.client() as client:
                    for message in receive(client, queue, 0.5, 3)["messages"]:
                        token = {"ack_tokens": [message["ack_token"]]}
                        if client.post(f"queues/{queue}/messages:ack", json=token).status_code == 200:
                            acked[message["envelope"]["data"]["n"]] += 1
            except httpx.TransportError:
                over.wait(0.1)

    threads = [threading.Thread(target=consume, args=(each,)) for each in replicas * 2]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(LIMIT_SECONDS)


def test_nothing_is_lost_or_handed_out_while_paused(replicas: list[GatewayProcess], queue: str) -> None:
    one, two = replicas
    acked: Counter[int] = Counter()
    with consumers(replicas, queue, acked), one.client() as here, two.client() as there:
        for start in range(3):
            act(here if start % 2 else there, queue, "pause")
            drafts = [{"job": "x", "data": {"n": start * MESSAGES + n}} for n in range(MESSAGES)]
            assert here.post(f"queues/{queue}/messages:batch", json=drafts).status_code == 201
            # All reserves that were under way at the pause have ended after this wait.
            assert receive(there, queue, 2) == receive(here, queue) == {"messages": [], "paused": True}
            assert not any(n >= start * MESSAGES for n in acked)
            if start == 1:
                one.kill()
                one.start()
                assert receive(here, queue)["paused"]
            act(there, queue, "resume")

            def all_acked(count: int = (start + 1) * MESSAGES) -> bool:
                return len(acked) >= count

            wait_for(all_acked)
    assert acked == Counter(range(3 * MESSAGES))


def told(client: httpx.Client, queue: str, action: str) -> None:
    """Repeat the call until the other worker has answered it."""
    wait_for(lambda: act(client, queue, action)["told"] == 1)


def test_workers_pause_together(tmp_path: Path, queue: str) -> None:
    with ExitStack() as stack:
        process = GatewayProcess(tmp_path, {"default": {"broker": "local"}, "workers": 2})
        stack.callback(process.close)
        process.start()
        with process.client() as client:
            publish(client, queue, 1)
            told(client, queue, "pause")
            serving = client.get("replicas").raise_for_status().json()
            assert len({each["pid"] for each in serving["processes"]} & set(process.workers())) == 2
            assert len({each["gateway"] for each in serving["processes"]}) == 1
        for _ in range(20):
            # A connection stays with the worker that accepted it.
            with process.client() as client:
                assert receive(client, queue) == {"messages": [], "paused": True}
        with process.client() as client:
            told(client, queue, "resume")
            assert len(receive(client, queue)["messages"]) == 1
