"""The contract, on Redis in the layout of Laravel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.suite_attempts import TestAttempts
from tests.contract.suite_dead_letters import TestDeadLetters
from tests.contract.suite_events import TestEvents
from tests.contract.suite_hung import TestHung
from tests.contract.suite_life import TestLife
from tests.contract.suite_publish import TestPublish
from tests.contract.suite_receive import TestReceive
from tests.contract.suite_redrive import TestRedrive
from tests.contract.suite_settle import TestSettle
from tests.harness.redis import RedisBroker, RedisServer, redis_server

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
