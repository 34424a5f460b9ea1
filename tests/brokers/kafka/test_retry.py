"""Delayed records on a real server: they are moved once, byte for byte, whatever ends or is missing meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, ConfigResource

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.kafka.admin import ADDED_BYTES
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.retry import GROUP
from babelgate.brokers.kafka.url import KafkaQueue, settings_of
from babelgate.clock import now_ms, steady_ms
from babelgate.errors import BodyTooLarge, BrokerRejected
from tests.brokers.kafka.harness import binding, create, limit_bytes, read, settings, write
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.harness.local import eventually
from tests.harness.world import until

pytestmark = pytest.mark.kafka

SOON = {"create": "missing", "retry_delays_seconds": [0.2, 0.4]}
LATER = {"create": "missing", "retry_delays_seconds": [3600]}
APPENDED = {"message.timestamp.type": "LogAppendTime"}


class Clock:
    """The time here, and so many milliseconds ``ahead``: of both clocks, as when that time has passed."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead

    def steady(self) -> int:
        return steady_ms() + self.ahead


@asynccontextmanager
async def with_clock(server: KafkaServer, clock: Clock) -> AsyncIterator[KafkaBinding]:
    opened = KafkaBinding("kafka", settings_of(server.url(), {}), clock, 30, clock.steady)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


async def made(server: KafkaServer, topic: str, config: Mapping[str, str], partitions: int = 1) -> None:
    """Create the topic, as an operator does."""
    await asyncio.to_thread(lambda: create(server.port, topic, partitions=partitions, **config))


def delayed(number: int = 0) -> Outgoing:
    return Outgoing(b'{"n":%d}' % number, delay_seconds=0.1, dedup_id="i")


async def holds(opened: KafkaBinding, count: int = 1) -> None:
    """Wait until its re-injector has read so many records, which are not due yet."""

    def has_read() -> bool:
        member = opened._reinjector._member
        return member is not None and sum(map(len, list(member._held.values()))) == count

    await eventually(has_read)


async def stored(server: KafkaServer, topic: str, count: int) -> list[Message]:
    """The records of the topic, once there are as many."""
    found: list[Message] = []

    async def are_there() -> bool:
        found[:] = await asyncio.to_thread(read, server.port, topic)
        return len(found) >= count

    await until(are_there)
    return found


def values(records: list[Message]) -> list[bytes | None]:
    return [each.value() for each in records]


async def is_told(caplog: pytest.LogCaptureFixture, *texts: str) -> None:
    await eventually(lambda: any(all(text in line for text in texts) for line in caplog.messages))


async def test_a_gateway_stops_while_a_record_waits(server: KafkaServer, queue: str) -> None:
    async with binding(server.url()) as first:
        native = first.native_queue(queue, LATER)
        assert await first.publish(native, [delayed()]) == [None]
        await holds(first)
    assert first.reinjected == 0
    async with binding(server.url()) as second:
        assert (await second.stats(second.native_queue(queue, SOON))).delayed == 1
        (delivery,) = await second.reserve(second.native_queue(queue, SOON), 10, 30, 30)
        assert delivery.body == delayed().body

        async def is_committed() -> bool:
            return (await second.stats(second.native_queue(queue, SOON))).delayed == 0

        await until(is_committed)
        assert second.reinjected == 1
    assert len(await stored(server, queue, 1)) == 1


async def test_two_gateways_share_the_tiers_and_move_each_record_once(
    server: KafkaServer, one: KafkaBinding, other: KafkaBinding, queue: str
) -> None:
    await made(server, f"{queue}.retry.1", APPENDED, 4)
    native = one.native_queue(queue, SOON)
    await other.stats(native)
    count = 0

    async def both_move() -> bool:
        nonlocal count
        messages = [delayed(number) for number in range(count, count + 20)]
        assert await one.publish(native, messages) == [None] * 20
        count += 20
        return bool(one.reinjected and other.reinjected)

    await until(both_move)
    found = values(await stored(server, queue, count))
    assert sorted(found, key=str) == sorted((delayed(number).body for number in range(count)), key=str)
    await eventually(lambda: one.reinjected + other.reinjected == count)


