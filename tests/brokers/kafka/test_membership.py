"""A process without its group says so: no receive is empty that does not know, and its client is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing
from babelgate.brokers.kafka.admin import KafkaAdmin
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.consumer import GroupConsumer
from babelgate.brokers.kafka.emptiness import JOIN_SECONDS
from babelgate.brokers.kafka.reader import KafkaReader
from babelgate.brokers.kafka.url import GROUP, settings_of
from babelgate.errors import BrokerUnavailable, LeaseLost
from tests.brokers.kafka.harness import STANDARD, binding, create, settings
from tests.brokers.kafka.server import KafkaServer
from tests.harness.proxy import Proxy, proxy
from tests.harness.world import kinds, until

pytestmark = pytest.mark.kafka


def letters(count: int) -> list[Outgoing]:
    return [Outgoing(b'{"n":%d}' % number, dedup_id="i") for number in range(count)]


@pytest.fixture
async def between(server: KafkaServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the listener that names its address."""
    async with proxy("127.0.0.1", server.ports["PROXIED"], server.proxy_port) as running:
        yield running


async def asked(process: KafkaBinding | GroupConsumer, queue: Any, limit: int = 10, wait: float = 0.5) -> Any:
    """What a receive answers, or its error."""
    try:
        if isinstance(process, GroupConsumer):
            return await process.reserve(queue, limit, wait)
        return await process.reserve(queue, limit, wait, 60)
    except BrokerUnavailable as error:
        return error


async def taken(process: KafkaBinding | GroupConsumer, queue: Any, limit: int) -> Sequence[Delivery]:
    """Messages, once there are any."""
    found: list[Delivery] = []

    async def came() -> bool:
        answer = await asked(process, queue, limit)
        found.extend(answer if isinstance(answer, list) else [])
        return bool(found)

    await until(came)
    return found


@pytest.mark.slow
async def test_a_client_that_stays_without_its_group_is_replaced(
    one: KafkaBinding, server: KafkaServer, between: Proxy, queue: str
) -> None:
    """Its connections are half open for good, and those of another client are not."""
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(1))
    admin = KafkaAdmin("kafka", settings(server.port), 5)
    reader = KafkaReader("kafka", settings(server.port), 5, admin.check_open)
    far = settings_of(f"kafka://127.0.0.1:{server.proxy_port}", {})
    consumer = GroupConsumer("kafka", far, admin, reader, 5)
    target: Any = native.options_as(object)
    try:
        (first,) = await taken(consumer, target, 1)
        client = consumer._thread
        between.hold_replies = True
        await one.publish(native, letters(3))
        answers: list[Any] = []

        async def is_replaced() -> bool:
            answers.append(await asked(consumer, target, 10))
            return consumer._thread is not client

        await until(is_replaced)
        between.hold_replies = False
        assert [] not in answers, "three messages are ready"
        assert kinds(await consumer.ack(target, [first.handle])) == [LeaseLost]
        bodies: set[bytes] = set()
        while len(bodies) < 3:
            found = await taken(consumer, target, 3)
            bodies |= {each.body for each in found}
            await consumer.ack(target, [each.handle for each in found])
    finally:
        await consumer.close()
        await reader.close()
        admin.close()


async def test_a_receive_is_not_empty_while_max_held_keeps_messages_back(one: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD | {"max_held": 2})
    await one.publish(native, letters(5))
    found = await taken(one, native, 10)
    assert len(found) == 3
    for wait in (0, 0.3):
        answer = await asked(one, native, 10, wait)
        assert isinstance(answer, BrokerUnavailable)
        assert "max_held" in str(answer)
        assert answer.answered
    waiting = asyncio.create_task(one.reserve(native, 10, 60, 60))
    assert await one.ack(native, [each.handle for each in found]) == [None] * 3
    assert len(await waiting) == 2
    assert await one.reserve(native, 10, 0.1, 60) == [], "all others are leased"


