"""Redrive jobs in real processes: a kill -9 interrupts them, and every worker answers for them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.gateway.redrive_files import MAX_KEPT, MAX_RUNNING
from tests.brokers import registry
from tests.harness.broker import Broker
from tests.harness.gateway import ForkedGateway, GatewayProcess, gateway
from tests.harness.problems import problem

pytestmark = pytest.mark.slow

COUNT = 200
RATE = 50
SLOW_RATE = 5
LIMIT_SECONDS = 120


@pytest.fixture(params=registry.params(registry.ORDINARY))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """A broker that outlives the gateways."""
    return servers.broker(request.param, tmp_path)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def config(broker: Broker) -> dict[str, Any]:
    # The gateway is ready once the broker has answered.
    main = {"url": broker.url, "timeout_seconds": 30, "required": True}
    return {"brokers": {"main": main}, "default": broker.route()}


def publish_dead_letters(client: httpx.Client, queue: str, count: int = COUNT) -> None:
    """Dead letters with numbers."""
    drafts = [{"job": "urn:babel:test:made", "data": {"n": n}} for n in range(count)]
    assert client.post(f"/queues/{queue}/messages:batch", json=drafts).json()["accepted"] == count
    left = count
    while left:
        answer = client.post(f"/queues/{queue}/messages:receive", json={"max_messages": 100, "wait_seconds": 10})
        tokens = [message["ack_token"] for message in answer.json().get("messages", ())]
        if not tokens:
            continue
        assert client.post(f"/queues/{queue}/messages:reject", json={"ack_tokens": tokens}).status_code == 200
        left -= len(tokens)


def start(client: httpx.Client, queue: str, rate: float | None = RATE) -> str:
    """The path of a new job, from its Location."""
    answer = client.post(f"/queues/{queue}/dead-letters:redrive", json={"background": True, "per_second": rate})
    assert answer.status_code == 202, answer.text
    assert answer.json()["state"] == "running"
    path = answer.request.url.join(answer.headers["location"]).path
    assert path == f"/queues/{queue}/redrives/{answer.json()['id']}"
    return path


def numbers(client: httpx.Client, queue: str) -> list[int]:
    """What is on the queue, received and acked."""
    found = []
    while (
        messages := client.post(f"/queues/{queue}/messages:receive", json={"max_messages": 100, "wait_seconds": 1})
        .json()
        .get("messages")
    ):
        found += [message["envelope"]["data"]["n"] for message in messages]
        tokens = [message["ack_token"] for message in messages]
        assert client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": tokens}).status_code == 200
    return found


def depth(client: httpx.Client, queue: str) -> int | None:
    stats: dict[str, int | None] = client.get(f"/queues/{queue}").json()["stats"]
    return stats["depth"]


def dead(client: httpx.Client, queue: str) -> int:
    answer = client.get(f"/queues/{queue}/dead-letters", params={"limit": 1000})
    return len(answer.json()["dead_letters"])


def test_a_killed_job_is_interrupted_and_goes_on_by_request(tmp_path: Path, broker: Broker, queue: str) -> None:
    process = ForkedGateway(tmp_path, config(broker))
    try:
        process.start()
        with process.client() as client:
            publish_dead_letters(client, queue)
            path = start(client, queue)
            until(lambda: client.get(path).json()["redriven"] >= RATE // 2)
        process.kill()
        process.start()
        with process.client() as client:
            job = client.get(path).json()
            assert job["state"] == "interrupted"
            assert 0 < job["redriven"] < COUNT
            time.sleep(0.5)
            assert client.get(path).json() == job, "it does not go on by itself"
            assert [each["id"] for each in client.get(f"/queues/{queue}/redrives").json()["redrives"]] == [job["id"]]
            # A broker that takes messages needs a moment to notice that their taker is gone.
            until(lambda: dead(client, queue) + (depth(client, queue) or RATE) >= COUNT)
            assert client.post(f"{path}:resume").json()["state"] == "running"
            until(lambda: client.get(path).json()["state"] != "running")
            job = client.get(path).json()
            assert (job["state"], job["complete"], job["failed"]) == ("completed", True, 0), job
            found: list[int] = []

            def all_came() -> bool:
                found.extend(numbers(client, queue))
                return set(found) == set(range(COUNT))

            # On a busy machine a receive may end before a message comes.
            until(all_came)
            assert dead(client, queue) == 0
    finally:
        process.close()
    assert process.unforeseen() == []


def test_a_stop_interrupts_a_job(tmp_path: Path, broker: Broker, queue: str) -> None:
    process = ForkedGateway(tmp_path, config(broker))
    try:
        process.start()
        with process.client() as client:
            publish_dead_letters(client, queue)
            path = start(client, queue, SLOW_RATE)
            until(lambda: client.get(path).json()["redriven"] > 0)
        assert process.stop() == 0
        process.start()
        with process.client() as client:
            job = client.get(path).json()
            assert job["state"] == "interrupted"
            assert dead(client, queue) == COUNT - job["redriven"]
            sent: list[int] = []

            def all_came() -> bool:
                sent.extend(numbers(client, queue))
                return len(sent) >= job["redriven"]

            until(all_came)
            assert len(set(sent)) == len(sent) == job["redriven"]
    finally:
        process.close()
    assert process.unforeseen() == []


def test_every_worker_polls_and_cancels(tmp_path: Path, queue: str) -> None:
    with gateway(
        tmp_path, {"brokers": {"main": f"sqlite:///{tmp_path}/q.db"}, "default": {"broker": "main"}}, "--workers", "2"
    ) as process:
        with process.client() as client:
            publish_dead_letters(client, queue)
            path = start(client, queue, SLOW_RATE)
        seen = set()

        def both_have_answered() -> bool:
            seen.add(_answer_of_a_worker(process, path))
            return len(seen) == 2

        until(both_have_answered)
        with process.client() as client:
            assert client.post(f"{path}:cancel").status_code == 200
            until(lambda: client.get(path).json()["state"] == "cancelled")
            assert dead(client, queue) == COUNT - client.get(path).json()["redriven"]
            problem(client.get(f"/queues/{queue}/redrives/other"), 404, "unknown_redrive")


def test_no_tenant_stops_or_forgets_the_jobs_of_another(tmp_path: Path, queue: str) -> None:
    """With two workers, and across a kill -9."""
    names = ("shop", "blog")
    rights = {"*": ["send", "listen", "manage"]}
    tokens = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": rights} for name in names]
    config = {
        "brokers": {"main": f"sqlite:///{tmp_path}/q.db"},
        "default": {"broker": "main"},
        "auth": {"tokens": tokens},
        "workers": 2,
    }
    with gateway(tmp_path, config) as process, ExitStack() as stack:
        shop, blog = (
            stack.enter_context(process.client(headers={"authorization": f"Bearer {name}"})) for name in names
        )
        for number in range(MAX_RUNNING // 2):
            publish_dead_letters(shop, f"{queue}-{number}", 2)
            start(shop, f"{queue}-{number}", 0.01)
        publish_dead_letters(shop, f"{queue}-more", 2)
        refused = shop.post(f"/queues/{queue}-more/dead-letters:redrive", json={"background": True})
        problem(refused, 429, "too_many_redrives")
        assert "'shop'" in refused.json()["detail"]

        publish_dead_letters(blog, f"{queue}-blog", 4)
        stopped = start(blog, f"{queue}-blog", 0.01)
        assert blog.post(f"{stopped}:cancel").status_code == 200
        until(lambda: blog.get(stopped).json()["state"] == "cancelled")
        assert shop.post(f"/queues/{queue}-0/redrives/{running(shop, f'{queue}-0')}:cancel").status_code == 200
        until(lambda: running(shop, f"{queue}-0") is None)
        # Of many more jobs only the records are made, which takes a moment.
        for number in range(MAX_KEPT):
            (tmp_path / "redrives" / f"f{number:019x}").mkdir()
            record = {"id": f"f{number:019x}", "queue": "q", "to_queue": "q", "started_at": 1, "updated_at": 1}
            text = json.dumps(record | {"caller": "shop", "state": "cancelled"})
            (tmp_path / "redrives" / f"f{number:019x}" / "job.json").write_text(text)
        for number in range(5):
            path = start(shop, f"{queue}-empty-{number}", None)
            until(partial(has_ended, shop, path))
        assert blog.get(stopped).json()["state"] == "cancelled"

        process.kill()
        process.start()
        shop, blog = (
            stack.enter_context(process.client(headers={"authorization": f"Bearer {name}"})) for name in names
        )
        assert shop.get(f"/queues/{queue}-1/redrives").json()["redrives"][0]["state"] == "interrupted"
        start(shop, f"{queue}-more", None)
        assert blog.get(stopped).json()["state"] == "cancelled"
        assert blog.post(f"{stopped}:resume").json()["state"] == "running"
        records = list((tmp_path / "redrives").iterdir())
        assert len(records) <= MAX_KEPT + MAX_RUNNING
    assert process.unforeseen() == []


def has_ended(client: httpx.Client, path: str) -> bool:
    return bool(client.get(path).json()["state"] != "running")


def running(client: httpx.Client, queue: str) -> str | None:
    """The id of the job of the queue that runs."""
    jobs = client.get(f"/queues/{queue}/redrives").json()["redrives"]
    return next((job["id"] for job in jobs if job["state"] == "running"), None)


def _answer_of_a_worker(process: GatewayProcess, path: str) -> str:
    """Poll with a connection of its own; the part of the request id that identifies the worker."""
    with process.client() as client:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-request-id"].partition("-")[0]
