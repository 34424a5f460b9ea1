"""The list of queues for people: selection, order, groups, pages, rights, and brokers that are slow."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.binding import NativeQueue, QueueStats
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.queue_list import MAX_COUNTED, PAGE_ROWS, QueueSelection
from babelgate.gateway.routing import Router, Rule
from tests.harness.memory import CAPABLE, MemoryBinding
from tests.harness.world import KEYS, ORDINARY

ALL = QueueSelection()
DRAFT = b'{"job":"urn:babel:test:made","data":{}}'


class Listing(MemoryBinding):
    """A broker that lists the queues in ``says``, and counts how often it was asked."""

    lists_foreign = False

    def __init__(self, name: str, says: dict[str, QueueStats]) -> None:
        super().__init__(name, CAPABLE)
        self.says = says
        self.counted: list[str] = []
        self.listings = 0
        self.hangs = False
        self.meets: asyncio.Barrier | None = None

    async def queues(self) -> list[str]:
        self.listings += 1
        if self.meets is not None:
            await self.meets.wait()
        if self.hangs:
            await asyncio.Event().wait()
        return list(self.says)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        self.counted.append(queue.name)
        found = self.says.get(queue.name)
        if found is None:
            raise BrokerUnavailable(self.name, "it is a test")
        return found


def listed(*brokers: Listing) -> Gateway:
    """A gateway over ``brokers``: the queues of each begin with its name."""
    rules = [Rule(f"{each.name}.*", each, ORDINARY) for each in brokers]
    return Gateway({each.name: each for each in brokers}, Router(rules), TokenSealer(KEYS))


@pytest.fixture
def one():
    counts = {"one.b": 3, "one.a": 1, "one.C": 2, "one.none": None}
    return Listing("one", {name: QueueStats(depth=count, dead=4) for name, count in counts.items()})


@pytest.fixture
def two():
    return Listing("two", {"two.a": QueueStats(depth=9, oldest_age_seconds=5.0)})


async def names(gateway, caller=ANYONE, selection=ALL, *args, **options):
    page = await gateway.queue_list.page(caller, selection, *args, **options)
    return [each.queue for each in page.queues]


async def test_queues_are_sorted_by_name_and_by_their_counts(one, two):
    gateway = listed(one, two)
    assert await names(gateway) == ["one.C", "one.a", "one.b", "one.none", "two.a"]
    assert await names(gateway, descending=True) == ["two.a", "one.none", "one.b", "one.a", "one.C"]
    assert await names(gateway, ANYONE, ALL, "depth") == ["one.a", "one.C", "one.b", "two.a", "one.none"]
    assert await names(gateway, ANYONE, ALL, "depth", descending=True) == [
        "two.a",
        "one.b",
        "one.C",
        "one.a",
        "one.none",
    ]
    assert (await names(gateway, ANYONE, ALL, "oldest_age_seconds"))[0] == "two.a"


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (QueueSelection(text="C"), ["one.C"]),
        (QueueSelection(text="E.A"), ["one.a"]),
        (QueueSelection(text="*.A"), ["one.a", "two.a"]),
        (QueueSelection(text="*."), []),
        (QueueSelection(broker="two"), ["two.a"]),
        (QueueSelection(route="two.*"), ["two.a"]),
        (QueueSelection(text="a", broker="one", route="one.*"), ["one.a"]),
        (QueueSelection(broker="<b>"), []),
    ],
    ids=str,
)
async def test_queues_are_selected(one, two, selection, found):
    assert await names(listed(one, two), ANYONE, selection) == found


@pytest.mark.parametrize("right", Right)
async def test_a_caller_sees_the_queues_of_its_rights(one, two, right):
    gateway = listed(one, two)
    caller = Caller("c", {"*.a": frozenset({right})})
    assert await names(gateway, caller) == ["one.a", "two.a"]
    groups = await gateway.queue_list.groups(caller, ALL, "broker")
    assert [(each.name, each.queues) for each in groups] == [("one", 1), ("two", 1)]
    assert await names(gateway, Caller("d", {})) == []


async def test_groups_have_the_sums_of_their_queues(one, two):
    gateway = listed(one, two)
    first, second = await gateway.queue_list.groups(ANYONE, ALL, "route")
    assert (first.name, first.queues, first.stats) == ("one.*", 4, QueueStats(depth=6, dead=16))
    assert (second.name, second.stats) == ("two.*", QueueStats(depth=9, oldest_age_seconds=5.0))


async def test_many_queues_are_paged_and_only_those_shown_are_counted():
    many = Listing("many", {f"many.{number:05}": QueueStats(depth=number) for number in range(MAX_COUNTED + 1)})
    gateway = listed(many)
    page = await gateway.queue_list.page(ANYONE, ALL, number=2)
    assert [each.queue for each in page.queues] == [f"many.{number:05}" for number in range(PAGE_ROWS, 2 * PAGE_ROWS)]
    assert (page.total, page.is_ordered, len(many.counted)) == (MAX_COUNTED + 1, True, PAGE_ROWS)
    page = await gateway.queue_list.page(ANYONE, ALL, "depth", descending=True)
    assert (page.is_ordered, page.queues[0].queue) == (False, "many.00000")
    (group,) = await gateway.queue_list.groups(ANYONE, ALL, "route")
    assert (group.queues, group.stats) == (MAX_COUNTED + 1, QueueStats())
    assert len(many.counted) == 2 * PAGE_ROWS
    page = await gateway.queue_list.page(ANYONE, ALL, number=100)
    assert (page.queues, page.total) == ([], MAX_COUNTED + 1)
    page = await gateway.queue_list.page(ANYONE, QueueSelection(text="many.000"), "depth", descending=True)
    assert (page.is_ordered, page.queues[0].queue) == (True, "many.00099")


async def test_many_pages_ask_a_broker_once(one):
    gateway = listed(one)
    pages = await asyncio.gather(*(gateway.queue_list.page(ANYONE, ALL) for _ in range(20)))
    assert all(len(page.queues) == 4 for page in pages)
    assert one.listings == 1


async def test_a_queue_without_counts_and_one_that_was_used_are_listed(one):
    gateway = listed(one)
    assert "one.new" not in await names(gateway)
    await gateway.publish(ANYONE, "one.new", DRAFT)
    page = await gateway.queue_list.page(ANYONE, ALL)
    (new,) = [each for each in page.queues if each.queue == "one.new"]
    assert (new.broker, new.stats) == ("one", QueueStats())
    await gateway.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the last", "the first"])
async def test_a_broker_that_does_not_list_its_queues_hides_none_of_the_others(one, two, order):
    two.hangs = True
    gateway = listed(*((one, two)[each] for each in order))
    await gateway.publish(ANYONE, "two.used", DRAFT)
    for _ in range(2):
        page = await gateway.queue_list.page(ANYONE, ALL)
        assert [each.queue for each in page.queues] == ["one.C", "one.a", "one.b", "one.none", "two.used"]
        assert not page.is_complete
    assert two.listings == 1
    await gateway.close()


async def test_all_brokers_list_their_queues_at_the_same_time(one, two):
    one.meets = two.meets = asyncio.Barrier(2)
    gateway = listed(one, two)
    page = await gateway.queue_list.page(ANYONE, ALL)
    assert (page.total, page.is_complete) == (5, True)
    await gateway.close()


async def test_a_flow_has_the_minutes_of_the_queue(one):
    gateway = listed(one)
    page = await gateway.queue_list.page(ANYONE, ALL)
    assert len(page.queues[0].flow.published) == 60 and page.queues[0].flow.published_per_second == 0
