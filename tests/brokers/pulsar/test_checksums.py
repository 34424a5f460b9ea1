"""The checksum of each message: clients verify the gateway's, and the gateway verifies everybody's."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.binding import PulsarBinding
from tests.brokers.pulsar.harness import binding
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.proxy import Proxy, proxy

BODY = b'{"job":"urn:a","trace_id":"t","data":{"price":100},"meta":{"id":"i","schema_version":1},"attempts":0}'
CHANGED = BODY.replace(b"100", b"900")


def test_a_message_is_sent_with_its_checksum() -> None:
    """CRC32C of the size of the metadata, the metadata and the payload: 123456789 has the published check value."""
    frame = wire.send(1, 0, b"56", b"789")
    _, _, behind = wire.read_command(frame[4:])
    rest = frame[4 + behind :]
    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
    assert rest[:2] == b"\x0e\x01"
    assert rest[6:] == struct.pack(">I", 2) + b"56789"
    assert rest[2:6] == struct.pack(">I", _bitwise_crc32c(rest[6:]))
    assert _bitwise_crc32c(b"123456789") == 0xE3069283
    assert wire.split_message(rest) == (b"56", b"789")


def _bitwise_crc32c(data: bytes) -> int:
    """As RFC 3720, appendix B.4 defines it."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("position", range(12))
def test_a_changed_byte_is_found(position: int) -> None:
    frame = wire.send(1, 0, b"56", b"789")
    rest = bytearray(frame[4 + wire.read_command(frame[4:])[2] :])
    with_entry_metadata = b"\x0e\x02" + struct.pack(">I", 3) + b"abc" + rest
    assert wire.split_message(with_entry_metadata) == (b"56", b"789")
    if position < 2:
        # Without the mark of a checksum there is none to verify, and the fields are at other places.
        rest[position] ^= 1
        assert wire.split_message(bytes(rest)) != (b"56", b"789")
        return
    rest[position] ^= 1
    with pytest.raises(wire.DamagedMessage) as raised:
        wire.split_message(bytes(rest))
    assert raised.value.damaged == bytes(rest[6:])


class _Damage:
    """Changes the payload of the next ``times`` messages of a proxy."""

    def __init__(self, damaged: Proxy, times: int) -> None:
        self.left = times
        damaged.alter = self._alter

    def _alter(self, piece: bytes) -> bytes:
        if self.left and BODY in piece:
            self.left -= 1
            return piece.replace(BODY, CHANGED, 1)
        return piece


class _Behind(NamedTuple):
    """A binding of the same server behind a proxy that damages messages."""

    damaging: Proxy
    binding: PulsarBinding


@pytest.fixture
async def behind(server: PulsarServer) -> AsyncIterator[_Behind]:
    async with (
        proxy("127.0.0.1", server.port) as damaging,
        binding(f"pulsar://127.0.0.1:{damaging.port}", {"single_address": True}) as made,
    ):
        yield _Behind(damaging, made)


@pytest.mark.pulsar
async def test_a_message_that_is_damaged_on_the_way_is_fetched_again(
    one: PulsarBinding, behind: _Behind, queue: str
) -> None:
    native = behind.binding.native_queue(queue, {})
    await one.publish(native, [Outgoing(BODY)])
    damage = _Damage(behind.damaging, 1)
    (delivery,) = await behind.binding.reserve(native, 1, 30, 30)
    assert (damage.left, delivery.body) == (0, BODY)
    assert await behind.binding.ack(native, [delivery.handle]) == [None]
    assert (await one.stats(native)).in_flight == 0


@pytest.mark.pulsar
async def test_a_message_that_stays_damaged_is_no_envelope(one: PulsarBinding, behind: _Behind, queue: str) -> None:
    """Its body is all of its bytes, which the gateway dead-letters as poison. Messages behind it arrive."""
    native = behind.binding.native_queue(queue, {})
    damage = _Damage(behind.damaging, 2)
    await one.publish(native, [Outgoing(BODY, {"a": "b"}), Outgoing(b"behind")])
    bodies: list[bytes] = []
    while len(bodies) < 2:
        found = await behind.binding.reserve(native, 1, 30, 30)
        bodies += [delivery.body for delivery in found]
        assert await behind.binding.ack(native, [delivery.handle for delivery in found]) == [None] * len(found)
    assert damage.left == 0
    damaged = next(body for body in bodies if body != b"behind")
    size = int.from_bytes(damaged[:4], "big")
    assert damaged[4 + size :] == CHANGED
    assert b"a" in damaged[:size]
    assert await behind.binding.reserve(native, 1, 0, 30) == []
