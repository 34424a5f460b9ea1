"""Application properties keep their AMQP types in every copy of a message, also those that the client cannot read."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from babelgate.brokers.servicebus.message import AmqpMessage, read
from tests.brokers.servicebus.harness import ServiceBusBroker
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.world import World
from tests.suites.publish import envelope_of

pytestmark = pytest.mark.servicebus


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode()


TYPED: Mapping[str, tuple[str, Any, str | None]] = {
    "null": ("null", None, None),
    "yes": ("boolean", True, "true"),
    "no": ("boolean", False, "false"),
    "ubyte": ("ubyte", 200, "200"),
    "ushort": ("ushort", 7, "7"),
    "uint": ("uint", 0, "0"),
    "ulong": ("ulong", 2**63, str(2**63)),
    "byte": ("byte", -3, "-3"),
    "short": ("short", -300, "-300"),
    "int": ("int", 5, "5"),
    "small long": ("long", 5, "5"),
    "long": ("long", 2**40, str(2**40)),
    "float": ("float", 0.25, "0.25"),
    "double": ("double", 0.5, "0.5"),
    "char": ("char", 0xE4, "ä"),
    "no char": ("char", 0x11_0000, None),
    "time": ("timestamp", 1_700_000_000_000, "1700000000000"),
    "uuid": ("uuid", str(uuid.UUID(int=5)), str(uuid.UUID(int=5))),
    "binary": ("binary", _binary(b"abc"), "abc"),
    "text": ("string", "ä", "ä"),
    "symbol": ("symbol", "word", "word"),
    "long symbol": ("symbol", "w" * 300, "w" * 300),
    "decimal32": ("decimal32", _binary(b"\x22\x50\x00\x01"), None),
    "decimal64": ("decimal64", _binary(b"\x22\x38" + bytes(5) + b"\x01"), None),
    "decimal128": ("decimal128", _binary(b"\x30\x40" + bytes(13) + b"\x01"), "1"),
    "price": ("decimal128", _binary(b"\xb0\x3c" + bytes(12) + b"\x04\xd2"), "-12.34"),
    "infinite": ("decimal128", _binary(b"\x78" + bytes(15)), None),
}
"""The type and value of each property, and how it is shown."""

SENT = {name: {"type": kind, "value": value} for name, (kind, value, _) in TYPED.items()}
SHOWN = {name: text for name, (_, _, text) in TYPED.items() if text is not None}


@pytest.fixture
async def world(emulator: ServiceBusEmulator, queue: str) -> AsyncIterator[World]:
    made = World(ServiceBusBroker(emulator), queue)
    yield made
    await made.close()


@pytest.mark.parametrize("size", [600, 700_000], ids=["one frame", "several frames"])
@pytest.mark.parametrize("options", [{}, {"dead_letters": "native"}], ids=["queue", "native"])
async def test_each_kind_of_copy_keeps_the_types(
    world: World, emulator: ServiceBusEmulator, options: dict[str, Any], size: int
) -> None:
    """A retry, a dead letter, and its redrive."""
    process = await world.process(queue_options=options)
    body = _binary(envelope_of(size, world.queue))
    emulator.inject_fields(world.queue, [{"body": body, "application_properties": SENT}])
    first = await process.one()
    assert {name: first.headers.get(name) for name in SHOWN} == SHOWN
    assert first.headers.keys() == SHOWN.keys()
    assert await process.nack(first, delay=0.01) == [None]
    again = await process.one()
    assert (again.attempts, again.headers) == (1, first.headers)
    assert await process.reject(again) == [None]
    assert (await process.redrive()).redriven == 1
    assert (await process.one()).headers == first.headers
    (stored,) = emulator.messages(world.queue)
    kept = stored["application_properties"]
    assert {name: kept.get(name) for name in SENT} == SENT


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x00\x53\x74\xc1", b"\x00\x53\x74\xc1\x05\x02\xa1", b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\x40"],
)
def test_a_malformed_message_is_its_bytes(payload: bytes) -> None:
    found = read(payload)
    assert found == AmqpMessage(payload, properties=found.properties)
