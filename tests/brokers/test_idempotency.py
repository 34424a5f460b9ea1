"""The contract of idempotency keys, for pairs of a store and a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.errors import IdempotencyUnsupported
from app.gateway.authorization import ANYONE
from tests.brokers.redis.harness import RedisBroker, RedisServer, client, redis_server
from tests.brokers.sqlite.harness import SqliteBroker
from tests.harness.broker import Broker
from tests.harness.world import World, draft
from tests.suites.idempotency import TestIdempotency

__all__ = ["TestIdempotency"]

redis, rabbitmq = pytest.mark.redis, pytest.mark.rabbitmq
PAIRS = [
    pytest.param(("sqlite", None), id="sqlite"),
    pytest.param(("redis", None), id="redis", marks=redis),
    pytest.param(("laravel", None), id="redis-laravel", marks=redis),
    pytest.param(("redis", "sqlite"), id="keys-in-sqlite-queue-in-redis", marks=redis),
    pytest.param(("sqlite", "redis"), id="keys-in-redis-queue-in-sqlite", marks=redis),
    pytest.param(("rabbitmq", "redis"), id="keys-in-redis-queue-in-rabbitmq", marks=[redis, rabbitmq]),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """What it has confirmed survives a kill."""
    with redis_server(appendfsync="always") as running:
        yield running


@pytest.fixture(params=PAIRS)
async def world(request: pytest.FixtureRequest, queue: str, tmp_path: Path) -> AsyncIterator[World]:
    """Gateways over a queue's broker and, where it is another, the one that keeps the keys."""

    def broker(kind: str) -> Broker:
        if kind == "sqlite":
            return SqliteBroker(tmp_path)
        if kind == "rabbitmq":
            from tests.brokers.rabbitmq.harness import RabbitBroker

            return RabbitBroker(request.getfixturevalue("rabbit"))
        running: RedisServer = request.getfixturevalue("server")
        with client(running) as plain:
            plain.flushdb()
        return RedisBroker(running, "laravel" if kind == "laravel" else "list")

    of_queue, of_keys = request.param
    world = World(broker(of_queue), queue, None if of_keys is None else broker(of_keys))
    yield world
    await world.close()


@pytest.mark.rabbitmq
async def test_a_broker_that_keeps_no_keys_refuses_them(queue: str, request: pytest.FixtureRequest) -> None:
    from tests.brokers.rabbitmq.harness import RabbitBroker

    world = World(RabbitBroker(request.getfixturevalue("rabbit")), queue)
    process = await world.process()
    with pytest.raises(IdempotencyUnsupported, match=r"idempotency\.store"):
        await process.gateway.publish(ANYONE, queue, draft({}), idempotency_key="k")
    assert await process.is_empty()
    await world.close()
