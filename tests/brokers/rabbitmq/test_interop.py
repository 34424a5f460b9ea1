"""The Python SDK at the other end of one RabbitMQ, both ways: byte for byte, property by property."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pika
import pytest
from babelqueue import BabelQueue
from babelqueue.codec import EnvelopeCodec
from babelqueue.pika_transport import PikaTransport
from babelqueue.transport import ReceivedMessage

from babelgate import envelope
from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.clock import now_ms
from babelgate.gateway.routing import Policy
from tests.brokers.rabbitmq.harness import RabbitBroker, browse, client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.world import World, data, kinds, until

pytestmark = pytest.mark.rabbitmq
URN = "urn:babel:orders:created"
DATA = {"order": 1042, "name": "Café — naïve ☕", "price": 1.5, "none": None, "list": [], "object": {}}
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}


@pytest.fixture
def sdk(rabbit: RabbitServer) -> Iterator[PikaTransport]:
    transport = PikaTransport(rabbit.url())
    yield transport
    transport.close()


@pytest.fixture
async def world(rabbit: RabbitServer, queue: str) -> AsyncIterator[World]:
    """Gateways on the server."""
    world = World(RabbitBroker(rabbit), queue)
    yield world
    await world.close()


def made(number: int = 0, **members: Any) -> bytes:
    return EnvelopeCodec.encode(EnvelopeCodec.make(URN, DATA | {"n": number}, queue="orders") | members).encode()


def popped(sdk: PikaTransport, queue: str) -> ReceivedMessage:
    for _ in range(100):
        if (message := sdk.pop(queue, timeout=0.05)) is not None:
            return message
    raise AssertionError("nothing came")


def number(body: bytes | str) -> int:
    found: int = json.loads(body)["data"]["n"]
    return found


def written(properties: pika.BasicProperties) -> Mapping[str, Any]:
    """All properties that are set, the headers in their order and with their types."""
    found = {name: value for name, value in vars(properties).items() if value is not None}
    headers = found.get("headers", {})
    return found | {"headers": [(name, type(value), value) for name, value in headers.items()]}


def by_name(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, whatever the order of the headers."""
    return dict(properties) | {"headers": sorted(properties["headers"], key=str)}


