"""Warnings: of rules that can never match, and of queues whose broker loses messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from babelgate.brokers.binding import NativeQueue
from babelgate.errors import BrokerUnavailable
from babelgate.gateway import maintenance
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import Gauges
from babelgate.gateway.maintenance import Maintenance
from babelgate.gateway.route_warnings import WEEKEND_SECONDS, kept_seconds, unused
from babelgate.gateway.routing import Policy, Route, Router, Rule
from babelgate.observe.metrics.catalogue import BROKER_WARNINGS
from babelgate.observe.metrics.recorder import Metrics
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.world import KEYS


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["queues.*", "queues.orders.*"], {"queues.orders.*": "queues.*"}),
        (["queues.orders.*", "queues.*"], {}),
        (["queues.orders", "queues.*"], {}),
        (["queues.a.*", "queues.*.b"], {}),
        (["queues.a*", "queues.a.*", "queues.ab*"], {"queues.a.*": "queues.a*", "queues.ab*": "queues.a*"}),
        (["queues.*", "default"], {"default": "queues.*"}),
        (["queues.a*", "default"], {}),
    ],
)
def test_a_rule_behind_one_that_matches_all_its_queues(keys: list[str], found: dict[str, str]) -> None:
    assert [(line.split()[0], line.split()[5]) for line in unused(keys)] == list(found.items())


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (Policy(), WEEKEND_SECONDS),
        (Policy(ttl_seconds=600), 600),
        (Policy(ttl_seconds=10_000_000), 10_000_000),
        (Policy(ttl_seconds=600, lease_seconds=1200), 1200),
        (Policy(ttl_seconds=600, lease_seconds=60, backoff_seconds=(1, 3600, 60)), 3600),
    ],
)
def test_how_long_a_queue_must_keep_a_message(policy: Policy, seconds: float) -> None:
    assert kept_seconds(Rule("q", MemoryBinding("m"), policy).route("q")) == seconds


class Lossy(MemoryBinding):
    """A broker that drops messages of each queue, and counts how often it was asked."""

    down = False
    asked = 0

    async def warnings(self) -> Sequence[str]:
        return []

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        self.asked += 1
        if self.down:
            raise BrokerUnavailable(broker=self.name, reason="gone")
        return [f"{queue.name} keeps messages for less than {kept_seconds:g} s"]


def lossy(*queues: str) -> tuple[Lossy, Gateway]:
    """A gateway with these queues, not started."""
    broker = Lossy("m")
    return broker, Gateway({"m": broker}, Router([Rule(each, broker) for each in queues]), TokenSealer(KEYS))


def sentence(queue: str) -> str:
    return f"{queue} keeps messages for less than {WEEKEND_SECONDS:g} s"


async def test_a_queue_shows_its_warnings_and_its_broker_those_of_all() -> None:
    broker, gateway = lossy("a", "b")
    for _ in range(2):
        assert list((await gateway.overview.queue(ANYONE, "b")).warnings) == [sentence("b")]
    assert broker.asked == 1, "programs that scale consumers read a queue often"
    (info,) = await gateway.overview.brokers(ANYONE)
    assert list(info.warnings) == [sentence("a"), sentence("b")]
    broker.down = True
    assert list((await gateway.overview.queue(ANYONE, "a")).warnings) == []
    await gateway.close()


async def test_the_warnings_of_each_broker_are_counted() -> None:
    _, gateway = lossy("a", "b")
    gauges = Gauges(gateway, Metrics())
    await gateway.start()
    await eventually(lambda: gateway.maintenance.warnings)
    assert (await gauges.of_brokers())[BROKER_WARNINGS.otel] == {("m",): 2.0}
    await gauges.close()
    await gateway.close()


async def test_each_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    broker, gateway = lossy("a", "b")
    watching = Maintenance(no_routes, gateway.clock, nothing, gateway.overview.routes_to, 0.01)
    with caplog.at_level(logging.WARNING, "babelgate.gateway.maintenance"):
        watching.warn(broker)
        await eventually(lambda: broker.asked >= 10)
        await watching.stop()
    assert watching.warnings == {"m": [sentence("a"), sentence("b")]}
    assert [caplog.text.count(sentence(queue)) for queue in ("a", "b")] == [1, 1]
    await gateway.close()


async def test_a_broker_that_is_left_is_asked_no_more_and_once_when_it_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "_FIRST_REOPEN_SECONDS", 0.01)
    broker, gateway = lossy("a")
    watching = Maintenance(no_routes, gateway.clock, nothing, gateway.overview.routes_to)
    watching.warn(broker)
    await eventually(lambda: broker.asked)
    for _ in range(3):
        watching.leave(broker)
        assert watching.warnings == {}
        watching.warn(broker)
        await eventually(lambda: watching.warnings and len(watching._tasks) == 1)
    # A look that is under way tells nothing any more.
    watching.warn(broker)
    await asyncio.sleep(0)
    watching.leave(broker)
    await eventually(lambda: len(watching._tasks) == 0)
    assert watching.warnings == {}
    # It is opened after it was left, and then after it is used again.
    watching.reopen(broker)
    await eventually(lambda: len(watching._tasks) == 0)
    watching.warn(broker)
    watching.reopen(broker)
    await eventually(lambda: len(watching._tasks) == 1 and watching.warnings)
    await watching.stop()
    await gateway.close()


async def no_routes() -> AsyncIterator[Route]:
    routes: Sequence[Route] = ()
    for route in routes:
        yield route


async def nothing() -> None:
    """No idempotency keys are kept."""
