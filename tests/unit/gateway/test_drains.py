"""Former queues are drained by the queue that left them last, and by none while another queue has them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing, QueueStats
from babelgate.gateway import draining
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.draining import _Circle
from babelgate.gateway.former_file import FormerRoute, restore
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.gateway.switching import GatewayParts, queues_in_use, switch
from babelgate.schemas.job_schemas import JobSchemas
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MemoryBinding
from tests.harness.world import KEYS, draft

HERE, THERE = "redis://here", "redis://there"


def again(other: MemoryBinding) -> MemoryBinding:
    """Another connection to the server of ``other``."""
    made = type(other)(other.name, other._capabilities)
    made._queues, made._handles = other._queues, other._handles
    return made


class Site:
    """A gateway with the queue ``a`` on the native queue ``q1``."""

    def __init__(self, one: MemoryBinding | None = None) -> None:
        self.one = one or MemoryBinding("one", CAPABLE)
        self.gateway = Gateway({"one": self.one}, Router([self.rule("a", "q1")]), TokenSealer(KEYS))

    def rule(self, queue: str, native_name: str, binding: MemoryBinding | None = None, address: str = HERE) -> Rule:
        return Rule(queue, binding or self.one, native_name=native_name, address=address)

    async def load(self, *rules: Rule) -> None:
        parts = GatewayParts(
            bindings={rule.binding.name: rule.binding for rule in rules},
            router=Router(rules),
            required=frozenset(),
            urls={},
            rate_limits=None,
            schemas=JobSchemas({}),
        )
        switch(self.gateway, parts, await queues_in_use(self.gateway), {})

    async def publish(self, queue: str, count: int = 1) -> None:
        for number in range(count):
            await self.gateway.publish(ANYONE, queue, draft({"number": number}))

    def taking(self) -> Sequence[str]:
        """The queues that take what is in ``q1`` of the first server."""
        drains, router = self.gateway.former.drains, self.gateway.router
        formers = [self.rule(queue, "q1").route(queue) for queue in ("a", "b")]
        return [each.queue for each in formers if drains._elsewhere(each, router) is not None]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.gateway.start()
    yield site
    await site.gateway.close()


async def test_a_native_queue_of_another_queue_is_left_alone_over_each_connection(site: Site) -> None:
    await site.publish("a")
    await site.load(site.rule("a", "q2"))
    await eventually(lambda: len(site.one.ready("q2")) == 1)
    assert site.taking() == ["a"]
    await site.load(site.rule("a", "q2"), site.rule("b", "q1"))
    assert site.taking() == []
    # Another password.
    new = again(site.one)
    await site.load(site.rule("a", "q2", new), site.rule("b", "q1", new))
    assert site.taking() == []


async def test_the_queue_that_left_a_native_queue_last_has_what_is_left(site: Site) -> None:
    await site.load(site.rule("a", "q2"))
    await site.load(site.rule("a", "q2"), site.rule("b", "q1"))
    await site.publish("b", 3)
    there = MemoryBinding("one", CAPABLE)
    moved = [site.rule("a", "q2", there, THERE), site.rule("b", "q1", there, THERE)]
    await site.load(*moved)
    assert site.taking() == ["b"]
    await eventually(lambda: len(there.ready("q1")) == 3)
    await site.load(*moved)
    assert site.taking() == ["b"]
    # It was the queue ``a`` again.
    await site.load(site.rule("a", "q1"), site.rule("b", "q1", there, THERE))
    await site.load(*moved)
    assert site.taking() == ["a"]


async def test_the_same_queue_has_it_after_a_restart(site: Site) -> None:
    await site.load(site.rule("a", "q2"), site.rule("b", "q3"))
    site.gateway.former.drains._owners.clear()
    routes = [FormerRoute(queue, "one", "q1", {}, moved_at) for queue, moved_at in (("b", 5), ("a", 2))]
    restore(site.gateway, routes, 6, {"one": HERE})
    assert site.taking() == ["b"]


class Telling(MemoryBinding):
    """It says ``told`` of its queues."""

    told = QueueStats()

    async def stats(self, queue: NativeQueue) -> QueueStats:
        return self.told


@pytest.mark.parametrize("told", [QueueStats(), QueueStats(depth=250, delayed=1_000_000)], ids=["no depth", "delayed"])
async def test_a_drain_into_itself_is_noticed_by_what_can_be_moved(
    told: QueueStats, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each look moves one batch of several."""
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Telling, "told", told)
    site = Site(Telling("one", CAPABLE))
    ticks = itertools.count()
    monkeypatch.setattr(site.gateway.former.drains, "_clock", lambda: 0.006 * next(ticks))
    await site.gateway.start()
    try:
        await site.publish("a", 250)
        await site.load(site.rule("a", "q1", again(site.one), THERE))
        await eventually(lambda: "queue not drained: it leads back to itself" in caplog.text)
        assert len(site.one.ready("q1")) == 250
    finally:
        await site.gateway.close()


@pytest.mark.parametrize("ready", [None, 20_000])
def test_a_circle_of_more_messages_than_are_traced_at_first(ready: int | None) -> None:
    circle, rounds = _Circle(), 0
    bodies = [Outgoing(b"%d" % number) for number in range(20_000)]
    closed = False
    while not closed and rounds < 20:
        rounds += 1
        for number in range(0, len(bodies), 100):
            circle.begin(ready)
            batch = bodies[number : number + 100]
            closed = closed or circle.closes([Delivery(each.body, "1", 0) for each in batch])
            for message in batch:
                circle.moved(message)
    assert closed
    assert rounds == 3 if ready else rounds <= 12
