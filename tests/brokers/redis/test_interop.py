"""The Python SDK at the other end of one Redis, both ways, byte for byte, in both layouts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
import redis
from babelqueue.codec import EnvelopeCodec
from babelqueue.redis_transport import RedisTransport
from babelqueue.transport import ReceivedMessage

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, Delivery, NativeQueue, Outgoing
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.clock import now_ms
from babelgate.cloudevents import structured_entry
from babelgate.errors import LeaseLost
from tests.brokers.redis.harness import RedisServer, binding
from tests.harness.local import eventually

pytestmark = pytest.mark.redis
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}


@pytest.fixture(params=["list", "laravel"])
def layout(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def native(one: RedisBinding, queue: str, layout: str) -> NativeQueue:
    return one.native_queue(queue, {"layout": layout})


@pytest.fixture
def sdk(server: RedisServer, layout: str) -> Iterator[RedisTransport]:
    with connected(server, layout) as transport:
        yield transport


class connected:
    """The SDK's transport, closed in the end."""

    def __init__(self, server: RedisServer, layout: str, retry_after: int = 90) -> None:
        self.transport = RedisTransport(
            server.url(), laravel_compat=layout == "laravel", retry_after=retry_after, block_for=0.2
        )

    def __enter__(self) -> RedisTransport:
        return self.transport

    def __exit__(self, *failure: object) -> None:
        self.transport.close()


def made(number: int = 0) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders")).encode()


def popped(sdk: RedisTransport, queue: str) -> ReceivedMessage:
    message = sdk.pop(queue, timeout=1)
    assert message is not None
    return message


def number(body: bytes | str) -> int:
    found: int = json.loads(body)["data"]["n"]
    return found


