"""A Redis server for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from app.brokers.redis.binding import RedisBinding
from tests.brokers.redis.harness import RedisServer, binding, client, redis_server


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
