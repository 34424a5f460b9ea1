"""What the Redis binding writes, leases and settles, on a real server, in both layouts."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence

import pytest
import redis

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, Delivery, NativeQueue, Outgoing
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.clock import now_ms
from babelgate.errors import LeaseLost
from tests.brokers.redis.harness import RedisServer, binding
from tests.harness.local import eventually

pytestmark = pytest.mark.redis
LAYOUTS = ["list", "laravel"]


@pytest.fixture(params=LAYOUTS)
def native(request: pytest.FixtureRequest, one: RedisBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {"layout": request.param})


@pytest.fixture
def listed(one: RedisBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {})


@pytest.fixture
def laravel(one: RedisBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {"layout": "laravel"})


def key(native: NativeQueue, suffix: str = "") -> str:
    assert isinstance(native.options, RedisQueue)
    return native.options.key.decode() + suffix


def body(number: int = 0, attempts: int = 0) -> bytes:
    meta = {"id": str(uuid.uuid4()), "queue": "q", "lang": "python", "schema_version": 1, "created_at": now_ms()}
    whole = {"job": "urn:babel:test:made", "trace_id": str(uuid.uuid4()), "data": {"n": number}, "meta": meta}
    return json.dumps(whole | {"attempts": attempts}, separators=(",", ":")).encode()


def attempts(raw: bytes) -> int:
    count: int = json.loads(raw)["attempts"]
    return count


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def handles(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.handle for delivery in deliveries]


async def put(one: RedisBinding, native: NativeQueue, *raws: bytes, delay: float = 0) -> None:
    outcomes = await one.publish(native, [Outgoing(raw, delay_seconds=delay) for raw in raws])
    assert outcomes == [None] * len(raws)


def letter(handle: str, reason: str = "failed", count: int = 3) -> DeadLetterRequest:
    return DeadLetterRequest(handle, envelope.dead_letter_block(reason, "q", count, now_ms(), "why"))


def state(plain: redis.Redis, native: NativeQueue) -> dict[str | bytes, bytes | None]:
    """Everything that is stored for a queue."""
    return {name: plain.dump(name) for name in plain.keys(key(native, "*"))}


async def until_ready(plain: redis.Redis, name: str, count: int = 1) -> None:
    """Wait until a list holds that many, without touching the binding."""
    await eventually(lambda: plain.llen(name) == count)


class TestLeases:
    async def test_bytes_come_out_as_they_went_in(self, one: RedisBinding, native: NativeQueue) -> None:
        raws = [body(number) for number in range(5)]
        await put(one, native, *raws)
        first = await one.reserve(native, 3, 0, 30)
        rest = await one.reserve(native, 10, 0, 30)
        assert bodies([*first, *rest]) == raws
        assert len(set(handles([*first, *rest]))) == 5
        assert all(abs(each.lease_expires_at - now_ms() - 30_000) < 5_000 for each in first)

    async def test_an_acked_message_is_gone(self, one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
        await put(one, native, *[body(number) for number in range(3)])
        deliveries = await one.reserve(native, 3, 0, 30)
        assert await one.ack(native, handles(deliveries)) == [None] * 3
        assert plain.keys(key(native, "*")) == [key(native, ":babelgate:settled").encode()]
        assert 0 < plain.ttl(key(native, ":babelgate:settled")) <= 121

    async def test_settling_twice_the_same_way_is_done_and_another_way_is_lost(
        self, one: RedisBinding, native: NativeQueue
    ) -> None:
        await put(one, native, body(1), body(2), body(3))
        acked, nacked, dead = handles(await one.reserve(native, 3, 0, 30))
        for _ in range(2):
            assert await one.ack(native, [acked]) == [None]
            assert await one.release(native, [nacked], 0, failed=True) == [None]
            assert await one.dead_letter(native, [letter(dead)]) == [None]
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight, stats.dead) == (1, 0, 1)
        lost = [*await one.ack(native, [nacked, dead]), *await one.release(native, [acked], 0, failed=False)]
        assert all(isinstance(outcome, LeaseLost) for outcome in lost)

    async def test_a_double_ack_is_lost_once_the_tombstone_is_gone(
        self, one: RedisBinding, native: NativeQueue
    ) -> None:
        await put(one, native, body())
        one.server.now, one.server.index = b"1000", b"another index"
        handle = handles(await one.reserve(native, 1, 0, 90))[0]
        assert await one.ack(native, [handle]) == [None]
        one.server.now = b"1089"
        assert await one.ack(native, [handle]) == [None]
        one.server.now = b"1090"
        assert isinstance((await one.ack(native, [handle]))[0], LeaseLost)

    @pytest.mark.parametrize("handle", ["", "x", "abc:", ":5", "0" * 32 + ":9", "0" * 32 + ":1e5"])
    async def test_a_handle_that_names_no_lease(self, one: RedisBinding, native: NativeQueue, handle: str) -> None:
        outcomes = [*await one.ack(native, [handle]), *await one.extend(native, [handle], 9)]
        outcomes += await one.release(native, [handle], 0, failed=True)
        outcomes += await one.dead_letter(native, [letter(handle)])
        assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 4

    async def test_a_lease_ends_and_the_late_ack_touches_nothing(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis
    ) -> None:
        await put(one, native, body())
        late = await one.reserve(native, 1, 0, 0.05)
        await until_ready(plain, key(native))
        again = await one.reserve(native, 1, 0, 30)
        assert isinstance((await one.ack(native, handles(late)))[0], LeaseLost)
        assert await one.ack(native, handles(again)) == [None]

    @pytest.mark.parametrize("extended", [False, True])
    async def test_a_lease_ends_at_its_deadline_before_anything_has_swept_it(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis, extended: bool
    ) -> None:
        await put(one, native, body(1), body(2))
        # An index of its own keeps DueItems away.
        one.server.now, one.server.index = b"1000", b"another index"
        in_time, late = handles(await one.reserve(native, 2, 0, 5 if extended else 10))
        if extended:
            await one.extend(native, [in_time, late], 10)
        one.server.now = b"1009"
        assert await one.ack(native, [in_time]) == [None]
        one.server.now = b"1011"
        before = state(plain, native)
        outcomes = [*await one.ack(native, [late]), *await one.extend(native, [late], 60)]
        outcomes += await one.release(native, [late], 0, failed=True)
        outcomes += await one.release(native, [late], 0, failed=False)
        outcomes += await one.dead_letter(native, [letter(late)])
        assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 5
        assert state(plain, native) == before
        assert await one.ack(native, [in_time]) == [None], "what was acked in time stays so"
        (again,) = await one.reserve(native, 2, 0, 10)
        assert again.body.startswith(body(2)[:20])
        assert await one.ack(native, [again.handle]) == [None]

    async def test_an_extended_lease_keeps_its_handle(self, one: RedisBinding, native: NativeQueue) -> None:
        await put(one, native, body(1), body(2))
        deliveries = await one.reserve(native, 2, 0, 4)
        for lease in (20, 40):
            deadlines = await one.extend(native, handles(deliveries), lease)
            assert [abs(int(str(each)) - now_ms() - lease * 1000) < 5_000 for each in deadlines] == [True, True]
        await asyncio.sleep(4.1)
        assert await one.reserve(native, 5, 0, 30) == ()
        assert await one.ack(native, handles(deliveries)) == [None, None]
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight) == (0, 0)

    async def test_an_extended_lease_ends_as_well(
        self, one: RedisBinding, native: NativeQueue, plain: redis.Redis
    ) -> None:
        await put(one, native, body())
        deliveries = await one.reserve(native, 1, 0, 60)
        await one.extend(native, handles(deliveries), 0.05)
        await until_ready(plain, key(native))
        assert isinstance((await one.ack(native, handles(deliveries)))[0], LeaseLost)
        assert not plain.exists(key(native, ":babelgate:extended"))

    async def test_another_process_settles(self, server: RedisServer, one: RedisBinding, native: NativeQueue) -> None:
        await put(one, native, *[body(number) for number in range(4)])
        acked, released, dead, extended = handles(await one.reserve(native, 4, 0, 30))
        async with binding(server.url()) as other:
            assert await other.ack(native, [acked]) == [None]
            assert await other.release(native, [released], 0, failed=True) == [None]
            assert await other.dead_letter(native, [letter(dead)]) == [None]
            assert isinstance((await other.extend(native, [extended], 60))[0], int)
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight, stats.dead) == (1, 1, 1)

    async def test_a_thousand_at_once(self, one: RedisBinding, native: NativeQueue) -> None:
        await put(one, native, *[body(number) for number in range(1000)])
        deliveries = await one.reserve(native, 1000, 0, 30)
        assert len(deliveries) == 1000
        assert await one.ack(native, handles(deliveries)[::-1]) == [None] * 1000
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight) == (0, 0)


class TestRelease:
    async def test_a_failure_goes_to_the_end_with_one_attempt_more(
        self, one: RedisBinding, native: NativeQueue
    ) -> None:
        first, second = body(1, attempts=4), body(2)
        await put(one, native, first, second)
        delivery = (await one.reserve(native, 1, 0, 30))[0]
        assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
        assert [each.body for each in await one.peek(native, 5)] == [second, envelope.with_attempts(first, 5)]

    async def test_a_give_back_leaves_no_trace(self, one: RedisBinding, native: NativeQueue) -> None:
        raws = [body(number, attempts=number) for number in range(9, 13)]
        await put(one, native, *raws)
        deliveries = await one.reserve(native, 3, 0, 30)
        assert await one.release(native, handles(deliveries), 0, failed=False) == [None] * 3
        assert bodies(await one.reserve(native, 9, 0, 30)) == raws

    @pytest.mark.parametrize("failed", [True, False])
    async def test_with_a_delay(self, one: RedisBinding, native: NativeQueue, failed: bool) -> None:
        raw = body()
        await put(one, native, raw)
        delivery = (await one.reserve(native, 1, 0, 30))[0]
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await one.release(native, [delivery.handle], 1, failed) == [None]
        stats = await one.stats(native)
        # On a machine that stood still it may be due.
        assert loop.time() - began > 1 or (stats.depth, stats.in_flight, stats.delayed) == (0, 0, 1)
        again = await one.reserve(native, 1, 10, 30)
        assert loop.time() - began > 0.95
        assert bodies(again) == [envelope.with_attempts(raw, int(failed))]

    async def test_expiries_are_counted_beside_a_list(
        self, one: RedisBinding, listed: NativeQueue, plain: redis.Redis, queue: str
    ) -> None:
        raw = body(attempts=1)
        await put(one, listed, raw)
        for count in range(2):
            delivery = (await one.reserve(listed, 1, 5, 0.05))[0]
            assert (delivery.body, delivery.delivery_count, delivery.redelivered) == (raw, count, count > 0)
            await until_ready(plain, queue)
        delivery = (await one.reserve(listed, 1, 5, 30))[0]
        assert delivery.delivery_count == 2
        assert await one.release(listed, [delivery.handle], 0, failed=True) == [None]
        again = (await one.reserve(listed, 1, 0, 30))[0]
        assert (attempts(again.body), again.delivery_count) == (4, 0)

    async def test_expiries_are_counted_in_the_body_by_laravel(
        self, one: RedisBinding, laravel: NativeQueue, plain: redis.Redis
    ) -> None:
        await put(one, laravel, body(attempts=1))
        await one.reserve(laravel, 1, 0, 0.05)
        await until_ready(plain, key(laravel))
        delivery = (await one.reserve(laravel, 1, 0, 30))[0]
        assert (attempts(delivery.body), delivery.delivery_count) == (2, 0)


class TestDelay:
    async def test_equal_bodies_stay_two(self, one: RedisBinding, listed: NativeQueue) -> None:
        raw = body()
        await put(one, listed, raw, raw, delay=0.05)
        assert (await one.stats(listed)).delayed == 2
        taken: list[Delivery] = []
        while len(taken) < 2:
            taken += await one.reserve(listed, 2, 5, 30)
        assert bodies(taken) == [raw, raw]

    async def test_one_publish_with_and_without(self, one: RedisBinding, native: NativeQueue) -> None:
        messages = [Outgoing(body(1), delay_seconds=60), Outgoing(body(2)), Outgoing(body(3), delay_seconds=0.01)]
        assert await one.publish(native, messages) == [None] * 3
        taken: list[Delivery] = []
        while len(taken) < 2:
            taken += await one.reserve(native, 5, 5, 30)
        assert bodies(taken) == [messages[1].body, messages[2].body]
        assert (await one.stats(native)).delayed == 1

    async def test_a_process_that_receives_nothing_promotes_and_sweeps(
        self, server: RedisServer, one: RedisBinding, native: NativeQueue, plain: redis.Redis
    ) -> None:
        async with binding(server.url()) as gone:
            await put(gone, native, body(1))
            await gone.reserve(native, 1, 0, 0.3)
            await put(gone, native, body(2), delay=0.3)
        await until_ready(plain, key(native), 2)

    async def test_a_queue_of_a_wrong_type_holds_up_no_other(
        self, server: RedisServer, native: NativeQueue, queue: str, plain: redis.Redis
    ) -> None:
        broken = f"{native.options.layout.name}:{queue}-broken"
        plain.set(f"{queue}-broken", "no list")
        plain.zadd("babelgate:timed", {broken: 1})
        async with binding(server.url()) as one:
            await put(one, native, body(), delay=0.05)
            await until_ready(plain, key(native))
        score = plain.zscore("babelgate:timed", broken)
        assert score is not None and score > 1
        plain.zrem("babelgate:timed", broken)


class TestAtRest:
    async def test_counts(self, one: RedisBinding, native: NativeQueue) -> None:
        await put(one, native, *[body(number) for number in range(4)])
        await put(one, native, body(9), delay=60)
        leased = await one.reserve(native, 2, 0, 30)
        await one.dead_letter(native, [letter(leased[0].handle)])
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight, stats.delayed, stats.dead) == (2, 1, 1, 1)
        assert stats.oldest_age_seconds is not None and 0 <= stats.oldest_age_seconds < 10

    async def test_the_age_of_what_tells_none(self, one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
        assert (await one.stats(native)).oldest_age_seconds is None
        plain.rpush(key(native), b"\xff")
        assert (await one.stats(native)).oldest_age_seconds is None

    async def test_purge_leaves_what_is_leased(self, one: RedisBinding, native: NativeQueue) -> None:
        await put(one, native, body(1), body(2))
        await put(one, native, body(3), delay=60)
        leased = await one.reserve(native, 1, 0, 30)
        assert await one.purge(native) == 2
        assert await one.ack(native, handles(leased)) == [None]

    async def test_dead_letters_page_by_page(self, one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
        await put(one, native, *[body(number) for number in range(5)])
        leased = await one.reserve(native, 5, 0, 30)
        assert await one.dead_letter(native, [letter(each.handle) for each in leased]) == [None] * 5
        page, cursor = await one.read_dead(native, None, 2)
        assert cursor is not None
        removed, cursor = await one.remove_dead(native, page[1:], cursor)
        again, _ = await one.remove_dead(native, page[1:], None)
        assert (removed, again) == ([True], [False])
        rest, cursor = await one.read_dead(native, cursor, 10)
        assert cursor is None
        assert [json.loads(record.body)["data"]["n"] for record in [page[0], *rest]] == [0, 2, 3, 4]
        if key(native).startswith("queues:"):
            assert plain.llen(key(native, ".dlq:notify")) == 4
        assert await one.purge_dead(native) == 4
        assert not plain.exists(key(native, ".dlq"), key(native, ".dlq:notify"))
