"""The options of a route: what they declare, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.rabbitmq.binding import connect
from babelgate.brokers.rabbitmq.delays import LOST, MAX_QUEUE_BYTES
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.clock import now_ms
from babelgate.errors import ConfigError


def arguments(name: str, **options: Any) -> dict[str, Any]:
    return {queue.name: dict(queue.arguments) for queue in queue_of(name, options).profile.topology.queues}


def test_as_the_sdks_declare_it() -> None:
    queue = queue_of("orders", {})
    assert arguments("orders") == {"orders": {}}
    assert (queue.profile.queue, queue.profile.dead_queue) == ("orders", "orders.dlq")
    assert (queue.declare, queue.stored_as["queue_type"]) == ("active", "classic")


def test_a_quorum_queue_never_drops_at_its_limit() -> None:
    assert arguments("orders", queue_type="quorum") == {
        "orders": {
            "x-queue-type": "quorum",
            "x-delivery-limit": 20,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "orders.dlq",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
        "orders.dlq": {"x-queue-type": "quorum", "x-delivery-limit": -1},
    }


@pytest.mark.parametrize(
    ("options", "ordering"),
    [({}, "fifo"), ({"profile": "ojs"}, "fifo"), ({"profile": "ojs", "max_priority": 10}, "none")],
)
def test_a_queue_with_priorities_keeps_no_order(options: dict[str, Any], ordering: str) -> None:
    binding = connect("rabbit", "amqp://127.0.0.1:1/", {}, now_ms)
    assert binding.capabilities(binding.native_queue("orders", options)).ordering == ordering


@pytest.mark.parametrize(("given", "said"), [(5, 5), (None, -1)])
def test_delivery_limits(given: int | None, said: int) -> None:
    assert arguments("orders", queue_type="quorum", delivery_limit=given)["orders"]["x-delivery-limit"] == said


@pytest.mark.parametrize("mode", ["active", "passive", "none"])
def test_declare(mode: str) -> None:
    assert queue_of("orders", {"declare": mode}).declare == mode


@pytest.mark.parametrize(
    ("name", "options", "key", "word"),
    [
        ("orders", {"profile": "other"}, "profile", "plain or ojs"),
        ("orders", {"profile": []}, "profile", "plain or ojs"),
        ("orders", {"declare": "maybe"}, "declare", "active, passive or none"),
        ("orders", {"declare": True}, "declare", "active, passive or none"),
        ("orders", {"queue_type": "stream"}, "queue_type", "classic or quorum"),
        ("orders", {"delivery_limit": 5}, "delivery_limit", "queue_type: quorum"),
        ("orders", {"queue_type": "quorum", "delivery_limit": 0}, "delivery_limit", "from 1"),
        ("orders", {"queue_type": "quorum", "delivery_limit": True}, "delivery_limit", "from 1"),
        ("orders", {"queue_type": "quorum", "delivery_limit": "5"}, "delivery_limit", "from 1"),
        ("orders", {"durable": False}, "durable", "known are profile, declare, queue_type, delivery_limit"),
        ("o" * (MAX_QUEUE_BYTES + 1), {}, "native_name", "205 bytes"),
        ("ü" * (MAX_QUEUE_BYTES // 2 + 1), {}, "native_name", "205 bytes"),
        ("orders.*", {}, "native_name", "wildcards"),
        ("#", {}, "native_name", "wildcards"),
        ("amq.orders", {}, "native_name", "reserved"),
        (LOST, {}, "native_name", "reserved"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], key: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        queue_of(name, options)
    assert refused.value.key == key and word in refused.value.reason


@pytest.mark.parametrize("name", ["o" * MAX_QUEUE_BYTES, "a*b", "a#b", "a.b", "amqp"])
def test_names_that_are_not_refused(name: str) -> None:
    assert queue_of(name, {}).profile.queue == name


@pytest.mark.parametrize(
    ("options", "destination", "routing_key"),
    [({}, "orders", "orders"), ({"profile": "ojs"}, "ojs.direct:orders", "orders")],
)
def test_spans_name_the_exchange_and_the_routing_key(
    options: dict[str, Any], destination: str, routing_key: str
) -> None:
    binding = connect("r", "amqp://h", {}, lambda: 0)
    traced = binding.native_queue("orders", options).traced("send", None)
    assert traced["messaging.destination.name"] == destination
    assert traced["rabbitmq.destination.routing_key"] == routing_key
