"""What is asked of brokers for a scrape: everything they can tell, and never more than they can bear."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import ClassVar, cast

from babelgate.brokers.binding import NativeQueue, QueueStats, Reinjects
from babelgate.cluster.scrape import Scraping
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import AT_ONCE, Gauges
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.metrics import catalogue
from babelgate.observe.metrics.catalogue import Metric
from babelgate.observe.metrics.instruments import Snapshot
from babelgate.observe.metrics.recorder import Metrics
from babelgate.observe.tracing.span_recorder import SpanRecorder
from babelgate.observe.tracing.trace import Tracing
from tests.harness.memory import CAPABLE, OWNED, DeadLetterPublishingMemory, MemoryBinding
from tests.harness.world import KEYS, draft

SOON = 0.2
"""How long these tests let a broker think."""


class Listing(MemoryBinding):
    """A broker that lists its queues, one of which no route leads to."""

    lists_foreign = False

    async def queues(self) -> list[str]:
        return ["listed", "not/ours"]


class Scene:
    """A gateway with metrics over ``bindings``; a queue named after a broker is there, all others on the first."""

    def __init__(self, *bindings: MemoryBinding) -> None:
        self.metrics = Metrics()
        rules = [Rule(f"{binding.name}.*", binding) for binding in bindings]
        self.gateway = Gateway(
            {binding.name: binding for binding in bindings},
            Router(rules, Rule("*", bindings[0])),
            TokenSealer(KEYS),
            observe=self.metrics.observe,
        )
        self.gauges = Gauges(self.gateway, self.metrics, SOON)

    async def publish(self, *queues: str) -> None:
        for queue in queues:
            await self.gateway.publish(ANYONE, queue, draft({}))

    async def told(self, metric: Metric) -> dict[tuple[str, ...], object]:
        """One fresh reading."""
        self.gauges._reading = None
        return dict((await self.gauges.of_brokers()).get(metric.otel, {}))


async def test_the_counts_of_the_queues_that_were_seen() -> None:
    binding = MemoryBinding("m")
    scene = Scene(binding)
    await scene.publish("a", "a", "b")
    await scene.gateway.receive(ANYONE, "a")
    snapshot = await scene.gauges.of_brokers()
    assert snapshot[catalogue.QUEUE_DEPTH.otel] == {("a", "m"): 1.0, ("b", "m"): 1.0}
    assert snapshot[catalogue.LEASES_IN_FLIGHT.otel] == {("a", "m"): 1.0, ("b", "m"): 0.0}
    assert snapshot[catalogue.QUEUE_DELAYED.otel] == {}, "what the broker cannot tell is absent, and not 0"
    assert snapshot[catalogue.BROKER_UP.otel] == {("m",): 1.0}


async def test_queues_that_the_broker_lists_are_seen_after_a_start() -> None:
    scene = Scene(Listing("m"))
    await scene.told(catalogue.QUEUE_DEPTH)
    assert await scene.told(catalogue.QUEUE_DEPTH) == {("listed", "m"): 0.0}


async def test_a_list_with_queues_of_other_programs_is_left_alone() -> None:
    binding = Listing("m")
    binding.lists_foreign = True
    scene = Scene(binding)
    await scene.told(catalogue.QUEUE_DEPTH)
    assert await scene.told(catalogue.QUEUE_DEPTH) == {}
    assert binding.calls["stats"] == []


async def test_a_broker_that_is_down_is_told_so_and_its_counts_are_gone() -> None:
    binding, other = MemoryBinding("m"), MemoryBinding("n")
    scene = Scene(binding, other)
    await scene.publish("m.a", "n.a")
    await scene.told(catalogue.QUEUE_DEPTH)
    for verb in ("ping", "stats"):
        binding.faults[verb], binding.errors[verb] = 0, BrokerUnavailable(broker="m", reason="down")
    assert await scene.told(catalogue.QUEUE_DEPTH) == {("n.a", "n"): 1.0}
    assert await scene.told(catalogue.BROKER_UP) == {("m",): 0.0, ("n",): 1.0}
    del binding.faults["ping"]
    assert await scene.told(catalogue.BROKER_UP) == {("m",): 1.0, ("n",): 1.0}


async def test_a_broker_that_hangs_keeps_nobody_waiting() -> None:
    binding, other = MemoryBinding("m"), MemoryBinding("n")
    scene = Scene(binding, other)
    queues = [f"m.{number}" for number in range(3 * AT_ONCE)]
    await scene.publish(*queues, "n.a")
    for verb in ("ping", "stats"):
        binding.gates[verb] = asyncio.Event()
    for _ in range(3):
        snapshot = scene.gauges.of_brokers()
        async with asyncio.timeout(60):
            told = await snapshot
        assert told[catalogue.BROKER_UP.otel] == {("m",): 0.0, ("n",): 1.0}
        assert told[catalogue.QUEUE_DEPTH.otel] == {("n.a", "n"): 1.0}
        scene.gauges._reading = None
    # However often it is scraped: what it does not answer is not asked again.
    assert (len(binding.calls["ping"]), len(binding.calls["stats"])) == (1, AT_ONCE)
    for gate in binding.gates.values():
        gate.set()
    assert await scene.told(catalogue.BROKER_UP) == {("m",): 1.0, ("n",): 1.0}
    assert len(await scene.told(catalogue.QUEUE_DEPTH)) == len(queues) + 1
    await scene.gauges.close()


async def test_what_there_was_no_time_for_is_shown_as_it_was_and_comes_first() -> None:
    class Slow(MemoryBinding):
        seconds = 0.0

        async def stats(self, queue: NativeQueue) -> QueueStats:
            await asyncio.sleep(self.seconds)
            return await super().stats(queue)

    binding = Slow("m")
    scene = Scene(binding)
    queues = [f"q{number}" for number in range(4 * AT_ONCE)]
    await scene.publish(*queues)
    assert len(await scene.told(catalogue.QUEUE_DEPTH)) == len(queues)
    binding.seconds = 0.6 * SOON
    await scene.publish(*queues)
    for _ in range(8):
        counted = await scene.told(catalogue.QUEUE_DEPTH)
        await asyncio.sleep(SOON / 2)
        if set(counted.values()) == {2.0}:
            break
        assert len(counted) == len(queues)
    assert counted == {(queue, "m"): 2.0 for queue in queues}
    await scene.gauges.close()


async def test_many_scrapes_are_one_reading() -> None:
    binding = MemoryBinding("m")
    scene = Scene(binding)
    await scene.publish("a")
    await asyncio.gather(*(scene.gauges.of_brokers() for _ in range(20)))
    await scene.gauges.of_brokers()
    assert (len(binding.calls["ping"]), len(binding.calls["stats"])) == (1, 1)


async def test_a_scrape_that_is_given_up_takes_no_other_with_it() -> None:
    binding = MemoryBinding("m")
    binding.gates["ping"] = asyncio.Event()
    scene = Scene(binding)
    first, second = (asyncio.ensure_future(scene.gauges.of_brokers()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    binding.gates["ping"].set()
    assert (await second)[catalogue.BROKER_UP.otel] == {("m",): 1.0}


class TestHere:
    async def test_leases_that_this_process_keeps(self) -> None:
        binding = DeadLetterPublishingMemory("m", OWNED)
        scene = Scene(binding)
        await scene.publish("a", "a")
        messages = await scene.gateway.receive(ANYONE, "a", max_messages=2)
        assert len(messages) == 2
        assert (await scene.gauges.of_process())[catalogue.LEASES_IN_FLIGHT.otel] == {("a", "m"): 2.0}
        await scene.gateway.give_back("a", messages[:1])
        assert (await scene.gauges.of_process())[catalogue.LEASES_IN_FLIGHT.otel] == {("a", "m"): 1.0}
        await scene.gateway.close()

    async def test_delayed_messages_that_this_process_moved_back(self) -> None:
        """A broker that delays by itself has the number 0, so that a dashboard has a line for each."""

        class Reinjecting(MemoryBinding):
            reinjected = 3

        binding = Reinjecting("m")
        assert isinstance(binding, Reinjects)
        scene = Scene(binding, MemoryBinding("n"))
        for count in (3, 4):
            binding.reinjected = count
            snapshot = await Scraping(scene.metrics, scene.gauges).alone()
            assert snapshot[catalogue.REINJECTED.otel] == {("m",): float(count), ("n",): 0.0}

    async def test_receives_that_wait_and_publishes_under_way(self) -> None:
        binding = MemoryBinding("m")
        scene = Scene(binding)
        waiting = asyncio.ensure_future(scene.gateway.receive(ANYONE, "a", wait_seconds=5))
        await asyncio.sleep(0)
        with scene.gateway.admission.publish("m", 1):
            here = await scene.gauges.of_process()
        assert here[catalogue.RECEIVE_WAITERS.otel] == {("a", "m"): 1.0}
        assert here[catalogue.PUBLISH_INFLIGHT.otel] == {("m",): 1.0}
        await scene.gateway.drain()
        assert await waiting == []
        assert (await scene.gauges.of_process())[catalogue.RECEIVE_WAITERS.otel] == {("a", "m"): 0.0}
        await scene.gateway.close()


async def test_where_the_broker_tells_the_leases_in_flight_its_word_counts() -> None:
    async def in_flight(told: bool) -> Snapshot:
        class Broker(DeadLetterPublishingMemory):
            async def stats(self, queue: NativeQueue) -> QueueStats:
                stats = await super().stats(queue)
                return dataclasses.replace(stats, in_flight=7 if told else None)

        scene = Scene(Broker("m", OWNED))
        await scene.publish("a")
        await scene.gateway.receive(ANYONE, "a")
        snapshot = await Scraping(scene.metrics, scene.gauges).alone()
        await scene.gateway.close()
        return snapshot

    assert (await in_flight(True))[catalogue.LEASES_IN_FLIGHT.otel] == {("a", "m"): 7.0}
    assert (await in_flight(False))[catalogue.LEASES_IN_FLIGHT.otel] == {("a", "m"): 1.0}
    assert CAPABLE.lease_bound_to != OWNED.lease_bound_to


class Losing:
    """A recorder that has lost spans."""

    dropped: ClassVar[Mapping[str, int]] = {"queue_full": 2, "export_failed": 3}


async def test_spans_that_were_dropped() -> None:
    scene = Scene(DeadLetterPublishingMemory("m"))
    zero = {("queue_full",): 0.0, ("export_failed",): 0.0}
    assert (await scene.gauges.of_process())[catalogue.SPANS_DROPPED.otel] == zero
    scene.gateway.tracing = Tracing(cast(SpanRecorder, Losing()))
    found = (await scene.gauges.of_process())[catalogue.SPANS_DROPPED.otel]
    assert found == {("queue_full",): 2.0, ("export_failed",): 3.0}
    await scene.gateway.close()
