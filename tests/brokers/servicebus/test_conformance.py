"""The sections of the official conformance suite on Azure Service Bus: of projection, attempts and versions."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import Header, Message

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.servicebus.binding import ServiceBusBinding
from babelgate.brokers.servicebus.message import read
from babelgate.gateway.routing import Policy, Route
from tests.brokers.servicebus.harness import ServiceBusBroker
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness import conformance as suite
from tests.harness.world import World, data

pytestmark = pytest.mark.servicebus


def block(section: str, name: str) -> Any:
    suite.folder()
    return suite.section(section)[name]


def _encoded(message: Message) -> bytes:
    output = bytearray()
    encode_payload(output, message)
    return bytes(output)


async def test_property_projection(one: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str) -> None:
    expected = block("asb", "property_projection")
    with suite.judged("asb", "property_projection"):
        body = (suite.folder() / expected["envelope_file"]).read_bytes()
        assert await one.publish(one.native_queue(queue, {}), [Outgoing(body, dedup_id="d")]) == [None]
        (found,) = emulator.messages(queue)
        assert {name: each["value"] for name, each in found["properties"].items()} == expected["message"]
        properties = found["application_properties"]
        assert {name: each["value"] for name, each in properties.items()} == expected["application_properties"]
        assert properties["bq-created-at"]["type"] == "long"
        assert properties["bq-schema-version"]["type"] == "int"


def test_attempts_reconciliation(one: ServiceBusBinding) -> None:
    native = one.native_queue("orders", {})
    route = Route("orders", one, native, one.capabilities(native), Policy(), "orders")
    for case in block("asb", "attempts_reconciliation")["cases"]:
        with suite.judged("asb", f"attempts_reconciliation {case['name']}"):
            # The suite counts deliveries from 1. On the wire the count is of those before, from 0.
            count = max(case["delivery_count"] - 1, 0)
            found = read(_encoded(Message(header=Header(delivery_count=count), data=[b"{}"])))
            assert route.attempts(case["body_attempts"], found.count) == case["expected_attempts"]


def test_schema_version_gate() -> None:
    for case in block("asb", "schema_version_gate")["cases"]:
        name = f"schema_version_gate {json.dumps(case.get('value', 'absent'))} {case.get('value_type', '')}".rstrip()
        with suite.judged("asb", name):
            value = case.get("value")
            given = value.encode() if isinstance(value, str) else value
            properties: dict[Any, Any] = {} if case.get("absent") else {b"bq-schema-version": given}
            found = read(_encoded(Message(application_properties=properties, data=[b"{}"])))
            assert (found.version is not None) == (case["expect"] == "reject")


async def test_whole_numbers_of_each_width_are_a_version(
    one: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str
) -> None:
    native = one.native_queue(queue, {})
    for kind in ("byte", "short", "int", "long", "ubyte", "ushort", "uint", "ulong"):
        for value in (1, 2):
            gate = {"bq-schema-version": {"type": kind, "value": value}}
            emulator.inject_fields(queue, [{"body": "e30=", "application_properties": gate}])
            (found,) = await one.reserve(native, 1, 30, 30)
            assert found.unsupported_version == (None if value == 1 else "2"), kind
            await one.ack(native, [found.handle])


async def test_version_gate(emulator: ServiceBusEmulator, queue: str) -> None:
    """A gateway always dead-letters, so that the rows of other strategies are not applicable."""
    world = World(ServiceBusBroker(emulator), queue)
    process = await world.process()
    gated = {"bq-schema-version": {"type": "string", "value": "2"}}

    def send(name: str, body: str) -> None:
        emulator.inject_fields(name, [{"body": body, "application_properties": gated}])

    incoming = block("version_gate_asb", "incoming_bodies")
    bodies = [_bytes(each) for each in incoming]
    with suite.judged_version_gate("version_gate_asb", "dlq_raw"):
        for body in bodies:
            send(queue, _base64(body))
        await process.publish({"n": 2})
        assert data(await process.one()) == {"n": 2}
        assert sorted(await world.broker.dead(queue)) == sorted(bodies), "byte for byte, and never decoded"
        reasons = [event.reason for event in process.events if event.kind == "poison"]
        assert reasons == ["unsupported_schema_version"] * len(bodies)
    with suite.judged_version_gate("version_gate_asb", "unsettled"):
        other = f"{queue}-other"
        emulator.fault("throttle", f"{other}.dlq")
        reader = await world.process(queue=other)
        await asyncio.to_thread(send, other, _base64(bodies[0]))
        assert await reader.receive() == [], "it has nowhere to go"
        assert await world.broker.dead(other) == []
        assert emulator.counts(other)["active"] == 1
        emulator.clear_faults()
    await world.close()


def _bytes(incoming: Any) -> bytes:
    body = incoming["body"] if isinstance(incoming, dict) else incoming
    return str(body).encode()


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()
