"""Apache Pulsar as the tests have it: a real server, and a plain client of Pulsar's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pulsar

from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.pulsar.binding import PulsarBinding, connect
from babelgate.brokers.pulsar.url import DEAD_SUFFIX
from babelgate.clock import now_ms
from tests.brokers.pulsar.server import PulsarServer, pulsar_server
from tests.harness.broker import ServerBroker, Variant, opened

SUBSCRIPTION = "babelqueue"
_PATIENCE_MS = 30_000


def binding(url: str, options: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[PulsarBinding]:
    """An open binding, as one process has it."""
    return opened(connect("pulsar", url, {"timeout_seconds": 30} | dict(options or {}), now_ms))


@contextmanager
def client(port: int) -> Iterator[Any]:
    """A client of Pulsar's own, as a foreign program or an operator would use."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=logger, operation_timeout_seconds=60)
    try:
        yield made
    finally:
        made.close()


def subscribe(opened: Any, topic: str, **options: Any) -> Any:
    """A consumer of the SDKs' subscription."""
    return opened.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        **options,
    )


class PulsarBroker(ServerBroker):
    """Topics with a shared subscription."""

    kind = "pulsar"
    sample = "pulsar://localhost"
    name = "pulsar"
    server: PulsarServer

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        return pulsar_server()

    @property
    def url(self) -> str:
        """Behind a proxy, the address that the broker advertises is not used."""
        if self._port == self.server.port:
            return self.server.url()
        return super().url + "&single_address=true"

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(self._inject, queue, bodies)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        return await asyncio.to_thread(self._stored, queue, delayed)

    async def dead(self, queue: str) -> Sequence[bytes]:
        return await asyncio.to_thread(self._dead, queue)

    def _inject(self, queue: str, bodies: Sequence[bytes]) -> None:
        with client(self.server.port) as opened:
            subscribe(opened, queue).close()
            producer = opened.create_producer(queue, batching_enabled=False)
            for body in bodies:
                producer.send(body)

    def _stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        with client(self.server.port) as opened:
            reader = opened.create_reader(queue, pulsar.MessageId.earliest)
            if not reader.has_message_available():
                return []
            message = reader.read_next(_PATIENCE_MS)
        fields: dict[str, Any] = {}
        if key := message.partition_key():
            fields["partition_key"] = key
        if event := message.event_timestamp():
            fields["event_timestamp"] = event
        if delayed:
            # No client shows when a message is due.
            fields["deliver_at"] = message.publish_timestamp() + int(message.properties()["bq-delay"])
        headers = {name: NativeHeader("string", value) for name, value in message.properties().items()}
        return [NativeWrite("send", {"topic": message.topic_name()}, fields, headers, message.data())]

    def _dead(self, queue: str) -> Sequence[bytes]:
        """All that the subscription has not acknowledged; the end of the consumer gives it back."""
        topic = queue + DEAD_SUFFIX
        with client(self.server.port) as opened:
            consumer = subscribe(opened, topic)
            told = self.server.admin(f"persistent/public/default/{topic}/stats?getPreciseBacklog=true")
            count = json.loads(told or b"{}")["subscriptions"][SUBSCRIPTION]["msgBacklog"]
            return [bytes(consumer.receive(_PATIENCE_MS).data()) for _ in range(count)]


VARIANTS = (Variant("pulsar", PulsarBroker, {}, "Apache Pulsar"),)
