"""The sections of the official conformance suite on Artemis: of projection, attempts and versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Message

from babelgate.brokers import amqp
from babelgate.brokers.artemis.binding import ArtemisBinding
from babelgate.brokers.artemis.message import read
from babelgate.brokers.binding import Outgoing
from babelgate.gateway.routing import Policy, Route
from tests.brokers.artemis.harness import ArtemisBroker, browse, send
from tests.brokers.artemis.server import ArtemisServer
from tests.harness import conformance as suite
from tests.harness.world import World, data, until

pytestmark = pytest.mark.artemis


def block(section: str, name: str) -> Any:
    suite.folder()
    return suite.section(section)[name]


async def test_property_projection(one: ArtemisBinding, artemis: ArtemisServer, queue: str) -> None:
    expected = block("artemis", "property_projection")
    with suite.judged("artemis", "property_projection"):
        body = (suite.folder() / expected["envelope_file"]).read_bytes()
        assert await one.publish(one.native_queue(queue, {}), [Outgoing(body)]) == [None]
        found: Any
        (found,) = await asyncio.to_thread(browse, artemis.port, queue)
        assert found.body.encode() == body
        assert {str(name): value for name, value in found.annotations.items()} == {
            expected["jms_type_annotation"]: expected["jms_type"]
        }
        assert found.correlation_id == expected["correlation_id"]
        assert found.properties == expected["properties"]
        assert found.durable


def test_attempts_reconciliation(one: ArtemisBinding) -> None:
    native = one.native_queue("orders", {})
    route = Route("orders", one, native, one.capabilities(native), Policy(), "orders")
    for case in block("artemis", "attempts_reconciliation")["cases"]:
        with suite.judged("artemis", f"attempts_reconciliation {case['name']}"):
            found = read(Message(body="{}", delivery_count=case["delivery_count"]).encode())
            assert route.attempts(case["body_attempts"], found.count) == case["expected_attempts"]


def test_schema_version_gate() -> None:
    for case in block("artemis", "schema_version_gate")["cases"]:
        with suite.judged("artemis", f"schema_version_gate {case.get('value', 'absent')!r}"):
            properties = {} if case.get("absent") else {"bq_schema_version": case["value"]}
            found = read(Message(body="{}", properties=properties).encode())
            assert found.version == (case["value"] if case["expect"] == "reject" else None)


@pytest.mark.parametrize("code", [0x50, 0x51, 0x53, 0x52, 0x54, 0x55])
def test_whole_numbers_of_each_width_are_a_version(code: int) -> None:
    for number in (1, 2):
        properties = amqp.mapping({amqp.string("bq_schema_version"): bytes((code, number))})
        found = read(amqp.described(0x74, properties) + amqp.described(0x77, amqp.string("{}")))
        assert found.version == (None if number == 1 else "2")


async def test_version_gate(artemis: ArtemisServer, queue: str) -> None:
    """A gateway always dead-letters, so that the rows of other strategies are not applicable."""
    broker = ArtemisBroker(artemis)
    world = World(broker, queue)
    process = await world.process()
    bodies = [str(each["body"]) for each in block("version_gate_artemis", "incoming_bodies")]
    gated = [Message(body=body, properties={"bq_schema_version": "2"}, durable=True) for body in bodies]
    with suite.judged_version_gate("version_gate_artemis", "dlq_raw"):
        await asyncio.to_thread(send, artemis.port, queue, *gated)
        await process.publish({"n": 2})
        assert data(await process.one()) == {"n": 2}
        await until(lambda: _has(broker, queue, len(bodies)))
        assert await broker.dead(queue) == [body.encode() for body in bodies], "byte for byte, and never decoded"
        reasons = [event.reason for event in process.events if event.kind == "poison"]
        assert reasons == ["unsupported_schema_version"] * len(bodies)
    with suite.judged_version_gate("version_gate_artemis", "unsettled"):
        # The settings of the broker let nobody create its queue of dead letters.
        other = await world.process(queue=f"gated.{queue}")
        await asyncio.to_thread(send, artemis.port, other.queue, gated[0])
        assert await other.receive() == [], "it has nowhere to go"
        assert broker.tells(await other.stats(), depth=0, in_flight=1, dead=0)
    await world.close()


async def _has(broker: ArtemisBroker, queue: str, count: int) -> bool:
    return len(await broker.dead(queue)) == count