@pytest.fixture
def member(server: KafkaServer, queue: str) -> Iterator[Consumer]:
    """A member of another program, that has the only partition of the queue, and commits when it is told to."""
    create(server.port, queue)
    made = Consumer(
        settings(server.port) | {"group.id": GROUP, "group.protocol": "consumer", "enable.auto.commit": False}
    )
    made.subscribe([queue])
    try:
        while not made.assignment():
            made.poll(0.1)
        yield made
    finally:
        made.close()


async def is_stalled(process: KafkaBinding, queue: NativeQueue) -> bool:
    """Whether a receive says that another member acks nothing."""
    answer = await asked(process, queue)
    return isinstance(answer, BrokerUnavailable) and "has acked none" in str(answer)


async def test_a_receive_is_not_empty_where_nobody_knows_whether_the_owner_is_alive(
    one: KafkaBinding, server: KafkaServer, member: Consumer, queue: str
) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(3))
    await until(lambda: is_stalled(one, native))
    await asyncio.to_thread(member.commit, offsets=[TopicPartition(queue, 0, 3)], asynchronous=False)
    assert await asked(one, native) == []


async def leased_by(process: KafkaBinding, queue: NativeQueue, count: int) -> None:
    """Let ``process`` lease this many of the messages."""
    assert len(await taken(process, queue, count)) == count


async def test_a_receive_is_empty_while_another_gateway_works_on_all_messages(
    one: KafkaBinding, other: KafkaBinding, queue: str
) -> None:
    """There are more gateways than partitions, and its consumers ack none for long."""
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(3))
    await leased_by(one, native, 3)
    clock = asyncio.get_running_loop().time
    began = clock()

    async def is_empty_for_long(wait: float) -> bool:
        return await asked(other, native, wait=wait) == [] and clock() - began > 4 * JOIN_SECONDS

    for wait in (0.1, 2 * JOIN_SECONDS):
        await until(partial(is_empty_for_long, wait))


async def test_a_receive_is_not_empty_while_another_gateway_keeps_messages_that_nobody_asks_for_there(
    one: KafkaBinding, other: KafkaBinding, queue: str
) -> None:
    """Its lease keeps the partition."""
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, letters(3))
    await leased_by(one, native, 1)
    await until(lambda: is_stalled(other, native))


async def test_the_end_of_a_transaction_is_no_message(
    one: KafkaBinding, server: KafkaServer, member: Consumer, queue: str
) -> None:
    """It has an offset, behind all that another member has acked."""
    native = one.native_queue(queue, STANDARD)
    producer = Producer(settings(server.port) | {"transactional.id": queue})
    await asyncio.to_thread(producer.init_transactions, 60)
    producer.begin_transaction()
    producer.produce(queue, b"{}")
    await asyncio.to_thread(producer.commit_transaction, 60)
    await asyncio.to_thread(member.commit, offsets=[TopicPartition(queue, 0, 1)], asynchronous=False)
    look = one._consumer._emptiness
    noted: set[Any] = set()

    async def is_old() -> bool:
        assert not await is_stalled(one, native)
        noted.update(look._progress)
        progress = look._progress.get(f"{queue}:0")
        return progress is not None and asyncio.get_running_loop().time() - progress.since > 6

    await until(is_old)
    assert await asked(one, native) == []


@pytest.mark.slow
async def test_a_member_that_was_replaced_proves_nothing(
    one: KafkaBinding, server: KafkaServer, between: Proxy, queue: str
) -> None:
    """It does not know it yet when its connection comes back."""
    async with binding(f"kafka://127.0.0.1:{server.proxy_port}", {"timeout_seconds": 5}) as far:
        native = far.native_queue(queue, STANDARD)
        await far.publish(native, letters(2))
        (held,) = await taken(far, native, 1)
        assert kinds(await far.prove(native, [held.handle, "nobody's"])) == [None, LeaseLost]
        between.hold_replies = True
        found = await taken(one, native, 1)
        assert [each.body for each in found] == [held.body]
        between.hold_replies = False
        answers: list[Any] = []

        async def is_lost() -> bool:
            answers.extend(kinds(await far.prove(native, [held.handle])))
            return answers[-1] is LeaseLost

        await until(is_lost)
        assert None not in answers
        assert await one.ack(native, [each.handle for each in found]) == [None]
