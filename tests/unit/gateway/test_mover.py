"""The mover of parked messages: what it does under a backlog, beside silent brokers, and at its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.parking import parking_queue
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.parking import LOOK_SECONDS, Mover
from babelgate.gateway.routing import Router, Rule
from tests.harness.memory import MemoryBinding, MovingMemory
from tests.harness.parking import CAPPED, Replica, Site
from tests.harness.world import KEYS, draft


@pytest.fixture
def site(tmp_path: Path, queue: str) -> Site:
    return Site(tmp_path, queue)


class HungList(MovingMemory):
    """A parking broker that does not answer when it is to list its queues."""

    lists_foreign = False

    async def queues(self) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def purge(self, queue: NativeQueue) -> int:
        return 0


async def test_a_close_waits_for_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.parking._CLOSE_SECONDS", 3_600)
    place = HungList("place")
    router = Router([], Rule("*", MemoryBinding("capped", CAPPED), parking=place))
    gateway = Gateway({"place": place}, router, TokenSealer(KEYS))
    mover = Mover(router, {"place": place}, gateway.queue_runtimes, gateway.pauses)
    mover.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await mover.close()
    await gateway.close()


class Acting(MemoryBinding):
    """A broker that does something before it takes messages."""

    def __init__(self, site: Site, act: Callable[[], None], **abilities: Any) -> None:
        super().__init__("capped", replace(CAPPED, **abilities), site.clock)
        self.act = act

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        self.act()
        return await super().publish(queue, messages)


async def parked_in_two_chunks(site: Site, replica: Replica) -> None:
    for _ in range(5):
        await replica.publish(draft({"text": "a" * 900_000}), delay_seconds=1_000)
    site.later(1_000)


async def test_each_chunk_is_removed_before_the_next_is_sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    site.capped = Acting(site, lambda: left.append(len(acked)))
    acked: list[str] = []
    async with site.gateway() as replica:
        await parked_in_two_chunks(site, replica)
        ack = replica.local.ack

        async def noted(native: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
            acked.extend(handles)
            return await ack(native, handles)

        monkeypatch.setattr(replica.local, "ack", noted)
        assert await replica.mover.move() == 5
        assert left == [0, 4]


async def test_the_rest_is_given_back_when_half_of_the_lease_is_gone(site: Site) -> None:
    site.capped = Acting(site, lambda: None)
    async with site.gateway() as replica:
        await parked_in_two_chunks(site, replica)
        half = replica.local.timeout_seconds + site.capped.timeout_seconds + 5
        site.capped.act = lambda: site.later(half)
        assert await replica.mover.move() == 4
        stats = await replica.local.stats(parking_queue(replica.local, "capped", site.queue))
        assert (stats.depth, stats.in_flight) == (1, 0)
        assert await replica.mover.move() == 1


async def test_what_was_not_removed_is_not_counted_and_rests(site: Site) -> None:
    site.capped = Acting(site, lambda: None)
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        site.capped.act = lambda: site.later(3_600)
        assert await replica.mover.move() == 0
        assert await replica.mover.move() == 0
        assert len(site.capped.ready(site.queue)) == 1
        site.capped.act = lambda: None
        site.later(60)
        assert await replica.mover.move() == 1


async def test_large_records_are_reserved_by_their_size(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.gateway() as replica:
        limits: list[int] = []
        reserve = replica.local.reserve

        async def noted(native: NativeQueue, limit: int, wait: float, lease: float) -> Sequence[Delivery]:
            limits.append(limit)
            return await reserve(native, limit, wait, lease)

        monkeypatch.setattr(replica.local, "reserve", noted)
        for _ in range(2):
            await parked_in_two_chunks(site, replica)
            assert await replica.mover.move() == 5
        assert limits[0] == 100
        assert limits[-1] <= 16


async def test_a_backlog_of_one_queue_lets_others_have_a_turn(site: Site) -> None:
    site.capped = Acting(site, lambda: None, max_batch=2)
    async with site.gateway() as replica:
        for _ in range(5):
            await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        site.capped.act = lambda: site.later(LOOK_SECONDS)
        assert [await replica.mover.move() for _ in range(4)] == [2, 2, 1, 0]


class Hanging(MemoryBinding):
    """A broker that does not answer for one of its queues."""

    def __init__(self, site: Site) -> None:
        super().__init__("capped", CAPPED, site.clock)
        self.silent = site.queue
        self.hangs = asyncio.Event()
        self.answers = asyncio.Event()

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        if queue.name == self.silent:
            self.hangs.set()
            await self.answers.wait()
        return await super().publish(queue, messages)


async def test_a_silent_broker_holds_up_no_other_queue(site: Site) -> None:
    broker = site.capped = Hanging(site)
    other = f"{site.queue}-other"
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        replica.mover.start()
        try:
            async with asyncio.timeout(60):
                await broker.hangs.wait()
            await replica.gateway.publish(ANYONE, other, draft({"n": 2}), delay_seconds=1_000)
            site.later(1_000)
            (message,) = await replica.gateway.receive(ANYONE, other, wait_seconds=60)
            assert json.loads(message.body)["data"] == {"n": 2}
        finally:
            broker.answers.set()
            await replica.mover.close()


async def test_an_unforeseen_error_of_one_queue_holds_up_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{site.queue}-other"
    async with site.gateway() as replica:
        for queue in (site.queue, other):
            await replica.gateway.publish(ANYONE, queue, draft({}), delay_seconds=1_000)
        site.later(1_000)
        stats = replica.local.stats

        async def failing(native: NativeQueue) -> QueueStats:
            if native.name.endswith(site.queue):
                raise RuntimeError("unforeseen")
            return await stats(native)

        monkeypatch.setattr(replica.local, "stats", failing)
        assert await replica.mover.move() == 1
        monkeypatch.setattr(replica.local, "stats", stats)
        assert await replica.mover.move() == 0, "it waits before it tries again"
        site.later(60)
        assert await replica.mover.move() == 1


async def test_a_close_waits_for_a_reserve(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.parking._CLOSE_SECONDS", 3_600)
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        began, goes_on = asyncio.Event(), asyncio.Event()
        reserve, ended = replica.local.reserve, []

        async def slow(*arguments: Any) -> Sequence[Delivery]:
            began.set()
            await goes_on.wait()
            ended.append(await reserve(*arguments))
            return []

        monkeypatch.setattr(replica.local, "reserve", slow)
        replica.mover.start()
        async with asyncio.timeout(60):
            await began.wait()
            closing = asyncio.create_task(replica.mover.close())
            await asyncio.sleep(0)
            goes_on.set()
            await closing
        assert len(ended) == 1