def stamped(properties: Mapping[str, Any], body: bytes) -> Mapping[str, Any]:
    """With the time of the message in seconds, which of the SDKs only that for Laravel writes."""
    try:
        return dict(properties) | {"timestamp": json.loads(body)["meta"]["created_at"] // 1000}
    except (ValueError, KeyError):
        return properties


class TestWhatIsWritten:
    @pytest.mark.parametrize(
        "body",
        [
            made(),
            made(attempts=7),
            made(dead_letter=envelope.dead_letter_block("failed", "orders", 3, 5, "boom", "ValueError")),
            b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","schema_version":1},"attempts":0}',
            b'{"job":"urn:a"}',
        ],
        ids=["fresh", "retried", "dead", "without lang", "a job alone"],
    )
    @pytest.mark.parametrize("headers", [{}, TRACE, {"x-attempts": "99", "a": "b"}], ids=["bare", "trace", "contract"])
    async def test_is_what_the_sdk_writes(
        self,
        rabbit: RabbitServer,
        one: RabbitBinding,
        native: NativeQueue,
        sdk: PikaTransport,
        queue: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> None:
        sdk.publish_with_headers(queue, body.decode(), dict(headers))
        assert await one.publish(native, [Outgoing(body, headers)]) == [None]
        (theirs, their_body), (ours, our_body) = browse(rabbit.url(), queue)
        assert our_body == their_body == body
        assert by_name(written(ours)) == by_name(stamped(written(theirs), our_body))

    async def test_poison_has_no_properties_of_a_message(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        sdk.publish(queue, "not json")
        assert await one.publish(native, [Outgoing(b"not json")]) == [None]
        (theirs, _), (ours, _) = browse(rabbit.url(), queue)
        assert written(ours) == written(theirs)

    async def test_a_delayed_one_differs_by_what_the_broker_adds(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        body = made()
        sdk.publish_with_headers(queue, body.decode(), TRACE)
        assert await one.publish(native, [Outgoing(body, TRACE, delay_seconds=0.3)]) == [None]

        async def both_are_there() -> bool:
            return len(browse(rabbit.url(), queue)) == 2

        await until(both_are_there)
        (theirs, _), (ours, our_body) = browse(rabbit.url(), queue)
        assert our_body == body
        for name in [name for name in ours.headers if "death" in name]:
            del ours.headers[name]
        assert by_name(written(ours)) == by_name(stamped(written(theirs), our_body))

    async def test_a_dead_letter_of_the_gateway_is_as_one_of_the_sdk(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        block = envelope.dead_letter_block("failed", "orders", 3, now_ms(), "boom", "ValueError")
        record = envelope.dead_letter_record(made(), block)
        assert await one.publish_dead_letters(native, [Outgoing(record)]) == [None]
        sdk.publish(f"{queue}.dlq", record.decode())
        (ours, our_body), (theirs, their_body) = browse(rabbit.url(), f"{queue}.dlq")
        assert our_body == their_body
        assert by_name(written(ours)) == by_name(stamped(written(theirs), our_body))


class TestBytes:
    async def test_the_sdk_publishes_and_we_consume(
        self, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        bodies = [made(number) for number in range(3)]
        for body in bodies:
            sdk.publish_with_headers(queue, body.decode(), TRACE)
        deliveries: list[Delivery] = []
        while len(deliveries) < 3:
            deliveries += await one.reserve(native, 3, 10, 30)
        assert [each.body for each in deliveries] == bodies
        assert [each.headers for each in deliveries] == [TRACE] * 3
        assert await one.ack(native, [each.handle for each in deliveries]) == [None] * 3
        assert sdk.pop(queue, timeout=0) is None

    async def test_we_publish_and_the_sdk_consumes(
        self, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        bodies = [made(number) for number in range(3)]
        assert await one.publish(native, [Outgoing(body, TRACE) for body in bodies]) == [None] * 3
        for body in bodies:
            message = popped(sdk, queue)
            assert message.body.encode() == body
            assert message.headers.items() >= TRACE.items()
            sdk.ack(message)
        assert await one.reserve(native, 1, 0, 30) == []

    async def test_both_consume_at_the_same_moment(
        self, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        theirs: list[int] = []
        our_own: list[int] = []

        def consume() -> None:
            while (message := sdk.pop(queue, timeout=0)) is not None:
                theirs.append(number(message.body))
                sdk.ack(message)

        async def reserve() -> None:
            while deliveries := await one.reserve(native, 3, 0, 30):
                our_own.extend(number(each.body) for each in deliveries)
                assert await one.ack(native, [each.handle for each in deliveries]) == [None] * len(deliveries)

        assert await one.publish(native, [Outgoing(made(each)) for each in range(500)]) == [None] * 500
        # On a busy machine one of them could be done before the other begins.
        first = await asyncio.to_thread(sdk.pop, queue, timeout=60)
        assert first is not None
        theirs.append(number(first.body))
        sdk.ack(first)
        await asyncio.gather(asyncio.to_thread(consume), reserve())
        assert theirs and our_own
        assert sorted(theirs + our_own) == list(range(500))

    async def test_a_consumer_of_the_sdk_has_crashed(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await one.publish(native, [Outgoing(made(7))]) == [None]
        crashed = PikaTransport(rabbit.url())
        assert number(popped(crashed, queue).body) == 7
        waiting = asyncio.create_task(one.reserve(native, 1, 10, 30))
        await asyncio.sleep(0.05)
        crashed.close()
        (delivery,) = await waiting
        assert (number(delivery.body), delivery.redelivered) == (7, True)

    async def test_a_consumer_of_ours_has_crashed(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, sdk: PikaTransport, queue: str
    ) -> None:
        assert await one.publish(native, [Outgoing(made(9))]) == [None]
        assert len(await one.reserve(native, 1, 10, 30)) == 1
        assert sdk.pop(queue, timeout=0) is None
        await one.close()
        message = popped(sdk, queue)
        assert number(message.body) == 9
        sdk.ack(message)


def worker(transport: PikaTransport, queue: str, tries: int, fails: bool = True) -> tuple[BabelQueue, list[Any]]:
    """The SDK's own runtime; what its handler got is in the list. A failed message is retried, or dead-lettered."""
    app = BabelQueue(transport=transport, queue=queue, max_attempts=tries, dead_letter=True)
    seen: list[Any] = []

    @app.handler(URN)
    def handle(_: Any, __: Any, message: Mapping[str, Any]) -> None:
        seen.append(message)
        if fails:
            raise ValueError("boom")

    return app, seen


class TestRetries:
    async def test_attempts_grow_across_both(self, world: World, sdk: PikaTransport) -> None:
        process, queue = await world.process(), world.queue
        body = made()
        sdk.publish(queue, body.decode())
        message = await process.one()
        assert await process.nack(message) == [None]
        retried = popped(sdk, queue)
        assert retried.body.encode() == envelope.with_attempts(body, 1)
        assert retried.headers["x-attempts"] == "1"
        worker(sdk, queue, tries=9)[0].dispatch(retried)
        message = await process.one()
        assert (message.attempts, message.redelivered) == (2, True)
        assert message.body == envelope.with_attempts(body, 2)
        assert await process.ack(message) == [None]

    async def test_expired_leases_still_count_after_the_sdk_has_rewritten_the_message(
        self, world: World, sdk: PikaTransport
    ) -> None:
        process, queue = await world.process(), world.queue
        body = made()
        sdk.publish(queue, body.decode())
        for attempts in range(2):
            assert (await process.one(0.3)).attempts == attempts
        message = await process.one()
        assert await process.nack(message, failed=False) == [None]
        worker(sdk, queue, tries=9)[0].dispatch(popped(sdk, queue))
        message = await process.one()
        assert (message.attempts, message.body) == (3, envelope.with_attempts(body, 3))
        assert await process.ack(message) == [None]

    async def test_a_retry_keeps_all_that_the_message_came_with(
        self, rabbit: RabbitServer, world: World, queue: str
    ) -> None:
        process = await world.process()
        given = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=2,
            priority=3,
            reply_to="answers",
            user_id="guest",
            timestamp=1_700_000_000,
            app_id="shop",
            headers={**TRACE, "flag": True, "number": 7, "nested": {"a": [1, "b"]}, "x-attempts": 4},
        )
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, made(), given)
        message = await process.one()
        assert message.attempts == 4, "the header counts on where the body stands still"
        assert message.headers.items() >= TRACE.items()
        for delay, attempts in ((0, 5), (0.1, 6)):
            assert await process.nack(message, delay=delay) == [None]
            message = await process.one()
            assert (message.attempts, json.loads(message.body)["attempts"]) == (attempts, attempts)
            assert message.headers.items() >= TRACE.items()
        assert await process.nack(message) == [None]
        ((kept, body),) = browse(rabbit.url(), queue)
        assert json.loads(body)["attempts"] == kept.headers["x-attempts"] == 7
        expected = {**TRACE, "flag": True, "number": 7, "nested": {"a": [1, "b"]}}
        assert {name: kept.headers.get(name) for name in expected} == expected
        assert not [name for name in kept.headers if "death" in name], "a retry starts anew"
        assert (kept.priority, kept.reply_to) == (3, "answers")
        assert kept.timestamp == json.loads(body)["meta"]["created_at"] // 1000
        assert kept.expiration is None

    async def test_a_dead_letter_of_the_sdk_is_ours_to_see_and_to_redrive(
        self, world: World, sdk: PikaTransport
    ) -> None:
        process, (app, seen) = await world.process(), worker(sdk, world.queue, tries=2)
        receipt = await process.publish_body(json.dumps({"job": URN, "data": {"n": 5}}).encode())
        for _ in range(2):
            app.dispatch(popped(sdk, world.queue))
        assert [message["attempts"] for message in seen] == [0, 1]
        (dead,) = await process.dead()
        assert (dead.id, dead.reason, dead.error) == (receipt.id, "failed", "boom")
        assert (await process.redrive()).redriven == 1
        message = popped(sdk, world.queue)
        assert "dead_letter" not in json.loads(message.body)
        assert number(message.body) == 5
        sdk.ack(message)

    @pytest.mark.parametrize("verb", ["reject", "exhausted"])
    async def test_the_sdk_reads_our_dead_letters(self, world: World, sdk: PikaTransport, verb: str) -> None:
        process = await world.process(policy=Policy(max_attempts=1))
        sdk.publish_with_headers(world.queue, made(3).decode(), TRACE)
        message = await process.one()
        settle = process.reject if verb == "reject" else process.nack
        assert await settle(message, error="why", exception="E") == [None]
        record = popped(sdk, f"{world.queue}.dlq")
        decoded = EnvelopeCodec.decode(record.body)
        assert (decoded["data"], decoded["dead_letter"]["error"]) == (DATA | {"n": 3}, "why")
        assert decoded["dead_letter"]["original_queue"] == world.queue
        assert record.headers.items() >= TRACE.items()
        sdk.ack(record)

    async def test_poison_of_a_stranger_is_dead_lettered_whole(
        self, world: World, sdk: PikaTransport, rabbit: RabbitServer
    ) -> None:
        process = await world.process()
        await world.broker.inject(world.queue, b"\xff not json", made(1))
        assert data(await process.one())["n"] == 1
        ((properties, record),) = browse(rabbit.url(), f"{world.queue}.dlq")
        assert json.loads(record)["dead_letter"]["reason"] == "poison"
        assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)
        assert json.loads(popped(sdk, f"{world.queue}.dlq").body)["raw_encoding"] == "base64"

    async def test_a_lease_that_ran_out_is_an_attempt_that_the_sdk_sees(self, world: World, sdk: PikaTransport) -> None:
        process = await world.process()
        body = made(2)
        sdk.publish_with_headers(world.queue, body.decode(), TRACE)
        late = await process.one(lease=0.2)
        message = await asyncio.to_thread(popped, sdk, world.queue)
        assert message.body.encode() == envelope.with_attempts(body, 1)
        assert message.headers.items() >= {**TRACE, "x-attempts": "1"}.items()
        sdk.ack(message)
        assert [kind.__name__ for kind in kinds(await process.ack(late)) if kind] == ["LeaseLost"]


async def test_a_process_and_a_worker_share_the_work(world: World, sdk: PikaTransport) -> None:
    """Each message is served once, by either."""
    process, (app, seen) = await world.process(), worker(sdk, world.queue, tries=9, fails=False)
    done: list[int] = []
    for n in range(400):
        sdk.publish(world.queue, made(n).decode())

    def work() -> None:
        while (message := sdk.pop(world.queue, timeout=0)) is not None:
            app.dispatch(message)

    async def serve() -> None:
        while messages := await process.receive(2):
            done.extend(data(message)["n"] for message in messages)
            assert await process.ack(*messages) == [None] * len(messages)

    await asyncio.gather(asyncio.to_thread(work), serve())
    assert seen and done
    assert sorted(done + [message["data"]["n"] for message in seen]) == list(range(400))
