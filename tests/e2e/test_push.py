"""Pushes of a real gateway to a FastAPI receiver: over TLS, with workers, and with kill -9 in the middle."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from standardwebhooks import Webhook

from tests.harness.gateway import gateway
from tests.harness.local import certify, free_port, free_ports, wait_for
from tests.harness.program import run
from tests.harness.sockets import serving
from tests.harness.webhooks import SECRET

QUEUE = "orders"
CONCURRENCY = 8


class Shop:
    """Takes orders. ``answered``: how often each was answered with a 2xx; ``tried``: how often it came."""

    def __init__(self, fails: Callable[[int], bool] = lambda number: False, seconds: float = 0) -> None:
        self.answered: Counter[int] = Counter()
        self.tried: Counter[int] = Counter()
        self.app = FastAPI()
        self._lock = threading.Lock()

        @self.app.post("/orders")
        async def orders(request: Request) -> Response:
            envelope = Webhook(SECRET).verify(await request.body(), dict(request.headers))
            number = envelope["data"]["n"]
            await asyncio.sleep(seconds)
            with self._lock:
                self.tried[number] += 1
                if fails(self.tried[number]):
                    return Response("later", 500)
                self.answered[number] += 1
            return Response(status_code=204)

    def has(self, count: int) -> bool:
        with self._lock:
            return len(self.answered) >= count


@contextmanager
def opened(shop: Shop, directory: Path, **tls: Any) -> Iterator[str]:
    """The shop behind uvicorn; its URL."""
    with serving(uvicorn.Config(shop.app, log_level="error", **tls)) as (host, port):
        yield f"{'https' if tls else 'http'}://{host}:{port}/orders"


def configured(url: str, **more: Any) -> dict[str, Any]:
    route = {"lease_seconds": 3, "backoff_seconds": [0.1]} | more
    route["push"] = {"url": url, "secrets": [SECRET], "concurrency": CONCURRENCY}
    return {
        "brokers": {"main": "sqlite:///queues.db"},
        "queues": {QUEUE: {"broker": "main", **route}},
        "push": {"allow_http": True, "networks": ["127.0.0.0/8"]},
    }


def published(client: Any, numbers: range) -> None:
    bodies = [{"job": "urn:babel:shop:ordered", "data": {"n": number}} for number in numbers]
    answer = client.post(f"/queues/{QUEUE}/messages:batch", json=bodies)
    assert answer.status_code == 201, answer.text


def test_over_tls_with_two_workers(tmp_path: Path) -> None:
    """Every order fails at first. Each is taken once."""
    certify(tmp_path)
    shop = Shop(fails=lambda tried: tried == 1)
    tls = {"ssl_certfile": tmp_path / "server.crt", "ssl_keyfile": tmp_path / "server.key"}
    with opened(shop, tmp_path, **tls) as url:
        trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.crt")}
        config = configured(url) | {"brokers": {"main": f"sqlite:///{tmp_path}/queues.db"}}
        with gateway(tmp_path, config, "--workers", "2", environ=trusted) as process:
            with process.client() as client:
                published(client, range(60))
                wait_for(lambda: shop.has(60))
                wait_for(lambda: empty(client.get(f"/queues/{QUEUE}").json()["stats"]))
                lines = [
                    line for line in client.get("/metrics").text.split("\n") if "push_duration_seconds_count" in line
                ]
                # The failures may open the circuit, which holds posts that wait for their turn.
                assert {
                    found for line in lines if not (found := line.partition('outcome="')[2]).startswith("held")
                } == {f'{outcome}",queue="{QUEUE}"}} 60.0' for outcome in ("acked", "nacked")}
            assert process.stop() == 0
            assert process.unforeseen() == []
    assert set(shop.answered.values()) == {1}
    assert set(shop.tried.values()) == {2}


def test_by_the_command_line(tmp_path: Path) -> None:
    shop = Shop()
    with opened(shop, tmp_path) as url, gateway(tmp_path, {"push": configured(url)["push"]}) as process:

        def push(*arguments: str, status: int = 0, stdin: bytes = b"") -> str:
            found = run("push", *arguments, "--url", process.url, environ=dict(process.environ), stdin=stdin)
            assert found.returncode == status, (found.stdout, found.stderr)
            return found.stdout.decode()

        push("show", QUEUE, status=1)
        stdin = json.dumps({"url": url, "secrets": [SECRET]}).encode()
        assert push("set", QUEUE, stdin=stdin) == f"{QUEUE} is pushed to {url}.\n"
        with process.client() as client:
            published(client, range(3))
        wait_for(lambda: shop.has(3))
        wait_for(lambda: json.loads(push("show", QUEUE, "--json"))["state"]["outcomes"]["acked"] == 3)
        assert "acked: 3" in push("show", QUEUE)
        assert push("pause", QUEUE) == f"The push of {QUEUE} is paused.\n"
        assert "state: paused" in push("show", QUEUE)
        # The shop reads a number that the test message does not have: it answers 500, which the command says.
        assert push("test", QUEUE, status=1).startswith("HTTP 500 in ")
        assert push("resume", QUEUE) == f"The push of {QUEUE} is not paused.\n"
        assert push("remove", QUEUE) == f"{QUEUE} is not pushed any more.\n"
        push("remove", QUEUE, status=1)


@pytest.mark.slow
def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Nothing is lost. Only what was in flight at a kill may be taken twice."""
    count, kills = 600, 3
    shop = Shop(seconds=0.02)
    with opened(shop, tmp_path) as url:
        config = configured(url) | {"brokers": {"main": f"sqlite:///{tmp_path}/queues.db"}}
        with gateway(tmp_path, config) as process:
            with process.client() as client:
                published(client, range(count))
            for kill in range(1, kills + 1):
                wait_for(partial(shop.has, count * kill // (kills + 1)))
                process.kill()
                process.start()
            wait_for(lambda: shop.has(count))
            with process.client() as client:
                wait_for(lambda: empty(client.get(f"/queues/{QUEUE}").json()["stats"]))
            assert process.stop() == 0
    assert set(shop.answered) == set(range(count)), "lost"
    twice = sum(times - 1 for times in shop.answered.values())
    assert twice <= kills * CONCURRENCY, "pushed again after it was acked"


def empty(stats: dict[str, Any]) -> bool:
    counts = {name: stats[name] for name in ("depth", "in_flight", "delayed", "dead")}
    assert counts["dead"] == 0, json.dumps(counts)
    return not any(counts.values())


def test_a_gateway_on_another_host_learns_a_push_and_its_removal(tmp_path: Path) -> None:
    """Two gateways with nothing in common but a key. One of them is away when the push is removed."""
    places = [f"127.0.0.1:{port}" for port in free_ports(2)]
    shared = {
        "token_keys": [{"id": "shared", "secret": "a secret that all the replicas share"}],
        "push": {"allow_http": True, "networks": ["127.0.0.0/8"]},
    }
    path = f"/queues/{QUEUE}/push"
    target = {"url": f"http://127.0.0.1:{free_port()}/orders", "secrets": [SECRET]}
    with ExitStack() as stack:
        processes = []
        for number, place in enumerate(places):
            (tmp_path / str(number)).mkdir()
            config = shared | {"peers": {"listen": place, "addresses": places}}
            processes.append(stack.enter_context(gateway(tmp_path / str(number), config)))
        one, two = processes
        with one.client() as here, two.client() as there:
            made = here.put(path, json=target).raise_for_status().json()
            # On a busy machine the answer may come too late.
            assert made["told"] == 1 or made["silent"]
            assert made["silent"] or there.get(path).status_code == 200
            wait_for(lambda: there.get(path).status_code == 200)
            assert there.get(path).json()["target"] == made["target"]
            two.kill()
            assert places[1] in here.delete(path).raise_for_status().json()["silent"]
            two.start()
            # It has asked at its start, and asks again if a busy machine gave no answer in time.
            wait_for(lambda: there.get(path).status_code == 404)
            there.put(path, json=target).raise_for_status()
            wait_for(lambda: here.get(path).status_code == 200)
