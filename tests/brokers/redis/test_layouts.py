"""What only one of the Redis layouts has: frames and unleased elements; attempts inside Laravel's members."""

from __future__ import annotations

import json

import pytest
import redis

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, NativeQueue, Outgoing
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.brokers.redis.layouts.list import frame, unframe
from babelgate.errors import LeaseLost
from tests.harness.local import eventually

pytestmark = pytest.mark.redis
META = '"meta":{"id":"4c6c5e07-861d-4247-b8ab-d1af6282f06a","queue":"q","lang":"php","schema_version":1,"created_at":1}'
HEAD = '{"job":"urn:babel:test:made","trace_id":"ffaa2ff3-a489-4820-ad09-9c475958ec3c","data":'
BODY = f'{HEAD}{{"text":"Café"}},{META},"attempts":2}}'.encode()
BLOCK = envelope.dead_letter_block("failed", "q", 3, 7, "why")
POISON = envelope.dead_letter_block("poison", "q", 0, 7, "invalid_json")


async def reserved(one: RedisBinding, native: NativeQueue) -> str:
    """The handle of the next message."""
    return (await one.reserve(native, 1, 5, 30))[0].handle


class TestAnyBytes:
    @pytest.mark.parametrize("layout", ["list", "laravel"])
    @pytest.mark.parametrize(
        "element",
        [b"", b"\x00", b"\xff\xfe not text", b"not json", b'{"attempts":"3"}', b"\r\n$5\r\n", b"x" * 3_000_000],
        ids=lambda element: repr(element[:20]),
    )
    async def test_it_survives_every_verb(
        self, one: RedisBinding, queue: str, plain: redis.Redis, layout: str, element: bytes
    ) -> None:
        native = one.native_queue(queue, {"layout": layout})
        ready = native.options.key.decode()
        plain.rpush(ready, element)
        assert [each.body for each in await one.peek(native, 1)] == [element]
        assert await one.release(native, [await reserved(one, native)], 0, failed=False) == [None]
        assert await one.release(native, [await reserved(one, native)], 0, failed=True) == [None]
        assert await one.release(native, [await reserved(one, native)], 0.01, failed=True) == [None]
        (delivery,) = await one.reserve(native, 1, 5, 30)
        assert delivery.body == element
        assert await one.dead_letter(native, [DeadLetterRequest(delivery.handle, POISON)]) == [None]
        ((record,), _) = await one.read_dead(native, None, 10)
        assert record.body == envelope.dead_letter_record(element, POISON)
        assert await one.remove_dead(native, [record], None) == ([True], None)
        assert (await one.stats(native)).in_flight == 0


