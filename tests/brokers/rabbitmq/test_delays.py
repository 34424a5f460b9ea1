"""Delay queues: the route of a delay, computed and on a real broker."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.rabbitmq.delays import (
    DELAY_TOPOLOGY,
    LOST,
    MAX_DELAY_SECONDS,
    MAX_QUEUE_BYTES,
    ROUTING_KEY_BYTES,
    delayed_route,
    delayed_topology,
)
from babelgate.brokers.rabbitmq.profile import Topology
from babelgate.brokers.rabbitmq.warnings import warnings_of
from tests.brokers.rabbitmq.harness import client, count
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import BODY, Arrivals, lined, virtual_host
from tests.harness.world import until

NAMES = st.text("ab01.-_*#", min_size=1, max_size=20).filter(lambda name: {"*", "#"}.isdisjoint(name.split(".")))


def matches(pattern: list[str], words: list[str]) -> bool:
    """Whether a topic exchange would: * is one word, # any number."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[start:]) for start in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def way(topology: Topology, exchange: str, key: str) -> tuple[int, list[str]]:
    """The milliseconds that a message spends in delay queues, and the queue it reaches."""
    queues = {queue.name: queue for queue in topology.queues}
    waited, ends, at = 0, [], [exchange]
    while at:
        exchange = at.pop()
        for bound in topology.bindings:
            if bound.exchange != exchange or not matches(bound.routing_key.split("."), key.split(".")):
                continue
            if bound.to_exchange:
                at.append(bound.destination)
            elif bound.destination in queues:
                arguments = queues[bound.destination].arguments
                waited += arguments["x-message-ttl"]
                at.append(arguments["x-dead-letter-exchange"])
            else:
                ends.append(bound.destination)
    return waited, ends


@given(ticks=st.integers(1, MAX_DELAY_SECONDS * 10), queue=NAMES)
def test_a_message_waits_exactly_its_delay_and_comes_out_once(ticks: int, queue: str) -> None:
    exchange, key, needed = delayed_route(queue, ticks / 10)
    assert way(needed, exchange, key) == (ticks * 100, [queue])


@given(queue=NAMES, other=NAMES)
def test_only_the_queue_it_is_for_gets_it(queue: str, other: str) -> None:
    exchange, key, needed = delayed_route(queue, 0.3)
    both = Topology(needed.exchanges, needed.queues, (*needed.bindings, delayed_topology(other).bindings[-1]))
    assert set(way(both, exchange, key)[1]) == {queue}


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(0.001, 100), (0.1, 100), (0.3, 300), (0.7, 700), (0.701, 800), (1.1, 1100)]
)
def test_a_delay_is_rounded_up_to_a_tick(seconds: float, milliseconds: int) -> None:
    exchange, key, needed = delayed_route("q", seconds)
    assert way(needed, exchange, key)[0] == milliseconds


def test_the_longest_delay_is_all_rungs() -> None:
    exchange, key, needed = delayed_route("q", MAX_DELAY_SECONDS)
    assert way(needed, exchange, key)[0] == MAX_DELAY_SECONDS * 1000 == 3_355_443_000


@pytest.mark.parametrize("seconds", [0, -1, MAX_DELAY_SECONDS + 1, float("nan")])
def test_what_is_no_delay(seconds: float) -> None:
    with pytest.raises(ValueError):
        delayed_route("q", seconds)


def test_the_longest_name_fits_the_routing_key() -> None:
    assert len(delayed_route("q" * MAX_QUEUE_BYTES, 1)[1]) == ROUTING_KEY_BYTES


def test_no_rung_ever_expires() -> None:
    said = [arguments for queue in DELAY_TOPOLOGY.queues for arguments in (queue.arguments, *queue.or_else)]
    assert len(DELAY_TOPOLOGY.queues) == 26 and not any("x-expires" in arguments for arguments in said)


