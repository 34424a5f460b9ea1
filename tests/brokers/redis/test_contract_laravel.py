"""The contract, on Redis in the layout of Laravel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.redis.harness import RedisBroker, RedisServer, redis_server
from tests.suites.attempts import TestAttempts
from tests.suites.dead_letters import TestDeadLetters
from tests.suites.events import TestEvents
from tests.suites.hung import TestHung
from tests.suites.life import TestLife
from tests.suites.publish import TestPublish
from tests.suites.receive import TestReceive
from tests.suites.redrive import TestRedrive
from tests.suites.settle import TestSettle

__all__ = [
    "TestAttempts",
    "TestDeadLetters",
    "TestEvents",
    "TestHung",
    "TestLife",
    "TestPublish",
    "TestReceive",
    "TestRedrive",
    "TestSettle",
]

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all tests; what it has confirmed survives a kill."""
    with redis_server(appendfsync="always") as running:
        yield running


class LaravelBroker(RedisBroker):
    """The layout keeps leased and delayed messages as members of a set."""

    merges_equal_bodies = True
    untold = frozenset({"expiries"})


@pytest.fixture
def broker(server: RedisServer) -> LaravelBroker:
    """The server, in this layout."""
    return LaravelBroker(server, "laravel")
