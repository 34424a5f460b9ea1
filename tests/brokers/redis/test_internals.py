"""The parts of redis-py's connections that ``app/babelgate/brokers/redis`` uses without its client: a release may
remove each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from redis import backoff, exceptions
from redis.asyncio import connection, retry

from babelgate.brokers.redis.url import connector
from tests.brokers.redis.harness import RedisServer

pytestmark = pytest.mark.redis
PARTS = [
    (connection, "AbstractConnection", "connection.py and server.py name its type"),
    (connection, "Connection", "url.py creates plain connections"),
    (connection, "SSLConnection", "url.py creates TLS connections"),
    (connection.AbstractConnection, "connect_check_health", "connection.py connects and authenticates"),
    (connection.AbstractConnection, "disconnect", "connection.py closes the socket"),
    (retry, "Retry", "url.py switches repeated commands off"),
    (backoff, "NoBackoff", "url.py switches repeated commands off"),
    (exceptions, "InvalidResponse", "connection.py raises it for a reply without a command"),
]
PARAMETERS: list[tuple[Callable[..., Any], list[str]]] = [
    (connection.AbstractConnection.connect_check_health, ["check_health"]),
    (
        connection.AbstractConnection.__init__,
        ["db", "username", "password", "protocol", "socket_timeout", "socket_connect_timeout", "retry", "driver_info"],
    ),
    (connection.Connection.__init__, ["host", "port"]),
    (
        connection.SSLConnection.__init__,
        ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"],
    ),
]


def gone(what: str, use: str) -> str:
    return f"redis-py {version('redis')} has no {what} any more. It is used: {use}."


@pytest.mark.parametrize(("owner", "name", "use"), PARTS, ids=[name for _, name, _ in PARTS])
def test_a_part_is_there(owner: object, name: str, use: str) -> None:
    assert hasattr(owner, name), gone(f"{getattr(owner, '__name__', owner)}.{name}", use)


@pytest.mark.parametrize(("function", "names"), PARAMETERS, ids=[f.__qualname__ for f, _ in PARAMETERS])
def test_its_parameters_are_there(function: Callable[..., Any], names: list[str]) -> None:
    known = inspect.signature(function).parameters
    for name in names:
        assert name in known, gone(f"parameter {name} of {function.__qualname__}", "url.py and connection.py pass it")


def test_the_extra_has_an_upper_bound() -> None:
    from tests.unit.test_packaging import EXTRAS

    requirement = next(each for each in EXTRAS["redis"] if each.startswith("redis"))
    assert "<" in requirement, "a new major version of redis-py must pass these tests before it is allowed"


async def test_an_established_connection_has_a_transport_and_a_parser_of_errors(server: RedisServer) -> None:
    one = connector(server.url(), {})()
    await one.connect_check_health(check_health=False)
    assert one._writer is not None and hasattr(one._writer.transport, "set_protocol"), gone("_writer", "connection.py")
    refused = one._parser.parse_error("NOSCRIPT none")
    await one.disconnect()
    assert isinstance(refused, exceptions.NoScriptError), gone("_parser.parse_error", "connection.py")
