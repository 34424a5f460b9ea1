"""The figures of the last hour as the gateway gives them: rights, order, several processes, what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from babelgate.brokers.binding import NativeQueue, QueueStats
from babelgate.clock import Clock
from babelgate.errors import BrokerUnavailable, Forbidden, QueueNotFound, StorageFull
from babelgate.gateway import attention
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Nack, Settlement
from babelgate.gateway.rates import Processes, RatesOverview, RatesQuery
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.events import Call, Event, fan_out
from babelgate.observe.rates import MINUTE_MS, RateCounters, RatesReport
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MemoryBinding
from tests.harness.world import KEYS, ORDINARY

START = 1_790_000_040_000
DRAFT = b'{"job":"urn:babel:test:made","data":{}}'


class Broker(MemoryBinding):
    """A broker in memory that says of a queue what it was told to say."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, CAPABLE, clock)
        self.says: dict[str, QueueStats] = {}
        self.asked: list[str] = []
        self.hangs = False

    async def stats(self, queue: NativeQueue) -> QueueStats:
        self.asked.append(queue.name)
        if self.hangs:
            await asyncio.Event().wait()
        return self.says.get(queue.name, QueueStats(depth=0, dead=9))


class Others:
    """The reports of other processes, and what they were asked."""

    def __init__(self, reports: Sequence[RatesReport], silent: int) -> None:
        self.reports = reports
        self.silent = silent
        self.queries: list[RatesQuery] = []

    async def rates(self, query: RatesQuery) -> tuple[Sequence[RatesReport], int]:
        self.queries.append(query)
        return self.reports, self.silent


class Host:
    """A gateway over the brokers ``one`` and ``two``, whose queues are ``one.*`` and ``two.*``, and its clock."""

    def __init__(self) -> None:
        self.now = START
        self.one, self.two = Broker("one", self.clock), Broker("two", self.clock)
        self.counters = RateCounters(self.clock)
        self.gateway = Gateway(
            {"one": self.one, "two": self.two},
            Router([Rule("one.set", self.one, ORDINARY), *(Rule(f"{b.name}.*", b, ORDINARY) for b in self.brokers)]),
            TokenSealer(KEYS),
            clock=self.clock,
            observe=fan_out([self.counters.observe]),
            counters=self.counters,
        )

    def clock(self) -> int:
        return self.now

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        return self.one, self.two

    def count(self, queue: str, kind: str = "accepted", count: int = 1) -> None:
        self.counters.observe(Event(kind, queue, queue[:3], count))  # type: ignore[arg-type]

    async def overview(self, caller: Caller = ANYONE, limit: int = 20) -> RatesOverview:
        return await self.gateway.rates.overview(caller, limit)

    async def kinds(self, caller: Caller = ANYONE) -> list[tuple[str, str | None]]:
        return [(each.kind, each.queue or each.broker) for each in (await self.overview(caller)).attention]


@pytest.fixture
def host() -> Host:
    return Host()


def caller(*queues: str, right: Right = Right.LISTEN) -> Caller:
    return Caller("c", {queue: frozenset({right}) for queue in queues})


async def test_what_happens_on_a_queue_is_in_its_figures(host: Host) -> None:
    await host.gateway.start()
    host.now += 40_000
    for _ in range(3):
        await host.gateway.publish(ANYONE, "one.q", DRAFT)
    messages = await host.gateway.receive(ANYONE, "one.q", max_messages=3)
    host.now += 30_000
    tokens = [message.ack_token for message in messages]
    settled = await host.gateway.settle(ANYONE, "one.q", Settlement(acks=tokens[:2], nacks=[Nack(tokens[2:])]))
    assert [result.error for result in settled] == [None] * 3
    found = await host.gateway.rates.queue(ANYONE, "one.q")
    assert (found.queue, found.broker, found.complete_since) == ("one.q", "one", START)
    assert found.processes == Processes(1, 0)
    assert [(m.at, m.published, m.delivered, m.acked, m.nacked) for m in found.minutes] == [
        (START, 3, 3, 0, 0),
        (START + MINUTE_MS, 0, 0, 2, 1),
    ]
    assert (found.hour.published, found.hour.acked, found.hour.nacked) == (3, 2, 1)
    assert found.hour.publish_p50_seconds is not None and found.minutes[1].publish_p50_seconds is None
    assert found.hour.delivery_p99_seconds is not None
    await host.gateway.close()


