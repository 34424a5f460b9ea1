"""Helpers for the tests of the parts of the RabbitMQ binding."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

from pamqp.commands import Basic

from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.incoming import FIXED, properties_of
from babelgate.brokers.rabbitmq.options import RabbitQueue, queue_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage, NativeMessage
from babelgate.brokers.rabbitmq.publish import ConfirmedPublisher
from babelgate.brokers.rabbitmq.topology import Declarer
from babelgate.brokers.rabbitmq.url import parameters_of
from tests.brokers.rabbitmq.server import RabbitServer

BODY = b'{"job":"urn:babel:test:made","trace_id":"t","data":{},"meta":{"id":"1","queue":"q","lang":"python",' + (
    b'"schema_version":1,"created_at":1},"attempts":0}'
)

FULL = Basic.Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={"text": "t", "number": 1, "list": ["x"]},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="1000",
    message_id="m",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    message_type="urn:x",
    user_id="guest",
    app_id="babelqueue",
)
"""All properties that a message can have."""


def decoded(message: AddressedMessage) -> Basic.Properties:
    """The properties of a message to publish."""
    return properties_of(bytes(FIXED) + message.given) if isinstance(message.given, bytes) else message.given


@asynccontextmanager
async def linked(url: str, timeout_seconds: float = TIMEOUT_SECONDS, **options: Any) -> AsyncIterator[AmqpConnection]:
    """A connection for publishing, not yet open."""
    link = AmqpConnection("rabbit", parameters_of(url, options), "publish", timeout_seconds=timeout_seconds)
    try:
        yield link
    finally:
        await link.close()


class Line:
    """A publisher and its queue, with short calls."""

    def __init__(self, link: AmqpConnection, queue: RabbitQueue, publisher: ConfirmedPublisher | None = None) -> None:
        self.link = link
        self.queue = queue
        self.profile = queue.profile
        self.declarer = Declarer(link)
        self.publisher = publisher or ConfirmedPublisher(link, self.declarer)

    async def publish(self, *bodies: bytes, delay: float = 0, headers: dict[str, str] | None = None) -> list[Outcome]:
        messages = [self.profile.message(Outgoing(body, headers or {}, delay_seconds=delay)) for body in bodies]
        return await self.publisher.publish(messages, self.profile.topology, self.queue.declare)

    async def bodies(self, queue: str | None = None, count: int = 100) -> list[bytes]:
        """The bodies of the ready messages, which are removed."""
        channel = await self.link.channel()
        got = await channel.get(queue or self.profile.queue, count)
        channel.accept([each.tag for each in got])
        await channel.barrier()
        await channel.close()
        return [each.body for each in got]

    async def delete(self, queue: str | None = None) -> None:
        channel = await self.link.channel()
        await channel.rpc.queue_delete(queue or self.profile.queue)
        await channel.close()


@asynccontextmanager
async def lined(url: str, queue: str, timeout_seconds: float = 30, **options: Any) -> AsyncIterator[Line]:
    """A publisher and a queue with the options of a route."""
    async with linked(url, timeout_seconds) as link:
        line = Line(link, queue_of(queue, options))
        try:
            yield line
        finally:
            await line.publisher.close()


@contextmanager
def virtual_host(rabbit: RabbitServer) -> Iterator[str]:
    """The name of a new virtual host, for tests of what all queues of a virtual host share."""
    name = f"test-{uuid.uuid4().hex}"
    rabbit.add_vhost(name)
    try:
        yield name
    finally:
        if rabbit.is_running:
            rabbit.delete_vhost(name)


class Arrivals:
    """Consumes a queue, and acks."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._all: asyncio.Queue[NativeMessage] = asyncio.Queue()

    @classmethod
    async def of(cls, link: AmqpConnection, queue: str) -> Arrivals:
        arrivals = cls(await link.channel())
        await arrivals._channel.consume(queue, 100, arrivals._take)
        return arrivals

    def _take(self, arrived: NativeMessage) -> None:
        self._channel.accept([arrived.tag])
        self._all.put_nowait(arrived)

    async def next(self, seconds: float = 20) -> NativeMessage:
        """The next that comes."""
        return await asyncio.wait_for(self._all.get(), seconds)

    @property
    def left(self) -> int:
        """The number of messages that arrived and were not read by ``next``."""
        return self._all.qsize()
