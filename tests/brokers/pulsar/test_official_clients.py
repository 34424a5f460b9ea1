"""Pulsar's official clients on the other end of a topic, both ways. The one for Python is in test_interop.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from babelqueue.codec import EnvelopeCodec

from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.world import JOB, World
from tests.official.programs import Foreign, Official
from tests.suites.official import SharedQueue, by_number, number_of

LANGUAGES = ("go", "java")
COMPRESSIONS = {"go": ("NONE", "LZ4", "ZLIB", "ZSTD"), "java": ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")}
"""The client for Go has no Snappy."""

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]
languages = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def address(server: PulsarServer) -> str:
    """The URL for clients."""
    return f"pulsar://127.0.0.1:{server.port}"


@pytest.fixture
async def world(server: PulsarServer, queue: str) -> AsyncIterator[World]:
    """Gateways on the server."""
    made = World(PulsarBroker(server), queue)
    yield made
    await made.close()


def numbered(values: Sequence[int], text: str = "") -> list[dict[str, object]]:
    """Payloads with these numbers."""
    return [{"n": value, "text": text} for value in values]


@languages
async def test_a_client_reads_messages_copies_and_dead_letters(
    world: World, address: str, queue: str, language: str
) -> None:
    """Of a single publish and a batch; the copies of nacks that count and that do not; and a dead letter."""
    gateway = await world.process()
    entry = {"envelope": {"job": JOB, "data": {"n": 0}}, "headers": {"shop-region": "eu ☕"}}
    await gateway.publish_body(json.dumps(entry).encode())
    await gateway.publish_all(numbered(range(1, 7)))
    sent = {number_of(message.body): message for message in await gateway.take(7)}
    assert await gateway.nack(sent[0], sent[1]) == [None] * 2
    assert await gateway.nack(*(sent[n] for n in range(2, 6)), failed=False) == [None] * 4
    assert await gateway.reject(sent[6]) == [None]
    await gateway.publish_all(numbered([7], "x" * 1_000_000))
    client = Official("pulsar", language, address)
    read = by_number(await client.take(queue, 7))
    (letter,) = await client.take(f"{queue}.dlq", 1)
    assert set(read) == {0, 1, 2, 3, 4, 5, 7}
    assert await gateway.is_empty()
    for n in range(2):
        assert json.loads(read[n].payload) == json.loads(sent[n].body) | {"attempts": 1}
    for n in range(2, 6):
        assert read[n].payload == sent[n].body
    assert len(json.loads(read[7].payload)["data"]["text"]) == 1_000_000
    assert read[0].headers["shop-region"] == "eu ☕"
    dead = json.loads(letter.payload)
    assert dead.pop("dead_letter")["reason"] == "failed"
    assert dead == json.loads(sent[6].body)


@pytest.mark.parametrize(
    ("language", "compression"), [(each, kind) for each in LANGUAGES for kind in COMPRESSIONS[each]]
)
async def test_the_gateway_reads_the_batches_of_a_client(
    world: World, address: str, queue: str, language: str, compression: str
) -> None:
    """25 messages in batches of ten, some large, some alike: what a compression does well and badly."""
    gateway = await world.process()
    assert await gateway.receive() == []
    made = [EnvelopeCodec.make(JOB, {"n": n, "text": "ab" * n * 100}, queue=queue) for n in range(25)]
    messages = [
        Foreign(EnvelopeCodec.encode(each).encode(), {"n": str(n)}, {"key": f"key-{n % 3}"})
        for n, each in enumerate(made)
    ]
    await Official("pulsar", language, address).produce(queue, *messages, more=[compression])
    got = await gateway.take(25)
    assert [message.body for message in got] == [each.payload for each in messages]
    assert [message.headers["n"] for message in got] == [each.headers["n"] for each in messages]
    assert await gateway.ack(*got) == [None] * 25
    assert await gateway.is_empty()


class TestShared(SharedQueue):
    """A client that takes a message for corrupt acknowledges it, and it is lost."""

    @pytest.fixture(params=LANGUAGES)
    def language(self, request: pytest.FixtureRequest) -> str:
        language: str = request.param
        return language

    @pytest.fixture
    def client(self, address: str, language: str) -> Official:
        return Official("pulsar", language, address)
