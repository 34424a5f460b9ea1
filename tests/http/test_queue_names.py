"""A sender of ever new queue names neither stops the gateway nor fills its memory."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import httpx
import psutil
import pytest

from bench.calls import ENVELOPE
from bench.load import Step, drive, request
from tests.brokers import registry
from tests.harness.broker import Variant
from tests.harness.stalls import WatchedGateway

NAMES = 9_000
"""More than the gateway keeps anything for."""
MAX_GROWTH_BYTES = 32 * 1024 * 1024
"""Of the memory that a gateway uses, while it gets NAMES more names. What it kept of each name took 6 KiB."""
MAX_COLLECTION_SECONDS = 0.25
"""On a machine with slow memory. The garbage of NAMES queues took 0.4 s of a fast one."""

SQLITE, REDIS = (registry.HARNESSES[kind][0] for kind in ("sqlite", "redis"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "verb"),
    [
        pytest.param(SQLITE, "", id="publish, sqlite"),
        pytest.param(SQLITE, ":receive", id="receive, sqlite"),
        pytest.param(REDIS, "", id="publish, redis", marks=registry.marks(REDIS)),
    ],
)
def test_ever_new_names_are_forgotten_without_a_pause(
    variant: Variant, verb: str, servers: registry.Servers, tmp_path: Path
) -> None:
    broker = servers.broker(variant, tmp_path)
    config = {"brokers": {"main": {"url": broker.url, "timeout_seconds": 30}}, "default": broker.route()}
    gateway = WatchedGateway(tmp_path, config)
    names = (f"tenant-{number}" for number in itertools.count())

    def step() -> Step:
        def next_request(status: int, body: bytes) -> tuple[bytes, bool]:
            assert status in (0, 200, 201), body
            return request("POST", f"/queues/{next(names)}/messages{verb}", b"" if verb else ENVELOPE), True

        return next_request

    def flood() -> None:
        port = httpx.URL(gateway.url).port
        assert port is not None
        asyncio.run(drive(port, 16, NAMES, lambda _: step()))

    try:
        gateway.start()
        flood()
        before = psutil.Process(gateway.pid).memory_info().rss
        gateway.stall()
        flood()
        stall = gateway.stall()
        assert psutil.Process(gateway.pid).memory_info().rss - before < MAX_GROWTH_BYTES
        # The connections of the senders may leave some.
        assert stall.garbage < NAMES
        assert stall.collection < MAX_COLLECTION_SECONDS
        assert gateway.unforeseen() == []
    finally:
        gateway.close()