async def test_there_are_at_most_sixty_minutes(host: Host) -> None:
    host.count("one.q")
    host.now += 90 * MINUTE_MS
    host.count("one.q", count=5)
    found = await host.gateway.rates.queue(ANYONE, "one.q")
    assert len(found.minutes) == 60
    assert (found.minutes[-1].at, found.minutes[-1].published) == (host.now, 5)
    assert found.hour.published == 5


async def test_a_queue_needs_a_right_and_a_route(host: Host) -> None:
    for right in Right:
        await host.gateway.rates.queue(caller("one.q", right=right), "one.q")
    with pytest.raises(Forbidden):
        await host.gateway.rates.queue(caller("one.q"), "one.other")
    with pytest.raises(QueueNotFound):
        await host.gateway.rates.queue(ANYONE, "three.q")


async def test_the_overview_is_of_the_queues_of_the_caller(host: Host) -> None:
    for queue, count in (("one.a", 1), ("one.b", 10), ("two.a", 100)):
        host.count(queue, count=count)
        host.count(queue, "dead_lettered")
    for seer, queues, published in (
        (ANYONE, ["two.a", "one.b", "one.a"], 111),
        (caller("one.*"), ["one.b", "one.a"], 11),
        (caller("one.a", "two.a"), ["two.a", "one.a"], 101),
        (caller(), [], 0),
    ):
        found = await host.overview(seer)
        assert [each.queue for each in found.queues] == queues
        assert found.hour.published == sum(each.hour.published for each in found.queues) == published
        assert found.minutes[0].published == published
        assert sorted(each.queue or "" for each in found.attention) == sorted(queues)


async def test_the_busiest_now_come_first(host: Host) -> None:
    host.count("one.then", count=1_000)
    host.now += 10 * MINUTE_MS
    host.count("one.now", count=30)
    host.count("one.more", count=59)
    host.count("one.more", "acked", count=6)
    host.now += 30_000
    every = await host.overview(limit=3)
    assert (every.published_per_second, every.delivered_per_second, every.acked_per_second) == (1.483, 0, 0.1)
    host.now += 30_000 + 15_000
    assert (await host.overview()).published_per_second == round(89 * 0.75 / 60, 3)
    host.now -= 45_000
    found = every.queues
    assert [(each.queue, each.published_per_second, each.acked_per_second) for each in found] == [
        ("one.more", 0.983, 0.1),
        ("one.now", 0.5, 0),
        ("one.then", 0, 0),
    ]
    assert [each.queue for each in (await host.overview(limit=2)).queues] == ["one.more", "one.now"]


async def test_the_figures_of_several_processes_are_added(host: Host) -> None:
    other = Host()
    for each, count in ((host, 1), (other, 10)):
        each.count("one.both", count=count)
    host.now += 5 * MINUTE_MS
    late = Host()
    late.counters = RateCounters(lambda: host.now)
    late.now = host.now
    late.count("one.late", count=50)
    queries = (RatesQuery("one.both"), RatesQuery(None, ("one.*",)))
    reports = {query: [await each.gateway.rates.report(query) for each in (other, late)] for query in queries}
    reports[queries[1]][1] = late.counters.nothing()
    for _ in late.counters.adding(late.counters.queues(), reports[queries[1]][1]):
        pass
    host.gateway.rates.siblings = siblings = Others(reports[queries[0]], 1)
    one = await host.gateway.rates.queue(ANYONE, "one.both")
    assert (one.hour.published, one.minutes[0].published, one.processes) == (11, 11, Processes(3, 1))
    siblings.reports = reports[queries[1]]
    every = await host.overview(caller("one.*"))
    assert [(each.queue, each.hour.published) for each in every.queues] == [("one.late", 50), ("one.both", 11)]
    assert (every.minutes[0].published, every.minutes[-1].published, every.hour.published) == (11, 50, 61)
    assert every.complete_since == host.now, "the last of them has counted since now"
    assert siblings.queries == [*queries]


async def test_a_flow_has_the_minutes_of_the_hour_of_all_processes(host: Host) -> None:
    other = Host()
    for each in (host, other):
        each.count("one.q", count=6)
        each.now += MINUTE_MS
        each.count("one.q", count=2)
        each.count("one.q", "acked", 3)
        each.now += 15_000
    host.gateway.rates.siblings = Others([await other.gateway.rates.report(RatesQuery(flows=("one.q", "one.none")))], 0)
    found = await host.gateway.rates.flows(ANYONE, ["one.q", "one.none"])
    assert [*found] == ["one.q", "one.none"]
    assert found["one.q"].published == [0] * 58 + [12, 4] and found["one.q"].acked == [0] * 59 + [6]
    assert found["one.q"].published_per_second == (4 + 0.75 * 12) / 60
    assert found["one.none"].published == [0] * 60
    host.now += 60 * MINUTE_MS
    assert sum((await host.gateway.rates.flows(ANYONE, ["one.q"]))["one.q"].published) == 0
    with pytest.raises(Forbidden):
        await host.gateway.rates.flows(caller("two.*"), ["one.q"])
    assert await host.gateway.rates.flows(ANYONE, []) == {}


