"""The native form of a message for RabbitMQ, decoded from the frames of a publish."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import asdict
from pamqp.commands import Basic

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.rabbitmq.binding import RabbitBinding, connect
from babelgate.brokers.rabbitmq.frames import projection
from babelgate.brokers.rabbitmq.profile import AddressedMessage
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected
from babelgate.http.dependencies import text_or_base64
from tests.brokers.rabbitmq.harness import OjsBroker
from tests.brokers.rabbitmq.server import RabbitServer

JOB = (
    b'{"job":"urn:babel:test:made","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{},"meta":{"id":'
    b'"0192f0c1-6a1c-7c8e-9d67-0e6f7f0f1a2b","queue":"q","lang":"php","schema_version":1,"created_at":1700000000000,'
    b'"ext":{"ojs":{"priority":10,"enqueue_ttl":1.5,"tags":["a","b"],"retry":{"max_attempts":3}}}},"attempts":0}'
)


def test_every_property_and_type_is_shown() -> None:
    properties = Basic.Properties(
        content_type="application/json",
        headers={"text": "é", "int": 1, "long": 1 << 40, "yes": True, "number": 1.5, "list": [1], "table": {"a": 1}},
        delivery_mode=2,
        priority=8,
        reply_to="answers",
        expiration="1500",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        message_type="made",
    )
    message = AddressedMessage("exchange", "key", properties, b"x" * 300_000)
    assert projection(message, frozenset({"int", "other"}), 0) == NativeWrite(
        "basic.publish",
        {"exchange": "exchange", "routing_key": "key", "mandatory": True},
        {
            "content_type": "application/json",
            "delivery_mode": 2,
            "priority": 8,
            "reply_to": "answers",
            "expiration": "1500",
            "timestamp": 1_767_225_600,
            "type": "made",
        },
        {
            "text": NativeHeader("longstr", "é"),
            "int": NativeHeader("int32", 1),
            "long": NativeHeader("int64", 1 << 40),
            "yes": NativeHeader("boolean", True),
            "number": NativeHeader("double", 1.5),
            "list": NativeHeader("array", [1]),
            "table": NativeHeader("table", {"a": 1}),
        },
        b"x" * 300_000,
        ["int"],
    )


async def test_the_example_in_the_documentation_is_exact() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rabbitmq.md").read_text("utf-8")
    (example,) = json.loads(page.partition("```json\n")[2].partition("```")[0])
    binding = connect("rabbit", "amqp://host/", {}, now_ms)
    (shown,) = await binding.projection(binding.native_queue("emails", {}), Outgoing(example["body"].encode()))
    assert json.loads(msgspec.json.encode(asdict(shown) | text_or_base64("body", shown.body))) == example


@pytest.mark.rabbitmq
async def test_what_a_job_asks_for_is_shown_as_it_is_stored(
    rabbit: RabbitServer, one: RabbitBinding, queue: str
) -> None:
    broker = OjsBroker(rabbit, {"profile": "ojs", "max_priority": 10})
    native = one.native_queue(queue, broker.queue_options)
    (shown,) = await one.projection(native, Outgoing(JOB))
    assert await one.publish(native, [Outgoing(JOB)]) == [None]
    (stored,) = await broker.stored(queue, delayed=False)
    assert dict(shown.fields) == stored.fields
    assert (shown.fields["priority"], shown.fields["expiration"]) == (8, "1500")
    assert shown.headers.keys() == stored.headers.keys()
    for name in ("x-ojs-max-attempts", "x-ojs-tags", "x-ojs-attempt", "x-ojs-queue"):
        assert shown.headers[name] == stored.headers[name]


@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "message",
    [
        Outgoing(JOB, headers={"x" * 256: "1"}),
        Outgoing(JOB, headers={"CC": "other"}),
        Outgoing(JOB, delay_seconds=1e9),
    ],
    ids=["a long name", "a header of the broker", "a long delay"],
)
async def test_what_cannot_be_published_is_refused_in_the_same_words(
    one: RabbitBinding, native: NativeQueue, message: Outgoing
) -> None:
    with pytest.raises(BrokerRejected) as shown:
        await one.projection(native, message)
    try:
        (refused,) = await one.publish(native, [message])
    except BrokerRejected as error:
        refused = error
    assert isinstance(refused, BrokerRejected)
    assert shown.value.reason == refused.reason
