"""Headers of every type of AMQP 0-9-1 go through copies byte for byte.

A client that writes and reads raw tables checks it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pamqp.frame
import pytest
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.commands import Basic

from babelgate.brokers.rabbitmq import tables
from babelgate.brokers.rabbitmq.frames import encoded_properties
from babelgate.brokers.rabbitmq.incoming import properties_of
from babelgate.brokers.rabbitmq.options import queue_of
from tests.brokers.rabbitmq.harness import OjsBroker, RabbitBroker
from tests.brokers.rabbitmq.harness import client as pika_client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.world import JOB, World


def sized(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def table_of(values: Mapping[str, bytes]) -> bytes:
    return b"".join(bytes((len(name),)) + name.encode() + value for name, value in values.items())


VALUES: Mapping[str, bytes] = {
    "int8": b"b" + struct.pack(">b", -7),
    "uint8": b"B" + b"\xc8",
    "int16": b"s" + struct.pack(">h", -7),
    "uint16": b"u" + struct.pack(">H", 65535),
    "int32": b"I" + struct.pack(">i", -7),
    "uint32": b"i" + struct.pack(">I", 1 << 31),
    "small uint32": b"i" + struct.pack(">I", 3),
    "small int64": b"l" + struct.pack(">q", 7),
    "negative int64": b"l" + struct.pack(">q", -1),
    "large int64": b"l" + struct.pack(">q", 1 << 53),
    "float": b"f" + struct.pack(">f", 0.1),
    "double": b"d" + struct.pack(">d", 0.1),
    "decimal": b"D" + struct.pack(">Bi", 2, 12300),
    "negative decimal": b"D" + struct.pack(">Bi", 2, -123),
    "wide decimal": b"D" + struct.pack(">Bi", 255, 1),
    "seconds": b"T" + struct.pack(">Q", 1_700_000_000),
    "milliseconds": b"T" + struct.pack(">Q", 1_700_000_000_123),
    "no time": b"T" + struct.pack(">Q", (1 << 63) - 1),
    "true": b"t\x01",
    "void": b"V",
    "bytes": b"x" + sized(b"\x00\xff"),
    "text": b"S" + sized("eu ☕".encode()),
    "no utf-8": b"S" + sized(b"\xff\xfe"),
}
"""A value of each type, behind its octet: https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""
NESTED = {
    "table": b"F" + sized(table_of(VALUES)),
    "array": b"A" + sized(b"".join(VALUES.values())),
}
ALL = {f"odd {name}": value for name, value in {**VALUES, **NESTED}.items()}
UINT64 = {"odd uint64": b"L" + struct.pack(">Q", 1 << 63)}
"""The broker itself makes an int64 of it where it dead-letters, as it does at the end of a delay; RabbitMQ 4 does so in
each delivery."""
AS_INT64 = {"odd uint64": b"l" + struct.pack(">Q", 1 << 63)}


