"""A broker's official clients on the other end of a queue, both ways.

The clients write and read in their own words, so that what they agree on is the wire's form and not ours.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from babelqueue.codec import EnvelopeCodec

from babelgate.gateway.authorization import ANYONE
from tests.harness.world import JOB, Process, World, until
from tests.official.programs import Foreign, Official

LANGUAGES = ("go", "java", "node", "python")
SIZES = (99_000, 101_000, 103_000, 300_000)
"""Bytes of payloads around Artemis' ``amqpMinLargeMessageSize``, 102,400, and beyond a frame of each protocol."""

_SHARED = 1_000
_LEAST = 100
"""Each side of a shared queue gets so many messages."""


def envelope(number: int, queue: str, text: str = "") -> bytes:
    """An envelope as an SDK makes it."""
    return EnvelopeCodec.encode(EnvelopeCodec.make(JOB, {"n": number, "text": text}, queue=queue)).encode()


def number_of(body: bytes) -> int:
    """The number of an :func:`envelope`."""
    found: int = json.loads(body)["data"]["n"]
    return found


def by_number(messages: list[Foreign]) -> dict[int, Foreign]:
    return {number_of(each.payload): each for each in messages}


def as_text(value: object) -> str:
    """A value of a projection as a client prints it."""
    return value if isinstance(value, str) else json.dumps(value)


def odd_ones(message: Foreign) -> dict[str, Any]:
    """The headers that a client sends of an ``odd`` message."""
    return {name: value for name, value in message.headers.items() if name.startswith("odd")}


class SharedQueue:
    """A subclass has fixtures ``world``, and ``client``, which takes ``language``."""

    @pytest.fixture(params=LANGUAGES)
    def language(self, request: pytest.FixtureRequest) -> str:
        language: str = request.param
        return language

    async def test_a_client_and_two_gateways_share_a_queue(self, world: World, client: Official, queue: str) -> None:
        """Each message is consumed once, and none is lost."""
        gateways = [await world.process(), await world.process()]
        seen: list[int] = []
        count = 0

        async def consume(gateway: Process) -> None:
            while True:
                messages = await gateway.ready(10, 1)
                assert await gateway.ack(*messages) == [None] * len(messages)
                seen.extend(number_of(message.body) for message in messages)

        async def all_are_consumed() -> bool:
            return len(seen) + len(consumer.messages) >= count

        assert await gateways[0].receive() == []
        async with client.consuming(queue) as consumer:
            consuming_too = [asyncio.create_task(consume(gateway)) for gateway in gateways]
            try:
                while count < _SHARED or min(len(seen), len(consumer.messages)) < _LEAST:
                    await gateways[0].publish_all([{"n": number} for number in range(count, count + 100)])
                    count += 100
                    await until(all_are_consumed)
            finally:
                for task in consuming_too:
                    task.cancel()
                await asyncio.wait(consuming_too)
        theirs = [number_of(each.payload) for each in consumer.messages]
        assert sorted(seen + theirs) == list(range(count))
        await until(gateways[0].is_empty)


