"""Counted leases: what several queues and receives share, other limits by a reload, and what a process forgets."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.clock import now_ms
from babelgate.gateway import streaming
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.counted_leases import CountedLeases, LeasesExceeded
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import QueueTerms, RateTerms
from babelgate.gateway.model import Message, Settlement
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.gateway.shares import divided, grouped
from babelgate.gateway.streaming import Stream
from babelgate.gateway.switching import GatewayParts, queues_in_use, switch
from babelgate.schemas.job_schemas import JobSchemas
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MovingMemory
from tests.harness.world import KEYS

ALL = {"*": frozenset(Right)}
SHOP = Caller("shop", ALL)
SOON = 60.0
DRAFT = b'{"job":"urn:babel:test:made","data":{}}'


def message(queue, number, seconds=60.0):
    expires = now_ms() + round(seconds * 1000)
    return Message(Lease(queue, "b", str(number), "r", expires, 0), "token", expires, 0, False, {}, b"{}")


def counting(identity=None, queue=None):
    """Counted leases, and the routes of two queues with the limits of ``queue``."""
    router = Router([Rule("*", MovingMemory("b", CAPABLE), Policy(limits=queue))])
    limits = RateLimits(router, identity)
    return CountedLeases(now_ms, lambda each: each, limits), [router.route(name) for name in ("q", "r")]


class Waiting:
    def __init__(self, limit, holder=None, lease_seconds=60.0):
        self.limit = limit
        self.holder = holder
        self.lease_seconds = lease_seconds
        self.future = asyncio.get_running_loop().create_future()


async def test_an_identity_has_as_many_leases_as_it_may_on_all_its_queues():
    counted, (q, r) = counting(RateTerms(max_leases=3))
    on_q, on_r = counted.holder(SHOP, q), counted.holder(SHOP, r)
    on_q.hold([message("q", 1), message("q", 2)])
    assert (on_q.room(10), on_r.room(10), counted.holder(Caller("other", ALL), q).room(10)) == (1, 1, 3)
    on_r.hold([message("r", 1)])
    assert on_q.room(10) == 0
    assert "The identity 'shop' has 3 leases already." in on_q.refusal().detail
    assert counted.limits.refused["identity-leases"] == 1
    # The lease of the same handle, handed out anew, is one.
    counted.settled("q", "2", None)
    on_q.hold([message("q", 1)])
    assert (len(counted.held), on_q.room(10)) == (2, 1)
    for handle in ("1", "2", "unknown"):
        counted.settled("q", handle, None)
    counted.settled("r", "1", "dead_lettered")
    assert (counted.held, on_q.room(10)) == ({}, 3)
    await counted.close()


async def test_no_lease_counts_where_none_is_limited():
    counted, (q, _) = counting(RateTerms(requests_per_second=1), QueueTerms(max_receives=1))
    assert counted.holder(SHOP, q) is None
    assert CountedLeases(now_ms, lambda each: each, None).holder(SHOP, q) is None


async def test_a_lease_counts_until_it_is_over():
    counted, (q, _) = counting(RateTerms(max_leases=9))
    holder = counted.holder(SHOP, q)
    freed = asyncio.Event()
    holder.hold([message("q", 1, 0.5), message("q", 2, 60), message("q", 3, 0.2)])
    counted.settled("q", "3", now_ms() + 60_000)
    counted.settled("q", "2", now_ms() + 300)
    # Before the pause: it is called as soon as one is over.
    counted.when_freed(freed.set)
    async with asyncio.timeout(SOON):
        await freed.wait()
    await eventually(lambda: [handle for _, handle in counted.held] == ["3"])
    assert holder.room(9) == 8
    counted.settled("q", "3", None)
    assert holder.room(9) == 9
    await counted.close()


async def test_ended_leases_leave_no_deadlines():
    counted, (q, _) = counting(RateTerms(max_leases=1))
    holder = counted.holder(SHOP, q)
    for number in range(5_000):
        holder.hold([message("q", number)])
        counted.settled("q", str(number), None)
    assert len(counted._deadlines) < 1_100
    await counted.close()


async def test_receives_divide_the_room_of_their_scopes():
    counted, (q, _) = counting(RateTerms(max_leases=4), QueueTerms(max_leases=6))
    shop, other = counted.holder(SHOP, q), counted.holder(Caller("other", ALL), q)
    first, second, third = Waiting(3, shop), Waiting(3, shop), Waiting(5, other)
    last, plain = Waiting(2, other), Waiting(7)
    waiters = [first, second, third, last, plain]
    # 3 and 1 of the identity, 2 of the rest of the queue, and all it asks for; the last is next: nobody holds one yet.
    assert grouped(waiters, 256) == ([first, second, third, plain], 13, [])
    served, count, full = divided(waiters, 9, 60.0)
    assert (served, count, full) == ([(first, 3), (second, 1), (third, 2), (plain, 3)], 9, [last])
    second.future.cancel()
    assert divided(waiters, 4, 60.0)[0] == [(first, 3), (second, 0), (third, 1)]
    assert counted.held == {} and shop.room(9) == 4, "nothing was taken"
    assert grouped([Waiting(2, shop, 5.0), first, Waiting(9, shop, 5.0)], 256)[1] == 4
    shop.hold([message("q", number) for number in range(4)])
    assert grouped(waiters, 256) == ([third, plain], 9, [first, second]), "held by the identity"
    await counted.close()


def gateway_of(broker, limits):
    router = Router([Rule("q", broker, Policy(limits=limits))])
    return Gateway(
        {"one": broker}, router, TokenSealer(KEYS), rate_limits=None if limits is None else RateLimits(router)
    )


@pytest.mark.parametrize("wait_seconds", [0, 0.3])
async def test_receives_at_once_that_find_nothing_are_not_refused(wait_seconds):
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(broker, QueueTerms(max_leases=10))
    await gateway.start()
    try:
        asked = [gateway.receive(SHOP, "q", max_messages=10, wait_seconds=wait_seconds) for _ in range(3)]
        assert await asyncio.gather(*asked) == [[], [], []]
        # Where there are fewer messages than room, all are asked until one finds nothing.
        await gateway.publish(SHOP, "q", DRAFT)
        asked = [gateway.receive(SHOP, "q", max_messages=10, wait_seconds=wait_seconds) for _ in range(3)]
        assert sorted(map(len, await asyncio.gather(*asked))) == [0, 0, 1]
    finally:
        await gateway.close()


async def load(gateway, broker, limits):
    """What a reload of the configuration does."""
    router = Router([Rule("q", broker, Policy(limits=limits))])
    made = None if limits is None else RateLimits(router)
    parts = GatewayParts(
        bindings={broker.name: broker},
        router=router,
        required=frozenset(),
        urls={},
        rate_limits=made,
        schemas=JobSchemas(),
    )
    switch(gateway, parts, await queues_in_use(gateway), {})


async def test_a_reload_lets_those_continue_that_wait_for_room():
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(broker, QueueTerms(max_leases=1))
    await gateway.start()
    try:
        for _ in range(4):
            await gateway.publish(SHOP, "q", DRAFT)
        (first,) = await gateway.receive(SHOP, "q", max_messages=5)
        with pytest.raises(LeasesExceeded):
            await gateway.receive(SHOP, "q")
        waiting = asyncio.create_task(gateway.receive(SHOP, "q", max_messages=5, wait_seconds=SOON))
        await eventually(lambda: gateway.queue_runtimes.get("q").waiters == 1)
        await load(gateway, broker, QueueTerms(max_leases=3))
        async with asyncio.timeout(SOON):
            more = await waiting
        # What was handed out before counts.
        assert (len(more), len(gateway.counted.held)) == (2, 3)
        waiting = asyncio.create_task(gateway.receive(SHOP, "q", max_messages=5, wait_seconds=SOON))
        await eventually(lambda: gateway.queue_runtimes.get("q").waiters == 1)
        await load(gateway, broker, None)
        async with asyncio.timeout(SOON):
            (last,) = await waiting
        tokens = [each.ack_token for each in (first, *more, last)]
        results = await gateway.settle(SHOP, "q", Settlement(acks=tokens))
        assert [each.error for each in results] == [None] * 4
        assert gateway.counted.held == {}
    finally:
        await gateway.close()


async def test_a_limit_that_a_reload_adds_counts_for_a_stream_that_waits():
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(broker, None)
    await gateway.start()
    try:
        assert await gateway.receive(SHOP, "q") == []
        with Stream(gateway, SHOP, "q", StreamOptions(50)) as stream:
            taking = asyncio.create_task(stream.take(SOON))
            await eventually(lambda: gateway.queue_runtimes.get("q").waiters == 1)
            await load(gateway, broker, QueueTerms(max_leases=1))
            await eventually(lambda: any(each.holder for each in gateway.queue_runtimes.get("q").receiver._waiting))
            await gateway.publish_many(SHOP, "q", [DRAFT] * 20)
            assert (len(await taking), len(gateway.counted.held)) == (1, 1)
    finally:
        await gateway.close()


async def test_a_wait_goes_on_by_the_limit_of_the_broker_to_which_its_queue_moves():
    gateway = gateway_of(MovingMemory("one", CAPABLE), QueueTerms(max_leases=1))
    await gateway.start()
    try:
        waiting = asyncio.create_task(gateway.receive(SHOP, "q", wait_seconds=SOON))
        await eventually(lambda: len(gateway.queue_runtimes) == 1 and gateway.queue_runtimes.get("q").waiters == 1)
        await load(gateway, MovingMemory("two", CAPABLE), QueueTerms(max_leases=5))
        (waiter,) = gateway.queue_runtimes.get("q").receiver._waiting
        assert waiter.holder.room(9) == 5
        await gateway.publish(SHOP, "q", DRAFT)
        assert [each.lease.broker for each in await waiting] == ["two"]
    finally:
        await gateway.close()


async def test_a_stream_that_waits_for_room_asks_again(monkeypatch):
    monkeypatch.setattr(streaming, "_WAIT_SECONDS", 0.05)
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(broker, QueueTerms(max_leases=1))
    await gateway.start()
    try:
        await gateway.publish_many(SHOP, "q", [DRAFT] * 2)
        (first,) = await gateway.receive(SHOP, "q")
        with Stream(gateway, SHOP, "q", StreamOptions(50)) as stream:
            taking = asyncio.create_task(stream.take(SOON))
            await eventually(lambda: gateway.rate_limits.refused["queue-leases"] > 1)
            await gateway.settle(SHOP, "q", Settlement([first.ack_token]))
            assert len(await taking) == 1
    finally:
        await gateway.close()


async def test_a_wait_for_room_ends_with_its_time_and_its_stop():
    broker = MovingMemory("one", CAPABLE)
    gateway = gateway_of(broker, QueueTerms(max_leases=1))
    await gateway.start()
    try:
        for _ in range(2):
            await gateway.publish(SHOP, "q", DRAFT)
        await gateway.receive(SHOP, "q")
        with pytest.raises(LeasesExceeded):
            await gateway.receive(SHOP, "q", wait_seconds=0.2)
        # One that leaves holds up nothing, nor does one that is left behind.
        leaving = asyncio.create_task(gateway.receive(SHOP, "q", wait_seconds=SOON))
        await eventually(lambda: gateway.queue_runtimes.get("q").waiters == 1)
        leaving.cancel()
        await eventually(lambda: not gateway.queue_runtimes.get("q").receiver.busy)
        waiting = asyncio.create_task(gateway.receive(SHOP, "q", wait_seconds=SOON))
        await eventually(lambda: gateway.queue_runtimes.get("q").waiters == 1)
        await gateway.drain()
        async with asyncio.timeout(SOON):
            assert await waiting == []
            await gateway.queue_runtimes.get("q").receiver.idle()
    finally:
        await gateway.close()