async def test_a_record_of_an_sdk_is_moved_byte_for_byte(server: KafkaServer, one: KafkaBinding, queue: str) -> None:
    """To the topic that its header names; without one, to the topic of the tier."""
    value, key = b'{"job": "urn:a" , "attempts": 3}\n', b"\x00\xffkey"
    headers: list[tuple[str, bytes | None]] = [
        *(("bq-attempts", b"3"), ("repeated", b"\xff"), ("null", None), ("repeated", b"last"), ("empty", b"")),
    ]
    sdk = [("bq-delay", b"200"), ("bq-original-topic", f"{queue}-b".encode())]
    await asyncio.to_thread(create, server.port, queue, f"{queue}-b")
    record = {"value": value, "key": key}
    await asyncio.to_thread(write, server.port, f"{queue}.retry.1", record | {"headers": [sdk[0], *headers, sdk[1]]})
    await asyncio.to_thread(write, server.port, f"{queue}.retry.2", record | {"headers": headers})
    await one.stats(one.native_queue(queue, SOON))
    for topic in (queue, f"{queue}-b"):
        moved: Any
        (moved,) = await stored(server, topic, 1)
        assert (moved.value(), moved.key(), moved.headers()) == (value, key, headers)


@pytest.mark.slow
async def test_a_broker_restarts_while_records_wait(queue: str) -> None:
    clock = Clock()
    with kafka() as server:
        async with with_clock(server, clock) as opened:
            native = opened.native_queue(queue, LATER)
            assert await opened.publish(native, [delayed(1), delayed(2)]) == [None, None]
            await holds(opened, 2)
            await asyncio.to_thread(server.kill)
            clock.ahead = 3_600_000
            await asyncio.to_thread(server.start)
            assert values(await stored(server, queue, 2)) == [delayed(1).body, delayed(2).body]

            async def is_committed() -> bool:
                return (await opened.stats(native)).delayed == 0

            await until(is_committed)
            assert opened.reinjected == 2


async def test_what_is_purged_while_it_waits_is_never_moved(server: KafkaServer, queue: str) -> None:
    clock = Clock()
    async with with_clock(server, clock) as opened:
        native = opened.native_queue(queue, LATER)
        assert await opened.publish(native, [delayed(1), delayed(2)]) == [None, None]
        await holds(opened, 2)
        assert await opened.purge(native) == 2
        assert await opened.publish(native, [delayed(3)]) == [None]
        clock.ahead = 7_200_000
        assert values(await stored(server, queue, 1)) == [delayed(3).body]
        await eventually(lambda: opened.reinjected == 1)


