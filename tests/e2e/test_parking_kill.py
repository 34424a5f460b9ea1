"""kill -9 of a gateway that parks and moves messages: what was accepted is delivered."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from babelgate.clock import now_ms
from tests.brokers.registry import Servers
from tests.brokers.sqs.harness import STANDARD, SqsBroker
from tests.harness.gateway import ForkedGateway

pytestmark = [pytest.mark.slow, pytest.mark.sqs]

MESSAGES = 400
KILLS = 3
LIMIT_SECONDS = 240
KEYS = 20
DUE_SECONDS = 60
"""Until all are due together, so that all are parked before, and each kill is in the middle of a move."""


def test_what_was_accepted_is_delivered(servers: Servers, tmp_path: Path, queue: str) -> None:
    """A FIFO queue of SQS delays nothing itself, so that each of these messages is parked in the SQLite file."""
    aws = {"url": SqsBroker(servers.server(SqsBroker), STANDARD).url, "timeout_seconds": 5}
    config = {
        "brokers": {"aws": aws, "local": {"url": f"sqlite:///{tmp_path}/parking.db", "timeout_seconds": 5}},
        "default": {"broker": "aws", "parking": "local", "lease_seconds": 10, **STANDARD},
        "state_dir": str(tmp_path),
    }
    path = f"/queues/{queue}.fifo/messages"
    gateway = ForkedGateway(tmp_path, config)
    accepted: set[str] = set()
    delivered: Counter[str] = Counter()
    kills = 0
    try:
        gateway.start()
        deadline = time.monotonic() + LIMIT_SECONDS
        due = now_ms() + DUE_SECONDS * 1000
        with httpx.Client(base_url=gateway.url, timeout=60) as client:
            while len(accepted) < MESSAGES:
                assert time.monotonic() < deadline, f"accepted {len(accepted)}"
                entries = [
                    {
                        "envelope": {"job": "urn:babel:orders:created", "data": {"n": n}},
                        "deliver_at": due,
                        "ordering_key": f"key-{n % KEYS}",
                    }
                    for n in range(len(accepted), min(len(accepted) + 100, MESSAGES))
                ]
                answer = client.post(f"{path}:batch", json=entries)
                accepted |= {each["id"] for each in answer.json()["results"] if each["status"] == 201}
            assert client.get(path.removesuffix("/messages")).json()["stats"]["delayed"] == MESSAGES
        deadline = time.monotonic() + LIMIT_SECONDS
        while accepted - delivered.keys() or kills < KILLS:
            assert time.monotonic() < deadline, f"lost {len(accepted - delivered.keys())} of {len(accepted)}"
            if kills < KILLS and len(delivered) > kills * 60:
                kills += 1
                gateway.kill()
                gateway.start()
            try:
                with httpx.Client(base_url=gateway.url, timeout=60) as client:
                    answer = client.post(f"{path}:receive", json={"max_messages": 10, "wait_seconds": 1})
                    messages = answer.json().get("messages", [])
                    delivered.update(each["envelope"]["meta"]["id"] for each in messages)
                    tokens = [each["ack_token"] for each in messages]
                    if tokens:
                        client.post(f"{path}:ack", content=json.dumps({"ack_tokens": tokens}))
            except httpx.TransportError:
                continue
    finally:
        gateway.close()
    assert delivered.keys() == accepted, "nothing is lost, and nothing else is delivered"
