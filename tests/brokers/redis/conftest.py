"""A Redis server, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from babelgate.brokers.redis.binding import RedisBinding
from tests.brokers.redis.harness import RedisBroker, RedisServer, binding, client
from tests.brokers.registry import Servers


@pytest.fixture(scope="module")
def server(servers: Servers) -> RedisServer:
    """The server of the session, emptied for each module."""
    running: RedisServer = servers.server(RedisBroker)
    return running


@pytest.fixture
def plain(server: RedisServer) -> Iterator[redis.Redis]:
    """Another client. What it sets of the memory and the replication ends with the test."""
    with client(server) as connected:
        yield connected
        connected.config_set("maxmemory", 0)
        connected.replicaof("NO", "ONE")


@pytest.fixture
async def one(server: RedisServer) -> AsyncIterator[RedisBinding]:
    async with binding(server.url()) as opened:
        yield opened