class OfficialClients(SharedQueue):
    """All of it."""

    returned_attempts = 1
    """What a message counts that a client has given back once as failed."""
    rejected_letters = 0
    """Dead letters of the queue when a client has rejected a message."""
    hidden: frozenset[tuple[str, str]] = frozenset()
    """Languages, and fields of the projection that their client does not show."""

    def contract(self, job: str, trace_id: str, message_id: str) -> dict[str, str]:
        """Native properties of a message that follows the contract, by their names in the projection."""
        raise NotImplementedError

    def contract_of(self, body: bytes) -> dict[str, str]:
        made = json.loads(body)
        return self.contract(made["job"], made["trace_id"], made["meta"]["id"])

    async def test_a_client_reads_messages_copies_and_dead_letters(
        self, world: World, client: Official, queue: str
    ) -> None:
        """Of a single publish, with all native properties, and of a batch; copies of nacks, and a dead letter."""
        gateway = await world.process()
        entry = {"envelope": json.loads(envelope(0, queue)), "headers": {"shop_region": "eu ☕"}}
        await gateway.publish_body(json.dumps(entry).encode())
        (write,) = (await gateway.gateway.validate(ANYONE, queue, json.dumps(entry).encode())).writes
        await gateway.publish_all([{"n": number} for number in range(1, 5)])
        sent = {number_of(message.body): message for message in await gateway.take(5)}
        assert await gateway.nack(sent[1], delay=0.1) == [None]
        assert await gateway.nack(sent[0], sent[2], failed=False) == [None] * 2
        assert await gateway.reject(sent[3], error="no stock") == [None]
        assert await gateway.ack(sent[4]) == [None]
        read = by_number(await client.take(queue, 3))
        assert read.keys() == {0, 1, 2}
        assert read[0].payload == write.body == sent[0].body
        for name, value in write.fields.items():
            if (client.language, name) not in self.hidden:
                assert read[0].properties[name] == as_text(value), name
        for name, header in write.headers.items():
            assert str(read[0].headers[name]).removeprefix("eu ").rpartition(" ")[2] == as_text(
                header.value
            ).removeprefix("eu "), name
        assert json.loads(read[1].payload) == json.loads(sent[1].body) | {"attempts": 1}
        assert read[2].payload == sent[2].body
        (letter,) = await client.take(f"{queue}.dlq", 1)
        record = json.loads(letter.payload)
        assert record.pop("dead_letter")["error"] == "no stock"
        assert record == json.loads(sent[3].body)
        await until(gateway.is_empty)

    async def test_the_gateway_reads_what_a_client_publishes_and_returns(
        self, world: World, client: Official, queue: str
    ) -> None:
        """With properties of the contract, without, and with values of each type, which copies keep."""
        gateway = await world.process()
        assert await gateway.receive() == []
        bodies = [envelope(number, queue) for number in range(4)]
        await client.produce(
            queue,
            Foreign(bodies[0], odd=True),
            Foreign(bodies[1], {"shop_region": "eu ☕"}, self.contract_of(bodies[1])),
            Foreign(bodies[2]),
            Foreign(bodies[3], odd=True),
        )
        returned = await client.settle(queue, "return")
        assert number_of(returned.payload) == 0
        taken = {number_of(message.body): message for message in await gateway.take(4)}
        assert [taken[number].body for number in range(4)] == bodies
        assert taken[1].headers["shop_region"] == "eu ☕"
        # A null is no header for a client of the gateway.
        shown = {name for name in taken[0].headers if name.startswith("odd")}
        assert shown == odd_ones(returned).keys() - {"odd-nothing"}
        assert [taken[0].headers[name] for name in shown if name.endswith("bool")] == ["true"]
        attempts = [taken[number].attempts for number in range(4)]
        assert attempts == [self.returned_attempts, 0, 0, 0]
        assert [taken[number].redelivered for number in range(4)] == [True, False, False, False]
        assert await gateway.nack(taken[0], taken[1], taken[2], delay=0.1) == [None] * 3
        assert await gateway.reject(taken[3]) == [None]
        read = by_number(await client.take(queue, 3))
        for number in range(3):
            expected = json.loads(bodies[number]) | {"attempts": attempts[number] + 1}
            assert json.loads(read[number].payload) == expected
        assert odd_ones(read[0]) == odd_ones(returned)
        assert read[1].headers["shop_region"] == "eu ☕"
        for name, value in self.contract_of(bodies[1]).items():
            if (client.language, name) not in self.hidden:
                # Where a broker drops repeated ids, a copy has its own behind a colon.
                assert str(read[1].properties[name]).removeprefix(value).partition(":")[0] == "", name
        (letter,) = await client.take(f"{queue}.dlq", 1)
        assert odd_ones(letter) == odd_ones(returned)

    async def test_what_a_client_rejects_is_off_the_queue(self, world: World, client: Official, queue: str) -> None:
        gateway = await world.process()
        await gateway.publish({"n": 1, "text": ""})
        rejected = await client.settle(queue, "reject")
        assert number_of(rejected.payload) == 1
        await until(gateway.is_empty)
        assert len(await gateway.dead()) == self.rejected_letters

    async def test_large_bodies_go_both_ways(self, world: World, client: Official, queue: str) -> None:
        gateway = await world.process()
        assert await gateway.receive() == []
        bodies = [envelope(number, queue, "ü" * (size // 2)) for number, size in enumerate(SIZES)]
        await client.produce(queue, *(Foreign(body, properties=self.contract_of(body)) for body in bodies))
        taken = await gateway.take(len(SIZES))
        assert sorted(message.body for message in taken) == sorted(bodies)
        assert await gateway.ack(*taken) == [None] * len(SIZES)
        for body in bodies:
            await gateway.publish_body(body)
        read = by_number(await client.take(queue, len(SIZES)))
        assert [read[number].payload for number in range(len(SIZES))] == bodies
