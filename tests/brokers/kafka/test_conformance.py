"""The sections of the official conformance suite on Kafka: headers, attempts, versions, poison, retry tiers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from babelgate import envelope
from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.message import CarriedRecord, Written, delivery_of
from babelgate.brokers.kafka.publish import written_of
from babelgate.brokers.kafka.url import RETRY_DELAYS_SECONDS, queue_of
from babelgate.clock import now_ms
from babelgate.errors import UnsupportedByBroker
from babelgate.gateway.routing import Policy, Route
from tests.brokers.kafka.harness import STANDARD, KafkaBroker, read, write
from tests.brokers.kafka.server import KafkaServer
from tests.harness import conformance as suite
from tests.harness.world import World, data, until

pytestmark = pytest.mark.kafka

BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","schema_version":1},"attempts":%d}'


def block(section: str, name: str) -> Any:
    suite.folder()
    return suite.section(section)[name]


def route(binding: KafkaBinding, name: str, tiers_ms: Sequence[int] = ()) -> Route:
    delays = [each / 1000 for each in tiers_ms]
    native = binding.native_queue(name, {"retry_delays_seconds": delays})
    policy = Policy(backoff_seconds=tuple(delays))
    return Route(name, binding, native, binding.capabilities(native), policy, name)


def assert_headers(written: Written, expected: Mapping[str, str]) -> None:
    found = [name for name, _ in written.headers]
    assert all(found.count(name) == 1 for name in expected)
    assert {name: value.encode() for name, value in expected.items()}.items() <= dict(written.headers).items()


async def test_property_projection(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    expected = block("kafka", "property_projection")
    with suite.judged("kafka", "property_projection"):
        body = (suite.folder() / expected["envelope_file"]).read_bytes()
        native = one.native_queue(queue, STANDARD)
        message = Outgoing(body, dedup_id=json.loads(body)["meta"]["id"])
        assert await one.publish(native, [message]) == [None]
        (found,) = await asyncio.to_thread(read, server.port, queue)
        assert found.value() == body
        assert found.key() is None
        assert dict(found.headers() or ()) == {name: value.encode() for name, value in expected["headers"].items()}
        assert found.timestamp()[1] == json.loads(body)["meta"]["created_at"]


async def test_attempts_reconciliation(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    """Through the broker, and the gateway: a header is authoritative, even when it is lower."""
    world = World(KafkaBroker(server, STANDARD), queue)
    process = await world.process()
    for case in block("kafka", "attempts_reconciliation")["cases"]:
        with suite.judged("kafka", f"attempts_reconciliation {case['name']}"):
            declared = case["header_attempts"]
            headers = [] if declared is None else [("bq-attempts", str(declared))]
            record = {"value": BODY % case["body_attempts"], "headers": headers}
            await asyncio.to_thread(write, server.port, queue, record)
            message = await process.one()
            assert message.attempts == case["expected_attempts"]
            await process.ack(message)
    await world.close()


async def test_schema_version_gate(server: KafkaServer, queue: str) -> None:
    gate = block("kafka", "schema_version_gate")
    body = (suite.folder() / gate["fixture"]).read_bytes()
    for case in gate["cases"]:
        headers = []
        if not case.get("absent"):
            value = case["value"]
            headers = [("bq-schema-version", None if value is None else value.encode())]
        await asyncio.to_thread(write, server.port, queue, {"value": body, "headers": headers})
    found = await asyncio.to_thread(read, server.port, queue)
    for case, record in zip(gate["cases"], found, strict=True):
        with suite.judged("kafka", f"schema_version_gate {case.get('value', 'absent')!r}"):
            assert (delivery_of(record).unsupported_version is not None) == (case["expect"] == "reject")


async def test_a_gated_record_is_dead_lettered_byte_for_byte(server: KafkaServer, queue: str) -> None:
    broker = KafkaBroker(server, STANDARD)
    world = World(broker, queue)
    process = await world.process()
    body = b'{"anything": "of version 2"'
    gated = {"value": body, "headers": [("bq-schema-version", b"2"), ("x", b"\xff")], "key": b"\x00k"}
    await asyncio.to_thread(write, server.port, queue, gated)
    await process.publish({"n": 2})
    assert data(await process.one()) == {"n": 2}
    (dead,) = await asyncio.to_thread(read, server.port, f"{queue}.dlq")
    headers: Any = dead.headers()
    assert (dead.value(), dead.key()) == (body, b"\x00k")
    assert headers[:2] == [("bq-schema-version", b"2"), ("x", b"\xff")]
    await world.close()


async def test_kafka_poison(server: KafkaServer, queue: str) -> None:
    """Every record that is poison, or has no identity, goes to the dead letters with that reason."""
    suite.folder()
    broker = KafkaBroker(server, STANDARD)
    world = World(broker, queue)
    process = await world.process()
    cases = suite.cases("kafka_poison")
    bad = [case for case in cases if case["expect"] != "ok"]
    await broker.inject(queue, *(case["body"].encode("utf-8", "surrogatepass") for case in bad))
    await process.publish({"n": 1})
    assert data(await process.one()) == {"n": 1}

    async def are_dead() -> bool:
        return len(await broker.dead(queue)) == len(bad)

    await until(are_dead)
    for case, record in zip(bad, await broker.dead(queue), strict=True):
        with suite.judged("kafka_poison", case["name"]):
            letter = json.loads(record)["dead_letter"]
            assert letter["reason"] == "poison"
            assert letter["original_queue"] == queue
    for case in cases:
        if case["expect"] == "ok":
            with suite.judged("kafka_poison", case["name"]):
                # The gateway requires more members than an SDK does.
                assert envelope.inspect(_completed(case["body"]), envelope.Limits()).job
    await world.close()


def _completed(text: str) -> bytes:
    """``text``, with what a consumer of the gateway requires beside an identity."""
    wanted: dict[str, Any] = {"trace_id": "t", "data": {}, "attempts": 0, "meta": {"schema_version": 1}}
    given = json.loads(text)
    added = {name: value for name, value in wanted.items() if given.get(name) is None or name == "meta"}
    return (text.rstrip()[:-1] + "," + json.dumps(added)[1:]).encode()


async def test_requested_delays(one: KafkaBinding) -> None:
    for case in suite.cases("backoff") if suite.folder() else ():
        with suite.judged("backoff", case["name"]):
            of = route(one, case["work_topic"], case["retry_tiers_ms"])
            seconds = case["delay_ms"] / 1000
            if case["expect"] == "reject":
                with pytest.raises(UnsupportedByBroker):
                    of.check_delay(seconds)
                continue
            of.check_delay(seconds)
            written = written_of(of.native.options, Outgoing(BODY % 0, delay_seconds=seconds, dedup_id="i"), now_ms())
            tier = case["retry_tiers_ms"].index(case["expect"]["tier_ms"])
            assert written.topic == f"{case['work_topic']}.retry.{tier + 1}"
            assert_headers(written, case["expect"]["headers"])


@pytest.mark.parametrize(
    ("name", "before"), [("retry_republish", "attempts"), ("retry_attempt_tier", "attempts_before")]
)
async def test_retries(one: KafkaBinding, name: str, before: str) -> None:
    """``backoff_seconds`` of a route that are its retry tiers follow the rule of the contract."""
    for case in block("backoff", name)["cases"]:
        with suite.judged("backoff", f"{name} {case['name']}"):
            of = route(one, case["work_topic"], case["retry_tiers_ms"])
            attempts = case[before] + 1
            if case["expect"] == "reject":
                with pytest.raises(UnsupportedByBroker):
                    of.check_retry_delay(5)
                continue
            expected = case["expect"]
            key = case["key"].encode() if "key" in case and case["key"] is not None else None
            body = envelope.with_attempts(BODY % case[before], attempts)
            copy = Outgoing(
                body,
                delay_seconds=of.policy.backoff(attempts),
                failure=LastFailure(attempts),
                carried=CarriedRecord(key, [("bq-attempts", b"%d" % case[before])]),
            )
            written = written_of(of.native.options, copy, now_ms())
            assert written.topic == expected["topic"]
            assert written.key == key
            assert written.value is not None
            assert json.loads(written.value)["attempts"] == expected["body_attempts"]
            assert_headers(written, expected["headers"])


def test_topic_names() -> None:
    for case in block("backoff", "topic_names")["cases"]:
        with suite.judged("backoff", f"topic_names {case['name']}"):
            assert queue_of(case["work_topic"], {}).tier(case["n"] - 1) == case["expect_topic"]


def test_default_tiers() -> None:
    (case,) = block("backoff", "default_tiers")["cases"]
    with suite.judged("backoff", f"default_tiers {case['name']}"):
        assert [seconds * 1000 for seconds in RETRY_DELAYS_SECONDS] == case["expect"]
