"""Gateways that hang or are killed, as processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers.kafka.harness import STANDARD, read
from tests.brokers.kafka.server import KafkaServer
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import suspend
from tests.harness.world import JOB, LIMIT_SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Pair = tuple[GatewayProcess, httpx.Client, httpx.Client]


def config(server: KafkaServer) -> dict[str, Any]:
    broker = {"url": server.url(), "timeout_seconds": 30}
    return {"brokers": {"main": broker}, "default": {"broker": "main", "lease_seconds": 600, **STANDARD}}


@pytest.fixture
def pair(server: KafkaServer, tmp_path: Path) -> Iterator[Pair]:
    """Two gateways: the first, its client, and the client of the second."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with (
        gateway(tmp_path / "one", config(server)) as one,
        gateway(tmp_path / "other", config(server)) as other,
        one.client() as here,
        other.client() as there,
    ):
        yield one, here, there


def publish(client: httpx.Client, queue: str, count: int) -> None:
    for start in range(0, count, 500):
        drafts = [{"job": JOB, "data": {"n": number}} for number in range(start, min(start + 500, count))]
        assert client.post(f"/queues/{queue}/messages:batch", json=drafts).status_code == 201


def receive(client: httpx.Client, queue: str, count: int) -> list[Any]:
    """So many messages; 503 is: not yet."""
    found: list[Any] = []
    limit = time.monotonic() + LIMIT_SECONDS
    while len(found) < count and time.monotonic() < limit:
        query = {"max_messages": min(count - len(found), 100), "wait_seconds": 5}
        answer = client.post(f"/queues/{queue}/messages:receive", params=query)
        assert answer.status_code in (200, 503), answer.text
        found += answer.json().get("messages", ())
    return found


def ack(client: httpx.Client, queue: str, messages: list[Any]) -> httpx.Response:
    return client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [each["ack_token"] for each in messages]})


def numbers(messages: list[Any]) -> list[int]:
    return [each["envelope"]["data"]["n"] for each in messages]


def test_a_process_that_hangs_is_fenced(pair: Pair, queue: str) -> None:
    """Another one gets its messages; what it acks afterwards is lost, and the acks of the other stay."""
    one, here, there = pair
    publish(here, queue, 3)
    held = receive(here, queue, 3)
    assert ack(here, queue, held[2:]).status_code == 200
    (worker,) = one.workers()
    suspend(worker)
    try:
        found = receive(there, queue, 2)
        assert numbers(found) == numbers(held[:2])
        assert ack(there, queue, found[1:]).status_code == 200
    finally:
        os.kill(worker, signal.SIGCONT)
    for each in held[:2]:
        answer = ack(here, queue, [each])
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
    assert ack(there, queue, found[:1]).status_code == 200
    assert there.get(f"/queues/{queue}").json()["stats"]["depth"] == 0


def test_a_process_that_hung_beyond_its_leases_writes_nothing_that_others_have(
    pair: Pair, server: KafkaServer, queue: str
) -> None:
    """Neither copies of leases that have ended meanwhile, nor those of its clients' late nacks and rejects."""
    one, here, there = pair
    publish(here, queue, 9)
    held = receive(here, queue, 9)
    tokens = [each["ack_token"] for each in held]
    extended = here.post(f"/queues/{queue}/messages:extend", json={"ack_tokens": tokens[:3], "lease_seconds": 3})
    assert extended.status_code == 200
    (worker,) = one.workers()
    suspend(worker)
    try:
        found = receive(there, queue, 9)
        assert numbers(found) == numbers(held)
        assert ack(there, queue, found).status_code == 200
    finally:
        os.kill(worker, signal.SIGCONT)
    late = {"nacks": [{"ack_tokens": tokens[3:6], "delay_seconds": 0}], "rejects": [{"ack_tokens": tokens[6:]}]}
    answer = here.post(f"/queues/{queue}/messages:settle", json=late)
    assert {each["code"] for each in answer.json()["results"]} == {"lease_lost"}
    # It has gone on, and ends leases.
    publish(here, queue, 1)
    (last,) = receive(here, queue, 1) or receive(there, queue, 1)
    assert ack(here, queue, [last]).status_code == 200
    written = [each for topic in (queue, f"{queue}.dlq") for each in read(server.port, topic)]
    assert len(written) == 10


def test_what_is_acked_behind_a_held_message_stays_acked_after_a_kill(
    server: KafkaServer, queue: str, tmp_path: Path
) -> None:
    """One consumer holds the first of 10,001 messages. Only it and what was not acked come again."""
    with gateway(tmp_path, config(server)) as process:
        with process.client() as client:
            publish(client, queue, 10_001)
            (first,) = receive(client, queue, 1)
            left = []
            for number in range(100):
                messages = receive(client, queue, 100)
                assert len(messages) == 100
                kept = 1 if number % 10 == 9 else 0
                left += messages[:kept]
                assert ack(client, queue, messages[kept:]).status_code == 200
        process.kill()
        process.start()
        with process.client() as client:
            again = receive(client, queue, 11)
            assert numbers(again) == numbers([first, *left])
            assert ack(client, queue, again).status_code == 200
            assert client.get(f"/queues/{queue}").json()["stats"]["depth"] == 0
            assert client.post(f"/queues/{queue}/messages:receive").json()["messages"] == []
