"""What may stand in a broker's URL and options, and in those of a route."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.sqs.binding import SqsBinding, connect
from babelgate.brokers.sqs.queue import SqsQueue, queue_of
from babelgate.brokers.sqs.url import SqsSettings, settings_of
from babelgate.clock import now_ms
from babelgate.errors import ConfigError

ROLE = "arn:aws:iam::123456789012:role/gateway"
PLAIN = SqsSettings(None, None, None, 1_048_576, 20)


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("sqs://", {}, PLAIN),
        ("sqs://eu-west-1", {}, SqsSettings("eu-west-1", None, None, 1_048_576, 20)),
        ("sqs://?region=eu-west-1", {}, SqsSettings("eu-west-1", None, None, 1_048_576, 20)),
        ("sqs://", {"region": "eu-west-1"}, SqsSettings("eu-west-1", None, None, 1_048_576, 20)),
        (
            f"sqs://?endpoint_url=http://127.0.0.1:9324&assume_role_arn={ROLE}&long_poll_seconds=5",
            {"max_body_bytes": 262_144},
            SqsSettings(None, "http://127.0.0.1:9324", ROLE, 262_144, 5),
        ),
    ],
)
def test_settings(url: str, options: dict[str, Any], expected: SqsSettings) -> None:
    assert settings_of(url, options) == expected


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("sqs://key:secret@eu-west-1", {}, "url"),
        ("sqs://eu-west-1/queue", {}, "url"),
        ("sqs://eu-west-1:443", {}, "url"),
        ("sqs://eu-west-1", {"region": "eu-west-1"}, "region"),
        ("sqs://", {"endpoint_url": "127.0.0.1:9324"}, "endpoint_url"),
        ("sqs://", {"endpoint_url": "http://key:secret@127.0.0.1"}, "endpoint_url"),
        ("sqs://", {"assume_role_arn": "gateway"}, "assume_role_arn"),
        ("sqs://", {"max_body_bytes": 1_048_577}, "max_body_bytes"),
        ("sqs://", {"long_poll_seconds": 21}, "long_poll_seconds"),
        ("sqs://", {"long_poll_seconds": 0}, "long_poll_seconds"),
        ("sqs://", {"secret_key": "x"}, "secret_key"),
        ("sqs://", {"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_what_is_wrong_is_named_and_not_quoted(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        connect("aws", url, options, now_ms)
    assert refusal.value.key == key
    assert "secret@" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("orders", {}, SqsQueue("orders", group="orders")),
        ("orders", {"create": "never"}, SqsQueue("orders", group="orders")),
        (
            "orders.fifo",
            {"group": "all", "content_based_deduplication": True},
            SqsQueue("orders.fifo", group="all", content_based=True),
        ),
        (
            "orders",
            {"create": "missing", "attributes": {"MessageRetentionPeriod": 1_209_600}},
            SqsQueue("orders", group="orders", create=True),
        ),
        (
            "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
            {},
            SqsQueue("orders", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders", group="orders"),
        ),
        (
            "arn:aws:sqs:eu-west-1:123456789012:orders.fifo",
            {},
            SqsQueue("orders.fifo", None, "123456789012", "eu-west-1", "orders.fifo"),
        ),
    ],
)
def test_queues(name: str, options: dict[str, Any], expected: SqsQueue) -> None:
    found = queue_of(name, options)
    assert (found.name, found.url, found.account, found.region) == (
        expected.name,
        expected.url,
        expected.account,
        expected.region,
    )
    assert (found.group, found.content_based, found.create) == (expected.group, expected.content_based, expected.create)
    assert found.attributes == {name: str(value) for name, value in options.get("attributes", {}).items()}


@pytest.mark.parametrize(
    ("name", "dead"),
    [
        ("orders", ("orders-dlq", None)),
        ("orders.fifo", ("orders-dlq.fifo", None)),
        ("https://host/1/orders.fifo", ("orders-dlq.fifo", "https://host/1/orders-dlq.fifo")),
    ],
)
def test_the_queue_of_dead_letters(name: str, dead: tuple[str, str | None]) -> None:
    found = queue_of(name, {}).dead
    assert (found.name, found.url, found.for_dead_letters) == (*dead, True)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("orders.created", {}, "native_name"),
        ("a" * 77, {}, "native_name"),
        ("", {}, "native_name"),
        ("http://host/", {}, "native_name"),
        ("https://key:secret@host/1/orders", {}, "native_name"),
        ("arn:aws:sns:eu-west-1:123456789012:orders", {}, "native_name"),
        ("orders", {"create": "always"}, "create"),
        ("orders", {"attributes": {"DelaySeconds": 3}}, "attributes"),
        ("orders", {"create": "missing", "attributes": ["DelaySeconds"]}, "attributes"),
        ("orders", {"create": "missing", "attributes": {"DelaySeconds": True}}, "attributes"),
        ("arn:aws:sqs:eu-west-1:123456789012:orders", {"create": "missing"}, "create"),
        ("orders", {"group": "all"}, "group"),
        ("orders.fifo", {"group": "two words"}, "group"),
        ("orders.fifo", {"content_based_deduplication": "yes"}, "content_based_deduplication"),
    ],
)
def test_a_route_that_is_refused(name: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        queue_of(name, options)
    assert refusal.value.key == key
    assert "secret" not in str(refusal.value)


def test_an_arn_of_another_region_is_refused() -> None:
    with pytest.raises(ConfigError, match="eu-west-2"):
        binding("sqs://eu-west-1").native_queue("arn:aws:sqs:eu-west-2:123456789012:orders", {})


def test_capabilities_by_kind_of_queue() -> None:
    one = binding("sqs://eu-west-1")
    standard, fifo = (one.capabilities(one.native_queue(name, {})) for name in ("orders", "orders.fifo"))
    assert (standard.max_delay_seconds, standard.ordering) == (900, "none")
    assert (fifo.max_delay_seconds, fifo.ordering) == (0, "key")
    assert standard.max_retry_delay_seconds == fifo.max_retry_delay_seconds == 43_200


def binding(url: str) -> SqsBinding:
    return connect("aws", url, {}, now_ms)
