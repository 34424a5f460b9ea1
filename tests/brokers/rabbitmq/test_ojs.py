"""The OJS profile on a real RabbitMQ, with another client library as the peers that follow its texts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pika
import pytest

from babelgate.brokers.binding import DeadRecord, Delivery, LastFailure, NativeQueue, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.clock import now_ms, timestamp
from babelgate.envelope import dead_letter_block, dead_letter_record, describe_dead, redriven, with_attempts
from babelgate.errors import BrokerRejected
from babelgate.gateway import expiry
from babelgate.gateway.routing import Policy
from tests.brokers.rabbitmq.harness import OjsBroker, browse, client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.wire_support import reserved
from tests.harness.world import World, data, until
from tests.unit.envelope.support import compact

pytestmark = pytest.mark.rabbitmq

MEDIA = "application/openjobspec+json"
V7 = "01975a1e-3c58-7abc-8def-0123456789ab"


@pytest.fixture
def native(one: RabbitBinding, queue: str) -> NativeQueue:
    """An OJS queue of the test's own."""
    return one.native_queue(queue, {"profile": "ojs"})


def envelope(queue: str, **ojs: Any) -> bytes:
    ext = {"ext": {"ojs": ojs}} if ojs else {}
    meta = {"id": "i", "queue": queue, "lang": "go", "schema_version": 1, "created_at": now_ms()} | ext
    trace_id = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
    return compact({"job": "urn:babel:email:send", "trace_id": trace_id, "data": {"n": 1}, "meta": meta, "attempts": 0})


def job(queue: str, **more: Any) -> bytes:
    return compact({"specversion": "1.0", "id": V7, "type": "email.send", "queue": queue, "args": [{"n": 1}]} | more)


def push(rabbit: RabbitServer, queue: str, body: bytes, exchange: str = "ojs.direct", **properties: Any) -> None:
    """Publish as a peer does, which needs the queue to be there."""
    with client(rabbit.url()) as channel:
        said = pika.BasicProperties(**({"content_type": MEDIA, "delivery_mode": 2} | properties))
        channel.basic_publish(exchange, queue, body, said, mandatory=True)


async def made(one: RabbitBinding, native: NativeQueue) -> None:
    """The queue is there, and empty."""
    assert await one.reserve(native, 1, 0, 30) == []


async def tried_again(one: RabbitBinding, native: NativeQueue, delivery: Delivery, delay: float = 0) -> None:
    """As the gateway does with a nack."""
    attempts = json.loads(delivery.body)["attempts"] + 1
    copy = Outgoing(
        with_attempts(delivery.body, attempts),
        delivery.headers,
        delay_seconds=delay,
        failure=LastFailure(attempts, "no route", "OSError"),
        carried=delivery.carried,
    )
    assert await one.publish(native, [copy]) == [None]
    assert await one.ack(native, [delivery.handle]) == [None]


async def buried(one: RabbitBinding, native: NativeQueue, delivery: Delivery) -> bytes:
    """As the gateway does with a reject; the record."""
    block = dead_letter_block("failed", "q", 1, now_ms(), "no route", "OSError")
    record = Outgoing(dead_letter_record(delivery.body, block), delivery.headers, carried=delivery.carried)
    assert await one.publish_dead_letters(native, [record]) == [None]
    assert await one.ack(native, [delivery.handle]) == [None]
    return record.body


async def dead(one: RabbitBinding, native: NativeQueue) -> DeadRecord:
    """The one dead letter that must come."""

    async def rests() -> bool:
        return bool((await one.read_dead(native, None, 10))[0])

    await until(rests)
    ((record,), _) = await one.read_dead(native, None, 10)
    return record


