"""URLs and options of a broker, and options of a route: what is read, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.pulsar.binding import connect
from babelgate.brokers.pulsar.url import OAuth2, PulsarQueue, queue_of, settings_of
from babelgate.clock import now_ms
from babelgate.errors import ConfigError

_OAUTH2 = {
    "oauth2_issuer_url": "https://issuer.example/",
    "oauth2_client_id": "gateway",
    "oauth2_client_secret": "hunter2",
}


def test_defaults() -> None:
    settings = settings_of("pulsar://broker", {})
    assert (settings.hosts, settings.namespace) == ((("broker", 6650),), "public/default")
    assert (settings.tls, settings.token, settings.oauth2, settings.admin_url) == (None, None, None, None)
    assert not settings.single_address


def test_a_url_with_everything() -> None:
    settings = settings_of(
        "pulsar+ssl://one,two:7000/shop/eu%2Dwest?token=t&admin_url=https://admin:8443/&single_address=true",
        {"ssl_ca_certs": "ca.pem", "ssl_check_hostname": False},
    )
    assert settings.hosts == (("one", 6651), ("two", 7000))
    assert (settings.namespace, settings.token, settings.admin_url) == ("shop/eu-west", "t", "https://admin:8443")
    assert settings.tls is not None
    assert (settings.tls.ca_certs, settings.tls.check_hostname) == ("ca.pem", False)
    assert settings.single_address


def test_client_credentials() -> None:
    settings = settings_of("pulsar://broker", {**_OAUTH2, "oauth2_audience": "urn:pulsar"})
    assert settings.oauth2 == OAuth2("https://issuer.example", "gateway", "hunter2", "urn:pulsar", None)
    assert "hunter2" not in repr(settings)


def test_a_token_is_not_shown() -> None:
    assert "hidden" not in repr(settings_of("pulsar://broker?token=hidden", {}))


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("pulsar://", {}, "url"),
        ("pulsar://broker/only", {}, "url"),
        ("pulsar://broker/a/b/c", {}, "url"),
        ("pulsar://broker/a b/c", {}, "url"),
        ("pulsar://broker:port", {}, "url"),
        ("pulsar://user:hunter2@broker", {}, "username"),
        ("pulsar://broker", {"ssl_ca_certs": "ca.pem"}, "ssl_ca_certs"),
        ("pulsar://broker", {"token": ""}, "token"),
        ("pulsar://broker", {"admin_url": "broker:8080"}, "admin_url"),
        ("pulsar://broker", {"admin_url": "http://user:hunter2@broker"}, "admin_url"),
        ("pulsar://broker", {"single_address": "maybe"}, "single_address"),
        ("pulsar://broker", {"oauth2_client_id": "gateway"}, "oauth2_client_id"),
        ("pulsar://broker", {**_OAUTH2, "token": "t"}, "token"),
        ("pulsar://broker", {**_OAUTH2, "token_path": "t"}, "token_path"),
        ("pulsar://broker", {"token": "t", "token_path": "t"}, "token"),
        ("pulsar://broker", {"oauth2_issuer_url": "https://issuer.example"}, "oauth2_client_id"),
        ("pulsar://broker", {**_OAUTH2, "oauth2_client_secret": ""}, "oauth2_client_secret"),
        ("pulsar://broker", {"subscription": "other"}, "subscription"),
        ("pulsar://broker", {"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_refusals(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        connect("main", url, options, now_ms)
    assert refusal.value.facts["key"] == key
    assert "hunter2" not in str(refusal.value)


def test_routes() -> None:
    settings = settings_of("pulsar://broker/shop/eu", {})
    assert queue_of(settings, "orders", {}) == PulsarQueue("persistent://shop/eu/orders")
    keyed = queue_of(settings, "orders", {"key_shared": True})
    assert keyed.key_shared
    assert (keyed.dead.topic, keyed.dead.key_shared) == ("persistent://shop/eu/orders.dlq", False)


@pytest.mark.parametrize(("options", "key"), [({"key_shared": "yes"}, "key_shared"), ({"create": "missing"}, "create")])
def test_refused_options_of_a_route(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        queue_of(settings_of("pulsar://broker", {}), "orders", options)
    assert refusal.value.facts["key"] == key