async def test_the_sdk_publishes_and_we_consume(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    bodies = [made(number) for number in range(3)]
    for body in bodies:
        sdk.publish(queue, body.decode())
    deliveries = await one.reserve(native, 10, 1, 30)
    assert [each.body for each in deliveries] == bodies
    assert await one.ack(native, [each.handle for each in deliveries]) == [None] * 3
    assert sdk.pop(queue, timeout=0) is None


async def test_we_publish_and_the_sdk_consumes(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    bodies = [made(number) for number in range(3)]
    await one.publish(native, [Outgoing(body) for body in bodies])
    for body in bodies:
        message = popped(sdk, queue)
        assert message.body.encode() == body
        sdk.ack(message)
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 0)


async def test_the_sdk_consumes_an_event_as_a_message(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    event = {"specversion": "1.0", "id": "A-1", "source": "/shop", "type": URN, "subject": "4711", "data": DATA}
    entry = structured_entry(json.dumps(event).encode(), queue, now_ms)
    sent = envelope.read_publication(entry, queue, envelope.Limits(), now_ms).envelope
    await one.publish(native, [Outgoing(sent.body)])
    message = popped(sdk, queue)
    found = EnvelopeCodec.decode(message.body)
    assert EnvelopeCodec.accepts(found)
    assert (found["job"], found["data"], found["meta"]["id"]) == (URN, DATA, "A-1")
    assert found["meta"]["ext"] == {"cloudevents": {"specversion": "1.0", "source": "/shop", "subject": "4711"}}
    sdk.ack(message)


async def test_both_consume_at_the_same_moment(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    theirs: list[int] = []
    our_own: list[int] = []

    def consume() -> None:
        while (message := sdk.pop(queue, timeout=0.2)) is not None:
            theirs.append(number(message.body))
            sdk.ack(message)

    async def reserve() -> None:
        while deliveries := await one.reserve(native, 3, 1, 30):
            our_own.extend(number(each.body) for each in deliveries)
            assert await one.ack(native, [each.handle for each in deliveries]) == [None] * len(deliveries)

    await one.publish(native, [Outgoing(made(each)) for each in range(200)])
    await asyncio.gather(asyncio.to_thread(consume), reserve())
    assert theirs and our_own
    assert sorted(theirs + our_own) == list(range(200))
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 0)


async def test_a_consumer_of_the_sdk_has_crashed(
    server: RedisServer, one: RedisBinding, native: NativeQueue, queue: str, layout: str
) -> None:
    await one.publish(native, [Outgoing(made(7))])
    with connected(server, layout, retry_after=1) as crashed:
        late = popped(crashed, queue)
        async with asyncio.timeout(60):
            while not (deliveries := await one.reserve(native, 1, 1, 30)):
                pass
        assert number(deliveries[0].body) == 7
        crashed.ack(late)
    assert await one.ack(native, [deliveries[0].handle]) == [None]


async def test_a_crash_is_found_by_one_who_only_waits(
    one: RedisBinding, native: NativeQueue, queue: str, layout: str, plain: redis.Redis
) -> None:
    waiting = asyncio.create_task(one.reserve(native, 1, 15, 30))
    await eventually(lambda: plain.info("clients")["blocked_clients"])
    # As the SDK leaves it; its own reserve would race with ours for the message.
    body, score = made(8), int(plain.time()[0])
    if layout == "list":
        plain.rpush(f"{queue}:processing", body)
        plain.zadd(f"{queue}:processing:deadlines", {b"a" * 32 + b":" + body: score})
    else:
        plain.zadd(f"queues:{queue}:reserved", {body: score})
    assert [each.body for each in await waiting] == [body]


async def test_a_consumer_of_ours_has_crashed(
    server: RedisServer, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    async with binding(server.url()) as crashed:
        await crashed.publish(native, [Outgoing(made(9))])
        (late,) = await crashed.reserve(native, 1, 0, 0.5)
    # The SDK compares whole seconds.
    message = await asyncio.to_thread(until, lambda: sdk.pop(queue, timeout=0.2))
    assert number(message.body) == 9
    async with binding(server.url()) as again:
        assert isinstance((await again.ack(native, [late.handle]))[0], LeaseLost)
    sdk.ack(message)


def until(take: Callable[[], ReceivedMessage | None]) -> ReceivedMessage:
    for _ in range(50):
        if (found := take()) is not None:
            return found
    raise AssertionError("nothing came")


async def test_we_settle_no_lease_of_theirs_and_they_none_of_ours(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    body = made()
    await one.publish(native, [Outgoing(body)])
    (delivery,) = await one.reserve(native, 1, 0, 60)
    assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
    message = popped(sdk, queue)
    assert isinstance((await one.ack(native, [delivery.handle]))[0], LeaseLost)
    assert (await one.stats(native)).in_flight == 1
    sdk.ack(message)
    assert (await one.stats(native)).in_flight == 0


async def test_attempts_grow_across_both(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    body = made()
    sdk.publish(queue, body.decode())
    (delivery,) = await one.reserve(native, 1, 0, 30)
    assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
    message = popped(sdk, queue)
    assert message.body.encode() == envelope.with_attempts(body, 1)
    sdk.release(message)
    (delivery,) = await one.reserve(native, 1, 5, 30)
    assert delivery.body == envelope.with_attempts(body, 2)


@pytest.mark.parametrize(("layout", "frames"), [("list", False), ("list", True), ("laravel", False)])
async def test_expired_leases_still_count_after_the_sdk_has_rewritten_the_message(
    server: RedisServer, one: RedisBinding, queue: str, layout: str, frames: bool
) -> None:
    native = one.native_queue(queue, {"layout": layout} | ({"frames": True} if frames else {}))
    with connected(server, layout) as sdk:
        await one.publish(native, [Outgoing(made(), {"tenant": "x"} if frames else {})])
        for expired in range(2):
            (delivery,) = await one.reserve(native, 1, 5, 0.2)
            assert count(delivery) == expired
        (delivery,) = await one.reserve(native, 1, 5, 30)
        assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
        for attempts in (3, 4):
            sdk.release(popped(sdk, queue))
            (delivery,) = await one.reserve(native, 1, 5, 30)
            assert count(delivery) == attempts
            assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
        (delivery,) = await one.reserve(native, 1, 5, 30)
        assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
        message = popped(sdk, queue)
        assert json.loads(message.body)["attempts"] == 5, "our nack writes the whole count"


async def test_a_message_that_differs_only_in_its_data_has_a_count_of_its_own(one: RedisBinding, queue: str) -> None:
    native = one.native_queue(queue, {"layout": "list"})
    first, second = (made().replace(b'"n":0', b'"attempts":%d' % number) for number in (1, 2))
    second = second.replace(json.loads(second)["meta"]["id"].encode(), json.loads(first)["meta"]["id"].encode())
    await one.publish(native, [Outgoing(first)])
    assert await one.reserve(native, 1, 5, 0.2)
    (delivery,) = await one.reserve(native, 1, 5, 30)
    assert delivery.delivery_count == 1
    await one.publish(native, [Outgoing(second)])
    (delivery,) = await one.reserve(native, 1, 5, 30)
    assert delivery.delivery_count == 0


def count(delivery: Delivery) -> int:
    attempts: int = json.loads(delivery.body)["attempts"]
    return attempts + delivery.delivery_count


async def test_a_delay_of_ours_is_kept(one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str) -> None:
    body = made()
    await one.publish(native, [Outgoing(body, delay_seconds=0.3)])
    assert sdk.pop(queue, timeout=0) is None
    message = await asyncio.to_thread(until, lambda: sdk.pop(queue, timeout=0.2))
    assert message.body.encode() == body


async def test_a_delay_of_the_sdk_is_kept(server: RedisServer, one: RedisBinding, queue: str) -> None:
    native, body = one.native_queue(queue, {"layout": "laravel"}), made()
    with connected(server, "laravel") as sdk:
        sdk.publish_delayed(queue, body.decode(), 1)
    async with asyncio.timeout(60):
        while not (deliveries := await one.reserve(native, 1, 1, 30)):
            pass
    assert [each.body for each in deliveries] == [body]


async def test_frames(server: RedisServer, one: RedisBinding, queue: str, plain: redis.Redis) -> None:
    native, headers, body = one.native_queue(queue, {"frames": True}), {"traceparent": "00-aé-bb-01"}, made()
    with connected(server, "list") as sdk:
        sdk.publish_with_headers(queue, body.decode(), headers)
        await one.publish(native, [Outgoing(body, headers)])
        first, second = plain.lrange(queue, 0, -1)
        assert first == second
        (delivery,) = await one.reserve(native, 1, 0, 30)
        assert (delivery.body, delivery.headers) == (body, headers)
        assert await one.ack(native, [delivery.handle]) == [None]
        message = popped(sdk, queue)
        assert (message.body.encode(), message.headers) == (body, headers)
        sdk.ack(message)
    assert not plain.exists(f"{queue}:processing", f"{queue}:processing:deadlines")


@pytest.mark.parametrize("reason", ["failed", "poison"])
async def test_the_sdk_reads_our_dead_letters(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str, reason: str
) -> None:
    body = made(3)
    await one.publish(native, [Outgoing(body)])
    (delivery,) = await one.reserve(native, 1, 0, 30)
    block = envelope.dead_letter_block(reason, queue, 3 if reason == "failed" else 0, now_ms(), "why")
    assert await one.dead_letter(native, [DeadLetterRequest(delivery.handle, block)]) == [None]
    message = popped(sdk, f"{queue}.dlq")
    decoded = EnvelopeCodec.decode(message.body)
    assert decoded["dead_letter"] == dict(block) and decoded["data"] == DATA | {"n": 3}
    assert message.body.encode().startswith(body[: body.rindex(b',"attempts":')])
    sdk.ack(message)


async def test_we_read_dead_letters_of_the_sdk(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str
) -> None:
    sdk.publish(queue, made().decode())
    record = '{"job":"urn:a","dead_letter":{"reason":"failed","failed_at":5}}'
    sdk.dead_letter(popped(sdk, queue), f"{queue}.dlq", record)
    ((found,), _) = await one.read_dead(native, None, 10)
    assert found.body == record.encode()
    assert await one.purge_dead(native) == 1
    assert sdk.pop(f"{queue}.dlq", timeout=0) is None


async def test_poison_reaches_both_unchanged(
    one: RedisBinding, native: NativeQueue, sdk: RedisTransport, queue: str, plain: redis.Redis
) -> None:
    key = native.options.key.decode()
    plain.rpush(key, b"\xff not json")
    message = popped(sdk, queue)
    assert message.body.encode("utf-8", "surrogateescape") == b"\xff not json"
    sdk.ack(message)
    plain.rpush(key, b"\xff not json")
    (delivery,) = await one.reserve(native, 1, 0, 30)
    assert delivery.body == b"\xff not json"
    assert await one.ack(native, [delivery.handle]) == [None]
    assert (await one.stats(native)).in_flight == 0
