"""Workers and replicas on one RabbitMQ: whoever is asked, the one that holds the delivery settles it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.gateway import GatewayProcess
from tests.harness.local import free_ports

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

DRAFT = {"job": "x", "data": {}}
KEYS = [{"id": "shared", "secret": "a secret that all the replicas share"}]


def serving_process(answer: httpx.Response) -> str:
    """The part of a request id that is one process's own."""
    return answer.headers["x-request-id"].partition("-")[0]


def receive(client: httpx.Client, queue: str) -> tuple[str, str]:
    """The token of a message that is published first, and the process that handed it out."""
    client.post(f"queues/{queue}/messages", json=DRAFT).raise_for_status()
    answer = client.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 30})
    (message,) = answer.raise_for_status().json()["messages"]
    return message["ack_token"], serving_process(answer)


def settle(client: httpx.Client, queue: str, verb: str, token: str, **how: Any) -> httpx.Response:
    return client.post(f"queues/{queue}/messages:{verb}", json={"ack_tokens": [token], **how})


def forwarded(process: GatewayProcess) -> dict[str, float]:
    """How many settles this process forwarded, by result."""
    lines = httpx.get(f"{process.url}/metrics", timeout=60).text.splitlines()
    found = [line for line in lines if line.startswith("babelgate_forwarded_settles_total{")]
    return {line.partition('result="')[2].partition('"')[0]: float(line.split()[-1]) for line in found}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, directory: Path, rabbit: RabbitServer, config: Mapping[str, Any]) -> GatewayProcess:
    """A gateway on ``rabbit`` with a directory of its own."""
    directory.mkdir(exist_ok=True)
    process = GatewayProcess(directory, {"brokers": {"rabbit": rabbit.url()}, **config})
    stack.callback(process.close)
    return process.start()


def test_workers_settle_for_each_other(stack: ExitStack, tmp_path: Path, rabbit: RabbitServer, queue: str) -> None:
    process = started(stack, tmp_path, rabbit, {"workers": 2})
    crossed = 0
    for attempt in range(200):
        # A connection stays with the worker that accepted it.
        with process.client() as one, process.client() as another:
            token, receiver = receive(one, queue)
            verb = ("ack", "nack")[attempt % 2]
            answer = settle(another, queue, verb, token)
            assert answer.status_code == 200, answer.text
            crossed += serving_process(answer) != receiver
        if crossed >= 4:
            break
    assert crossed >= 4, "no settle ever met the other worker"
    assert len(list((tmp_path / "peers").iterdir())) == 2
    assert process.stop() == 0
    assert list((tmp_path / "peers").iterdir()) == []
    assert not process.unforeseen()


def test_a_killed_owner_is_a_lost_lease(stack: ExitStack, tmp_path: Path, rabbit: RabbitServer, queue: str) -> None:
    state = {"state_dir": str(tmp_path)}
    owner, other = (started(stack, tmp_path / name, rabbit, state) for name in "ab")
    with owner.client() as there, other.client() as here:
        first, second = receive(there, queue)[0], receive(there, queue)[0]
        assert settle(here, queue, "extend", first, lease_seconds=30).status_code == 200
        assert settle(here, queue, "ack", first).status_code == 200
        owner.kill()
        answer = settle(here, queue, "ack", second)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
        # The broker has noticed the death: the message comes again, to who is left.
        again = here.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 30}).json()["messages"]
        assert [message["redelivered"] for message in again] == [True]
    assert forwarded(other) == {"settled": 2, "lease_lost": 1}
    owner.start()
    assert len(list((tmp_path / "peers").iterdir())) == 2, "what the killed one left is still there"


def test_an_owner_that_drains_settles_on(stack: ExitStack, tmp_path: Path, rabbit: RabbitServer, queue: str) -> None:
    config = {"state_dir": str(tmp_path), "drain_seconds": 60}
    owner, other = (started(stack, tmp_path / name, rabbit, config) for name in "ab")
    with owner.client() as there, other.client() as here:
        first, second = receive(there, queue)[0], receive(there, queue)[0]
        owner.terminate()
        while there.get("readyz").status_code == 200:
            time.sleep(0.01)
        assert settle(here, queue, "ack", first).status_code == 200
        # A second signal ends the wait.
        assert owner.stop() == 0
        assert settle(here, queue, "ack", second).status_code == 409
        again = here.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 30}).json()["messages"]
        assert len(again) == 1


def test_an_owner_that_hangs_leaves_the_outcome_open(
    stack: ExitStack, tmp_path: Path, rabbit: RabbitServer, queue: str
) -> None:
    state = {"state_dir": str(tmp_path)}
    owner, other = (started(stack, tmp_path / name, rabbit, state) for name in "ab")
    with owner.client() as there, other.client() as here:
        token = receive(there, queue)[0]
        psutil.Process(owner.pid).suspend()
        try:
            answer = settle(here, queue, "ack", token)
        finally:
            psutil.Process(owner.pid).resume()
        assert (answer.status_code, answer.json()["code"]) == (504, "outcome_unknown")
        assert answer.json()["retryable"]
        # It may have been done meanwhile; told again, it certainly is.
        assert settle(here, queue, "ack", token).status_code == 200


def test_replicas_on_several_hosts_meet_over_tcp(
    stack: ExitStack, tmp_path: Path, rabbit: RabbitServer, queue: str
) -> None:
    """Each has a state directory of its own, as on hosts that share nothing but the broker and the keys."""
    first, second = free_ports(2)
    others = [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
    one = started(
        stack,
        tmp_path / "one",
        rabbit,
        {"token_keys": KEYS, "peers": {"listen": others[0], "addresses": others}},
    )
    two = started(
        stack,
        tmp_path / "two",
        rabbit,
        {"token_keys": KEYS, "peers": {"listen": others[1], "dns": f"localhost:{first}"}},
    )
    with one.client() as here, two.client() as there:
        assert settle(there, queue, "ack", receive(here, queue)[0]).status_code == 200
        assert settle(here, queue, "ack", receive(there, queue)[0]).status_code == 200
        token = receive(here, queue)[0]
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        assert settle(there, queue, "ack", token).status_code == 409
        one.start()
        assert settle(there, queue, "ack", receive(here, queue)[0]).status_code == 200


def test_a_broker_that_needs_no_owner_needs_no_peers(stack: ExitStack, tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path)
    stack.callback(process.close)
    process.start()
    assert not (tmp_path / "peers").exists()