class TestFrames:
    @pytest.fixture
    def native(self, one: RedisBinding, queue: str) -> NativeQueue:
        return one.native_queue(queue, {"frames": True})

    async def test_headers_travel(self, one: RedisBinding, native: NativeQueue) -> None:
        headers = {"traceparent": "00-aa-bb-01"}
        messages = [Outgoing(BODY, headers), Outgoing(BODY), Outgoing(BODY, headers, delay_seconds=0.01)]
        await one.publish(native, messages)
        first, second = await one.reserve(native, 2, 0, 30)
        assert (first.body, first.headers, second.body, second.headers) == (BODY, headers, BODY, {})
        (third,) = await one.reserve(native, 1, 5, 30)
        assert (third.body, third.headers) == (BODY, headers)
        assert await one.ack(native, [each.handle for each in (first, second, third)]) == [None] * 3
        assert (await one.stats(native)).in_flight == 0

    async def test_without_headers_the_element_is_the_body(
        self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis
    ) -> None:
        await one.publish(native, [Outgoing(BODY)])
        assert plain.lrange(queue, 0, -1) == [BODY]

    @pytest.mark.parametrize("delay", [0, 0.01])
    async def test_the_option_only_says_what_clients_may_give(
        self, one: RedisBinding, queue: str, delay: float
    ) -> None:
        native = one.native_queue(queue, {})
        assert not one.capabilities(native).headers
        await one.publish(native, [Outgoing(BODY, {"a": "b"}, delay_seconds=delay)])
        (delivery,) = await one.reserve(native, 1, 5, 30)
        assert (delivery.body, delivery.headers) == (BODY, {"a": "b"})

    async def test_a_retry_and_a_dead_letter_keep_them(self, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
        native = one.native_queue(queue, {})
        plain.rpush(queue, frame(BODY, {"a": "b"}))
        assert await one.release(native, [await reserved(one, native)], 0, failed=True) == [None]
        retried = envelope.with_attempts(BODY, 3)
        assert plain.lrange(queue, 0, -1) == [frame(retried, {"a": "b"})]
        assert await one.dead_letter(native, [DeadLetterRequest(await reserved(one, native), BLOCK)]) == [None]
        ((record,), _) = await one.read_dead(native, None, 1)
        assert record.headers == {"a": "b"}
        assert record.body == envelope.dead_letter_record(retried, BLOCK)

    async def test_a_poison_record_is_bare(self, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
        native = one.native_queue(queue, {})
        plain.rpush(queue, frame(b"not json", {"a": "b"}))
        assert await one.dead_letter(native, [DeadLetterRequest(await reserved(one, native), POISON)]) == [None]
        (record,) = plain.lrange(f"{queue}.dlq", 0, -1)
        assert isinstance(record, bytes) and unframe(record) == (record, {})
        assert json.loads(record)["raw"] == "not json"


class TestUnleased:
    async def test_it_returns_once_it_has_been_seen_long_enough(
        self, one: RedisBinding, queue: str, plain: redis.Redis
    ) -> None:
        native = one.native_queue(queue, {"reclaim_unleased_seconds": 0.1})
        await one.publish(native, [Outgoing(BODY)])
        handle = await reserved(one, native)
        plain.rpush(f"{queue}:processing", BODY, b"other")
        await eventually(lambda: plain.llen(queue) == 2)
        assert plain.lrange(f"{queue}:processing", 0, -1) == [BODY]
        assert sorted(plain.lrange(queue, 0, -1)) == [b"other", BODY]
        assert await one.ack(native, [handle]) == [None]
        assert plain.llen(f"{queue}:processing") == 0

    async def test_it_returns_without_a_receive_and_counts(
        self, one: RedisBinding, queue: str, plain: redis.Redis
    ) -> None:
        native = one.native_queue(queue, {"reclaim_unleased_seconds": 0.05})
        plain.rpush(queue, BODY)
        for _ in range(2):
            # A client that only moves elements takes it, and dies.
            assert plain.lmove(queue, f"{queue}:processing", "LEFT", "RIGHT") == BODY
            await eventually(lambda: plain.llen(queue) == 1)
        (delivery,) = await one.reserve(native, 1, 0, 30)
        assert (delivery.body, delivery.delivery_count, delivery.redelivered) == (BODY, 2, True)

    async def test_each_copy_has_its_own_time(self, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
        async def seen_at(now: bytes) -> int:
            one.server.now = now
            reclaimed: int = await one.server.run("reclaim", queue.encode(), "60")
            return reclaimed

        one.server.index = b"another index"
        plain.rpush(f"{queue}:processing", BODY)
        assert await seen_at(b"1000") == 0
        plain.rpush(f"{queue}:processing", BODY)
        assert await seen_at(b"1030") == 0
        assert await seen_at(b"1059") == 0
        assert await seen_at(b"1060") == 1
        assert await seen_at(b"1089") == 0
        assert await seen_at(b"1090") == 1
        assert plain.lrange(queue, 0, -1) == [BODY, BODY]
        assert not plain.exists(f"{queue}:babelgate:unleased", f"{queue}:processing")

    async def test_of_equal_copies_the_oldest_is_taken_to_have_left(
        self, one: RedisBinding, queue: str, plain: redis.Redis
    ) -> None:
        one.server.index = b"another index"
        for now, copies in ((b"1000", 1), (b"1030", 2), (b"1031", 1)):
            one.server.now = now
            plain.delete(f"{queue}:processing")
            plain.rpush(f"{queue}:processing", *[BODY] * copies)
            assert await one.server.run("reclaim", queue.encode(), "60") == 0
        for now, reclaimed in ((b"1089", 0), (b"1090", 1)):
            one.server.now = now
            assert await one.server.run("reclaim", queue.encode(), "60") == reclaimed

    async def test_without_the_option_it_stays(self, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
        plain.rpush(f"{queue}:processing", BODY)
        assert await one.reserve(one.native_queue(queue, {}), 1, 0, 30) == ()
        assert not plain.exists(f"{queue}:babelgate:unleased")
        assert plain.lrange(f"{queue}:processing", 0, -1) == [BODY]


class TestALeaseWithoutEnd:
    async def test_it_is_never_swept(self, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
        plain.rpush(f"{queue}:processing", BODY)
        plain.zadd(f"{queue}:processing:deadlines", {b"0" * 32 + b":" + BODY: float("inf")})
        assert await one.reserve(one.native_queue(queue, {}), 1, 0, 30) == ()
        assert plain.lrange(f"{queue}:processing", 0, -1) == [BODY]
        assert plain.zscore("babelgate:timed", f"list:{queue}") is None


class TestLaravel:
    @pytest.fixture
    def native(self, one: RedisBinding, queue: str) -> NativeQueue:
        return one.native_queue(queue, {"layout": "laravel"})

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (f'{HEAD}{{}},{META},"attempts":0}}', f'{HEAD}{{}},{META},"attempts":1}}'),
            (f'{HEAD}{{}},{META},"attempts":9}}', f'{HEAD}{{}},{META},"attempts":10}}'),
            (
                f'{HEAD}{{"big":12345678901234567890,"list":[],"f":1.0}},{META},"attempts":99,"x":[]}}',
                f'{HEAD}{{"big":12345678901234567890,"list":[],"f":1.0}},{META},"attempts":100,"x":[]}}',
            ),
            (
                f'{HEAD}{{"attempts":5}},{META}, "attempts" : 5 ,"x":{{"attempts":5}}}}',
                f'{HEAD}{{"attempts":5}},{META}, "attempts" : 6 ,"x":{{"attempts":5}}}}',
            ),
            (
                f'{HEAD}{{"t":"\\"attempts\\":0"}},{META},"attempts":0}}',
                f'{HEAD}{{"t":"\\"attempts\\":0"}},{META},"attempts":1}}',
            ),
        ],
        ids=["plain", "carry", "what cjson damages", "others of that name", "inside a text"],
    )
    async def test_only_the_digits_change(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis, before: str, after: str
    ) -> None:
        ready = native.options.key.decode()
        plain.rpush(ready, before)
        handle = await reserved(one, native)
        assert plain.zrange(f"{ready}:reserved", 0, -1) == [after.encode()]
        assert await one.release(native, [handle], 0, failed=False) == [None]
        assert plain.lrange(ready, 0, -1) == [before.encode()]
        assert await one.release(native, [await reserved(one, native)], 0, failed=True) == [None]
        assert plain.lrange(ready, 0, -1) == [after.encode()]
        dead = DeadLetterRequest(await reserved(one, native), POISON)
        assert await one.dead_letter(native, [dead]) == [None]
        assert plain.lrange(f"{ready}.dlq", 0, -1) == [envelope.dead_letter_record(after.encode(), POISON)]

    async def test_where_cjson_had_to_write_the_count_is_right_all_the_same(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis
    ) -> None:
        ready = native.options.key.decode()
        plain.rpush(ready, f'{HEAD}{{"n":1}},{META},"att\\u0065mpts":4}}')
        assert await one.release(native, [await reserved(one, native)], 0, failed=False) == [None]
        (returned,) = plain.lrange(ready, 0, -1)
        assert (json.loads(returned)["attempts"], json.loads(returned)["data"]) == (4, {"n": 1})

    async def test_one_wake_up_token_for_each_ready_job(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis
    ) -> None:
        ready = native.options.key.decode()
        jobs = [f'{HEAD}{{"n":{number}}},{META},"attempts":0}}'.encode() for number in range(5)]

        def tokens() -> bool:
            return plain.llen(ready) == plain.llen(f"{ready}:notify")

        await one.publish(native, [Outgoing(job) for job in jobs])
        assert plain.llen(ready) == 5 and tokens()
        first, second, third = await one.reserve(native, 3, 0, 30)
        assert plain.llen(ready) == 2 and tokens()
        await one.release(native, [first.handle], 0, failed=False)
        await one.release(native, [second.handle], 0, failed=True)
        assert plain.llen(ready) == 4 and tokens()
        await one.dead_letter(native, [DeadLetterRequest(third.handle, BLOCK)])
        assert plain.llen(f"{ready}.dlq") == plain.llen(f"{ready}.dlq:notify") == 1
        assert await one.purge(native) == 4 and tokens()

    async def test_of_equal_jobs_only_the_one_that_was_settled_is(self, one: RedisBinding, queue: str) -> None:
        native = one.native_queue(queue, {"layout": "laravel"})
        await one.publish(native, [Outgoing(BODY)])
        first = await reserved(one, native)
        assert await one.ack(native, [first]) == [None]
        await one.publish(native, [Outgoing(BODY)])
        (second,) = await one.reserve(native, 1, 5, 0.05)
        await reserved(one, native)
        assert [type(outcome) for outcome in await one.ack(native, [second.handle])] == [LeaseLost]
        assert await one.ack(native, [first]) == [None]
