"""Connections of a client: to a server that answers late, which a real one does on a busy machine only; and how many
producers they have."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.consumer import TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError
from babelgate.brokers.pulsar.message import native
from babelgate.brokers.pulsar.publish import PulsarPublisher, TopicProducer
from babelgate.brokers.pulsar.url import PulsarQueue, settings_of
from babelgate.clock import now_ms
from babelgate.errors import BodyTooLarge, BrokerUnavailable, OutcomeUnknown
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.local import eventually


class LateServer:
    """Answers CONNECT once ``answers`` is set, and nothing else. ``open``: the connections that clients have open."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.accepted = 0
        self.open = 0
        self.kinds: list[str] = []
        self._changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until what clients do makes it true."""
        async with self._changed:
            await self._changed.wait_for(holds)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        try:
            while size := int.from_bytes(await reader.readexactly(4), "big"):
                kind, _, _ = wire.read_command(await reader.readexactly(size))
                self.kinds.append(kind)
                await self._tell()
                if kind == "connect":
                    await self.answers.wait()
                    writer.write(wire.command("connected", server_version=b"late", protocol_version=21))
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.open -= 1
            writer.close()
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def test_a_connection_whose_caller_has_given_up_is_used_by_the_next_and_closed() -> None:
    late = LateServer()
    async with await asyncio.start_server(late.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PulsarClient("late", settings_of(f"pulsar://127.0.0.1:{port}", {}), 60)
        caller = asyncio.create_task(client.service())
        await late.until(lambda: bool(late.kinds))
        caller.cancel()
        late.answers.set()
        await asyncio.wait([caller])
        connection = await client.service()
        assert (await client.service(), late.accepted) == (connection, 1)
        await client.close()
        await late.until(lambda: not late.open)


async def test_a_subscription_that_is_given_up_ends() -> None:
    """The broker may have it by then, with a share of the keys."""
    late = LateServer()
    late.answers.set()
    async with await asyncio.start_server(late.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PulsarClient("late", settings_of(f"pulsar://127.0.0.1:{port}", {}), 60)
        connection = await client.service()
        consumer = TopicConsumer(connection, "t", lambda entry: None, lambda consumer: None)
        opening = asyncio.create_task(consumer.open(key_shared=True))
        await late.until(lambda: "subscribe" in late.kinds)
        opening.cancel()
        await late.until(lambda: late.kinds[-1] == "close_consumer")
        await client.close()
        await late.until(lambda: not late.open)


@pytest.mark.parametrize("steps", range(1, 4))
async def test_a_consumer_ends_though_the_call_that_ends_it_is_cancelled(steps: int) -> None:
    """Else the broker would keep the messages that it holds from all others."""
    late = LateServer()
    late.answers.set()
    async with await asyncio.start_server(late.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PulsarClient("late", settings_of(f"pulsar://127.0.0.1:{port}", {}), 60)
        consumers = QueueConsumers(client, PulsarQueue("persistent://public/default/t"), lambda: None)
        connection = await client.service()
        consumer = TopicConsumer(connection, "t", lambda entry: None, lambda consumer: None)
        connection.consumers[consumer._id] = consumers.by_topic["t"] = consumer
        closing = asyncio.create_task(consumers.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await late.until(lambda: "close_consumer" in late.kinds)
        await client.close()
        await late.until(lambda: not late.open)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("close_producer", "the broker has closed the producer"),
        ("close_consumer", "the broker has closed the consumer"),
    ],
    ids=["producer", "consumer"],
)
async def test_the_error_names_what_the_broker_has_closed(kind: str, reason: str) -> None:
    class Endpoint:
        def __init__(self) -> None:
            self.errors: list[str] = []

        def received(self, kind: str, fields: Any, rest: bytes) -> None:
            raise AssertionError(kind)

        def lost(self, error: ConnectionEnded) -> None:
            self.errors.append(str(error))

    async def credentials() -> tuple[str, bytes]:
        return "", b""

    connection = PulsarConnection(credentials)
    endpoint = connection.producers[1] = connection.consumers[1] = Endpoint()
    connection.data_received(wire.command(kind, **{f"{kind.removeprefix('close_')}_id": 1}))
    assert endpoint.errors == [reason]


def _producer(connection: PulsarConnection) -> TopicProducer:
    """A producer that is open, as far as this process knows."""
    producer = TopicProducer(connection, "t")
    connection.producers[producer._number] = producer
    return producer


@pytest.mark.parametrize(
    ("is_closed", "expected"), [(False, BodyTooLarge), (True, BrokerUnavailable)], ids=["large", "closed"]
)
async def test_a_late_publish_ends_no_connection_on_which_it_has_written_nothing(
    is_closed: bool, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition's broker is silent. Nothing was written to that of another one, which serves other calls."""
    late = LateServer()
    late.answers.set()
    async with await asyncio.start_server(late.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PulsarClient("late", settings_of(f"pulsar://127.0.0.1:{port}", {}), 1)
        connections = [await client._dial(client._service) for _ in range(2)]
        unused, silent = map(_producer, connections)
        if is_closed:
            del unused.connection.producers[unused._number]
        else:
            unused.connection.max_message_bytes = 1
        publisher = PulsarPublisher(client, now_ms)

        async def shares(topic: str, metadata: Sequence[Any]) -> list[tuple[TopicProducer, list[int]]]:
            return [(unused, [0]), (silent, [1])]

        monkeypatch.setattr(publisher, "_shares", shares)
        outcomes = await publisher.publish("t", [Outgoing(b"{}"), Outgoing(b"{}")])
        assert [type(each) for each in outcomes] == [expected, OutcomeUnknown]
        assert [each.is_open for each in connections] == [True, False]
        assert late.kinds.count("send") == 1
        await client.close()
        await late.until(lambda: not late.open)


async def test_nothing_is_written_when_no_time_is_left_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which messages are encoded is part of the call's."""
    late = LateServer()
    late.answers.set()

    def slow(message: Outgoing, now: int) -> Any:
        time.sleep(0.7)
        return native(message, now)

    monkeypatch.setattr("babelgate.brokers.pulsar.publish.native", slow)
    async with await asyncio.start_server(late.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PulsarClient("late", settings_of(f"pulsar://127.0.0.1:{port}", {}), 1)
        producer = _producer(await client.service())
        publisher = PulsarPublisher(client, now_ms)

        async def shares(topic: str, metadata: Sequence[Any]) -> list[tuple[TopicProducer, list[int]]]:
            await asyncio.sleep(0.7)
            return [(producer, [0])]

        monkeypatch.setattr(publisher, "_shares", shares)
        with pytest.raises(BrokerUnavailable, match="no producer within 1 s"):
            await publisher.publish("t", [Outgoing(b"{}")])
        assert "send" not in late.kinds
        assert producer.is_open
        await client.close()
        await late.until(lambda: not late.open)


@pytest.mark.pulsar
async def test_a_consumer_opens_while_that_of_another_partition_does_not(
    server: PulsarServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledgement opens one, and would wait for a broker that it does not need."""
    client = PulsarClient("pulsar", settings_of(f"pulsar://127.0.0.1:{server.port}", {}), 60)
    silent, topic = (f"persistent://public/default/{queue}-{name}" for name in ("silent", "open"))
    consumers = QueueConsumers(client, PulsarQueue(topic), lambda: None)
    owner, asked = client.owner, asyncio.Event()

    async def owner_of(topic: str) -> PulsarConnection:
        if topic == silent:
            asked.set()
            await asyncio.Event().wait()
        return await owner(topic)

    monkeypatch.setattr(client, "owner", owner_of)
    opening = asyncio.create_task(consumers.open([silent]))
    await asked.wait()
    async with asyncio.timeout(60):
        (opened,), (same,) = await asyncio.gather(consumers.open([topic]), consumers.open([topic]))
    assert opened is same
    opening.cancel()
    await asyncio.wait([opening])
    await consumers.close()
    await client.close()


@pytest.mark.pulsar
async def test_a_producer_that_is_not_used_ends_after_its_last_receipt(server: PulsarServer, queue: str) -> None:
    """Else every topic that was ever published to would keep one, here and at the broker."""
    client = PulsarClient("pulsar", settings_of(f"pulsar://127.0.0.1:{server.port}", {}), 60)
    publisher = PulsarPublisher(client, now_ms, max_producers=2)
    topics = [f"persistent://public/default/{queue}-{n}" for n in range(4)]

    def producers() -> list[int]:
        stats = (server.admin(f"{topic.replace('://', '/')}/stats") for topic in topics)
        return [len(json.loads(each or b"{}").get("publishers", ())) for each in stats]

    for topic in (*topics, topics[0]):
        outcomes = await asyncio.gather(*(publisher.publish(topic, [Outgoing(b"{}")] * 20) for _ in range(3)))
        assert outcomes == [[None] * 20] * 3
    await eventually(lambda: producers() == [1, 0, 0, 1])
    # The one of the first topic was used after that of the last one.
    assert await publisher.publish(topics[1], [Outgoing(b"{}")]) == [None]
    await eventually(lambda: producers() == [1, 1, 0, 0])
    await asyncio.gather(*(publisher.publish(topic, [Outgoing(b"{}")] * 20) for topic in topics[:2] * 9))
    assert producers() == [1, 1, 0, 0]
    await publisher.close()
    await client.close()


@pytest.mark.pulsar
async def test_a_producer_that_is_refused_is_forgotten(server: PulsarServer, queue: str) -> None:
    client = PulsarClient("pulsar", settings_of(f"pulsar://127.0.0.1:{server.port}", {}), 60)
    connection = await client.service()
    producer = TopicProducer(connection, f"persistent://missing/namespace/{queue}")
    with pytest.raises(PulsarError):
        await producer.open()
    assert not connection.producers
    await client.close()
