"""A failover behind one address: the old primary lives on as a replica, and its connections with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.errors import BrokerUnavailable
from tests.brokers.redis.harness import RedisServer, binding, client, redis_server
from tests.harness.proxy import proxy
from tests.harness.world import until

pytestmark = pytest.mark.redis
BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{},"attempts":0}'

Verb = Callable[[RedisBinding, NativeQueue], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "publish": lambda one, queue: one.publish(queue, [Outgoing(BODY)]),
    "publish later": lambda one, queue: one.publish(queue, [Outgoing(BODY, delay_seconds=60)]),
    "poll": lambda one, queue: one.reserve(queue, 1, 0, 30),
    "wait": lambda one, queue: one.reserve(queue, 1, 0.2, 30),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_server() as old, redis_server() as new:
        yield old, new


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_the_new_primary_is_found(servers: tuple[RedisServer, RedisServer], queue: str, verb: Verb) -> None:
    old, new = servers
    async with proxy("127.0.0.1", old.port) as address, binding(f"redis://127.0.0.1:{address.port}/0") as one:
        native = one.native_queue(queue, {})
        await one.reserve(native, 1, 0.05, 30)
        with client(old) as demoted:
            demoted.replicaof("127.0.0.1", new.port)
            try:
                address.lead_to("127.0.0.1", new.port)

                async def works() -> bool:
                    try:
                        await verb(one, native)
                    except BrokerUnavailable:
                        return False
                    return True

                await until(works)
            finally:
                demoted.replicaof("NO", "ONE")


async def test_replies_that_are_due_still_come(servers: tuple[RedisServer, RedisServer], queue: str) -> None:
    old, _ = servers
    async with binding(f"redis://127.0.0.1:{old.port}/0") as one:
        native = one.native_queue(queue, {})
        await one.ping()
        with client(old) as demoted:
            demoted.replicaof("127.0.0.1", "1")
            try:
                writing = [one.publish(native, [Outgoing(BODY)]) for _ in range(3)]
                *refused, stats = await asyncio.gather(*writing, one.stats(native), return_exceptions=True)
            finally:
                demoted.replicaof("NO", "ONE")
        assert [type(refusal) for refusal in refused] == [BrokerUnavailable] * 3
        assert not isinstance(stats, BaseException)
        await one.publish(native, [Outgoing(BODY)])
