"""Why Pulsar's protocol is spoken here (docs/adr/0022-pulsar-by-its-protocol.md): what pulsar-client does. If one of
these fails, pulsar-client has become better: read the decision again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pulsar
import pytest

from tests.brokers.pulsar.harness import client, subscribe
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.proxy import Proxy, proxy

_PATIENCE_MS = 60_000
_SEND_RECEIPT = 7
"""A BaseCommand.Type of PulsarApi.proto."""


@asynccontextmanager
async def between(server: PulsarServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the server, which names the proxy's address as its own."""
    async with proxy("127.0.0.1", server.port) as running:
        own, its = b"127.0.0.1:%d" % running.port, b"127.0.0.1:%d" % server.port
        assert len(own) == len(its)
        running.alter = lambda answer: answer.replace(its, own)
        yield running


def bodies(server: PulsarServer, topic: str, count: int) -> list[bytes]:
    """So many messages that the subscription of ``topic`` has, and what comes within a second behind them."""
    with client(server.port) as opened:
        consumer = subscribe(opened, topic)
        found = [bytes(consumer.receive(_PATIENCE_MS).data()) for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(1_000)
    return found


def received(opened: Any, topic: str) -> tuple[Any, Any]:
    """A consumer of a client, and the message that it has received and holds."""
    consumer = subscribe(opened, topic)
    opened.create_producer(topic).send(b"1")
    return consumer, consumer.receive(_PATIENCE_MS)


async def test_it_sends_a_message_without_an_answer_again(server: PulsarServer, queue: str) -> None:
    """It reports one success, and the message is stored twice."""
    with client(server.port) as opened:
        subscribe(opened, queue).close()
    async with between(server) as running:
        renamed, cuts = running.alter, 0

        def cut_the_receipt(answer: bytes) -> bytes:
            nonlocal cuts
            if answer[8:10] == bytes((0x08, _SEND_RECEIPT)) and not cuts:
                cuts += 1
                running.cut()
                return b""
            return renamed(answer)

        def send() -> None:
            with client(running.port) as opened:
                producer = opened.create_producer(queue, batching_enabled=False)
                running.alter = cut_the_receipt
                producer.send(b"once")

        await asyncio.to_thread(send)
        assert cuts == 1
    assert await asyncio.to_thread(bodies, server, queue, 2) == [b"once", b"once"]


async def test_an_ack_is_done_without_the_brokers_answer(server: PulsarServer, queue: str) -> None:
    async with between(server) as running:
        with client(running.port) as opened:
            consumer, message = await asyncio.to_thread(received, opened, queue)
            running.hold_replies = True
            await asyncio.wait_for(asyncio.to_thread(consumer.acknowledge, message), 60)
            # Before the client is closed, which waits for an answer.
            running.hold_replies = False
            running.cut()
    assert not [name for name in inspect.signature(pulsar.Client.subscribe).parameters if "receipt" in name]


async def test_a_reconnect_is_silent(server: PulsarServer, queue: str) -> None:
    """What a consumer holds is delivered again, and the consumer is the same."""
    async with between(server) as running:
        with client(running.port) as opened:
            consumer, message = await asyncio.to_thread(received, opened, queue)
            running.cut()
            again = await asyncio.to_thread(consumer.receive, _PATIENCE_MS)
            assert again.message_id() == message.message_id()


async def test_permits_and_backlogs_are_not_offered(server: PulsarServer, queue: str) -> None:
    topic = f"persistent/public/default/{queue}"
    server.admin(f"{topic}/partitions", "PUT", b"2")

    def subscribe_without_a_prefetch() -> None:
        with client(server.port) as opened:
            subscribe(opened, queue, receiver_queue_size=0)

    with pytest.raises(pulsar.PulsarException):
        await asyncio.to_thread(subscribe_without_a_prefetch)
    assert not [name for name in dir(pulsar.Consumer) if "permit" in name or "backlog" in name or "stats" in name]
