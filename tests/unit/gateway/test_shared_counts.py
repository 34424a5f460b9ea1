"""Numbers at a time that processes share: who waits keeps the share of this process, and when a share is asked for."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter

import httpx
import pytest

from babelgate.brokers.rate_store import CountShare, HeldCount
from babelgate.errors import Forbidden
from babelgate.gateway import receive, shared_counts
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import QueueTerms, RateTerms
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.gateway.shared_rates import SharedRates
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.streams.serving import Streaming
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MovingMemory
from tests.harness.problems import problem
from tests.harness.world import KEYS

SHOP = Caller("shop", {"*": frozenset(Right)})
DRAFT = b'{"job":"urn:babel:test:made","data":{}}'
SOON = 60.0


class Store:
    """What Redis does for one process that asks, in memory. ``others``: how many the other processes have. ``most``:
    how many this one may have. ``during``: happens during each call.
    ``answers``: set unless it hangs."""

    def __init__(self, others=0):
        self.others = others
        self.most = 1_000
        self.during = lambda: None
        self.answers = asyncio.Event()
        self.answers.set()
        self.told = []

    async def take(self, rates):
        raise NotImplementedError

    async def share(self, process, patience, counts):
        self.told.append(counts)
        self.during()
        await self.answers.wait()
        return [
            CountShare(min(max(each.most - self.others, 0), self.most) if each.is_active else each.own, self.others)
            for each in counts
        ]


def count_of(shared, most=10, own=0):
    return shared.count("queue-leases", ("", "q"), most, Counter(leases=own), "leases")


async def test_a_receive_that_waits_for_room_keeps_the_share_of_its_process(monkeypatch):
    monkeypatch.setattr(receive, "SLICE_SECONDS", 0.05)
    monkeypatch.setattr(shared_counts, "ACTIVE_SECONDS", 0.2)
    store, broker = Store(others=10), MovingMemory("one", CAPABLE)
    router = Router([Rule("q", broker, Policy(limits=QueueTerms(max_leases=10)))])
    limits = RateLimits(router, shared=SharedRates(store))
    gateway = Gateway({"one": broker}, router, TokenSealer(KEYS), rate_limits=limits)
    await gateway.start()
    try:
        await gateway.publish(SHOP, "q", DRAFT)
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(gateway.receive(SHOP, "q", wait_seconds=SOON))
        await eventually(lambda: asyncio.get_running_loop().time() > began + 0.6)
        seen = len(store.told)
        await eventually(lambda: len(store.told) > seen + 2)
        store.others = 9
        async with asyncio.timeout(SOON):
            assert len(await waiting) == 1
    finally:
        await gateway.close()


async def test_after_a_pause_a_full_limit_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(shared_counts, "ACTIVE_SECONDS", 0.05)
    store = Store(others=10)
    shared = SharedRates(store)
    count = count_of(shared)
    await eventually(lambda: count.ceiling() == 0 and count.total == 10)
    # It is told of no more, so what is known grows old.
    await eventually(lambda: not shared.counts._watched)
    store.others = 0
    count.sent_at -= shared_counts.WAIT_SECONDS
    assert not count.is_settled()
    await eventually(lambda: count.is_settled() and (count.ceiling(), count.total) == (10, 0))
    await shared.close()


async def test_a_process_that_stops_leaves_its_share_to_the_others():
    store = Store()
    shared = SharedRates(store)
    count = count_of(shared, own=4)
    await eventually(lambda: count.ceiling() == 10 and store.told)
    await shared.close()
    assert store.told[-1] == [HeldCount(count.name, 0, 10, False)]
    count.ceiling()
    told = len(store.told)
    await shared.close()
    assert len(store.told) == told, "nothing more is told"


async def test_a_wait_for_a_share_asks_no_faster_than_ever():
    store = Store()
    shared = SharedRates(store)
    count = count_of(shared, own=5)
    store.most = 5
    await count.settle([count])
    assert not count.is_settled()
    # In half a second, ten times a second.
    assert len(store.told) < 20
    await shared.close()


LEASES, AT_A_TIME = QueueTerms(max_leases=9), QueueTerms(max_receives=9, max_streams=9)


@pytest.mark.parametrize(
    ("call", "terms"),
    [
        ("receive", LEASES),
        ("POST messages:receive", LEASES),
        ("POST messages:receive", AT_A_TIME),
        ("GET messages:stream", AT_A_TIME),
    ],
)
async def test_a_right_that_is_taken_away_during_the_wait_for_a_share_is_missing(call, terms):
    store, broker = Store(), MovingMemory("one", CAPABLE)
    router = Router([Rule("q", broker, Policy(limits=terms))])
    limits = RateLimits(router, shared=SharedRates(store), counts_leases=terms.max_leases is not None)
    gateway = Gateway({"one": broker}, router, TokenSealer(KEYS), rate_limits=limits)
    caller = Caller("mine", {"*": frozenset(Right)})

    def reload():
        caller.become(Caller("mine", {"*": frozenset({Right.SEND})}))
        gateway.accesses.clear()

    store.during = reload
    await gateway.start()
    try:
        if call == "receive":
            with pytest.raises(Forbidden):
                await gateway.receive(caller, gateway.access(caller, Right.LISTEN, "q"))
            return
        auth = Auth({hashlib.sha256(b"mine").hexdigest(): caller})
        api = create_api(gateway, auth=auth, limits=RequestLimits(), stream=Streaming(gateway).serve)
        method, _, path = call.partition(" ")
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = client.request(method, f"/queues/q/{path}", headers={"authorization": "Bearer mine"})
            answer = await asyncio.wait_for(asked, SOON)
        problem(answer, 403, "forbidden")
    finally:
        await gateway.close()


@pytest.mark.parametrize(("most", "room"), [(20, 3), (2, 2)])
async def test_a_reload_changes_no_share_before_the_store_has_said_so(most, room):
    store = Store(others=7)
    route = Router([Rule("q", MovingMemory("one", CAPABLE))]).route("q")
    shared = SharedRates(store)
    limits = RateLimits(Router([]), RateTerms(max_leases=10), shared=shared)
    (scope,) = limits.of_leases(SHOP, route)
    await eventually(lambda: scope.room("leases") == 3)
    limits.configure(RateLimits(Router([]), RateTerms(max_leases=most)))
    (after,) = limits.of_leases(SHOP, route)
    assert after is not scope and (after.room("leases"), after.total("leases")) == (room, 7)
    await eventually(lambda: after.room("leases") == max(most - 7, 0))
    await shared.close()


async def test_who_looks_at_what_others_have_waits_for_an_exchange_that_asks_for_it(monkeypatch):
    monkeypatch.setattr(shared_counts, "WAIT_SECONDS", SOON)
    store = Store(others=7)
    shared = SharedRates(store)
    first, second = count_of(shared), shared.count("queue-streams", ("", "q"), 9, Counter(streams=1), "streams")
    store.answers.clear()
    first.ceiling()
    await eventually(lambda: store.told)
    learning = asyncio.create_task(shared.counts.learn([second]))
    await asyncio.sleep(0)
    # Ends only the call that hangs now.
    store.answers.set()
    store.answers.clear()
    await eventually(lambda: len(store.told) == 2)
    await asyncio.sleep(0.01)
    assert not learning.done()
    store.answers.set()
    await learning
    assert second.total == 8
    # A store that does not answer is not waited for.
    store.answers.clear()
    shared.counts.is_alone = True
    async with asyncio.timeout(SOON / 2):
        await shared.counts.learn([second])
    await shared.close()
