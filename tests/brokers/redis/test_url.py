"""URLs and options: what they become, and what is refused in words."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from redis.asyncio.connection import Connection, SSLConnection

from babelgate.brokers.redis.binding import connect
from babelgate.brokers.redis.url import connector
from babelgate.clock import now_ms
from babelgate.errors import ConfigError


def made(url: str, **options: Any) -> Connection:
    connection = connector(url, options)()
    assert isinstance(connection, Connection)
    return connection


def test_all_parts_of_a_url() -> None:
    connection = made("redis://shop:p%40ss@cache.example:6380/7")
    assert (connection.host, connection.port, connection.db) == ("cache.example", 6380, 7)
    assert (connection.username, connection.password) == ("shop", "p@ss")


def test_the_defaults() -> None:
    connection = made("redis://cache")
    assert (connection.host, connection.port, connection.db, connection.password) == ("cache", 6379, 0, None)


def test_redis_py_repeats_nothing_and_limits_nothing() -> None:
    connection = made("redis://cache")
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout is None and connection.health_check_interval == 0


def test_options_and_query_say_the_same() -> None:
    assert made("redis://cache?db=3&password=x").db == made("redis://cache", db=3, password="x").db == 3


def test_tls() -> None:
    connection = made("rediss://cache", ssl_ca_certs="ca.crt", ssl_check_hostname=False)
    assert isinstance(connection, SSLConnection)
    assert connection.ca_certs == "ca.crt" and not connection.check_hostname


def test_tls_verifies_unless_told_otherwise() -> None:
    verifying, trusting = made("rediss://cache"), made("rediss://cache?ssl_cert_reqs=none")
    assert isinstance(verifying, SSLConnection) and isinstance(trusting, SSLConnection)
    assert verifying.cert_reqs == ssl.CERT_REQUIRED and verifying.check_hostname
    assert trusting.cert_reqs == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("url", "options", "key", "word"),
    [
        ("redis+sentinel://a:26379/mymaster", {}, "url", "Sentinel"),
        ("redis+cluster://a:6379", {}, "url", "Cluster"),
        ("redis://a:6379,b:6379/0", {}, "url", "one host"),
        ("redis:///0", {}, "url", "expected"),
        ("redis://a:port", {}, "url", "port"),
        ("redis://a:99999", {}, "url", "port"),
        ("redis://a#x", {}, "url", "expected"),
        ("redis://a/x", {}, "db", "number"),
        ("redis://a/-1", {}, "db", "number"),
        ("redis://a", {"db": True}, "db", "number"),
        ("redis://a?timeout=3", {}, "timeout", "unknown"),
        ("redis://a", {"sentinel": "x"}, "sentinel", "unknown"),
        ("redis://a", {"ssl_ca_certs": "x"}, "ssl_ca_certs", "rediss"),
        ("rediss://a", {"ssl_cert_reqs": "maybe"}, "ssl_cert_reqs", "required"),
        ("rediss://a", {"ssl_check_hostname": "maybe"}, "ssl_check_hostname", "true or false"),
        ("rediss://a", {"ssl_ca_certs": ""}, "ssl_ca_certs", "text"),
    ],
)
def test_what_is_refused(url: str, options: dict[str, Any], key: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect("cache", url, options, now_ms)
    assert refused.value.key == key and word in refused.value.reason


def test_a_refusal_quotes_no_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        connect("cache", "redis://shop:hunter2@a:99999", {}, now_ms)
    assert "hunter2" not in str(refused.value)
