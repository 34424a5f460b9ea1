"""A Redis server for the tests of a module, and what became of the official conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from app.brokers.redis.binding import RedisBinding
from tests.harness.redis import RedisServer, binding, client, redis_server
from tests.wire import suite


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@pytest.fixture
def plain(server: RedisServer) -> Iterator[redis.Redis]:
    with client(server) as connected:
        yield connected


@pytest.fixture
async def one(server: RedisServer) -> AsyncIterator[RedisBinding]:
    async with binding(server.url()) as opened:
        yield opened


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if suite.outcomes:
        terminalreporter.section("conformance suite")
        for line in suite.table():
            terminalreporter.write_line(line)
