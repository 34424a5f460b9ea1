"""URLs and options: what is read, and what is refused by which key."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.artemis.binding import connect
from babelgate.brokers.artemis.url import settings_of
from babelgate.clock import now_ms
from babelgate.errors import ConfigError


def test_several_hosts_and_credentials() -> None:
    found = settings_of("artemis://me:p%40ss@one,two:5673", {})
    assert found.hosts == (("one", 5672), ("two", 5673))
    assert (found.username, found.password, found.mechanism, found.tls) == ("me", "p@ss", "PLAIN", None)
    assert "p@ss" not in repr(found)


def test_the_mechanism_follows_the_credentials() -> None:
    assert settings_of("artemis://one", {}).mechanism == "ANONYMOUS"
    secured = settings_of("artemis+ssl://one", {"ssl_certfile": "client.pem"})
    assert (secured.mechanism, secured.hosts) == ("EXTERNAL", (("one", 5671),))
    assert settings_of("artemis+ssl://me:secret@one", {"ssl_certfile": "client.pem"}).mechanism == "PLAIN"


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("artemis://", {}, "url"),
        ("artemis://one/path", {}, "url"),
        ("amqp://one", {}, "url"),
        ("artemis://one:x", {}, "url"),
        ("artemis://one", {"unknown": 1}, "unknown"),
        ("artemis://one", {"ssl_ca_certs": "ca.pem"}, "ssl_ca_certs"),
        ("artemis://one", {"sasl": "SCRAM"}, "sasl"),
        ("artemis://one", {"sasl": "EXTERNAL"}, "sasl"),
        ("artemis://one", {"sasl": "PLAIN"}, "username"),
        ("artemis://me@one", {}, "password"),
        ("artemis://me:secret@one", {"sasl": "ANONYMOUS"}, "sasl"),
        ("artemis://me:secret@one", {"password": "other"}, "password"),
        ("artemis://one", {"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_what_is_refused(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect("artemis", url, options, now_ms)
    assert refused.value.key == key
    assert "secret" not in str(refused.value)


def test_a_route_has_no_options() -> None:
    binding = connect("artemis", "artemis://one", {}, now_ms)
    assert binding.native_queue("q", {}).dead_letters == "q.dlq"
    with pytest.raises(ConfigError) as refused:
        binding.native_queue("q", {"create": "missing"})
    assert refused.value.key == "create"
