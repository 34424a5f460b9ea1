"""Buckets, and the rates of identities and queues."""

from __future__ import annotations

import asyncio
import re

import pytest

from babelgate.brokers.binding import QueueStats
from babelgate.errors import BodyTooLarge, BrokerUnavailable
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.buckets import Bucket, RateExceeded
from babelgate.gateway.depths import FRESH_SECONDS, Depths, QueueFull
from babelgate.gateway.limit_terms import QueueTerms, RateTerms
from babelgate.gateway.rate_limits import ConcurrencyExceeded, RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MemoryBinding

ALL = {"*": frozenset(Right)}


class Seconds:
    now = 1_000_000.7

    def __call__(self):
        return self.now


class Counting(MemoryBinding):
    """``depth``: what it counts; None: it does not answer. ``counts``: how often it was asked."""

    depth: int | None = 0
    counts = 0

    async def stats(self, queue):
        self.counts += 1
        if self.depth is None:
            raise BrokerUnavailable("local", "a test")
        return QueueStats(depth=self.depth, delayed=1)


def limits_of(queue=None, identity=None, most=100):
    clock = Seconds()
    rules = [Rule("orders*", Counting("local", CAPABLE), Policy(limits=queue))]
    return clock, RateLimits(Router(rules, None), identity, clock, most)


def spent(quota, tries, **amounts):
    count = 0
    for _ in range(tries):
        try:
            quota.spend(**amounts)
        except RateExceeded:
            continue
        count += 1
    return count


@pytest.mark.parametrize(("rate", "capacity"), [(10.0, 10.0), (0.5, 1.0), (3.0, 90.0), (1e5, 1e5)])
def test_a_bucket_keeps_its_rate_and_its_burst(rate, capacity):
    bucket, now = Bucket(rate, capacity), 5.0
    assert (bucket.left(now), bucket.full_in(now)) == (capacity, 0)
    bucket.take(now, capacity)
    assert bucket.left(now) == 0
    assert bucket.wait(now, 1) == pytest.approx(1 / rate)
    assert bucket.wait(now + 1 / rate, 1) == 0
    # What is saved in a pause is at most the capacity.
    now += 1_000_000
    assert bucket.left(now) == pytest.approx(capacity)


def test_what_is_larger_than_a_bucket_passes_when_it_is_full_and_is_paid_later():
    bucket = Bucket(10, 10)
    assert bucket.wait(0, 50) == 0
    bucket.take(0, 50)
    assert bucket.wait(0, 1) == pytest.approx(4.1)
    assert bucket.wait(4.1, 1) == 0
    # Full again after five seconds for what was taken.
    assert bucket.wait(0, 50) == pytest.approx(5)


def test_scopes_count_apart_and_all_are_needed():
    each = RateTerms(messages_per_second=4)
    clock, limits = limits_of(QueueTerms(messages_per_second=6, per_identity=each), RateTerms(messages_per_second=5))
    shop, other = Caller("shop", ALL), Caller("other", ALL)
    route = limits._router.route("orders")

    def publishes(caller, queue="orders"):
        return spent(limits.of(caller, limits._router.route(queue)), 20, size=1)

    assert publishes(shop) == 4  # of the identity on the queue
    assert publishes(other) == 2  # what the queue has left
    assert publishes(shop, "orders2") == 1  # what the identity has left
    # What one scope refused was taken from none.
    assert limits.of(other, None) is not None and spent(limits.of(other, None), 20, size=1) == 3
    clock.now += 1
    assert publishes(other) == 4
    # Of the queue's six a second the other one has taken four.
    assert spent(limits.of(shop, route), 9, size=1) == 2
    assert dict(limits.refused) == {"identity-messages": 36, "queue-messages": 25, "identity-on-queue-messages": 32}


def test_own_limits_replace_those_of_all_identities():
    _, limits = limits_of(identity=RateTerms(requests_per_second=1))
    assert limits.of(Caller("free", ALL, limits=RateTerms()), None) is None
    assert spent(limits.of(Caller("a", ALL, limits=RateTerms(requests_per_second=3)), None), 9, requests=1) == 3
    assert spent(limits.of(Caller("b", ALL), None), 9, requests=1) == 1
    # Two credentials of one name are one identity.
    assert spent(limits.of(Caller("b", ALL), None), 9, requests=1) == 0
    assert limits_of()[1].of(Caller("b", ALL), None) is None