class RawClient:
    """A connection with one channel, whose content headers are bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._data = b""
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        version = self._next().server_properties["version"]
        self.uint64 = AS_INT64 if int(version.partition(".")[0]) >= 4 else UINT64
        """What the server delivers in the place of :data:`UINT64`."""
        self._call(spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
        self._send(spec.Connection.TuneOk(1, 131_072, 0), 0)
        self._call(spec.Connection.Open("/"), 0)
        self._call(spec.Channel.Open(), 1)
        self._call(spec.Confirm.Select(), 1)

    def close(self) -> None:
        self._socket.close()

    def publish(self, exchange: str, key: str, body: bytes, values: Mapping[str, bytes], time: int) -> None:
        """Publish with the headers ``values`` and the property ``timestamp``, and wait until it is confirmed."""
        flags = Basic.Properties.flags["headers"] | Basic.Properties.flags["timestamp"]
        header = struct.pack(">HHQH", 60, 0, len(body), flags) + sized(table_of(values)) + struct.pack(">Q", time)
        self._send(Basic.Publish(exchange=exchange, routing_key=key, mandatory=True), 1)
        self._socket.sendall(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce")
        self._send(ContentBody(body), 1)
        assert isinstance(self._next(), Basic.Ack)

    def take(self, queue: str) -> bytes:
        """The content header of the next message of ``queue``, which is removed."""
        while isinstance(self._call(Basic.Get(queue=queue, no_ack=True), 1), Basic.GetEmpty):
            pass
        header = self._next()
        assert isinstance(header, bytes)
        self._next()
        return header

    def _call(self, frame: Any, channel: int) -> Any:
        self._send(frame, channel)
        return self._next()

    def _send(self, frame: Any, channel: int) -> None:
        self._socket.sendall(pamqp.frame.marshal(frame, channel))

    def _next(self) -> Any:
        """The next frame; the payload of a content header."""
        while len(self._data) < 7 or len(self._data) < 8 + struct.unpack_from(">I", self._data, 3)[0]:
            received = self._socket.recv(65_536)
            assert received, "the broker has closed the connection"
            self._data += received
        kind, _, size = struct.unpack_from(">BHI", self._data)
        whole, self._data = self._data[: size + 8], self._data[size + 8 :]
        return whole[7:-1] if kind == 2 else pamqp.frame.unmarshal(whole)[2]


@contextmanager
def raw_client(rabbit: RabbitServer) -> Iterator[RawClient]:
    client = RawClient(urlsplit(rabbit.url()).port or 0)
    try:
        yield client
    finally:
        client.close()


def odd_ones(header: bytes) -> dict[str, bytes]:
    """The headers of :data:`ALL` in a content header, each as its bytes."""
    _, flags = struct.unpack_from(">QH", header, 4)
    at = 14
    for name in Basic.Properties.attributes():
        if flags & Basic.Properties.flags[name]:
            if name == "headers":
                break
            at += 1 + header[at]
    end = at + 4 + struct.unpack_from(">I", header, at)[0]
    at += 4
    found: dict[str, bytes] = {}
    while at < end:
        start = at + 1
        name, at = header[start : start + header[at]].decode(), start + header[at]
        start = at
        _, at = tables.value_at(header, at)
        found[name] = header[start:at]
    return {name: value for name, value in found.items() if name.startswith("odd ")}


@pytest.fixture(params=[RabbitBroker, OjsBroker], ids=["plain", "ojs"])
async def world(request: pytest.FixtureRequest, rabbit: RabbitServer, queue: str) -> AsyncIterator[World]:
    """Gateways on the server."""
    options = {"profile": "ojs"} if request.param is OjsBroker else {}
    made = World(request.param(rabbit, options), queue)
    yield made
    await made.close()


def body_of(world: World, queue: str) -> bytes:
    if world.broker.queue_options:
        return json.dumps({"specversion": "1.0", "id": "j-1", "type": JOB, "queue": queue, "args": []}).encode()
    meta = {"id": "i", "queue": queue, "lang": "java", "schema_version": 1, "created_at": 1_700_000_000_123}
    return json.dumps({"job": JOB, "trace_id": "t", "data": {}, "meta": meta, "attempts": 0}).encode()


@pytest.mark.parametrize("count", [0, 1_700_000_000, 1_700_000_000_123, 1 << 40])
def test_the_time_of_a_message_keeps_its_unit(count: int) -> None:
    header = struct.pack(">HHQHQ", 60, 0, 1, Basic.Properties.flags["timestamp"], count)
    assert encoded_properties(properties_of(header)) == header[12:]


def test_a_decimal_has_its_sign_and_scale() -> None:
    table = tables.decoded(table_of({"a": VALUES["negative decimal"], "b": VALUES["decimal"]}))
    assert [str(value) for value in table.values()] == ["-1.23", "123.00"]


@pytest.mark.rabbitmq
def test_what_the_server_itself_delivers(rabbit: RabbitServer, queue: str) -> None:
    """Without a gateway between."""
    with pika_client(rabbit.url()) as channel, raw_client(rabbit) as client:
        channel.queue_declare(queue, durable=True)
        client.publish("", queue, b"{}", ALL | UINT64, 1)
        assert odd_ones(client.take(queue)) == ALL | client.uint64


@pytest.mark.rabbitmq
@pytest.mark.parametrize("way", ["retry", "delay", "dead letter", "redrive"])
async def test_a_copy_has_the_bytes_of_the_original(world: World, rabbit: RabbitServer, queue: str, way: str) -> None:
    gateway = await world.process()
    profile = queue_of(queue, world.broker.queue_options).profile
    uint64 = {} if way == "delay" else UINT64
    assert await gateway.receive() == []
    with raw_client(rabbit) as client:
        client.publish(profile.exchange, profile.routing_key, body_of(world, queue), ALL | uint64, 1_700_000_000_123)
        message = await gateway.one()
        if way in ("retry", "delay"):
            assert await gateway.nack(message, delay=0.2 if way == "delay" else 0) == [None]
        else:
            assert await gateway.reject(message) == [None]
        if way == "redrive":
            assert (await gateway.redrive()).redriven == 1
        header = client.take(profile.dead_queue if way == "dead letter" else profile.queue)
    assert odd_ones(header) == (ALL | client.uint64 if uint64 else ALL)