async def test_a_report_is_bounded_and_keeps_what_fails(host: Host) -> None:
    for number in range(3_000):
        host.count(f"one.{number}", count=2)
    host.count("one.failing", "dead_lettered")
    report = await host.gateway.rates.report(RatesQuery(None, ("*",)))
    assert len(report.queues) == 1_001
    assert report.queues[-1].queue == "one.failing"
    assert sum(lanes[0] for lanes in report.minutes.values()) == 6_000
    [concern] = (await host.overview(limit=1)).attention
    assert concern.queue == "one.failing"


async def test_new_dead_letters_that_are_still_there_need_attention(host: Host) -> None:
    for queue, new, redriven, there in (("some", 3, 1, 9), ("many", 5, 0, 40), ("back", 2, 2, 7), ("purged", 4, 0, 0)):
        host.count(f"one.{queue}", "dead_lettered", new)
        host.count(f"one.{queue}", "redriven", redriven)
        host.one.says[f"one.{queue}"] = QueueStats(dead=there)
    found = (await host.overview()).attention
    assert [(each.kind, each.queue, each.count) for each in found] == [
        ("dead_letters", "one.many", 5),
        ("dead_letters", "one.some", 2),
    ]
    assert found[0].detail == "New dead letters of the queue 'one.many' within the last hour: 5. All of them: 40."


async def test_old_and_foreign_messages_and_errors_need_attention(host: Host) -> None:
    host.one.says |= {
        "one.set": QueueStats(depth=1, oldest_age_seconds=attention.OLD_SECONDS + 1),
        "one.young": QueueStats(depth=1, oldest_age_seconds=attention.OLD_SECONDS - 1),
        "one.shared": QueueStats(foreign=4),
    }
    for queue in ("one.young", "one.shared"):
        host.count(queue)
    host.counters.observe(Call("send", "two.q", "two", 1, 1.0, "broker_unavailable"))
    assert await host.kinds() == [
        ("old_messages", "one.set"),
        ("broker_errors", "two.q"),
        ("foreign_messages", "one.shared"),
    ]


async def test_a_lost_broker_comes_first_and_only_for_those_who_may_manage_its_queues(host: Host) -> None:
    host.count("one.q", "dead_lettered")
    host.two.faults["ping"] = 0
    host.gateway.outages.lost("two", BrokerUnavailable("two", "refused"))
    host.gateway.outages.refused(StorageFull("one", "no space"))
    host.gateway.maintenance.warnings["one"] = ["Its messages are in memory only."]
    await eventually(lambda: host.gateway.outages.circuits["two"].is_open)
    everything = [
        ("storage_refused", "one"),
        ("circuit_open", "two"),
        ("dead_letters", "one.q"),
        ("broker_warning", "one"),
    ]
    assert await host.kinds() == everything
    assert [(each.broker, each.circuit) for each in (await host.overview()).brokers] == [
        ("one", "closed"),
        ("two", "open"),
    ]
    assert await host.kinds(caller("*")) == [("dead_letters", "one.q")]
    two = caller("two.*", right=Right.MANAGE)
    assert await host.kinds(two) == [("circuit_open", "two")]
    assert [each.broker for each in (await host.overview(two)).brokers] == ["two"]
    await host.gateway.close()


async def test_a_lost_broker_is_not_asked_for_counts_and_known_ones_are_used_again(host: Host) -> None:
    host.count("one.q")
    host.count("two.q")
    host.gateway.outages.circuits["two"].is_open = True
    for _ in range(3):
        found = await host.overview()
    assert {each.queue: each.stats.depth for each in found.queues} == {"one.q": 0, "two.q": None}
    assert (sorted(host.one.asked), host.two.asked) == (["one.q", "one.set"], [])


async def test_a_broker_that_hangs_delays_the_overview_by_seconds_only(host: Host) -> None:
    host.one.hangs = True
    host.count("one.q")
    host.count("two.q")
    async with asyncio.timeout(60):
        found = await host.overview()
    assert {each.queue: each.stats.depth for each in found.queues} == {"one.q": None, "two.q": 0}
