"""URLs and options of a cluster, and options of a route: what is read, and what is refused by its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from babelgate.brokers.kafka.binding import connect
from babelgate.brokers.kafka.consumer_thread import client_settings
from babelgate.brokers.kafka.url import (
    CLIENT,
    MAX_HELD,
    MAX_HELD_BOUND,
    RETRY_DELAYS_SECONDS,
    KafkaQueue,
    queue_of,
    settings_of,
)
from babelgate.clock import now_ms
from babelgate.errors import ConfigError

PASSWORD = {"sasl_mechanism": "PLAIN", "username": "shop", "password": "hunter2"}
TOKENS = {**PASSWORD, "sasl_mechanism": "OAUTHBEARER", "oauth_token_url": "https://issuer.example/token"}


def test_defaults() -> None:
    settings = settings_of("kafka://broker", {})
    assert (settings.group_protocol, settings.instance_id) == ("consumer", None)
    assert settings.group == "babelqueue"
    assert settings.reinject
    assert settings.client == {**CLIENT, "bootstrap.servers": "broker:9092", "security.protocol": "PLAINTEXT"}


def test_a_group_of_its_own() -> None:
    settings = settings_of("kafka://broker?group=gateways", {})
    assert client_settings(settings, 2)["group.id"] == "gateways"


def test_a_url_with_everything() -> None:
    settings = settings_of(
        "kafka+ssl://shop:hunter2@one,two:9000,[::1]?group_protocol=consumer&instance_id=a&reinject=false",
        {"sasl_mechanism": "SCRAM-SHA-512", "ssl_ca_certs": "ca.pem", "ssl_check_hostname": False},
    )
    assert (settings.group_protocol, settings.instance_id, settings.reinject) == ("consumer", "a", False)
    assert settings.client == {
        **CLIENT,
        "bootstrap.servers": "one:9092,two:9000,[::1]:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "shop",
        "sasl.password": "hunter2",
        "ssl.ca.location": "ca.pem",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert "hunter2" not in repr(settings)


def test_a_client_certificate() -> None:
    client = settings_of("kafka+ssl://broker", {"ssl_certfile": "both.pem", "ssl_cert_reqs": "none"}).client
    assert (client["ssl.certificate.location"], client["ssl.key.location"]) == ("both.pem", "both.pem")
    assert client["security.protocol"] == "SSL"
    assert not client["enable.ssl.certificate.verification"]


def test_tokens() -> None:
    client = settings_of("kafka://broker", TOKENS | {"oauth_scope": "queues"}).client
    assert client["security.protocol"] == "SASL_PLAINTEXT"
    assert client["sasl.oauthbearer.token.endpoint.url"] == "https://issuer.example/token"
    assert (client["sasl.oauthbearer.client.id"], client["sasl.oauthbearer.scope"]) == ("shop", "queues")
    assert "sasl.oauthbearer.scope" not in settings_of("kafka://broker", TOKENS).client


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("kafka://", {}, "url"),
        ("kafka://one,,two", {}, "url"),
        ("kafka://broker/path", {}, "url"),
        ("kafka://broker:port", {}, "url"),
        ("kafka://broker#part", {}, "url"),
        ("amqp://broker", {}, "url"),
        ("kafka://shop:hunter2@broker", {}, "username"),
        ("kafka://broker", {"username": "shop"}, "username"),
        ("kafka://broker", {"password": "hunter2"}, "password"),
        ("kafka://broker", {"sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
        ("kafka://broker", {"sasl_mechanism": "PLAIN"}, "username"),
        ("kafka://broker", {"sasl_mechanism": "PLAIN", "username": "shop"}, "password"),
        ("kafka://shop:hunter2@broker", PASSWORD, "username"),
        ("kafka://broker", PASSWORD | {"oauth_token_url": "https://issuer.example"}, "oauth_token_url"),
        ("kafka://broker", PASSWORD | {"oauth_scope": "queues"}, "oauth_scope"),
        ("kafka://broker", TOKENS | {"sasl_mechanism": "OAUTHBEARER", "oauth_token_url": ""}, "oauth_token_url"),
        ("kafka://broker", PASSWORD | {"sasl_mechanism": "OAUTHBEARER"}, "oauth_token_url"),
        ("kafka://broker", {"ssl_ca_certs": "ca.pem"}, "ssl_ca_certs"),
        ("kafka+ssl://broker", {"ssl_keyfile": "key.pem"}, "ssl_keyfile"),
        ("kafka+ssl://broker", {"ssl_cert_reqs": "optional"}, "ssl_cert_reqs"),
        ("kafka+ssl://broker", {"ssl_check_hostname": 1}, "ssl_check_hostname"),
        ("kafka://broker", {"group_protocol": "share"}, "group_protocol"),
        ("kafka://broker", {"group": ""}, "group"),
        ("kafka://broker", {"instance_id": ""}, "instance_id"),
        ("kafka://broker", {"instance_id": 7}, "instance_id"),
        ("kafka://broker", {"reinject": "never"}, "reinject"),
        ("kafka://broker", {"reinject": 0}, "reinject"),
        ("kafka://broker", {"reinject": None}, "reinject"),
        ("kafka://broker?reinject=no", {}, "reinject"),
        ("kafka://broker?reinject=false", {"reinject": False}, "reinject"),
        ("kafka://broker", {"share_lock_seconds": 30}, "share_lock_seconds"),
        ("kafka://broker?share_lock_seconds=30", {}, "share_lock_seconds"),
        ("kafka://broker", {"timeout_seconds": 0}, "timeout_seconds"),
        ("kafka://broker", {"acks": 1}, "acks"),
    ],
)
def test_what_a_broker_refuses(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        connect("main", url, options, now_ms)
    assert refusal.value.facts["key"] == key
    assert "hunter2" not in str(refusal.value)


def test_a_route() -> None:
    assert queue_of("orders", {}) == KafkaQueue("orders", False, None, None, RETRY_DELAYS_SECONDS, MAX_HELD)
    options = {"create": "missing", "partitions": 3, "replication_factor": 2, "max_held": 5}
    queue = queue_of("orders", options | {"retry_delays_seconds": [0.5, 2]})
    assert queue == KafkaQueue("orders", True, 3, 2, (0.5, 2.0), 5)
    assert (queue.dead, queue.tiers) == ("orders.dlq", ("orders.retry.1", "orders.retry.2"))
    assert queue_of("orders", {"retry_delays_seconds": []}).tiers == ()


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("", {}, "native_name"),
        (".", {}, "native_name"),
        ("..", {}, "native_name"),
        ("shop/orders", {}, "native_name"),
        ("größe", {}, "native_name"),
        ("q" * 242, {}, "native_name"),
        ("q" * 246, {"retry_delays_seconds": []}, "native_name"),
        ("orders", {"create": "always"}, "create"),
        ("orders", {"create": True}, "create"),
        ("orders", {"partitions": 3}, "partitions"),
        ("orders", {"replication_factor": 3}, "replication_factor"),
        ("orders", {"create": "missing", "partitions": 0}, "partitions"),
        ("orders", {"create": "missing", "partitions": True}, "partitions"),
        ("orders", {"create": "missing", "partitions": 100_001}, "partitions"),
        ("orders", {"create": "missing", "replication_factor": 32768}, "replication_factor"),
        ("orders", {"retry_delays_seconds": 5}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": "5"}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": [0]}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": [5, 5]}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": [30, 5]}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": [True]}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": ["5"]}, "retry_delays_seconds"),
        ("orders", {"retry_delays_seconds": list(range(1, 101))}, "retry_delays_seconds"),
        ("orders", {"max_held": 0}, "max_held"),
        ("orders", {"max_held": MAX_HELD_BOUND + 1}, "max_held"),
        ("orders", {"consume": "share"}, "consume"),
        ("orders", {"consume": "group"}, "consume"),
        ("orders", {"layout": "list"}, "layout"),
    ],
)
def test_what_a_route_refuses(name: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        queue_of(name, options)
    assert refusal.value.facts["key"] == key


@pytest.mark.parametrize(
    "read",
    [
        lambda: queue_of("orders", {"consume": "share"}),
        lambda: settings_of("kafka://broker", {"share_lock_seconds": 30}),
    ],
    ids=["consume", "share_lock_seconds"],
)
def test_an_option_of_share_groups_says_what_to_do(read: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"share groups were removed.*leave this option out"):
        read()


def test_the_longest_name_of_a_topic() -> None:
    """Kafka takes 249 characters, and the longest topic of a queue has them."""
    assert len(queue_of("q" * 241, {}).tiers[0]) == 249
    assert len(queue_of("q" * 245, {"retry_delays_seconds": []}).dead) == 249
