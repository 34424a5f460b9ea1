"""Apache Kafka as the tests have it: a real server, and clients of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from babelgate.brokers.kafka.binding import KafkaBinding, connect
from babelgate.brokers.kafka.url import GROUP, KafkaQueue, queue_of
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.clock import now_ms
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.harness.broker import ServerBroker, Variant
from tests.harness.proxy import Proxy, proxy
from tests.harness.world import until

_ELECTING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
TIERS = [0.2, 0.5, 1, 2, 5, 30, 300, 900, 3601]
STANDARD = {"create": "missing", "retry_delays_seconds": TIERS}
"""Retry tiers that are short enough for tests, and one for a message that is looked at while it waits."""


@asynccontextmanager
async def binding(url: str, options: Mapping[str, Any] | None = None) -> AsyncIterator[KafkaBinding]:
    """An open binding, as one process has it."""
    opened = connect("kafka", url, {"timeout_seconds": 30} | dict(options or {}), now_ms)

    async def is_opened() -> bool:
        await opened.open()
        return True

    try:
        # A busy machine may need longer than the bound of one call.
        await until(is_opened)
        yield opened
    finally:
        await opened.close()


def settings(port: int) -> dict[str, Any]:
    """What a plain client, as of a foreign program or an operator, has to know."""
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}


def create(port: int, *topics: str, partitions: int = 1, **config: str) -> None:
    """Create the topics that are missing."""
    admin = AdminClient(settings(port))
    asked = admin.create_topics([NewTopic(each, partitions, config=config) for each in topics])
    for each in asked.values():
        try:
            each.result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def limit_bytes(port: int, topic: str, most: int) -> None:
    """Set the ``max.message.bytes`` of a topic."""
    set_topic(port, topic, "max.message.bytes", str(most))


def delete_before(port: int, topic: str, partition: int, offset: int) -> None:
    """Delete the records of a partition before ``offset``, as the retention of a topic does."""
    admin, where = AdminClient(settings(port)), TopicPartition(topic, partition, offset)
    admin.delete_records([where])[where].result(60)


def set_topic(port: int, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(settings(port))
    admin.incremental_alter_configs([changed])[changed].result(60)


def set_heartbeats(port: int, session: str | None, interval: str | None) -> None:
    """After how many ms without a heartbeat a member of the group is missed, and how many there are between two. The
    answer to one may take as long, but at least a second. None: the setting of the server."""
    given = {"consumer.session.timeout.ms": session, "consumer.heartbeat.interval.ms": interval}
    entries = [
        ConfigEntry(
            name, value, incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        )
        for name, value in given.items()
    ]
    group = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=entries)
    admin = AdminClient(settings(port))
    admin.incremental_alter_configs([group])[group].result(60)


def write(port: int, topic: str, *records: Mapping[str, Any]) -> None:
    """Write records, each with the arguments of ``Producer.produce``, to a topic that may be missing."""
    create(port, topic)
    producer = Producer(settings(port) | {"acks": "all", "message.max.bytes": 1_000_000_000})
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for each in records:
        producer.produce(topic, on_delivery=report, **each)
    assert producer.flush(60) == 0
    if failures:
        raise KafkaException(failures[0])


def read(port: int, topic: str) -> list[Message]:
    """All records of a topic, by partition and offset; none of a missing topic."""
    consumer = Consumer(settings(port) | {"group.id": "nobody", "enable.auto.commit": False})
    try:
        found: list[Message] = []
        metadata = consumer.list_topics(topic, timeout=60).topics[topic]
        for number in metadata.partitions if metadata.error is None else ():
            low, high = _ends(consumer, TopicPartition(topic, number))
            consumer.assign([TopicPartition(topic, number, low)])
            while consumer.position([TopicPartition(topic, number)])[0].offset < high and low < high:
                for each in consumer.consume(1000, 0.5):
                    assert each.error() is None, each.error()
                    found.append(each)
        return found
    finally:
        consumer.close()


def _ends(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Its first offset and its end, as soon as the partition has a leader again after a restart of its broker."""
    until = time.monotonic() + 60
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=60)
        except KafkaException as failure:
            if failure.args[0].code() not in _ELECTING or time.monotonic() > until:
                raise
        time.sleep(0.1)


class KafkaBroker(ServerBroker):
    """Topics of one partition that the gateway creates, with short retry tiers."""

    kind = "kafka"
    sample = "kafka://kafka:9092"
    name = "kafka"
    repeats_writes = True
    # A process that is killed is missed when its session ends, after 10 s, and the others hear of it with a heartbeat.
    spare_seconds = 17
    server: KafkaServer

    def __init__(self, server: Any, queue_options: Mapping[str, Any] | None = None) -> None:
        super().__init__(server, STANDARD | dict(queue_options or {}))

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        return kafka()

    @asynccontextmanager
    async def between(self) -> AsyncIterator[Proxy]:
        """Who loses replies loses those to heartbeats, too; sessions are longer than that, as they are by default, and
        so is the time for the answer to a heartbeat."""
        await asyncio.to_thread(set_heartbeats, self.server.port, "60000", "2000")
        try:
            async with proxy("127.0.0.1", self.server.ports["PROXIED"], self.server.proxy_port) as running:
                yield running
        finally:
            await asyncio.to_thread(set_heartbeats, self.server.port, None, None)

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(write, self.server.port, queue, *({"value": body} for body in bodies))

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        target = self._queue(queue)
        found = []
        for topic in target.tiers if delayed else (target.name,):
            found += await asyncio.to_thread(read, self.server.port, topic)
        return [_write(each) for each in found]

    async def dead(self, queue: str) -> Sequence[bytes]:
        found = await asyncio.to_thread(read, self.server.port, self._queue(queue).dead)
        values: list[Any] = [each.value() or b"" for each in found]
        return values

    def _queue(self, queue: str) -> KafkaQueue:
        return queue_of(queue, self.queue_options)


def _write(record: Message) -> NativeWrite:
    key: Any = record.key()
    native: Any = record.headers() or ()
    fields = {"timestamp": record.timestamp()[1]} | ({} if key is None else {"key": key.decode()})
    headers = {name: NativeHeader("bytes", value.decode()) for name, value in native}
    value: Any = record.value()
    return NativeWrite("produce", {"topic": str(record.topic())}, fields, headers, value)


VARIANTS = (Variant("kafka", KafkaBroker, column="Apache Kafka"),)
