"""A server at ``maxmemory`` takes no new message, and still ends and extends leases and delivers what it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import ExistingKey, KeyClaim, KeySettlement, Terms
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.errors import LeaseLost, StorageFull
from babelgate.gateway.authorization import ANYONE
from tests.brokers.redis.harness import RedisBroker, RedisServer, binding, redis_server
from tests.harness.local import eventually
from tests.harness.world import World, data

pytestmark = pytest.mark.redis
BODY = b'{"job":"urn:a","trace_id":"t","data":%d,"meta":{},"attempts":0}'
BLOCK = envelope.dead_letter_block("failed", "q", 1, 7, "why")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server of its own, because the limit holds for all databases."""
    with redis_server() as running:
        yield running


@pytest.fixture
async def one(server: RedisServer) -> AsyncIterator[RedisBinding]:
    async with binding(server.url()) as opened:
        yield opened


@pytest.fixture(params=["list", "laravel"])
def native(one: RedisBinding, queue: str, request: pytest.FixtureRequest) -> NativeQueue:
    return one.native_queue(queue, {"layout": request.param})


async def leased(one: RedisBinding, native: NativeQueue, count: int = 1, lease_seconds: float = 60) -> list[str]:
    """The handles of ``count`` messages."""
    await one.publish(native, [Outgoing(BODY % number) for number in range(count)])
    return [each.handle for each in await one.reserve(native, count, 0, lease_seconds)]


def fill(plain: redis.Redis) -> None:
    """Let the server have no memory for anything more."""
    plain.config_set("maxmemory-policy", "noeviction")
    plain.config_set("maxmemory", 1)
    with pytest.raises(redis.OutOfMemoryError):
        plain.set("more", "bytes")


async def refused(one: RedisBinding, native: NativeQueue) -> None:
    """Check that messages are refused, now and delayed."""
    for delay in (0, 60):
        with pytest.raises(StorageFull):
            await one.publish(native, [Outgoing(BODY % 0, delay_seconds=delay)])


async def test_each_way_to_end_or_extend_a_lease(one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
    acked, nacked, later, given, rejected, extended = await leased(one, native, 6)
    fill(plain)
    (deadline,) = await one.extend(native, [extended], 600)
    assert isinstance(deadline, int)
    assert await one.ack(native, [acked]) == [None]
    assert await one.release(native, [nacked], 0, failed=True) == [None]
    assert await one.release(native, [later], 60, failed=True) == [None]
    assert await one.release(native, [given], 0, failed=False) == [None]
    assert await one.dead_letter(native, [DeadLetterRequest(rejected, BLOCK)]) == [None]
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight, stats.delayed, stats.dead) == (2, 1, 1, 1)
    await refused(one, native)
    # The extended lease is a lease like others.
    assert isinstance((await one.extend(native, [extended], 60))[0], int)
    assert await one.ack(native, [extended]) == [None]
    assert isinstance((await one.extend(native, [extended], 60))[0], LeaseLost)


async def test_what_is_due_is_delivered(one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
    """Delayed messages, and messages whose lease has expired."""
    await one.publish(native, [Outgoing(BODY % number, delay_seconds=0.3) for number in (7, 8)])
    await leased(one, native, 2, lease_seconds=0.3)
    fill(plain)
    handles: set[str] = set()
    while len(handles) < 4:
        handles |= {each.handle for each in await one.reserve(native, 10, 20, 60)}
    assert await one.ack(native, sorted(handles)) == [None] * len(handles)
    await refused(one, native)


async def test_what_is_due_is_made_ready_without_receives(
    one: RedisBinding, native: NativeQueue, plain: redis.Redis
) -> None:
    await one.publish(native, [Outgoing(BODY % 7, delay_seconds=0.3)])
    await leased(one, native, lease_seconds=0.3)
    fill(plain)

    ready = native.options.key.decode()
    await eventually(lambda: plain.llen(ready) == 2)
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight, stats.delayed) == (2, 0, 0)


async def test_elements_without_a_lease_return(one: RedisBinding, queue: str, plain: redis.Redis) -> None:
    native = one.native_queue(queue, {"reclaim_unleased_seconds": 0.1})
    plain.rpush(f"{queue}:processing", BODY % 0)
    fill(plain)
    (delivery,) = await one.reserve(native, 1, 20, 60)
    assert delivery.body == BODY % 0


async def test_dead_letters_are_removed(one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
    handles = await leased(one, native, 2)
    await one.dead_letter(native, [DeadLetterRequest(handle, BLOCK) for handle in handles])
    fill(plain)
    records, _ = await one.read_dead(native, None, 1)
    assert await one.remove_dead(native, records, None) == ([True], None)
    assert await one.purge_dead(native) == 1


async def test_a_redrive_is_refused_and_loses_nothing(server: RedisServer, queue: str, plain: redis.Redis) -> None:
    world = World(RedisBroker(server), queue)
    process = await world.process()
    await process.publish_all([{"n": n} for n in range(3)])
    await process.reject(*await process.take(3))
    fill(plain)
    with pytest.raises(StorageFull):
        await process.publish()
    result = await process.redrive()
    assert (result.redriven, len(await process.dead())) == (0, 3)
    (info,) = await process.gateway.overview.brokers(ANYONE)
    assert any("is full" in warning for warning in info.warnings)
    plain.config_set("maxmemory", 0)
    assert (await process.redrive()).redriven == 3
    assert sorted(data(each)["n"] for each in await process.take(3)) == [0, 1, 2]
    await world.close()


async def test_a_reserved_key_is_settled(one: RedisBinding, queue: str, plain: redis.Redis) -> None:
    """A key that stayed reserved would refuse a repetition as under way, although the message is published."""
    terms, token = Terms(600, 100), b"t" * 8
    claim = KeyClaim(queue, "key", b"f" * 32, b"answer", "caller")
    assert await one.keys.reserve([claim], token, terms) == [None]
    fill(plain)
    await one.keys.settle([KeySettlement(claim, token, "done")], terms)
    assert await one.keys.reserve([claim], b"u" * 8, terms) == [ExistingKey(b"f" * 32, b"answer", 0)]