@pytest.mark.rabbitmq
async def test_delays_end_in_their_order_and_not_before_their_time(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        begun = time.monotonic()
        # At once: on a slow machine those that are published one after the other fall due in another order.
        delays = (2.5, 0.1, 1.3, 0.7)
        published = [line.publish(BODY.replace(b'"t"', b'"%g"' % delay), delay=delay) for delay in delays]
        assert await asyncio.gather(*published) == [[None]] * 4
        arrivals = await Arrivals.of(line.link, queue)
        for delay in (0.1, 0.7, 1.3, 2.5):
            arrived = await arrivals.next()
            assert b'"%g"' % delay in arrived.body
            assert time.monotonic() - begun >= delay
        assert arrivals.left == 0


@pytest.mark.rabbitmq
async def test_a_queue_whose_name_ends_like_anothers_gets_none_of_its_messages(
    rabbit: RabbitServer, queue: str
) -> None:
    async with lined(rabbit.url(), queue) as short, lined(rabbit.url(), f"a.{queue}") as long:
        assert await short.publish(b"short", delay=0.2) == [None]
        assert await long.publish(b"long", delay=0.1) == [None]
        of_short, of_long = await Arrivals.of(short.link, queue), await Arrivals.of(long.link, f"a.{queue}")
        assert (await of_long.next()).body == b"long"
        assert (await of_short.next()).body == b"short"
        assert (of_short.left, of_long.left) == (0, 0)


@pytest.mark.rabbitmq
async def test_a_delayed_message_outlives_the_broker(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(BODY, delay=1.1) == [None]
        assert await line.publish(b"much later", delay=3600) == [None]
        await asyncio.to_thread(rabbit.settle_down)
        rabbit.kill()
        await asyncio.to_thread(rabbit.start)
    async with lined(rabbit.url(), queue) as line:
        arrivals = await Arrivals.of(line.link, queue)
        assert (await arrivals.next(30)).body == BODY
        # Once, and no other before its time.
        assert await line.publish(b"last", delay=0.5) == [None]
        assert (await arrivals.next()).body == b"last"


@pytest.mark.rabbitmq
async def test_a_message_whose_queue_is_gone_rests_where_it_holds_up_nobody(rabbit: RabbitServer, queue: str) -> None:
    with virtual_host(rabbit) as vhost:
        url = rabbit.url(vhost)
        async with lined(url, queue) as line, lined(url, f"{queue}.other") as other:
            # More than a rung's dead-lettering has in the air at once.
            assert await line.publish(*[BODY] * 40, delay=3.9) == [None] * 40
            await line.delete()
            assert await other.publish(BODY, delay=4.3) == [None]
            assert (await (await Arrivals.of(other.link, f"{queue}.other")).next()).body == BODY

            async def all_rest() -> bool:
                return await asyncio.to_thread(count, url, LOST) == 40

            await until(all_rest)
            (warning,) = await warnings_of(other.link)
            assert "40" in warning and LOST in warning


@pytest.mark.rabbitmq
async def test_a_ladder_that_was_made_otherwise_serves_as_it_is(rabbit: RabbitServer, queue: str) -> None:
    with virtual_host(rabbit) as vhost:
        url = rabbit.url(vhost)
        with client(url) as channel:
            for rung in DELAY_TOPOLOGY.queues[1:4]:
                channel.queue_declare(rung.name, durable=True, arguments=dict(rung.or_else[0]))
        async with lined(url, queue) as line:
            assert await line.publish(BODY, delay=0.3) == [None]
            assert (await (await Arrivals.of(line.link, queue)).next()).body == BODY


@pytest.mark.rabbitmq
async def test_a_queue_that_was_made_again_is_delayed_to_again(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(BODY, delay=0.1) == [None]
        assert (await (await Arrivals.of(line.link, queue)).next()).body == BODY
        await line.delete()
        assert await line.publish(BODY) != [None]
        assert await line.publish(b"again", delay=0.1) == [None]
        assert (await (await Arrivals.of(line.link, queue)).next()).body == b"again"
