"""Queues that other programs use, too: jobs of Laravel, and clients that take messages without a lease."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from babelgate.brokers.redis.binding import RedisBinding
from babelgate.gateway.routing import Policy
from tests.brokers.redis.harness import RedisBroker, RedisServer
from tests.harness.local import eventually
from tests.harness.world import World, data, draft, until

pytestmark = pytest.mark.redis
LARAVEL = {"layout": "laravel"}


def job_of_laravel(number: int) -> bytes:
    """What Laravel's RedisQueue writes for a queued job: PHP's JSON, which escapes slashes."""
    serialized = f'O:17:"App\\\\Jobs\\\\SendMail":1:{{s:6:"number";i:{number};}}'
    return (
        f'{{"uuid":"5b0c3f6e-6f0a-4c4e-9b53-{number:012d}","displayName":"App\\\\Jobs\\\\SendMail",'
        '"job":"Illuminate\\\\Queue\\\\CallQueuedHandler@call","maxTries":null,"maxExceptions":null,"failOnTimeout":false,'
        '"backoff":null,"timeout":null,"retryUntil":null,"data":{"commandName":"App\\\\Jobs\\\\SendMail",'
        f'"command":{json.dumps(serialized)},"url":"https:\\/\\/example.com","meta":{{"of":"the job"}}}},'
        '"id":"bTy0nB5YwYB4cPTgPPsPdD3p7Wjqz8tJ","attempts":0}'
    ).encode()


@pytest.fixture
async def world(server: RedisServer, queue: str) -> AsyncIterator[World]:
    made = World(RedisBroker(server, {}), queue)
    yield made
    await made.close()


class TestJobsOfLaravel:
    async def test_they_stay_as_they_are_and_do_not_stand_in_the_way(self, world: World, plain: redis.Redis) -> None:
        process = await world.process(queue_options=LARAVEL)
        key, theirs = f"queues:{world.queue}", [job_of_laravel(number) for number in range(3)]
        assert all(json.loads(job)["attempts"] == 0 for job in theirs)
        plain.rpush(key, *theirs)
        plain.rpush(f"{key}:notify", 1, 1, 1)
        await process.publish({"n": 1})
        message = await process.one()
        assert data(message) == {"n": 1}
        assert plain.lrange(key, 0, -1) == theirs
        assert (plain.llen(f"{key}:notify"), plain.zcard(f"{key}:reserved")) == (3, 1)
        assert await process.ack(message) == [None]
        assert await process.dead() == []
        stats = await process.stats()
        assert (stats.depth, stats.foreign) == (3, 3)
        assert not [event for event in process.events if event.kind in ("poison", "dead_lettered")]

    async def test_a_receive_that_waits_looks_at_them_now_and_then(self, world: World, plain: redis.Redis) -> None:
        process = await world.process(queue_options=LARAVEL)
        key, theirs = f"queues:{world.queue}", [job_of_laravel(number) for number in range(3)]
        plain.rpush(key, *theirs)

        def commands() -> int:
            found: Any = plain.info("stats")
            return int(found["total_commands_processed"])

        before = commands()
        assert await process.receive(wait=2) == []
        # Without the pause there would be thousands.
        assert commands() - before < 500
        waiting = process.waiting()
        await asyncio.sleep(0.1)
        await process.publish({"n": 2})
        assert [data(message) for message in await waiting] == [{"n": 2}]
        assert plain.lrange(key, 0, -1) == theirs

    async def test_any_number_of_them_hides_nothing(self, world: World, plain: redis.Redis) -> None:
        process = await world.process(queue_options=LARAVEL)
        key, theirs = f"queues:{world.queue}", [job_of_laravel(number) for number in range(250)]
        plain.rpush(key, *theirs)
        for n in range(3):
            await process.publish({"n": n})
        assert [data(message)["n"] for message in await process.take(3)] == [0, 1, 2]
        assert sorted(plain.lrange(key, 0, -1)) == sorted(theirs)

    async def test_on_request_they_are_dead_lettered_whole(self, world: World, plain: redis.Redis) -> None:
        process = await world.process(queue_options={**LARAVEL, "foreign": "dead_letter"})
        plain.rpush(f"queues:{world.queue}", job_of_laravel(1))

        async def is_dead() -> bool:
            await process.receive()
            return len(await process.dead()) == 1

        await until(is_dead)
        ((record,),) = [await world.broker.dead(f"queues:{world.queue}")]
        assert record.startswith(job_of_laravel(1)[:-1]) and json.loads(record)["dead_letter"]["reason"] == "poison"
        assert (await process.stats()).foreign is None

    @pytest.mark.parametrize("body", [b"not JSON", b'{"job":7}', b'{"job":"a","data":{},"meta":{}}', b"[]"])
    async def test_what_is_no_job_of_laravel_is_poison(self, world: World, plain: redis.Redis, body: bytes) -> None:
        process = await world.process(queue_options=LARAVEL)
        plain.rpush(f"queues:{world.queue}", body)
        await process.receive()
        assert [letter.reason for letter in await process.dead()] == ["poison"]


class TestUnleased:
    async def test_it_counts_towards_the_attempts(self, world: World, plain: redis.Redis) -> None:
        options = {"reclaim_unleased_seconds": 0.05}
        process = await world.process(policy=Policy(max_attempts=2), queue_options=options)
        await process.publish_body(draft({"n": 1}))

        def take_and_die() -> None:
            assert plain.lmove(world.queue, f"{world.queue}:processing", "LEFT", "RIGHT") is not None

        take_and_die()
        await eventually(lambda: plain.llen(world.queue) == 1)
        message = await process.one()
        assert (message.attempts, message.redelivered) == (1, True)
        await process.gateway.give_back(world.queue, [message])
        take_and_die()
        await eventually(lambda: plain.llen(world.queue) == 1)
        assert await process.receive() == []
        (letter,) = await process.dead()
        assert (letter.reason, letter.error, letter.attempts) == ("failed", "lease expired", 2)

    async def test_queues_of_a_pattern_are_known_by_their_route(
        self, one: RedisBinding, plain: redis.Redis, queue: str
    ) -> None:
        one.native_queue(queue, {"reclaim_unleased_seconds": 0.05})
        plain.rpush(f"{queue}:processing", b"x")
        await eventually(lambda: plain.lrange(queue, 0, -1) == [b"x"])