def test_a_request_without_a_right_costs_the_queue_nothing():
    _, limits = limits_of(QueueTerms(requests_per_second=1))
    assert limits.of_request(Caller("stranger", {"mails": frozenset(Right)}), "orders") is None
    assert limits.of_request(Caller("shop", ALL), "elsewhere") is None
    assert limits.of_request(Caller("shop", ALL), "%" * 60_000) is None
    assert spent(limits.of_request(Caller("shop", ALL), "orders"), 3, requests=1) == 1


def test_a_refusal_names_what_was_exceeded_and_when_it_is_over():
    clock, limits = limits_of(QueueTerms(bytes_per_second=100), RateTerms(messages_per_second=0.1))
    quota = limits.of(Caller("shop", ALL), limits._router.route("orders"))
    quota.spend(size=900)
    with pytest.raises(RateExceeded, match=r"^The identity 'shop' may publish 0\.1 messages a second") as caught:
        quota.spend(size=1)
    assert caught.value.facts["retry_after"] == 10
    quota = limits.of(Caller("free", ALL, limits=RateTerms()), limits._router.route("orders"))
    with pytest.raises(RateExceeded, match=r"^The queue 'orders' takes 100 bytes a second\.") as caught:
        quota.spend(size=1)
    assert caught.value.facts["retry_after"] == 9
    clock.now += 9
    quota.spend(size=1)


async def test_a_batch_is_published_as_far_as_the_rates_reach():
    clock, limits = limits_of(identity=RateTerms(messages_per_second=3, bytes_per_second=10))
    quota = limits.of(Caller("shop", ALL), None)
    assert await quota.publish_many([b"12345"] * 2) == [None, None]
    errors = await quota.publish_many([b"1"] * 5)
    assert [type(each) for each in errors] == [RateExceeded] * 5
    clock.now += 1
    assert [type(each) for each in await quota.publish_many([b"1"] * 5)] == [type(None)] * 3 + [RateExceeded] * 2


def test_fields_are_structured_fields_that_agree():
    _, limits = limits_of(
        QueueTerms(bytes_per_second=1_000), RateTerms(requests_per_second=0.5, messages_per_second=10, burst_seconds=3)
    )
    quota = limits.of(Caller("shop", ALL), limits._router.route("orders"))
    quota.spend(1, 250)
    fields = dict(quota.fields())
    assert fields[b"ratelimit-policy"] == (
        b'"identity-requests";q=1;w=3;qu="requests", "identity-messages";q=30;w=3;qu="messages", '
        b'"queue-bytes";q=1000;w=1;qu="content-bytes"'
    )
    assert fields[b"ratelimit"] == b'"identity-requests";r=0;t=2, "identity-messages";r=29;t=1, "queue-bytes";r=750;t=1'
    quota.take(size=10**9)
    assert re.search(rb'"queue-bytes";r=0;t=\d+$', dict(quota.fields())[b"ratelimit"])


def test_memory_is_bounded_and_what_is_in_use_is_kept():
    _, limits = limits_of(identity=RateTerms(requests_per_second=1), most=100)
    quota = limits.of(Caller("first", ALL), None)
    quota.take(requests=1_000)
    for number in range(1_000):
        limits.of(Caller(f"idle {number}", ALL), None)
    assert len(limits._allowances) <= 101
    assert not limits.of(Caller("first", ALL), None).allows(requests=1)
    for number in range(1_000):
        limits.of(Caller(f"busy {number}", ALL), None).take(requests=10)
    assert len(limits._allowances) <= 401


