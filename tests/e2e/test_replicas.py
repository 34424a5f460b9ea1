"""Receive on one replica, settle on another, while they are killed and their broker is restarted: nothing is lost,
nothing comes again after an ack, and nothing is acked by a token that is out of date.

A ledger of what the clients were told decides, about every single message.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.gateway.routing import Policy, Route
from tests.brokers import registry
from tests.harness.broker import Broker
from tests.harness.crowd import Crowd
from tests.harness.gateway import ForkedGateway, GatewayProcess
from tests.harness.ledger import Ledger

pytestmark = pytest.mark.slow

REPLICAS = 3
LEASE = 4.0
"""Seconds. What a killed gateway had handed out comes again after at most so long."""
PATIENCE = 15
"""Seconds that a broker has for an answer."""
BETWEEN = 100
"""Messages that are acked between two blows."""


@pytest.fixture(params=registry.params(variant for variant in registry.ALL if variant.replicas))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """A broker that outlives the gateways."""
    return servers.broker(request.param, tmp_path)


def ledger_of(broker: Broker, queue: str) -> Ledger:
    """A ledger that knows what the broker's leases are bound to."""
    binding = broker.connect()
    native = binding.native_queue(queue, broker.queue_options)
    can = binding.capabilities(native)
    made = Route(queue, binding, native, can, Policy(), queue)
    anywhere = can.ack_scope == "anywhere"
    return Ledger(
        LEASE,
        owned=can.lease_bound_to in ("connection", "partition"),
        copies=anywhere and not made.dead_letters_natively,
        # Any process acks a delivery that belongs to a connection by the id of the message.
        old_receipts=anywhere and can.lease_bound_to == "connection",
        # A lock is acked once.
        acks_repeat="ended_leases" in can.reports and can.lease_bound_to != "lock",
    )


class Scene:
    """Gateways over one broker, with one state directory, their clients, and the ledger of these."""

    def __init__(self, stack: ExitStack, directory: Path, broker: Broker, queue: str) -> None:
        route = {"broker": broker.name, "lease_seconds": LEASE, "max_attempts": 1000, **broker.queue_options}
        # A broker that a busy machine keeps from answering for a few seconds is none that was restarted.
        brokers = {broker.name: {"url": broker.url, "timeout_seconds": PATIENCE}}
        config = {"brokers": brokers, "default": route, "state_dir": str(directory)}
        self.seed = random.randrange(2**32)
        self.broker = broker
        self.gateways = []
        for index in range(REPLICAS):
            home = directory / f"gateway-{index}"
            home.mkdir()
            gateway = ForkedGateway(home, config)
            stack.callback(self.end, gateway)
            self.gateways.append(gateway.start())
        self.ledger = ledger_of(broker, queue)
        urls = [gateway.url for gateway in self.gateways]
        self.crowd = Crowd(urls, queue, self.ledger, LEASE, self.seed, broker.spare_seconds)

    def end(self, gateway: GatewayProcess) -> None:
        """Stop it and print the end of its log, which is shown beside a failure."""
        gateway.close()
        print(gateway.log_text()[-2000:])

    async def kill_and_restart(self, gateway: GatewayProcess) -> None:
        with self.ledger.disturbance():
            await asyncio.to_thread(gateway.kill)
        await asyncio.to_thread(gateway.start)

    async def restart_broker(self) -> None:
        """Stop it in good order and start it on its data, while a gateway dies and finds no broker when it starts.

        An embedded one is restarted with the gateways.
        """
        with self.ledger.disturbance(of_broker=True):
            if self.broker.embedded:
                await asyncio.gather(*(asyncio.to_thread(gateway.stop) for gateway in self.gateways))
                await asyncio.gather(*(asyncio.to_thread(gateway.start) for gateway in self.gateways))
            else:
                await asyncio.gather(self.broker.restart(), self.kill_and_restart(self.gateways[-1]))

    async def play(self) -> None:
        blows = [self.kill_and_restart(gateway) for gateway in self.gateways]
        blows.insert(random.Random(self.seed).randint(1, REPLICAS - 1), self.restart_broker())
        async with asyncio.TaskGroup() as group:
            group.create_task(self.crowd.run())
            for blow in blows:
                await self.crowd.progress(BETWEEN)
                await blow
            await self.crowd.progress(BETWEEN)
            self.crowd.calm()


def left_behind(url: str, queue: str) -> tuple[dict[str, Any], list[int]]:
    """The counts of the queue that are not nothing, and the numbers of its dead letters."""
    with httpx.Client(base_url=url, timeout=120) as client:
        stats = client.get(f"/queues/{queue}").json()["stats"]
        dead: list[int] = []
        page: dict[str, Any] = {"next_cursor": ""}
        while (cursor := page["next_cursor"]) is not None:
            asked = {"limit": 100} | ({"cursor": cursor} if cursor else {})
            page = client.get(f"/queues/{queue}/dead-letters", params=asked).json()
            dead += (letter["record"]["data"]["number"] for letter in page["dead_letters"])
    return {name: stats[name] for name in ("depth", "in_flight", "delayed") if stats[name]}, dead


async def test_nothing_is_lost_and_nothing_is_acked_in_silence(tmp_path: Path, broker: Broker, queue: str) -> None:
    with ExitStack() as stack:
        scene = await asyncio.to_thread(Scene, stack, tmp_path, broker, queue)
        await scene.play()
        counts, dead = await asyncio.to_thread(left_behind, scene.gateways[0].url, queue)
    told = scene.ledger.told
    wrongs = scene.ledger.verdict(dead)
    assert not wrongs, report(scene.ledger, wrongs, scene.seed)
    assert counts == {}, report(scene.ledger, ["something was left behind"], scene.seed)
    untried = {
        "stale ack lost",
        "nack settled",
        "reject settled",
        "extend settled",
        "no answer to :receive",
    } - told.keys()
    assert not untried, report(scene.ledger, [], scene.seed)


def report(ledger: Ledger, wrongs: Sequence[str], seed: int) -> str:
    """What is wrong, beside what the clients were told."""
    counts = f"{len(wrongs)} wrongs; seed {seed}; {dict(sorted(ledger.told.items()))}"
    stories = [f"message {number}: {ledger.story(number)}" for number in list(ledger.wronged)[:5]]
    return "\n".join([*wrongs[:20], counts, *stories])
