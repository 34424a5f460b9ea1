"""The sections of the official conformance suite on Amazon SQS: of projection, attempts, delays and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.sqs.binding import SqsBinding
from babelgate.brokers.sqs.message import entry, read
from babelgate.brokers.sqs.queue import queue_of
from babelgate.brokers.sqs.settle import whole_seconds
from babelgate.errors import UnsupportedByBroker
from babelgate.gateway.routing import Policy, Route
from tests.brokers.sqs.harness import STANDARD, MotoBroker, SqsBroker, client, take_all, url_of
from tests.harness import conformance as suite
from tests.harness.broker import Server
from tests.harness.world import World, until

pytestmark = pytest.mark.sqs


def block(section: str, name: str) -> Any:
    suite.folder()
    return suite.section(section)[name]


def route(binding: SqsBinding, name: str) -> Route:
    native = binding.native_queue(name, STANDARD)
    return Route(name, binding, native, binding.capabilities(native), Policy(), name)


def message(body: bytes, attributes: Mapping[str, Any], system: Mapping[str, str]) -> dict[str, Any]:
    return {
        "MessageId": "m",
        "ReceiptHandle": "r",
        "Body": body.decode(),
        "MessageAttributes": attributes,
        "Attributes": system,
    }


async def test_attribute_projection(one: SqsBinding, plain: Any, queue: str) -> None:
    expected = block("sqs", "attribute_projection")
    with suite.judged("sqs", "attribute_projection"):
        body = (suite.folder() / expected["envelope_file"]).read_bytes()
        native = one.native_queue(queue, STANDARD)
        assert await one.publish(native, [Outgoing(body)]) == [None]
        (found,) = await asyncio.to_thread(take_all, plain, await asyncio.to_thread(url_of, plain, queue_of(queue, {})))
        assert found["Body"].encode() == body
        assert found["MessageAttributes"] == expected["message_attributes"]


async def test_attempts_reconciliation(one: SqsBinding, queue: str) -> None:
    for case in block("sqs", "attempts_reconciliation")["cases"]:
        with suite.judged("sqs", f"attempts_reconciliation {case['name']}"):
            count = case["approximate_receive_count"]
            found = read(message(b"{}", {}, {} if count is None else {"ApproximateReceiveCount": count}))
            assert route(one, queue).attempts(case["body_attempts"], found.count) == case["expected_attempts"]


def test_schema_version_gate() -> None:
    for case in block("sqs", "schema_version_gate")["cases"]:
        with suite.judged("sqs", f"schema_version_gate {case.get('value', 'absent')!r}"):
            attributes = {}
            if not case.get("absent"):
                attributes["bq-schema-version"] = {"DataType": "String", "StringValue": case["value"]}
            found = read(message(b"{}", attributes, {}))
            assert found.version == (case["value"] if case["expect"] == "reject" else None)


async def test_delay(one: SqsBinding) -> None:
    for case in suite.section("delay")["cases"]:
        with suite.judged("delay", case["name"]):
            fifo = case["queue_type"] == "fifo"
            of = route(one, "orders.fifo" if fifo else "orders")
            seconds = case["delay_seconds"]
            if case["expect"] == "reject":
                with pytest.raises(UnsupportedByBroker):
                    of.check_delay(seconds)
            else:
                of.check_delay(seconds)
                made = entry(queue_of("orders", {}), Outgoing(b"{}", delay_seconds=seconds))
                assert made["DelaySeconds"] == case["expect"]["delay_seconds_attribute"]
    for case in suite.section("delay")["release_visibility"]["cases"]:
        with suite.judged("delay", f"release_visibility {case['name']}"):
            route(one, "orders").check_retry_delay(case["delay_seconds"])
            assert whole_seconds(case["delay_seconds"]) == case["expect"]["visibility_timeout"]


@pytest.mark.parametrize("kind", [SqsBroker, MotoBroker])
async def test_version_gate(kind: type[SqsBroker], elastic: Server, moto: Server, queue: str) -> None:
    """A gateway always dead-letters, so that the rows of other strategies are not applicable."""
    broker = kind(elastic if kind is SqsBroker else moto, STANDARD)
    world = World(broker, queue)
    process = await world.process()
    # The first publish makes the queue.
    await process.publish({"n": 1})
    assert await process.ack(await process.one()) == [None]
    bodies = [str(each["body"]) for each in block("version_gate_sqs", "incoming_bodies")]
    gated = {"bq-schema-version": {"DataType": "Number", "StringValue": "2"}}

    def send(name: str, *several: str) -> None:
        sqs = client(broker.server.port)
        for body in several:
            sqs.send_message(QueueUrl=url_of(sqs, queue_of(name, {})), MessageBody=body, MessageAttributes=gated)

    async def dead() -> list[str]:
        return sorted(each.decode() for each in await broker.dead(queue))

    async def all_are_dead() -> bool:
        assert await process.receive() == []
        return len(await dead()) == len(bodies)

    with suite.judged_version_gate("version_gate_sqs", "dlq_raw"):
        await asyncio.to_thread(send, queue, *bodies)
        await until(all_are_dead)
        assert await dead() == sorted(bodies), "byte for byte, and never decoded"
        reasons = [event.reason for event in process.events if event.kind == "poison"]
        assert reasons == ["unsupported_schema_version"] * len(bodies)
    with suite.judged_version_gate("version_gate_sqs", "unsettled"):
        other = await world.process(queue=f"{queue}-other", queue_options={"create": "never"})
        await asyncio.to_thread(send, other.queue, bodies[0])
        assert await other.receive() == [], "it has nowhere to go"
        assert broker.tells(await other.stats(), depth=0, in_flight=1, dead=0)
    await world.close()
