"""The official clients that the SDKs use: both ways through a topic, and beside gateways in their consumer group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.errors import BrokerUnavailable
from tests.brokers.kafka.harness import KafkaBroker, create
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.harness.world import Process, World, until
from tests.official.programs import Consumer, Foreign, Official
from tests.suites.official import LANGUAGES, envelope, number_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
LEAST = 100
"""Each member of the group gets this many messages."""

SHARING = (
    ("java", "consumer"),
    ("java", "classic"),
    ("node", "consumer"),
    ("python", "consumer"),
    ("python", "classic"),
)
"""The languages whose clients share the group with gateways, and the group protocol of these."""

REFUSING = (("go", "consumer", "group of the broker"), ("node", "classic", "group_protocol of the broker to consumer"))
"""Clients that were in the group first and that a gateway of this protocol cannot join: and what the error says."""


@pytest.fixture
def own() -> Iterator[KafkaServer]:
    """A server whose group has no other members."""
    with kafka() as running:
        yield running


@pytest.fixture
async def world(own: KafkaServer, queue: str) -> AsyncIterator[World]:
    """Gateways on the server, and a topic."""
    create(own.port, queue, partitions=PARTITIONS)
    made = World(KafkaBroker(own), queue)
    yield made
    await made.close()


def client_of(server: KafkaServer, language: str) -> Official:
    return Official("kafka", language, f"127.0.0.1:{server.port}")


async def consume(gateway: Process, seen: list[int]) -> None:
    """Receive and ack, without end. A rebalance may end leases; their messages come again."""
    while True:
        with contextlib.suppress(BrokerUnavailable):
            messages = await gateway.receive(10, 1)
            outcomes = await gateway.ack(*messages)
            seen += [number_of(each.body) for each, outcome in zip(messages, outcomes, strict=True) if outcome is None]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_messages_go_both_ways(world: World, own: KafkaServer, queue: str, language: str) -> None:
    """With headers; what the client publishes is received, and what the gateway publishes is read, byte for byte."""
    client, process = client_of(own, language), await world.process()
    bodies = [envelope(number, queue, "ü" * 1000 * number) for number in range(5)]
    await client.produce(queue, *(Foreign(body, {"shop-region": "eu ☕"}) for body in bodies))
    taken = await process.take(5)
    assert sorted(each.body for each in taken) == sorted(bodies)
    assert {each.headers["shop-region"] for each in taken} == {"eu ☕"}
    assert await process.ack(*taken) == [None] * 5
    await process.close()
    for body in bodies:
        await (publisher := await world.process()).publish_body(body)
        await publisher.close()
    read = await client.take(queue, 5)
    assert sorted(each.payload for each in read) == sorted(bodies)
    assert {each.headers["bq-source-lang"] for each in read} == {"python"}


@pytest.mark.parametrize(("language", "protocol"), SHARING)
async def test_a_client_shares_the_group_with_two_gateways(
    world: World, own: KafkaServer, queue: str, language: str, protocol: str
) -> None:
    """Each gets messages, and none is lost. While the group moves partitions some may come again."""
    options = {"group_protocol": protocol}
    gateways = [await world.process(broker_options=options), await world.process(broker_options=options)]
    seen: list[list[int]] = [[], []]
    sent = 0
    async with client_of(own, language).consuming(queue) as consumer:
        tasks = [asyncio.create_task(consume(*each)) for each in zip(gateways, seen, strict=True)]
        try:

            async def all_have_some() -> bool:
                nonlocal sent
                await gateways[0].publish_all([{"n": number} for number in range(sent, sent + 20)])
                sent += 20
                await asyncio.sleep(0.2)
                return min(len(seen[0]), len(seen[1]), len(consumer.messages)) >= LEAST

            await until(all_have_some)
            await until(lambda: has_all(seen, consumer, sent))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def has_all(seen: list[list[int]], consumer: Consumer, sent: int) -> bool:
    theirs = {number_of(each.payload) for each in consumer.messages}
    return theirs.union(*seen) == set(range(sent))


@pytest.mark.parametrize(("language", "protocol", "advice"), REFUSING)
async def test_a_client_that_cannot_share_the_group_goes_on_and_a_gateway_says_what_to_set(
    world: World, own: KafkaServer, queue: str, language: str, protocol: str, advice: str
) -> None:
    """A gateway that is set so receives of other topics, beside the client."""
    publisher = await world.process()
    other = f"{queue}-other"
    create(own.port, other)
    async with client_of(own, language).consuming(queue) as consumer:
        await publisher.publish({"n": 0})
        await consumer.take(1)
        refused = await world.process(queue=other, broker_options={"group_protocol": protocol})

        async def says_what_to_set() -> bool:
            try:
                await refused.receive(1, 1)
            except BrokerUnavailable as error:
                return advice in str(error)
            return False

        await until(says_what_to_set)
        own_group = {"group": "gateways", "group_protocol": protocol}
        gateway = await world.process(queue=other, broker_options=own_group)
        await gateway.publish({"n": 1})
        (message,) = await gateway.take(1)
        assert await gateway.ack(message) == [None]
        assert await gateway.is_empty()
        await publisher.publish({"n": 2})
        read = await consumer.take(2)
    assert [number_of(each.payload) for each in read] == [0, 2]


async def test_a_gateway_of_the_classic_protocol_takes_all_partitions_from_kafka_go(
    world: World, own: KafkaServer, queue: str
) -> None:
    """kafka-go cannot read what other clients say of themselves when they join, nor they what it says."""
    gateway = await world.process(broker_options={"group_protocol": "classic"})
    binding = gateway.gateway.bindings["kafka"]
    assert isinstance(binding, KafkaBinding)
    async with client_of(own, "go").consuming(queue) as consumer:
        await gateway.publish({"n": 0})
        await consumer.take(1)
        seen: list[int] = []
        consuming = asyncio.create_task(consume(gateway, seen))

        async def has_all_partitions() -> bool:
            topic = binding._consumer._topics.get(queue)
            return topic is not None and len(topic.partitions) == PARTITIONS

        try:
            await until(has_all_partitions)
        finally:
            consuming.cancel()
            await asyncio.wait([consuming])
