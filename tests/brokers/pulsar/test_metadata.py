"""Metadata that any producer may write: what cannot be read is poison, and no message holds up those behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.consumer import Entry, TopicConsumer
from babelgate.brokers.pulsar.message import CONTRACT, DELAY, PulsarParts, native
from babelgate.brokers.pulsar.publish import TopicProducer
from babelgate.brokers.pulsar.url import settings_of
from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.world import World, data

NOW = 1_764_520_000_000
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


KEY_VALUE = field(1, b"a") + field(2, b"b")
WRONG = {
    "properties are a number": field(1, 5),
    "a key is a number": field(1, field(1, 5) + field(2, b"b")),
    "a value is a number": field(1, field(1, b"a") + field(2, 5)),
    "the partition key is a number": field(2, 5),
    "the ordering key is a number": field(7, 5),
    "the size is a text": field(3, b"x"),
    "the event is a text": field(5, b"x"),
    "it was removed is a text": field(4, b"x"),
}


async def _received(metadata: bytes, payload: bytes) -> Entry:
    """The entry that a consumer has of a MESSAGE with these bytes."""

    async def credentials() -> tuple[str, bytes]:
        return "", b""

    found: list[Entry] = []
    connection = PulsarConnection(credentials)
    consumer = TopicConsumer(connection, "t", found.append, lambda consumer: None)
    connection.consumers[consumer._id] = consumer
    command = field(1, consumer._id) + field(2, field(1, 7) + field(2, 8)) + field(3, 1)
    base = field(1, 9) + field(9, command)
    rest = len(metadata).to_bytes(4, "big") + metadata + payload
    frame = len(base).to_bytes(4, "big") + base + rest
    connection.data_received(len(frame).to_bytes(4, "big") + frame)
    (entry,) = found
    return entry


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
async def test_a_field_of_another_wire_type_in_a_batch_is_none(wrong: bytes) -> None:
    """To Protocol Buffers it is an unknown field. Both messages have their bodies, and the second one its property."""
    payload = batched(wrong, field(1, KEY_VALUE))
    entry = await _received(metadata(payload, field(11, 2)), payload)
    first, second = entry.messages()
    assert first is not None
    assert second is not None
    assert [first.body, second.body] == [BODY, BODY]
    assert second.headers == {"a": "b"}


@given(
    body=st.binary(max_size=300),
    headers=st.dictionaries(st.text().filter(lambda name: name not in CONTRACT), st.text(), max_size=3),
    ordering_key=st.none() | st.text(min_size=1),
    delay=st.sampled_from([0, 1.5, 86_400]),
    carried=st.none()
    | st.builds(
        PulsarParts,
        key=st.none() | st.text(),
        base64=st.booleans(),
        ordering=st.none() | st.binary(),
        event=st.integers(0, 2**63 - 1),
        contract=st.just({}),
    ),
)
def test_metadata_is_written_byte_for_byte_as_the_protocol_has_it(
    body: bytes, headers: dict[str, str], ordering_key: str | None, delay: float, carried: PulsarParts | None
) -> None:
    message = Outgoing(body, headers, ordering_key, delay, carried=carried, is_envelope=False)
    properties = headers if not delay else {DELAY: str(round(delay * 1000)), **headers}
    parts = carried or PulsarParts(None, False, None, 0, {})
    key = ordering_key or parts.key
    expected = [
        field(3, NOW),
        *(field(4, field(1, name.encode()) + field(2, value.encode())) for name, value in properties.items()),
        *([] if key is None else [field(6, key.encode())]),
        field(9, len(body)),
        *([field(12, parts.event)] if parts.event else []),
        *([field(17, 1)] if parts.base64 and not ordering_key else []),
        *([] if parts.ordering is None else [field(18, parts.ordering)]),
        *([field(19, NOW + round(delay * 1000))] if delay else []),
    ]
    assert native(message, NOW).SerializeToString() == b"".join(expected)


UNREADABLE = {
    "encrypted": (field(11, 3), field(14, field(1, b"key"))),
    "without messages": (field(11, 0),),
    "with a negative number of messages": (field(11, 2**64 - 1),),
    "with more messages than it has": (field(11, 4),),
    "of an unknown compression": (field(11, 3), field(8, 99)),
}


@pytest.mark.parametrize("more", UNREADABLE.values(), ids=list(UNREADABLE))
async def test_a_batch_that_cannot_be_read_is_one_message_with_its_bytes(more: tuple[bytes, ...]) -> None:
    payload = batched(b"", b"", b"")
    entry = await _received(metadata(payload, *more), payload)
    messages = entry.messages()
    assert set(range(len(messages))) == entry.left
    first, *others = messages
    assert first is not None
    assert first.body == payload
    assert not any(others)


@pytest.mark.parametrize("damage", [field(4, b"\xff"), b"\x07", field(4, b"abc")[:-1]])
async def test_metadata_that_cannot_be_read_is_part_of_the_bytes(damage: bytes) -> None:
    damaged = metadata(BODY) + damage
    entry = await _received(damaged, BODY)
    (message,) = entry.messages()
    assert message is not None
    assert message.body == len(damaged).to_bytes(4, "big") + damaged + BODY


@pytest.mark.pulsar
async def test_a_batch_with_a_property_that_is_a_number_does_not_hold_up_its_queue(
    server: PulsarServer, queue: str
) -> None:
    world = World(PulsarBroker(server), queue)
    process = await world.process()
    payload = batched(field(1, 5), b"")
    await _send(server, queue, metadata(payload, field(11, 2)), payload)
    await process.publish({"n": 2})
    assert [data(await process.one()) for _ in range(3)] == [{"n": 1}, {"n": 1}, {"n": 2}]
    await world.close()


@pytest.mark.pulsar
async def test_a_batch_that_is_encrypted_is_acknowledged_with_its_only_message(
    one: PulsarBinding, server: PulsarServer, queue: str
) -> None:
    """Each receive takes one message, so that the others of the batch are not read when the first one is settled."""
    native_queue = one.native_queue(queue, {})
    payload = batched(b"", b"", b"")
    encrypted = field(14, field(1, b"key") + field(2, b"value"))
    await _send(server, queue, metadata(payload, field(11, 3), encrypted), payload)
    (delivery,) = await one.reserve(native_queue, 1, 30, 30)
    assert delivery.body == payload
    assert await one.ack(native_queue, [delivery.handle]) == [None]
    assert await one.reserve(native_queue, 1, 0, 30) == []
    assert (await one.stats(native_queue)).in_flight == 0


async def _send(server: PulsarServer, queue: str, metadata: bytes, payload: bytes) -> None:
    client = PulsarClient("raw", settings_of(f"pulsar://127.0.0.1:{server.port}", {}), 60)
    connection = await client.service()
    producer = TopicProducer(connection, f"persistent://public/default/{queue}")
    await producer.open()
    connection.write(wire.send(producer._number, 0, metadata, payload))
    await client.ping()
    await client.close()