async def test_a_peer_finds_a_job_and_another_gateway_the_same_envelope(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    body = envelope(queue)
    parent = "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-00f067aa0ba902b7-01"
    assert await one.publish(native, [Outgoing(body, {"traceparent": parent})]) == [None]
    ((properties, found),) = await asyncio.to_thread(browse, rabbit.url(), f"ojs.queue.{queue}")
    assert json.loads(found)["args"] == [{"n": 1}]
    assert (properties.content_type, properties.content_encoding, properties.delivery_mode) == (MEDIA, "utf-8", 2)
    assert (properties.type, properties.app_id) == ("email.send", "ojs")
    assert properties.message_id == json.loads(found)["id"]
    assert properties.timestamp == json.loads(body)["meta"]["created_at"] // 1000
    assert properties.headers["x-ojs-queue"] == queue
    assert properties.headers["x-ojs-attempt"] == 1
    assert properties.headers["x-ojs-traceparent"] == properties.headers["x-ojs-trace-id"] == parent
    delivery = await reserved(one, native)
    assert (delivery.body, delivery.headers, delivery.delivery_count) == (body, {"traceparent": parent}, 0)


@pytest.mark.parametrize("content_type", [MEDIA, "application/json"])
async def test_a_job_of_a_peer_is_an_envelope(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer, content_type: str
) -> None:
    await made(one, native)
    await asyncio.to_thread(push, rabbit, queue, job(queue, priority=5), content_type=content_type)
    found = json.loads((await reserved(one, native)).body)
    assert (found["job"], found["data"]) == ("urn:babel:email:send", {"n": 1})
    assert found["meta"]["ext"] == {"ojs": {"priority": 5}}


@pytest.mark.parametrize(
    ("properties", "created_at"),
    [
        ({"timestamp": 1_700_000_000}, 1_700_000_000_000),
        ({"headers": {"x-ojs-enqueued-at": "2023-11-14T22:13:20.123Z"}}, 1_700_000_000_123),
        ({"timestamp": 1_600_000_000, "headers": {"x-ojs-enqueued-at": "2023-11-14T22:13:20Z"}}, 1_600_000_000_000),
        ({"headers": {"x-ojs-enqueued-at": "today"}}, None),
        ({"headers": {"x-ojs-enqueued-at": 5}}, None),
        ({}, None),
    ],
)
async def test_a_job_without_its_time_has_that_of_its_arrival_through_every_delivery(
    rabbit: RabbitServer, queue: str, properties: dict[str, Any], created_at: int | None
) -> None:
    world = World(OjsBroker(rabbit, {"profile": "ojs"}), queue)
    try:
        process = await world.process()
        await process.publish({"n": 0})
        assert await process.ack(await process.one()) == [None]
        body = compact({"specversion": "1.0", "id": "order-1", "type": "email.send", "args": [{"n": 1}]})
        await asyncio.to_thread(push, rabbit, queue, body, **properties)
        for ending in ("nack", "reject", "ack"):
            message = await process.one()
            assert json.loads(message.body)["meta"]["created_at"] == created_at
            if ending == "reject":
                assert await process.reject(message) == [None]
                assert (await process.redrive()).redriven == 1
            else:
                assert await (process.nack(message) if ending == "nack" else process.ack(message)) == [None]
    finally:
        await world.close()


async def test_an_envelope_of_a_peer_stays_as_it_is(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    await made(one, native)
    body = b" " + envelope(queue)
    await asyncio.to_thread(push, rabbit, queue, body, content_type="application/json")
    assert (await reserved(one, native)).body == body


async def test_two_deliveries_of_a_job_are_the_same_bytes(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    await made(one, native)
    await asyncio.to_thread(push, rabbit, queue, compact({"specversion": "1.0", "type": "a", "args": []}))
    first = await reserved(one, native)
    assert await one.release(native, [first.handle], 0, failed=False) == [None]
    second = await reserved(one, native)
    assert second.redelivered
    assert second.body == first.body


@pytest.mark.parametrize("classic", [False, True], ids=["step of ours", "step of a peer"])
async def test_a_failed_job_waits_in_the_retry_exchange_and_comes_back_counted(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer, classic: bool
) -> None:
    await made(one, native)
    step = f"ojs.queue.retry.{queue}.200"
    if classic:
        with client(rabbit.url()) as channel:
            routes = {"x-dead-letter-exchange": "ojs.direct", "x-dead-letter-routing-key": queue, "x-message-ttl": 200}
            channel.queue_declare(step, durable=True, arguments=routes)
    headers = {"x-ojs-attempt": 1, "x-ojs-idempotency-key": "k"}
    await asyncio.to_thread(push, rabbit, queue, job(queue, x=[1]), headers=headers, priority=7)
    await tried_again(one, native, await reserved(one, native), delay=0.15)
    with client(rabbit.url()) as channel:
        channel.queue_declare(step, passive=True)
    delivery = await reserved(one, native)
    assert delivery.delivery_count == 1
    assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
    ((properties, found),) = await asyncio.to_thread(browse, rabbit.url(), f"ojs.queue.{queue}")
    error = {"type": "OSError", "message": "no route"}
    assert json.loads(found) == json.loads(job(queue, x=[1], attempt=1, error=error))
    assert properties.priority == 7
    kept = {"x-ojs-attempt": 2, "x-ojs-idempotency-key": "k", "x-ojs-error-message": "no route"}
    assert kept.items() <= properties.headers.items()
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["exchange"]) == (step, "ojs.retry")


async def test_an_envelope_that_cannot_be_a_job_costs_only_itself(
    one: RabbitBinding, native: NativeQueue, queue: str
) -> None:
    # As it may come from the dead letters of another broker.
    surrogate = envelope(queue)[:-1] + b',"\\ud800":1}'
    good, bad = Outgoing(envelope(queue)), Outgoing(surrogate)
    outcomes = await one.publish(native, [good, bad, good])
    assert [type(outcome) for outcome in outcomes] == [type(None), BrokerRejected, type(None)]
    assert [type(outcome) for outcome in await one.publish(native, [bad])] == [BrokerRejected]
    assert [each.body for each in await one.reserve(native, 10, 10, 30)] == [good.body] * 2


async def test_a_job_without_delay_is_tried_again_at_once(one: RabbitBinding, native: NativeQueue, queue: str) -> None:
    assert await one.publish(native, [Outgoing(envelope(queue))]) == [None]
    for count in range(3):
        delivery = await reserved(one, native)
        assert (delivery.delivery_count, json.loads(delivery.body)["attempts"]) == (count, count)
        await tried_again(one, native, delivery)


async def test_a_scheduled_job_comes_when_it_is_due_with_its_time_in_a_header(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    body = envelope(queue)
    before = now_ms()
    assert await one.publish(native, [Outgoing(body, delay_seconds=0.4)]) == [None]
    delivery = await reserved(one, native)
    assert now_ms() - before >= 400
    assert delivery.body == body
    assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
    ((properties, _),) = await asyncio.to_thread(browse, rabbit.url(), f"ojs.queue.{queue}")
    assert properties.headers["x-ojs-scheduled-at"].endswith("Z")


async def test_a_discarded_job_rests_with_its_error_and_comes_back_as_it_was(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    await made(one, native)
    await asyncio.to_thread(push, rabbit, queue, job(queue, x=[1]))
    record = await buried(one, native, await reserved(one, native))
    ((properties, found),) = await asyncio.to_thread(browse, rabbit.url(), f"ojs.dead.{queue}")
    assert (properties.content_type, properties.headers["x-ojs-error-code"]) == (MEDIA, "OSError")
    assert (json.loads(found)["state"], json.loads(found)["x"]) == ("discarded", [1])
    resting = await dead(one, native)
    assert resting.body == record
    back = Outgoing(redriven(resting.body), resting.headers, carried=resting.carried)
    assert await one.publish(native, [back]) == [None]
    assert (await one.remove_dead(native, [resting], None))[0] == [True]
    delivery = await reserved(one, native)
    assert json.loads(delivery.body)["attempts"] == delivery.delivery_count == 0


@pytest.mark.parametrize(
    ("ending", "attempt"), [("rejected", 1), ("rejected again", 2), ("nacked again", 2), ("expired", 2)]
)
async def test_a_rejected_retry_keeps_its_attempt_and_no_time_of_its_schedule(
    rabbit: RabbitServer, queue: str, ending: str, attempt: int
) -> None:
    world = World(OjsBroker(rabbit, {"profile": "ojs"}), queue)
    try:
        process = await world.process(policy=Policy(max_attempts=2))
        await process.publish({"n": 1})
        if ending != "rejected":
            assert await process.nack(await process.one(), delay=0.1) == [None]
        if ending == "expired":
            await process.one(0.2)

            async def is_dead() -> bool:
                assert await process.ready(1) == []
                return world.broker.tells(await process.stats(), dead=1)

            await until(is_dead)
        else:
            last = await process.one()
            assert await (process.nack(last) if ending == "nacked again" else process.reject(last)) == [None]
        ((properties, _),) = await asyncio.to_thread(browse, rabbit.url(), f"ojs.dead.{queue}")
        assert properties.headers["x-ojs-attempt"] == attempt
        assert "x-ojs-scheduled-at" not in properties.headers
        (letter,) = await process.dead()
        assert letter.attempts == {"rejected": 0, "rejected again": 1}.get(ending, 2)
        assert (await process.redrive()).redriven == 1
        assert (await process.one()).attempts == 0
    finally:
        await world.close()


@pytest.mark.parametrize("edited", [False, True])
async def test_a_job_of_a_peer_expires_at_its_time_and_a_redrive_delivers_it(
    one: RabbitBinding, world: World, rabbit: RabbitServer, edited: bool
) -> None:
    process = await world.process(queue_options={"profile": "ojs"})
    assert await process.ready(1) == []
    for number, expires_at in enumerate([now_ms() - 1, now_ms() + 3_600_000]):
        body = job(world.queue, args=[{"n": number}], expires_at=timestamp(expires_at))
        await asyncio.to_thread(push, rabbit, world.queue, body)
    message = await process.one()
    assert data(message) == {"n": 1}
    assert await process.ack(message) == [None]

    async def is_dead() -> bool:
        return [letter.error for letter in await process.dead()] == [expiry.EXPIRED]

    await until(is_dead)
    if edited:
        # The job with its time goes back as it was, beside a header.
        (letter,) = await process.dead()
        entry = {"envelope": json.loads(redriven(letter.record)), "headers": {"x": "1"}}
        assert (await process.redrive_one(letter.letter_id, body=json.dumps(entry).encode())).edited
    else:
        assert (await process.redrive()).redriven == 1
    message = await process.one()
    assert data(message) == {"n": 0}
    assert await process.nack(message) == [None]
    assert data(await process.one()) == {"n": 0}


async def test_what_a_peer_rejects_is_a_dead_letter(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    await made(one, native)
    await asyncio.to_thread(push, rabbit, queue, job(queue), headers={"x-ojs-error-message": "no route"})
    with client(rabbit.url()) as channel:
        method, _, _ = channel.basic_get(f"ojs.queue.{queue}")
        channel.basic_nack(method.delivery_tag, requeue=False)
    found = describe_dead((await dead(one, native)).body)
    assert (found.reason, found.error, found.job, found.attempts) == ("failed", "no route", "urn:babel:email:send", 1)
    assert abs((found.failed_at or 0) - now_ms()) < 60_000


async def test_a_job_that_outlives_its_time_on_the_queue_is_a_dead_letter(
    one: RabbitBinding, native: NativeQueue, queue: str
) -> None:
    assert await one.publish(native, [Outgoing(envelope(queue, enqueue_ttl=0.2))]) == [None]
    found = describe_dead((await dead(one, native)).body)
    assert (found.reason, found.error, found.attempts) == ("failed", "message expired", 0)


async def test_a_higher_priority_is_sooner_where_the_queue_tells_them_apart(one: RabbitBinding, queue: str) -> None:
    native = one.native_queue(queue, {"profile": "ojs", "max_priority": 10})
    asked = [-10, 0, 10, 100]
    messages = [Outgoing(envelope(queue, priority=priority)) for priority in asked]
    assert await one.publish(native, messages) == [None] * 4
    found: list[Delivery] = []
    while len(found) < 4:
        found += await one.reserve(native, 4, 10, 30)
    assert [json.loads(each.body)["meta"]["ext"]["ojs"]["priority"] for each in found] == asked[::-1]


async def test_the_names_of_the_repository(one: RabbitBinding, queue: str, rabbit: RabbitServer) -> None:
    native = one.native_queue(queue, {"profile": "ojs", "naming": "spec"})
    await made(one, native)
    await asyncio.to_thread(push, rabbit, queue, job(queue), "ojs.exchange.direct")
    await tried_again(one, native, await reserved(one, native), delay=0.1)
    await buried(one, native, await reserved(one, native))
    assert len(await asyncio.to_thread(browse, rabbit.url(), f"ojs.queue.dlx.{queue}")) == 1
    with client(rabbit.url()) as channel:
        # Refused where the one that is there was declared otherwise.
        for exchange in ("ojs.exchange.direct", "ojs.exchange.dlx", "ojs.exchange.retry"):
            channel.exchange_declare(exchange, "direct", durable=True)
        routes = {"x-dead-letter-exchange": "ojs.exchange.dlx", "x-dead-letter-routing-key": queue}
        channel.queue_declare(f"ojs.queue.{queue}", durable=True, arguments=routes)


async def test_a_queue_of_a_peer_with_other_arguments_is_refused_unless_it_is_taken_as_it_is(
    one: RabbitBinding, native: NativeQueue, queue: str, rabbit: RabbitServer
) -> None:
    with client(rabbit.url()) as channel:
        channel.exchange_declare("ojs.direct", "direct", durable=True)
        channel.queue_declare(f"ojs.queue.{queue}", durable=True)
        channel.queue_bind(f"ojs.queue.{queue}", "ojs.direct", queue)
    with pytest.raises(BrokerRejected, match="x-dead-letter-exchange"):
        await one.publish(native, [Outgoing(envelope(queue))])
    as_it_is = one.native_queue(queue, {"profile": "ojs", "declare": "none"})
    assert await one.publish(as_it_is, [Outgoing(envelope(queue))]) == [None]
    await reserved(one, as_it_is)
