"""Partitions that move between processes: what becomes of the leases and the acks of each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.url import GROUP
from babelgate.errors import BrokerUnavailable, ConfigError, LeaseLost
from tests.brokers.kafka.harness import STANDARD, binding, create, set_heartbeats
from tests.brokers.kafka.server import KafkaServer
from tests.harness.local import eventually
from tests.harness.world import LIMIT_SECONDS, kinds, until

pytestmark = pytest.mark.kafka


def letters(count: int) -> list[Outgoing]:
    return [Outgoing(b'{"n":%d}' % number, dedup_id="i", ordering_key=str(number)) for number in range(count)]


async def take(process: KafkaBinding, queue: NativeQueue, count: int) -> list[Delivery]:
    """So many deliveries, or fewer if no more come within the limit."""
    found: list[Delivery] = []
    limit = time.monotonic() + LIMIT_SECONDS
    while len(found) < count and time.monotonic() < limit:
        # The group may need more time than a reserve has.
        with contextlib.suppress(BrokerUnavailable):
            found += await process.reserve(queue, count - len(found), 1, 60)
    return found


def bodies(found: Sequence[Delivery]) -> list[bytes]:
    return sorted(each.body for each in found)


async def committed(process: KafkaBinding, queue: NativeQueue) -> Any:
    """The offset and the metadata of each partition, as another client reads them."""
    positions = await process._admin.positions(queue.name)
    return await process._admin.commits.of(GROUP, positions)


async def test_a_topic_that_was_paused_is_read_again(one: KafkaBinding, queue: str) -> None:
    """The client keeps a pause over unsubscribing: more than a thousand ready records pause a partition."""
    native = one.native_queue(queue, STANDARD)
    for _ in range(5):
        await one.publish(native, letters(400))
    (first,) = await take(one, native, 1)
    assert await one.release(native, [first.handle], 0, False) == [None]
    await eventually(lambda: queue not in one._consumer._topics)
    found = await take(one, native, 2000)
    assert len(found) == 2000
    assert set(await one.ack(native, [each.handle for each in found])) == {None}


async def test_leases_of_moved_partitions_are_lost_and_of_others_kept(
    one: KafkaBinding, other: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """A second member gets some partitions while leases are out. Acks behind unacked records move with them."""
    create(server.port, queue, partitions=4)
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(100))
    held = await take(one, native, 100)
    assert len(held) == 100
    # The last ones of each partition are acked, the first ones stay leased.
    by_partition: dict[int, list[Delivery]] = {}
    for each in held:
        by_partition.setdefault(int(each.handle.split(".")[2]), []).append(each)
    acked = [each for found in by_partition.values() for each in found[len(found) // 2 :]]
    left = [each for each in held if each not in acked]
    assert set(await one.ack(native, [each.handle for each in acked])) == {None}
    found: list[Delivery] = []

    async def some_have_moved() -> bool:
        found.extend(await other.reserve(native, 100, 1, 60))
        return bool(found)

    await until(some_have_moved)
    outstanding = one.outstanding(native, [each.handle for each in left])
    moved = [each for each, here in zip(left, outstanding, strict=True) if not here]
    kept = [each for each, here in zip(left, outstanding, strict=True) if here]
    assert kept
    found += await take(other, native, len(moved) - len(found))
    assert bodies(found) == bodies(moved)
    before = await committed(other, native)
    assert set(kinds(await one.ack(native, [each.handle for each in moved]))) == {LeaseLost}
    assert await committed(other, native) == before
    assert set(await one.ack(native, [each.handle for each in kept])) == {None}
    assert set(await other.ack(native, [each.handle for each in found])) == {None}
    assert (await one.stats(native)).depth == 0


async def test_a_static_member_needs_the_protocol_of_its_group(server: KafkaServer) -> None:
    with pytest.raises(ConfigError) as raised:
        async with binding(server.url(), {"group_protocol": "classic", "instance_id": "one"}):
            pytest.fail("it has opened")
    assert raised.value.key == "instance_id"


async def test_a_static_member_that_restarts_gets_its_partitions_back(
    other: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """What the other member has does not move, and its leases outlive the restart."""
    create(server.port, queue, partitions=4)
    native = other.native_queue(queue, STANDARD)
    await other.publish(native, letters(100))
    static = {"instance_id": queue}
    async with binding(server.url(), static) as one:
        own = await take(one, native, 100)
        theirs = await take(other, native, 1)
        await eventually(lambda: len(partitions(one, queue)) == len(partitions(other, queue)) == 2)
        before = partitions(one, queue), partitions(other, queue)
    async with binding(server.url(), static) as one:
        (found,) = await take(one, native, 1)
        await eventually(lambda: len(partitions(one, queue)) == 2)
        assert (partitions(one, queue), partitions(other, queue)) == before
        assert other.outstanding(native, [theirs[0].handle]) == [True]
        assert set(kinds(await one.ack(native, [each.handle for each in own]))) == {LeaseLost}
        assert await one.ack(native, [found.handle]) == [None]
    assert await other.ack(native, [theirs[0].handle]) == [None]


async def test_a_static_member_that_nobody_asks_leaves_its_partitions_to_others(
    one: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """Before its session ends."""
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(3))
    async with long_sessions(server), binding(server.url(), {"instance_id": queue}) as static:
        (first,) = await take(static, native, 1)
        assert await static.ack(native, [first.handle]) == [None]
        found = await take(one, native, 2)
        assert len(found) == 2
        assert set(await one.ack(native, [each.handle for each in found])) == {None}
        await one.publish(native, letters(1))
        await eventually(lambda: queue not in one._consumer._topics)
        (again,) = await take(static, native, 1)
        assert await static.ack(native, [again.handle]) == [None]


async def test_a_second_process_with_the_same_instance_id_is_refused(server: KafkaServer, queue: str) -> None:
    """The first keeps its lease."""
    async with binding(server.url(), {"instance_id": queue}) as one:
        native = one.native_queue(queue, STANDARD)
        await one.publish(native, letters(2))
        (held,) = await take(one, native, 1)
        async with binding(server.url(), {"instance_id": queue}) as second:
            with pytest.raises(BrokerUnavailable, match="instance ID is still used"):
                await second.reserve(native, 1, 20, 60)
        assert await one.ack(native, [held.handle]) == [None]


@asynccontextmanager
async def long_sessions(server: KafkaServer) -> AsyncIterator[None]:
    """Members that send no heartbeat are missed after ten minutes."""
    await asyncio.to_thread(set_heartbeats, server.port, "600000", None)
    try:
        yield
    finally:
        await asyncio.to_thread(set_heartbeats, server.port, None, None)


def partitions(process: KafkaBinding, queue: str) -> set[int]:
    """The partitions that a process has."""
    topic = process._consumer._topics.get(queue)
    return set() if topic is None else set(topic.partitions)