async def test_a_record_whose_topic_is_gone_waits_and_is_told(
    server: KafkaServer, one: KafkaBinding, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else waits for it, and it is moved as soon as the topic is there."""
    gone = f"{queue}-gone"
    record = {"value": b"{}", "headers": [("bq-original-topic", gone.encode())]}
    await asyncio.to_thread(create, server.port, queue, f"{queue}.retry.2")
    await asyncio.to_thread(write, server.port, f"{queue}.retry.1", record)
    await one.stats(one.native_queue(queue, SOON))
    await is_told(caplog, "cannot be moved back", gone, "does not exist", "'offset': 0")
    await asyncio.to_thread(write, server.port, f"{queue}.retry.2", {"value": b"other"})
    assert values(await stored(server, queue, 1)) == [b"other"]
    await asyncio.to_thread(create, server.port, gone)
    (moved,) = await stored(server, gone, 1)
    assert (moved.value(), moved.headers()) == (b"{}", None)


@pytest.mark.parametrize("name", [b"\xff no topic", b"a\x00b", b"..", b"x" * 300])
async def test_a_header_that_can_be_no_topic_ends_nothing(
    server: KafkaServer, one: KafkaBinding, queue: str, caplog: pytest.LogCaptureFixture, name: bytes
) -> None:
    record = {"value": b"{}", "headers": [("bq-original-topic", name)]}
    await asyncio.to_thread(create, server.port, queue, f"{queue}.retry.2")
    await asyncio.to_thread(write, server.port, f"{queue}.retry.1", record)
    await one.stats(one.native_queue(queue, SOON))
    await is_told(caplog, "cannot be moved back", queue)
    await asyncio.to_thread(write, server.port, f"{queue}.retry.2", {"value": b"other"})
    assert values(await stored(server, queue, 1)) == [b"other"]


async def test_a_record_that_is_too_large_for_its_topic_waits_and_is_told(
    server: KafkaServer, one: KafkaBinding, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = b"x" * 2000
    await made(server, queue, {"max.message.bytes": "1000"})
    await asyncio.to_thread(write, server.port, f"{queue}.retry.1", {"value": b"small"}, {"value": large})
    await one.stats(one.native_queue(queue, SOON))
    await is_told(caplog, "cannot be moved back", "'offset': 1", "2000")
    await asyncio.to_thread(limit_bytes, server.port, queue, 3000)
    assert values(await stored(server, queue, 2)) == [b"small", large]


async def test_the_last_tier_is_deleted_and_comes_again(server: KafkaServer, one: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, SOON)
    assert await one.publish(native, [delayed(1)]) == [None]

    async def is_committed() -> bool:
        return len(await stored(server, queue, 1)) == 1 and (await one.stats(native)).delayed == 0

    await until(is_committed)
    admin = AdminClient(settings(server.port))
    await asyncio.to_thread(admin.delete_topics([f"{queue}.retry.1"])[f"{queue}.retry.1"].result, 60)

    async def is_noticed() -> bool:
        one._reinjector.watch(native.options_as(KafkaQueue), "one that is not served")
        assert one._reinjector._member is not None
        return not one._reinjector._member.subscribed

    await until(is_noticed)

    async with binding(server.url(), {"reinject": False}) as other:
        assert await other.publish(native, [delayed(2)]) == [None]
    one._reinjector.watch(native.options_as(KafkaQueue), "one that is not served")
    assert values(await stored(server, queue, 2)) == [delayed(1).body, delayed(2).body]


async def test_a_client_that_is_useless_is_replaced(
    server: KafkaServer, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one with the name of a static member fences it; librdkafka says that this is fatal."""
    clock = Clock()
    async with with_clock(server, clock) as opened:
        opened._reinjector._settings["group.instance.id"] = queue
        native = opened.native_queue(queue, LATER)
        assert await opened.publish(native, [delayed()]) == [None]
        await holds(opened)
        member = {"group.id": GROUP, "group.instance.id": queue, "session.timeout.ms": 10_000}
        other = Consumer(settings(server.port) | member)
        other.subscribe([f"{queue}.retry.1"])

        async def fences() -> bool:
            await asyncio.to_thread(other.poll, 0.1)
            return "the re-injector of retry tiers has failed" in caplog.text

        await until(fences)
        await asyncio.to_thread(other.close)
        clock.ahead = 3_600_000
        assert values(await stored(server, queue, 1)) == [delayed().body]


async def test_another_program_moves_the_records(server: KafkaServer, queue: str) -> None:
    async with binding(server.url(), {"reinject": False}) as without:
        native = without.native_queue(queue, SOON)
        assert await without.publish(native, [delayed()]) == [None]
        assert (await without.stats(native)).delayed == 1
        async with binding(server.url()) as mover:
            await mover.stats(native)
            assert len(await stored(server, queue, 1)) == 1
            await eventually(lambda: mover.reinjected == 1)
            assert without.reinjected == 0
        assert without._reinjector._task is None


async def test_what_fits_a_topic_fits_its_tier_and_its_dead_letters(
    server: KafkaServer, one: KafkaBinding, queue: str
) -> None:
    await made(server, queue, {"max.message.bytes": "3000"})
    native = one.native_queue(queue, SOON)

    def sized(size: int, delay_seconds: float = 0.1) -> Outgoing:
        return Outgoing(b'{"n":"%s"}' % (b"x" * (size - 8)), {"a": "b"}, "key", delay_seconds, dedup_id="i")

    (refusal,) = await one.publish(native, [sized(3000, 0)])
    assert isinstance(refusal, BodyTooLarge)
    largest = refusal.limit
    refusals = await one.publish(native, [sized(largest + 1), sized(largest + 1, 0)])
    assert [(type(each), each.facts["limit"]) for each in refusals if each is not None] == [(BodyTooLarge, largest)] * 2
    assert await one.publish(native, [sized(largest), sized(largest, 0)]) == [None, None]
    assert len(await stored(server, queue, 2)) == 2
    assert await one.publish_dead_letters(native, [sized(largest + 60_000, 0)]) == [None]
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in (f"{queue}.retry.1", f"{queue}.dlq")]
    admin = AdminClient(settings(server.port))
    for found in admin.describe_configs(resources).values():
        assert (await asyncio.to_thread(found.result, 60))["max.message.bytes"].value == str(3000 + ADDED_BYTES)


async def test_a_topic_of_the_greatest_size(server: KafkaServer, one: KafkaBinding, queue: str) -> None:
    await made(server, queue, {"max.message.bytes": str(2**31 - 1)})
    assert await one.publish(one.native_queue(queue, SOON), [delayed()]) == [None]


async def test_a_topic_that_the_broker_does_not_create(server: KafkaServer, one: KafkaBinding, queue: str) -> None:
    """The error names the topic, and has the broker's own words: names that differ in . and _ alone collide."""
    await asyncio.to_thread(create, server.port, f"{queue}_a")
    (refusal,) = await one.publish(one.native_queue(f"{queue}.a", SOON), [delayed()])
    assert isinstance(refusal, BrokerRejected)
    assert f"the topic {queue}.a cannot be created: " in str(refusal)
    assert "collides" in str(refusal)
