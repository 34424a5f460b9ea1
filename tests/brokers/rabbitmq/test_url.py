"""URLs and options of RabbitMQ: their parameters, and the errors of invalid ones."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from babelgate.brokers.rabbitmq.url import ManagementEndpoint, parameters_of
from babelgate.brokers.url import Tls
from babelgate.errors import ConfigError
from babelgate.masking import mask_url


def test_all_parts_of_a_url() -> None:
    read = parameters_of("amqp://shop:p%40ss@rabbit.example:5673/orders?heartbeat=10", {})
    assert (read.host, read.port, read.username, read.password) == ("rabbit.example", 5673, "shop", "p@ss")
    assert (read.vhost, read.heartbeat, read.tls, read.management) == ("orders", 10, None, None)


def test_the_defaults() -> None:
    read = parameters_of("amqp://rabbit", {})
    assert (read.port, read.username, read.password, read.vhost, read.heartbeat) == (5672, "guest", "guest", "/", 60)


@pytest.mark.parametrize(
    ("path", "vhost"),
    [("", "/"), ("/", "/"), ("/%2F", "/"), ("/a%2Fb", "a/b"), ("/%252F", "%2F"), ("/m%C3%BCll", "müll")],
)
def test_virtual_hosts(path: str, vhost: str) -> None:
    assert parameters_of(f"amqp://rabbit{path}", {}).vhost == vhost


def test_options_and_query_say_the_same() -> None:
    assert parameters_of("amqp://rabbit?heartbeat=5", {}) == parameters_of("amqp://rabbit", {"heartbeat": 5})


def test_tls() -> None:
    read = parameters_of("amqps://rabbit", {"ssl_ca_certs": "ca.crt", "ssl_check_hostname": False})
    assert read.port == 5671
    assert read.tls == Tls(ca_certs="ca.crt", check_hostname=False)


def test_tls_verifies_unless_told_otherwise() -> None:
    verifying, trusting = parameters_of("amqps://rabbit", {}).tls, parameters_of("amqps://r?ssl_cert_reqs=none", {}).tls
    assert verifying is not None and trusting is not None
    assert verifying.context().verify_mode == ssl.CERT_REQUIRED and verifying.context().check_hostname
    assert trusting.context().verify_mode == ssl.CERT_NONE and not trusting.context().check_hostname


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"management": "http://rabbit:15672/"}, ManagementEndpoint("http://rabbit:15672", "shop", "secret")),
        ({"management": "https://m:n@rabbit/path"}, ManagementEndpoint("https://rabbit/path", "m", "n")),
        (
            {"management": "http://rabbit", "management_username": "m", "management_password": "n"},
            ManagementEndpoint("http://rabbit", "m", "n"),
        ),
    ],
    ids=["as AMQP", "in its URL", "by options"],
)
def test_management(options: dict[str, Any], expected: ManagementEndpoint) -> None:
    assert parameters_of("amqp://shop:secret@rabbit", options).management == expected


@pytest.mark.parametrize(
    ("url", "options", "key", "word"),
    [
        ("amqp://a:5672,b:5672/", {}, "url", "one host"),
        ("amqp:///orders", {}, "url", "expected"),
        ("amqp://a:port", {}, "url", "port"),
        ("amqp://a:99999", {}, "url", "port"),
        ("amqp://a#x", {}, "url", "expected"),
        ("amqp://a/x/y", {}, "url", "%2F"),
        ("http://a/", {}, "url", "amqp"),
        ("amqp://a?heartbeat=0", {}, "heartbeat", "from 1"),
        ("amqp://a?heartbeat=soon", {}, "heartbeat", "number"),
        ("amqp://a", {"heartbeat": True}, "heartbeat", "number"),
        ("amqp://a", {"heartbeat": 3601}, "heartbeat", "3600"),
        ("amqp://a?connection_attempts=3", {}, "connection_attempts", "unknown"),
        ("amqp://a", {"ssl_ca_certs": "x"}, "ssl_ca_certs", "amqps"),
        ("amqps://a", {"ssl_cert_reqs": "maybe"}, "ssl_cert_reqs", "required"),
        ("amqps://a", {"ssl_check_hostname": "maybe"}, "ssl_check_hostname", "true or false"),
        ("amqps://a", {"ssl_ca_certs": ""}, "ssl_ca_certs", "text"),
        ("amqps://a", {"ssl_keyfile": "x"}, "ssl_keyfile", "ssl_certfile"),
        ("amqp://a", {"management": "rabbit:15672"}, "management", "http"),
        ("amqp://a", {"management": "http://rabbit:port"}, "management", "http"),
        ("amqp://a", {"management_username": "m"}, "management_username", "beside"),
    ],
)
def test_what_is_refused(url: str, options: dict[str, Any], key: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parameters_of(url, options)
    assert refused.value.key == key and word in refused.value.reason


def test_no_secret_is_shown() -> None:
    url = "amqp://shop:hunter2@rabbit/?management=http://admin:hunter3@rabbit"
    shown = repr(parameters_of(url, {})) + mask_url(url)
    assert "rabbit" in shown and "hunter" not in shown
    with pytest.raises(ConfigError) as refused:
        parameters_of("amqp://shop:hunter2@a:99999", {"management": "http://admin:hunter3@rabbit"})
    assert "hunter" not in str(refused.value)
