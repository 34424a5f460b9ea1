"""One real process with a broker that hangs and many clients: its memory, and its other broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from tests.brokers.redis.harness import redis_server
from tests.harness.gateway import gateway
from tests.harness.local import eventually

MIB = 1 << 20
LARGE = json.dumps({"job": "urn:babel:test:made", "data": {"text": "x" * 1_000_000}}).encode()
SMALL = json.dumps({"job": "urn:babel:test:made", "data": {"n": 1}}).encode()


@pytest.fixture
def broker():
    with redis_server() as server:
        yield server


@pytest.fixture
def process(tmp_path, broker):
    config = {
        "brokers": {"cache": {"url": broker.url(), "timeout_seconds": 30}, "local": f"sqlite:///{tmp_path}/local.db"},
        "queues": {"hangs": {"broker": "cache"}, "large": {"broker": "local"}},
        "default": {"broker": "local"},
        "limits": {"max_publish_bytes_in_flight": 32 * MIB, "max_unread_bytes_in_flight": 32 * MIB},
    }
    with gateway(tmp_path, config) as running:
        yield running


def most_resident(pid: int) -> int:
    """The greatest resident memory the process ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def resident(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


async def test_pushing_at_a_broker_that_hangs_costs_no_memory_and_no_other_broker(process, broker):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=process.url, timeout=120, limits=limits) as client:
        assert (await client.post("/queues/hangs/messages", content=SMALL)).status_code == 201
        before = resident(process.pid)
        broker.pause()
        try:
            pushed = [asyncio.create_task(client.post("/queues/hangs/messages", content=LARGE)) for _ in range(200)]
            # Whoever is refused is told at once; the others wait for the broker.
            await eventually(lambda: sum(task.done() for task in pushed) >= 150)
            elsewhere = await asyncio.gather(*(client.post("/queues/q/messages", content=SMALL) for _ in range(50)))
            # That these are through while those still wait says that they do not wait for them.
            assert not all(task.done() for task in pushed)
            assert {answer.status_code for answer in elsewhere} == {201}
        finally:
            broker.resume()
        answers = await asyncio.gather(*pushed)
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) <= {201, 429, 503, 504}, statuses
        assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
        assert statuses[429] >= 150
        assert most_resident(process.pid) - before < 150 * MIB
        assert (await client.post("/queues/q/messages", content=LARGE)).status_code == 201


async def test_large_messages_leave_in_bounded_answers(process):
    async with httpx.AsyncClient(base_url=process.url, timeout=120) as client:
        for _ in range(120):
            assert (await client.post("/queues/large/messages", content=LARGE)).status_code == 201
        got = 0
        first = await client.post("/queues/large/messages:receive?max_messages=1")
        got += len(first.json()["messages"])
        before = resident(process.pid)
        while got < 120:
            answer = await client.post("/queues/large/messages:receive?max_messages=100")
            if answer.status_code == 503:
                continue
            messages = answer.json()["messages"]
            assert 0 < len(messages) <= 20
            got += len(messages)
        assert most_resident(process.pid) - before < 150 * MIB
