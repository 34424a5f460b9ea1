"""A running gateway that gets other routes: what stays, and what is not shown any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from babelgate.brokers.binding import Binding, NativeQueue, QueueStats
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.depths import Depths
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import Gauges
from babelgate.gateway.model import Settlement
from babelgate.gateway.queue_list import QueueSelection
from babelgate.gateway.routing import Policy, Route, Router, Rule
from babelgate.gateway.switching import MANY_FORMER, GatewayParts, Switched, log_left, opened, queues_in_use, switch
from babelgate.observe.metrics.catalogue import OPEN_PUSH_CIRCUITS
from babelgate.observe.metrics.recorder import Metrics
from babelgate.schemas.job_schemas import JobSchemas
from tests.brokers.registry import ALL
from tests.harness.broker import Variant
from tests.harness.memory import CAPABLE, MovingMemory
from tests.harness.world import KEYS

DRAFT = b'{"job":"urn:babel:test:made","data":{}}'


def gateway_of(*rules: Rule) -> Gateway:
    bindings = {rule.binding.name: rule.binding for rule in rules}
    return Gateway(bindings, Router(rules), TokenSealer(KEYS))


async def load(gateway: Gateway, *rules: Rule) -> Switched:
    """Serve by other ``rules``, as a reload of the configuration does."""
    bindings: dict[str, Binding] = {rule.binding.name: rule.binding for rule in rules}
    parts = GatewayParts(
        bindings=bindings,
        router=Router(rules),
        required=frozenset(),
        urls={},
        rate_limits=None,
        schemas=JobSchemas(),
    )
    return switch(gateway, parts, await queues_in_use(gateway), {})


@pytest.mark.parametrize("variant", ALL, ids=lambda each: each.name)
def test_the_same_configuration_leads_where_it_did(variant: Variant) -> None:
    binding = variant.binding()

    def route(encrypt: bool = False) -> Route:
        return Rule("q", binding, Policy(encrypt=encrypt), options=dict(variant.queue_options)).route("q")

    assert route().leads_where(route())
    assert route().native == route().native and hash(route().native) == hash(route().native)
    assert route().leads_where(route(encrypt=True)) and route(encrypt=True).leads_where(route())
    other = replace(route(), native=Rule("r", binding, options=dict(variant.queue_options)).route("r").native)
    assert not route().leads_where(other)


async def test_encryption_counts_at_once_and_leaves_the_runtime() -> None:
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(Rule("q", broker))
    await gateway.start()
    try:
        runtime = gateway.queue_runtimes.of(gateway.router.route("q"))
        await load(gateway, Rule("q", broker, Policy(encrypt=True)))
        route = gateway.router.route("q")
        assert gateway.queue_runtimes.of(route) is runtime
        assert (runtime.route.native.encrypted, route.native.encrypted) == (True, True)
    finally:
        await gateway.close()


class Pushed:
    """Pushes of two queues, whose circuits are open."""

    def circuits(self) -> dict[str, str | None]:
        return {"gone": "it is a test", "stays": "it is a test"}


async def test_a_queue_without_a_route_is_not_listed_and_breaks_nothing() -> None:
    broker = MovingMemory("one", CAPABLE)
    kept = Policy(dead_letter_retention_seconds=60)
    gateway = gateway_of(Rule("gone", broker, kept), Rule("stays", broker, kept))
    await gateway.start()
    try:
        for queue in ("gone", "stays"):
            await gateway.publish(ANYONE, queue, DRAFT)
        gateway.overview.pushes = Pushed()
        both = [each.queue for each in (await gateway.queue_list.page(ANYONE, QueueSelection())).queues]
        assert both == ["gone", "stays"]
        await load(gateway, Rule("stays", broker, kept))
        listed, _ = await gateway.overview.queues(ANYONE, 10, None)
        assert [each.queue for each in listed] == ["stays"]
        page = await gateway.queue_list.page(ANYONE, QueueSelection())
        assert ([each.queue for each in page.queues], page.total) == (["stays"], 1)
        sorted_page = await gateway.queue_list.page(ANYONE, QueueSelection(), "depth")
        assert [each.queue for each in sorted_page.queues] == ["stays"]
        assert [route.queue async for route in gateway.overview.retaining_routes()] == ["stays"]
        assert [each.queue for each in (await gateway.rates.overview(ANYONE)).attention if each.queue] == ["stays"]
        gauges = Gauges(gateway, Metrics())
        try:
            series = (await gauges.of_process())[OPEN_PUSH_CIRCUITS.otel]
        finally:
            await gauges.close()
        assert series == {("stays", "one"): 1.0}
    finally:
        await gateway.close()


@pytest.mark.parametrize("match", ["*", "q*"])
async def test_a_lease_of_another_worker_settles_where_it_is_although_its_queue_was_not_used_here(match: str) -> None:
    one, two = MovingMemory("one", CAPABLE), MovingMemory("two", CAPABLE)
    worker, other = gateway_of(Rule(match, one)), gateway_of(Rule(match, one))
    try:
        await worker.publish(ANYONE, "q", DRAFT)
        (message,) = await worker.receive(ANYONE, "q")
        await load(other, Rule(match, one, Policy(lease_seconds=7)))
        assert not other.former, "no broker has changed"
        await load(other, Rule(match, two))
        (result,) = await other.settle(ANYONE, "q", Settlement(acks=[message.ack_token]))
        assert result.error is None
    finally:
        await worker.close()
        await other.close()


async def test_brokers_whose_opening_is_cancelled_are_closed() -> None:
    class Opening(MovingMemory):
        hangs, is_open = False, False
        begun = asyncio.Event()

        async def open(self) -> None:
            self.is_open = True
            if self.hangs:
                self.begun.set()
                await asyncio.Event().wait()

        async def close(self) -> None:
            self.is_open = False

    brokers = [Opening("quick", CAPABLE), Opening("slow", CAPABLE)]
    brokers[1].hangs = True
    opening = asyncio.create_task(opened(brokers))
    await brokers[1].begun.wait()
    assert [each.is_open for each in brokers] == [True, True]
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [each.is_open for each in brokers] == [False, False]


async def test_a_limit_of_the_depth_counts_the_broker_that_the_queue_has_now() -> None:
    class Counting(MovingMemory):
        depth = 0

        async def stats(self, queue: NativeQueue) -> QueueStats:
            return QueueStats(depth=self.depth)

    full, empty = Counting("full", CAPABLE), Counting("empty", CAPABLE)
    full.depth = 5
    depths = Depths()
    try:
        for broker, allows in ((full, False), (empty, True), (full, False)):
            depth = depths.of(Rule("q", broker).route("q"))
            await depth.know()
            assert depth.allows(5) is allows
            assert depths.of(Rule("q", broker).route("q")) is depth
    finally:
        await depths.close()


async def test_a_moved_queue_is_a_route_to_its_new_broker_alone() -> None:
    first, second = MovingMemory("one", CAPABLE), MovingMemory("two", CAPABLE)
    gateway = gateway_of(Rule("q*", first))
    await gateway.start()
    try:
        gateway.queue_runtimes.of(gateway.router.route("q1"))
        await load(gateway, Rule("q*", second), Rule("elsewhere", first))
        assert [route.queue for route in gateway.overview.routes_to("one")] == ["elsewhere"]
        assert [route.queue for route in gateway.overview.routes_to("two")] == ["q1"]
    finally:
        await gateway.close()


async def test_many_connections_that_stay_open_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    said = "many connections that are not in use stay open until a restart"
    gateway = gateway_of(Rule("q", MovingMemory("one", CAPABLE)))
    await gateway.start()
    try:
        for number in range(MANY_FORMER):
            assert said not in caplog.text, number
            last = Rule("q", MovingMemory("one", CAPABLE))
            log_left(gateway, await load(gateway, last))
        assert caplog.text.count(said) == 1
        log_left(gateway, await load(gateway, last))
        assert caplog.text.count(said) == 1, "this load has left none"
    finally:
        await gateway.close()
