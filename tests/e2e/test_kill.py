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

COUNT = 3_000
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
    victims: list[GatewayProcess], *arguments: str, broker: Broker, queue: str, count: int = COUNT
) -> None:
    """Traffic of ``count`` messages; after a third and two thirds of it a gateway is killed and started again."""
    traffic = Traffic([victim.url for victim in victims], queue, LEASE, broker.spare_seconds)
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run(count))
        for third in (1, 2):
            await traffic.accepted(count * third // 3)
            victim = victims[third % len(victims)]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start, *arguments)
    assert await traffic.left() in NOTHING, "something was left behind"
    # Where the broker counts no attempts, the end of a lease on a busy machine is a copy. A gateway that is killed
    # between the confirm of the copy and the ack of the original leaves the message twice.
    check(traffic.tally, count, twice=set() if broker.capabilities.native_release else traffic.tally.failed)


def check(tally: Tally, count: int, twice: set[int]) -> None:
    """``count``: of the messages. ``twice``: the numbers that may be on the queue twice."""
    assert tally.unanswered["publish"] > 0, "the kill hit nothing"
    assert tally.refused == {}
    assert len(tally.accepted) > count // 2
    assert tally.accepted - tally.delivered.keys() == set(), "accepted and never delivered"
    assert set(tally.resurrected) - twice == set(), "delivered after it was acked"
    assert len(tally.acked) > count // 2


async def test_one_gateway(tmp_path: Path, broker: Broker, queue: str) -> None:
    # Half of the messages: nothing is published while the only gateway starts again, so that both kills hit.
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, broker, 1)
        await kill_in_the_middle(gateways, broker=broker, queue=queue, count=COUNT // 2)


async def test_a_gateway_with_two_workers(tmp_path: Path, broker: Broker, queue: str) -> None:
    workers = ("--workers", "2")
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, broker, 1, *workers)
        await kill_in_the_middle(gateways, *workers, broker=broker, queue=queue)


async def test_two_replicas_that_settle_what_the_other_handed_out(tmp_path: Path, broker: Broker, queue: str) -> None:
    with ExitStack() as stack:
        await kill_in_the_middle(replicas(stack, tmp_path, broker, 2), broker=broker, queue=queue)