@pytest.mark.parametrize("own", [{"max_message_bytes": 10}, {"per_identity": RateTerms(max_message_bytes=10)}])
async def test_a_message_that_is_too_large_costs_nothing_and_stops_no_batch(own):
    _, limits = limits_of(QueueTerms(messages_per_second=2, **own))
    quota = limits.of(Caller("shop", ALL), limits._router.route("orders"))
    with pytest.raises(BodyTooLarge) as caught:
        await quota.publish(11)
    assert caught.value.facts == {"actual": 11, "limit": 10}
    errors = await quota.publish_many([b"x" * 11, b"x" * 10, b"x" * 11, b"x", b"x"])
    assert [type(each) for each in errors] == [BodyTooLarge, type(None), BodyTooLarge, type(None), RateExceeded]


def test_work_at_a_time_is_counted_until_it_ends():
    _, limits = limits_of(QueueTerms(max_receives=3, per_identity=RateTerms(max_receives=2, max_streams=1)))
    route = limits._router.route("orders")
    shop, other = (limits.of(Caller(name, ALL), route) for name in ("shop", "other"))
    ends = [shop.enter("receives"), shop.enter("receives")]
    with pytest.raises(ConcurrencyExceeded, match=r"^The identity 'shop', on the queue 'orders', has 2 receives"):
        shop.enter("receives")
    ends.append(other.enter("receives"))
    with pytest.raises(ConcurrencyExceeded, match=r"^The queue 'orders' has 3 receives"):
        other.enter("receives")
    assert not other.has_place("receives") and other.has_place("streams")
    shop.enter("streams")()
    shop.enter("streams")
    for end in ends:
        end()
    assert shop.enter("receives") and not shop.has_place("streams")
    assert dict(limits.refused) == {"identity-on-queue-receives": 1, "queue-receives": 1}


async def test_a_full_queue_refuses_until_the_broker_counts_less():
    clock, limits = limits_of(QueueTerms(max_depth=10))
    route = limits._router.route("orders")
    broker = route.binding
    broker.depth = 6
    quota = limits.of(Caller("shop", ALL), route)
    # Without a count the direct way leaves it to the application.
    assert not quota.allows(1, 5)
    assert [type(each) for each in await quota.publish_many([b"x"] * 5)] == [type(None)] * 3 + [QueueFull] * 2
    with pytest.raises(QueueFull) as caught:
        await quota.publish(1)
    assert (caught.value.facts["depth"], caught.value.facts["limit"]) == (10, 10)
    assert broker.counts == 1
    broker.depth = 8
    clock.now += FRESH_SECONDS * 1.1
    with pytest.raises(QueueFull):
        await quota.publish(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (broker.counts, quota.allows(1, 5)) == (2, True)
    await quota.publish(1)
    with pytest.raises(QueueFull):
        await quota.publish(1)
    # A broker that does not answer refuses the message itself.
    broker.depth = None
    clock.now += FRESH_SECONDS * 1.1
    for _ in range(10):
        quota.allows(1, 5)
        await asyncio.sleep(0)
    await quota.publish(1)
    await limits.close()


def test_a_queue_at_another_native_queue_is_counted_there():
    broker, depths = Counting("local", CAPABLE), Depths()
    here, there = (Rule("orders", broker, native_name=name) for name in ("here", "there"))
    route = here.route("orders")
    assert depths.of(route) is depths.of(route) is depths.of(here.route("orders"))
    assert depths.of(route).route is route
    assert depths.of(there.route("orders")).route.native.name == "there"


async def test_parked_messages_count_for_the_depth_of_their_queue():
    broker, parking = Counting("local", CAPABLE), Counting("parking", CAPABLE)
    policy = Policy(limits=QueueTerms(max_depth=10))
    clock = Seconds()
    limits = RateLimits(Router([Rule("orders", broker, policy, parking=parking)], None), None, clock)
    broker.depth, parking.depth = 2, 6
    quota = limits.of(Caller("shop", ALL), limits._router.route("orders"))
    assert quota is not None
    with pytest.raises(QueueFull) as caught:
        await quota.publish(1)
    # Each broker has a delayed message, too.
    assert caught.value.facts["depth"] == 2 + 6 + 2
    # While the parking broker does not answer, the ready messages count alone.
    parking.depth = None
    clock.now += FRESH_SECONDS * 1.1
    quota.allows(1, 5)
    await eventually(lambda: quota.allows(1, 5))
    await quota.publish(1)
    assert (broker.counts, parking.counts) == (2, 2)
    await limits.close()
