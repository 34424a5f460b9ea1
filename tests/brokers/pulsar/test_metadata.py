"""Metadata that any producer may write: what cannot be read is poison, and no message holds up those behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.pulsar.message import CONTRACT, DELAY, MAX_MESSAGES, PulsarParts, native
from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.pulsar.raw import BODY, ENCRYPTED, batched, field, metadata, received, send
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.world import World, data

NOW = 1_764_520_000_000
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


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
async def test_a_field_of_another_wire_type_in_a_batch_is_none(wrong: bytes) -> None:
    """To Protocol Buffers it is an unknown field. Both messages have their bodies, and the second one its property."""
    payload = batched(wrong, field(1, KEY_VALUE))
    entry = await received(metadata(payload, field(11, 2)), payload)
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
    "encrypted": (field(11, 3), ENCRYPTED),
    "without messages": (field(11, 0),),
    "with a negative number of messages": (field(11, 2**64 - 1),),
    "with more messages than it has": (field(11, 4),),
    "with more messages than its bytes can hold": (field(11, 1_000),),
    "with more messages than any": (field(11, MAX_MESSAGES + 1),),
    "with the most messages that can be declared": (field(11, 2**31 - 1),),
    "of an unknown compression": (field(11, 3), field(8, 99)),
}


@pytest.mark.parametrize("more", UNREADABLE.values(), ids=list(UNREADABLE))
async def test_a_batch_that_cannot_be_read_is_one_message_with_its_bytes(more: tuple[bytes, ...]) -> None:
    payload = batched(b"", b"", b"")
    entry = await received(metadata(payload, *more), payload)
    messages = entry.messages()
    assert set(range(len(messages))) == entry.left
    first, *others = messages
    assert first is not None
    assert first.body == payload
    assert not any(others)
    assert entry.message(0) is first
    assert entry.left == {0}
    assert entry.is_whole


@pytest.mark.parametrize("damage", [field(4, b"\xff"), b"\x07", field(4, b"abc")[:-1]])
async def test_metadata_that_cannot_be_read_is_part_of_the_bytes(damage: bytes) -> None:
    damaged = metadata(BODY) + damage
    entry = await received(damaged, BODY)
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
    await send(server, queue, metadata(payload, field(11, 2)), payload)
    await process.publish({"n": 2})
    assert [data(await process.one()) for _ in range(3)] == [{"n": 1}, {"n": 1}, {"n": 2}]
    await world.close()
