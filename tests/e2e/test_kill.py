"""kill -9 in the middle of everything: what was accepted is delivered, what was acked never comes again.

The clients keep a tally of every single message; it decides, not a sample.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import registry
from tests.harness.broker import Broker
from tests.harness.gateway import ForkedGateway, GatewayProcess
from tests.harness.traffic import NOTHING, Tally, Traffic

pytestmark = pytest.mark.slow

LEASE = 3.0
"""Seconds: what a killed gateway had handed out comes again after so long."""


@pytest.fixture(params=registry.params(registry.ORDINARY))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """A broker that outlives the gateways."""
    return servers.broker(request.param, tmp_path)


def replicas(stack: ExitStack, directory: Path, broker: Broker, count: int, *arguments: str) -> list[GatewayProcess]:
    """Ready gateways on one broker that share their token key."""
    started = []
    for index in range(count):
        home = directory / f"gateway-{index}"
        home.mkdir()
        config: dict[str, Any] = {
            # A write that a busy machine delays is not refused.
            "brokers": {"main": {"url": broker.url, "timeout_seconds": 30}},
            "default": {"lease_seconds": LEASE, **broker.route()},
            "state_dir": str(directory),
        }
        replica = ForkedGateway(home, config)
        stack.callback(replica.close)
        started.append(replica.start(*arguments))
    return started


async def kill_in_the_middle(
    victims: list[GatewayProcess], *arguments: str, queue: str, count: int, spare: float
) -> Tally:
    """Traffic of ``count`` messages; after a third and two thirds of it a gateway is killed and started again."""
    traffic = Traffic([victim.url for victim in victims], queue, LEASE, spare)
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run(count))
        for third in (1, 2):
            await traffic.accepted(count * third // 3)
            victim = victims[third % len(victims)]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start, *arguments)
    assert await traffic.left() in NOTHING, "something was left behind"
    return traffic.tally


def check(tally: Tally, count: int) -> None:
    assert tally.unanswered["publish"] > 0, "the kill hit nothing"
    assert tally.refused == {}
    assert len(tally.accepted) > count // 2
    assert tally.accepted - tally.delivered.keys() == set(), "accepted and never delivered"
    assert tally.resurrected == [], "delivered after it was acked"
    assert len(tally.acked) > count // 2


async def test_one_gateway(tmp_path: Path, broker: Broker, queue: str) -> None:
    count = 3_000
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, broker, 1)
        check(await kill_in_the_middle(gateways, queue=queue, count=count, spare=broker.spare_seconds), count)


async def test_a_gateway_with_two_workers(tmp_path: Path, broker: Broker, queue: str) -> None:
    count, workers = 3_000, ("--workers", "2")
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, broker, 1, *workers)
        check(await kill_in_the_middle(gateways, *workers, queue=queue, count=count, spare=broker.spare_seconds), count)


async def test_two_replicas_that_settle_what_the_other_handed_out(tmp_path: Path, broker: Broker, queue: str) -> None:
    count = 3_000
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, broker, 2)
        check(await kill_in_the_middle(gateways, queue=queue, count=count, spare=broker.spare_seconds), count)
