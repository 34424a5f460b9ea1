"""The sections of the official conformance suite on Apache Pulsar: of projection, attempts, exhaustion and versions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.brokers.pulsar.message import ReadMessage, read_entry
from babelgate.gateway.routing import Policy, Route
from tests.brokers.pulsar.harness import PulsarBroker, client, subscribe
from tests.brokers.pulsar.server import PulsarServer
from tests.harness import conformance as suite
from tests.harness.world import World, data

pytestmark = pytest.mark.pulsar

_STRATEGY = "the gateway has no other strategy than to retry, and to dead-letter"


def block(section: str, name: str) -> Any:
    suite.folder()
    return suite.section(section)[name]


def read(body: bytes, **properties: str) -> ReadMessage:
    """A message with these properties, as it is read."""
    metadata = wire.MessageMetadata(uncompressed_size=len(body))
    for name, value in properties.items():
        metadata.properties.add(key=name.replace("_", "-").encode(), value=value.encode())
    (found,) = read_entry(metadata, body)
    assert found is not None
    return found


@pytest.fixture
def route(one: PulsarBinding) -> Route:
    """A route with the suite's own number of attempts."""
    native = one.native_queue("orders", {})
    return Route("orders", one, native, one.capabilities(native), Policy(max_attempts=3), "orders")


async def test_property_projection(one: PulsarBinding, server: PulsarServer, queue: str) -> None:
    expected = block("pulsar", "property_projection")
    with suite.judged("pulsar", "property_projection"):
        body = (suite.folder() / expected["envelope_file"]).read_bytes()
        assert await one.publish(one.native_queue(queue, {}), [Outgoing(body, dedup_id="d")]) == [None]
        (write,) = await PulsarBroker(server).stored(queue, delayed=False)
        assert {name: each.value for name, each in write.headers.items()} == expected["properties"]
        assert write.body == body


def test_attempts_reconciliation(route: Route) -> None:
    for case in block("pulsar", "attempts_reconciliation")["cases"]:
        with suite.judged("pulsar", f"attempts_reconciliation {case['name']}"):
            assert route.attempts(case["body_attempts"], case["redelivery_count"]) == case["expected_attempts"]


def test_schema_version_gate() -> None:
    for case in block("pulsar", "schema_version_gate")["cases"]:
        with suite.judged("pulsar", f"schema_version_gate {json.dumps(case.get('value', 'absent'))}"):
            properties = {} if case.get("absent") else {"bq-schema-version": case["value"]}
            assert (read(b"{}", **properties).version is not None) == (case["expect"] == "reject")


async def test_exhaustion(route: Route, server: PulsarServer, queue: str) -> None:
    """A gateway always dead-letters, and routes no message by its job, so that only these rows are applicable."""
    for case in suite.cases("pulsar_exhaustion"):
        if case["kind"] == "unknown_urn" or not case["dead_letter"] or "on_unknown_urn" in case:
            suite.record("pulsar_exhaustion", case["name"], "not applicable", _STRATEGY)
            continue
        with suite.judged("pulsar_exhaustion", case["name"]):
            expected = case["expect"]
            if case["kind"] == "poison":
                assert (await _outcome_of_poison(server, queue), expected["outcome"]) == (expected["reason"], "dlq")
                continue
            properties = {"bq-attempts": case["bq_attempts"]} if "bq_attempts" in case else {}
            declared = read(b"{}", **properties).attempts
            counted = route.attempts(case["body_attempts"], case["redelivery_count"], declared) + 1
            most = case.get("max_attempts", 3)
            assert ("retry" if counted < most else "dlq") == expected["outcome"]
            if expected["outcome"] == "dlq":
                assert (counted, "failed") == (expected["dead_letter_attempts"], expected["reason"])


async def _outcome_of_poison(server: PulsarServer, queue: str) -> str:
    """The reason of the dead letter that the first delivery of a body without an envelope becomes."""
    world = World(PulsarBroker(server), queue)
    process = await world.process()
    await world.broker.inject(queue, b"no envelope")
    await process.publish({"n": 1})
    assert data(await process.one()) == {"n": 1}
    (letter,) = await world.broker.dead(queue)
    assert [event.count for event in process.events if event.kind == "poison"] == [1]
    await world.close()
    return str(json.loads(letter)["dead_letter"]["reason"])


async def test_version_gate(server: PulsarServer, queue: str) -> None:
    """A gateway always dead-letters, so that the rows of other strategies are not applicable."""
    world = World(PulsarBroker(server), queue)
    process = await world.process()
    incoming = block("version_gate_pulsar", "incoming_bodies")
    bodies = [_bytes(each) for each in incoming]

    def send(name: str, several: list[bytes]) -> None:
        with client(server.port) as opened:
            subscribe(opened, name).close()
            producer = opened.create_producer(name, batching_enabled=False)
            for body in several:
                producer.send(body, properties={"bq-schema-version": "2"})

    with suite.judged_version_gate("version_gate_pulsar", "dlq_raw"):
        await asyncio.to_thread(send, queue, bodies)
        await process.publish({"n": 2})
        assert data(await process.one()) == {"n": 2}
        assert sorted(await world.broker.dead(queue)) == sorted(bodies), "byte for byte, and never decoded"
        reasons = [event.reason for event in process.events if event.kind == "poison"]
        assert reasons == ["unsupported_schema_version"] * len(bodies)
    with suite.judged_version_gate("version_gate_pulsar", "unsettled"):
        other = f"{queue}-other"
        dead = f"persistent/public/default/{other}.dlq"
        # No message can be written to a topic that is terminated.
        assert await asyncio.to_thread(server.admin, dead, "PUT") is not None
        assert await asyncio.to_thread(server.admin, f"{dead}/terminate", "POST") is not None
        reader = await world.process(queue=other)
        await asyncio.to_thread(send, other, bodies[:1])
        assert await reader.receive(wait=1) == [], "it has nowhere to go"
        stats = await reader.stats()
        assert (stats.depth or 0) + (stats.in_flight or 0) == 1
    await world.close()


def _bytes(incoming: Any) -> bytes:
    body = incoming["body"] if isinstance(incoming, dict) else incoming
    return str(body).encode()
