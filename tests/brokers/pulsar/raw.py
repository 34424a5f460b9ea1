"""Messages as bytes, which no client would write."""

from __future__ import annotations

from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.consumer import Entry, TopicConsumer
from babelgate.brokers.pulsar.publish import TopicProducer
from babelgate.brokers.pulsar.url import settings_of
from tests.brokers.pulsar.server import PulsarServer

BODY = b'{"job":"urn:a","trace_id":"t","data":{"n":1},"meta":{"id":"i","schema_version":1},"attempts":0}'


def field(number: int, value: int | bytes) -> bytes:
    """A field as Protocol Buffers write it: a whole number, or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes((*written, value))


def batched(*singles: bytes) -> bytes:
    """The payload of a batch of bodies that have these SingleMessageMetadata."""
    parts = (single + field(3, len(BODY)) for single in singles)
    return b"".join(len(part).to_bytes(4, "big") + part + BODY for part in parts)


def metadata(payload: bytes, *more: bytes) -> bytes:
    """A MessageMetadata with what the protocol requires, and ``more``."""
    return b"".join((field(1, b"another"), field(2, 0), field(3, 1), field(9, len(payload)), *more))


ENCRYPTED = field(13, field(1, b"key") + field(2, b"value"))
"""A field of a MessageMetadata."""


async def received(metadata: bytes, payload: bytes, *ack_set: int) -> Entry:
    """The entry that a consumer has of a MESSAGE with these bytes. ``ack_set``: in words of 64 bits, those of a batch's
    messages that are not acknowledged."""

    async def credentials() -> tuple[str, bytes]:
        return "", b""

    found: list[Entry] = []
    connection = PulsarConnection(credentials)
    consumer = TopicConsumer(connection, "t", found.append, lambda consumer: None)
    connection.consumers[consumer._id] = consumer
    command = field(1, consumer._id) + field(2, field(1, 7) + field(2, 8)) + field(3, 1)
    command += b"".join(field(4, each) for each in ack_set)
    base = field(1, 9) + field(9, command)
    rest = len(metadata).to_bytes(4, "big") + metadata + payload
    frame = len(base).to_bytes(4, "big") + base + rest
    connection.data_received(len(frame).to_bytes(4, "big") + frame)
    (entry,) = found
    return entry


async def send(server: PulsarServer, queue: str, metadata: bytes, payload: bytes) -> None:
    """Publish an entry with these bytes."""
    client = PulsarClient("raw", settings_of(f"pulsar://127.0.0.1:{server.port}", {}), 60)
    connection = await client.service()
    producer = TopicProducer(connection, f"persistent://public/default/{queue}")
    await producer.open()
    connection.write(wire.send(producer._number, 0, metadata, payload))
    await client.ping()
    await client.close()
