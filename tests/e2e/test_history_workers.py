"""The workers of a gateway find what the others did, also after one of them was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.gateway import GatewayProcess, gateway

LIMIT_SECONDS = 120


@pytest.fixture
def running(tmp_path: Path) -> Iterator[GatewayProcess]:
    config = {
        "workers": 2,
        "default": {"broker": "local"},
        "journal": {"landing": str(tmp_path / "landed"), "node": "gw"},
    }
    with gateway(tmp_path, config) as process:
        yield process


def worker_of(answer: httpx.Response) -> str:
    """The part of a request id that is one process's own."""
    return answer.headers["x-request-id"].partition("-")[0]


def by_worker(running: GatewayProcess, call: Callable[[httpx.Client], httpx.Response]) -> dict[str, httpx.Response]:
    """The answer of each worker: a new connection goes to either."""
    answers: dict[str, httpx.Response] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(answers) < 2:
        assert time.monotonic() < deadline
        # A connection may still lie with a worker that was killed.
        with running.client() as client, contextlib.suppress(httpx.TransportError):
            answer = call(client)
            answers.setdefault(worker_of(answer), answer)
    return answers


def test_each_worker_finds_what_all_did(running: GatewayProcess, queue: str) -> None:
    draft = {"job": "j", "data": {}}
    receipts = by_worker(running, lambda client: client.post(f"queues/{queue}/messages", json=draft)).values()
    sought = [receipt.json()["id"] for receipt in receipts]

    def found_by_both(message_id: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            answers = [*by_worker(running, lambda client: client.get(f"messages/{message_id}")).values()]
            # A busy machine may not let the other worker answer in time.
            if all(answer.status_code == 200 and not answer.json()["searched"]["silent"] for answer in answers):
                break
            assert time.monotonic() < deadline, answers[0].text
        for answer in answers:
            body = answer.json()
            assert [event["event"] for event in body["events"]] == ["accepted"], "an event was found twice"
            assert [each["node"] for each in body["searched"]["gateways"]] == ["gw"]

    for message_id in sought:
        found_by_both(message_id)
    # A worker that is killed leaves its part of the journal in the directory, and its socket, where nobody listens.
    os.kill(running.workers()[0], signal.SIGKILL)
    for message_id in sought:
        found_by_both(message_id)
