"""RabbitMQ as the behaviour suites use it, and as a foreign program or an operator uses its queues."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
from pamqp.commands import Basic
from pika.adapters.blocking_connection import BlockingChannel

from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.profile import NativeMessage, Topology
from babelgate.clock import now_ms
from tests.brokers.rabbitmq.server import RabbitServer, rabbit_server
from tests.harness.broker import ServerBroker, Variant

if TYPE_CHECKING:
    from babelgate.brokers.rabbitmq.binding import RabbitBinding


@contextmanager
def client(url: str) -> Iterator[BlockingChannel]:
    """A channel of another client library, as a foreign program or an operator would use; publishes are confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def count(url: str, queue: str) -> int:
    """How many messages are ready on ``queue``, which must exist."""
    with client(url) as channel:
        ready: int = channel.queue_declare(queue, passive=True).method.message_count
        return ready


def browse(url: str, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """All that is ready on ``queue``, oldest first, and put back; nothing where there is no such queue."""
    found: list[tuple[pika.BasicProperties, bytes]] = []
    with contextlib.suppress(pika.exceptions.ChannelClosedByBroker), client(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue)
            if method is None:
                break
            found.append((properties, body))
        # A quorum queue has it back only later, and keeps no more than 32 at once in order.
        for last in sorted({*range(32, len(found), 32), len(found)} - {0}):
            channel.basic_nack(last, multiple=True)
            deadline = time.monotonic() + 2
            while channel.queue_declare(queue, passive=True).method.message_count < last:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
    return found


def declare(channel: BlockingChannel, topology: Topology) -> None:
    """What a foreign program would have to declare to share a queue with the gateway."""
    for exchange in topology.exchanges:
        channel.exchange_declare(exchange.name, exchange.kind, durable=True)
    for queue in topology.queues:
        # The gateway leaves out a limit of -1 before RabbitMQ 4, where it would mean: at once.
        version = channel.connection._impl.server_properties["version"]
        arguments = {
            k: v for k, v in queue.arguments.items() if not (version < "4" and (k, v) == ("x-delivery-limit", -1))
        }
        channel.queue_declare(queue.name, durable=True, arguments=arguments or None)
    for bound in topology.bindings:
        bind = channel.exchange_bind if bound.to_exchange else channel.queue_bind
        bind(bound.destination, bound.exchange, bound.routing_key)


def _publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
    """Publish until it is confirmed: a quorum queue that another program has just declared refuses until it runs."""
    deadline = time.monotonic() + 120
    while True:
        try:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
            return
        except pika.exceptions.NackError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@asynccontextmanager
async def binding(url: str, options: Mapping[str, Any] | None = None) -> AsyncIterator[RabbitBinding]:
    """An open binding, as one process has it."""
    from babelgate.brokers.rabbitmq.binding import connect

    opened = connect("rabbit", url, options or {}, now_ms)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


class RabbitBroker(ServerBroker):
    """A server; ``queue_options`` are those of its routes."""

    kind = "rabbitmq"
    sample = "amqp://127.0.0.1/"
    name = "rabbit"
    server: RabbitServer

    @property
    def priority_options(self) -> Mapping[str, Any]:
        quorum = self.queue_options.get("queue_type") == "quorum"
        return self.queue_options if quorum else {**self.queue_options, "max_priority": 9}

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[RabbitServer]:
        return rabbit_server()

    async def restart(self) -> None:
        """The process ends and starts again for the ordinary variant alone. The others differ in what is in the files,
        which are all that an outage leaves."""
        if not self.queue_options:
            await super().restart()
        else:
            async with self.outage():
                pass

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.settle_down)
        await super().kill()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The broker ends, with its connections and ports, and its virtual machine waits: that starts in a fifth of the
        time."""
        await asyncio.to_thread(self.server.stop_app)
        try:
            yield
        finally:
            await asyncio.to_thread(self.server.start_app)

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(self._inject, queue, bodies)

    def _inject(self, queue: str, bodies: Sequence[bytes]) -> None:
        profile = queue_of(queue, self.queue_options).profile
        with client(self.url) as channel:
            declare(channel, profile.topology)
            for body in bodies:
                _publish(channel, profile.queue, body)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        return await asyncio.to_thread(self._browse, queue, delayed)

    def _browse(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        """The queue's only message; a delayed one is in the queue of its first delay, which all queues share. Who looks
        there has all messages in hand, so that tests look one after the other."""
        profile = queue_of(queue, self.queue_options).profile
        with (
            contextlib.suppress(pika.exceptions.ChannelClosedByBroker),
            (self.server.directory / "looking").open("w") as looking,
            client(self.url) as channel,
        ):
            fcntl.flock(looking, fcntl.LOCK_EX)
            for name in [f"babelgate.delay.{number:02d}" for number in range(25)] if delayed else [profile.queue]:
                while True:
                    method, properties, body = channel.basic_get(name)
                    if method is None:
                        break
                    if method.routing_key.endswith(profile.queue) or not delayed:
                        return [_stored(method, properties, body)]
        return []

    async def dead(self, queue: str) -> Sequence[bytes]:
        profile = queue_of(queue, self.queue_options).profile
        return [body for _, body in await asyncio.to_thread(browse, self.url, profile.dead_queue)]


def _stored(method: Any, properties: pika.BasicProperties, body: bytes) -> NativeWrite:
    # A stored message does not show that it was mandatory.
    target = {"exchange": method.exchange, "routing_key": method.routing_key, "mandatory": True}
    found = {name: value for name, value in vars(properties).items() if name != "headers" and value is not None}
    # A quorum queue adds a count to what it delivers.
    table = {name: value for name, value in (properties.headers or {}).items() if name != "x-delivery-count"}
    headers = {name: NativeHeader(_type(value), value) for name, value in table.items()}
    return NativeWrite("basic.publish", target, found, headers, body)


def _type(value: object) -> str:
    """The type as AMQP has it; pika reads an int64 as its own class."""
    return {str: "longstr", bool: "boolean", int: "int32"}.get(type(value), "int64")


class OjsBroker(RabbitBroker):
    """A server, with routes whose messages are jobs."""

    async def kill(self) -> None:
        """A restart: what a kill leaves of a queue depends on its type, and not on what is in its messages."""
        await self.restart()

    async def dead(self, queue: str) -> Sequence[bytes]:
        """The records made of the jobs in the dead-letter queue."""
        profile = queue_of(queue, self.queue_options).profile
        records = []
        for found, body in await asyncio.to_thread(browse, self.url, profile.dead_queue):
            properties = Basic.Properties(found.content_type, headers=found.headers)
            records.append(profile.read_dead(NativeMessage(body, properties, False)).body)
        return records


_OJS = {"profile": "ojs"}
_QUORUM = {"queue_type": "quorum"}
VARIANTS = (
    Variant("rabbitmq", RabbitBroker, {}, "RabbitMQ"),
    Variant("rabbitmq-quorum", RabbitBroker, _QUORUM, lost_replies=False, replicas=False),
    Variant("rabbitmq-ojs", OjsBroker, _OJS, "RabbitMQ, OJS profile", lost_replies=False),
    Variant("rabbitmq-ojs-quorum", OjsBroker, _OJS | _QUORUM, lost_replies=False, replicas=False),
)
