"""Publishing: an accepted message is on the queue once and unchanged; a refused one is not on it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from babelgate.envelope import Limits
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    EnvelopeError,
    InvalidParameter,
    Overloaded,
    QueueNotFound,
    UnsupportedByBroker,
)
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Receipt
from babelgate.gateway.routing import Router, Rule
from tests.harness.world import JOB, KEYS, Process, World, data, draft, until

CANONICAL = (
    b'{"job":"urn:babel:test:made","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":%s,'
    b'"meta":{"id":"0b9c1f5e-6a1c-4c8e-9d67-0e6f7f0f1a2b","queue":"%s","lang":"php","schema_version":1,'
    b'"created_at":1700000000000,"ext":{"shop":{"region":"eu"}}},"attempts":0}'
)


def envelope_of(size: int, queue: str) -> bytes:
    """A canonical envelope of exactly ``size`` bytes."""
    empty = CANONICAL % (b'{"fill":""}', queue.encode())
    return CANONICAL % (b'{"fill":"%s"}' % (b"x" * (size - len(empty))), queue.encode())


class TestPublish:
    async def test_a_draft_makes_the_round_trip(self, world: World) -> None:
        process = await world.process()
        receipt = await process.publish({"order": 1, "items": [{"sku": "a", "count": 2}]})
        message = await process.one()
        envelope = json.loads(message.body)
        assert envelope["job"] == JOB
        assert envelope["data"] == {"order": 1, "items": [{"sku": "a", "count": 2}]}
        assert envelope["trace_id"] == receipt.trace_id
        assert envelope["meta"]["id"] == receipt.id
        assert envelope["meta"]["queue"] == receipt.queue == world.queue
        assert envelope["meta"]["created_at"] == receipt.created_at
        assert (envelope["attempts"], message.attempts, receipt.attempts) == (0, 0, 0)
        assert not message.redelivered
        assert message.headers == {}
        assert receipt.broker == world.broker.name

    @pytest.mark.parametrize(
        "payload",
        [
            b"{}",
            b'{"n":0}',
            '{"greeting":"Café — naïve ☕ 你好 😀","line":"\u2028"}'.encode(),
            b'{"text":"quote \\" slash / backslash \\\\ tab \\t null \\u0000"}',
            b'{"b":1,"a":1.10,"c":12345678901234567890123,"d":1e2,"e":-0.0}',
            b'{"twice":1,"twice":2}',
            b'{"deep":[[[[[[{"x":[]}]]]]]],"none":null,"yes":true}',
        ],
        ids=["empty", "small", "unicode", "escapes", "numbers", "a repeated key", "nesting"],
    )
    async def test_a_canonical_envelope_arrives_byte_for_byte(self, world: World, payload: bytes) -> None:
        process = await world.process()
        body = CANONICAL % (payload, world.queue.encode())
        await process.publish_body(body)
        assert (await process.one()).body == body

    @pytest.mark.parametrize("name", ["job", "trace_id"])
    async def test_a_value_beyond_a_native_property_is_refused_and_never_dropped(self, world: World, name: str) -> None:
        process = await world.process()
        longest = process.capabilities.max_property_bytes
        fits, long = ("urn:babel:test:" + "é" * ((size - 15) // 2) for size in (longest or 255, 300))
        for value in (fits, long):
            body = json.dumps({"job": JOB, "data": {}, name: value}).encode()
            if longest is None or len(value.encode()) <= longest:
                await process.publish_body(body)
                assert json.loads((await process.one()).body)[name] == value
                continue
            with pytest.raises(UnsupportedByBroker) as refusal:
                await process.publish_body(body)
            assert (refusal.value.problem_code, refusal.value.pointer) == (f"{name}_too_long", f"/{name}")
            assert refusal.value.maximum == longest
            assert await process.ready(1) == []

    @pytest.mark.parametrize("name", ["job", "trace_id"])
    async def test_a_foreign_value_beyond_a_native_property_is_kept(self, world: World, name: str) -> None:
        process = await world.process()
        long = "urn:babel:test:" + "é" * 150
        envelope = json.loads(CANONICAL % (b"{}", world.queue.encode()))
        await world.broker.inject(world.queue, json.dumps(envelope | {name: long}).encode())
        await process.nack(await process.one())
        await process.reject(await process.one())
        assert (await process.redrive()).redriven == 1
        assert json.loads((await process.one()).body)[name] == long

    async def test_a_body_of_the_maximum_size_arrives_and_one_byte_more_is_refused(self, world: World) -> None:
        process = await world.process()
        maximum = Limits().max_message_bytes
        if process.capabilities.max_body_bytes is not None:
            maximum = min(maximum, process.capabilities.max_body_bytes)
        largest = envelope_of(maximum, world.queue)
        assert len(largest) == maximum
        await process.publish_body(largest)
        message = await process.one()
        assert message.body == largest
        await process.ack(message)
        with pytest.raises(BodyTooLarge) as refusal:
            await process.publish_body(envelope_of(maximum + 1, world.queue))
        assert (refusal.value.actual, refusal.value.limit) == (maximum + 1, maximum)
        assert await process.is_empty()

    async def test_headers_that_the_broker_refuses_harm_no_other_message(self, world: World) -> None:
        if world.broker.header_options is None:
            pytest.skip("this broker has no native headers")
        process = await world.process(queue_options=world.broker.header_options)
        await process.publish({"n": -1})
        held = await process.one(600)
        for size in (1_000, 40_000, 70_000, 140_000, 300_000, 600_000):
            entry = json.dumps({"envelope": json.loads(draft({"n": size})), "headers": {"note": "x" * size}})
            large = asyncio.create_task(process.publish_body(entry.encode()))
            await asyncio.gather(*(process.publish({"n": n}) for n in range(10)))
            try:
                await large
            except BabelgateError as error:
                assert not error.retryable, f"{size} bytes: {error}"
            messages = await process.take(10)
            await process.ack(*messages)
        assert await process.ack(held) == [None]

    async def test_a_refused_body_leaves_nothing(self, world: World) -> None:
        process = await world.process()
        with pytest.raises(EnvelopeError) as refusal:
            await process.publish_body(b'{"job":" ","data":{}}')
        assert refusal.value.problem_code == "missing_urn"
        assert await process.is_empty()

    async def test_the_dry_run_shows_what_publishing_writes(self, world: World) -> None:
        process = await world.process()
        body = CANONICAL % (b'{"n":1}', world.queue.encode())
        spaced = json.dumps(json.loads(body), indent=1).encode()
        projection = await process.gateway.validate(ANYONE, world.queue, spaced)
        assert projection.body == body
        assert await process.is_empty(), "it published"
        await process.publish_body(spaced)
        assert (await process.one()).body == projection.body

    async def test_headers_travel_beside_the_body(self, world: World) -> None:
        if world.broker.header_options is None:
            pytest.skip("no route of this broker carries headers")
        process = await world.process(queue_options=world.broker.header_options)
        headers = {
            "traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01",
            "tracestate": "vendor=1,other=2",
            "Shop-Region": 'EU; quoted="yes", ümlaut ☕',
        }
        envelope = {"job": JOB, "data": {"n": 1}}
        await process.publish_body(json.dumps({"envelope": envelope, "headers": headers}).encode())
        message = await process.one()
        assert message.headers == headers
        assert not any(value in message.body.decode() for value in headers.values())
        await process.nack(message)
        again = await process.one()
        assert again.headers == headers
        await process.reject(again)
        (letter,) = await process.dead()
        assert letter.headers == headers
        await process.redrive()
        assert (await process.one()).headers == headers

    async def test_the_options_of_a_draft_are_those_of_an_entry(self, world: World) -> None:
        process = await world.process()
        options = {"delay_seconds": 0.3, "ordering_key": "a"}
        if process.capabilities.ordering == "none":
            del options["ordering_key"]
        loop = asyncio.get_running_loop()
        started = loop.time()
        await process.publish_body(json.dumps({"job": JOB, "data": {"n": 1}, **options}).encode())
        message = await process.one()
        assert loop.time() - started >= 0.29, "the delay is an option, too"
        assert (data(message), list(json.loads(message.body))) == (
            {"n": 1},
            ["job", "trace_id", "data", "meta", "attempts"],
        )

    @pytest.mark.parametrize("option", [("delay_seconds", 1.0, 2), ("ordering_key", "a", "b")])
    async def test_a_request_that_contradicts_its_body_is_refused(
        self, world: World, option: tuple[str, Any, Any]
    ) -> None:
        process = await world.process()
        name, value, other = option
        for body in ({"job": JOB, "data": {}, name: other}, {"envelope": {"job": JOB, "data": {}}, name: other}):
            with pytest.raises(EnvelopeError) as refusal:
                await process.gateway.publish(ANYONE, world.queue, json.dumps(body).encode(), **{name: value})
            (problem,) = refusal.value.problems
            assert (problem.code, problem.pointer) == (f"{name}_mismatch", f"/{name}")
        assert await process.is_empty()
        if name != "ordering_key" or process.capabilities.ordering != "none":
            same = {"job": JOB, "data": {"n": 1}, name: value}
            await process.gateway.publish(ANYONE, world.queue, json.dumps(same).encode(), **{name: value})
            assert data(await process.one()) == {"n": 1}

    async def test_headers_that_the_route_cannot_carry_are_refused(self, world: World) -> None:
        process = await world.process()
        if process.capabilities.headers:
            pytest.skip("an ordinary route of this broker carries headers")
        with pytest.raises(UnsupportedByBroker) as refusal:
            await process.publish_body(
                json.dumps({"envelope": {"job": JOB, "data": {}}, "headers": {"a": "1"}}).encode()
            )
        assert (refusal.value.problem_code, refusal.value.pointer) == ("headers_unsupported", "/headers")
        assert await process.is_empty()

    @pytest.mark.parametrize("name", ["SessionId", "TimeToLive", "priority"])
    async def test_a_broker_property_of_a_queue_without_any_is_refused(self, world: World, name: str) -> None:
        process = await world.process()
        if process.capabilities.broker_properties:
            pytest.skip("this broker has some")
        draft, given = {"job": JOB, "data": {}}, {"broker_properties": {"none": None, name: 60}}
        for body in (draft | given, {"envelope": draft} | given):
            with pytest.raises(UnsupportedByBroker) as refusal:
                await process.publish_body(json.dumps(body).encode())
            assert refusal.value.problem_code == "broker_property_unsupported"
            assert refusal.value.pointer == f"/broker_properties/{name}"
            assert name in refusal.value.detail and world.broker.name in refusal.value.detail
        assert await process.is_empty()

    async def test_a_batch_keeps_its_order(self, world: World) -> None:
        process = await world.process()
        receipts = await process.publish_all([{"n": n} for n in range(50)])
        messages = await process.take(50)
        found = {data(message)["n"]: json.loads(message.body)["meta"]["id"] for message in messages}
        assert process.in_order(found) == list(range(50))
        assert [found[n] for n in range(50)] == [each.id for each in receipts]

    async def test_a_batch_larger_than_the_broker_takes_at_once(self, world: World) -> None:
        process = await world.process()
        size = process.capabilities.max_batch + 1
        await process.publish_all([{"n": n} for n in range(size)])
        # A slow server hands out so many for longer than an ordinary lease.
        messages = await process.take(size, 600)
        assert process.in_order(data(message)["n"] for message in messages) == list(range(size))

    async def test_a_bad_entry_of_a_batch_fails_alone(self, world: World) -> None:
        process = await world.process()
        bodies = [draft({"n": 0}), b"not json", draft({"n": 2}), draft([3]), draft({"n": 4})]
        results = await process.gateway.publish_many(ANYONE, world.queue, bodies)
        assert [isinstance(result, Receipt) for result in results] == [True, False, True, False, True]
        codes = [result.problem_code for result in results if isinstance(result, BabelgateError)]
        assert codes == ["invalid_json", "invalid_data"]
        assert process.in_order(data(message)["n"] for message in await process.take(3)) == [0, 2, 4]
        assert await process.ready(1) == []

    async def test_concurrent_publishes_all_arrive_once(self, world: World) -> None:
        process = await world.process()

        async def publish(n: int) -> Receipt:
            while True:
                try:
                    return await process.publish({"n": n})
                except Overloaded:
                    # On a busy machine the queue's line is full; nothing was written.
                    await asyncio.sleep(0.05)

        receipts = await asyncio.gather(*map(publish, range(300)))
        messages = await process.take(300)
        assert sorted(data(message)["n"] for message in messages) == list(range(300))
        assert len({receipt.id for receipt in receipts}) == 300
        assert await process.ready(1) == []

    async def test_a_delay_that_is_none_is_refused(self, world: World) -> None:
        process = await world.process()
        for delay in (-1, float("nan"), float("inf")):
            with pytest.raises(InvalidParameter):
                await process.publish(delay_seconds=delay)
        assert await process.is_empty()

    async def test_a_delay_beyond_the_broker_is_refused_with_its_maximum(self, world: World) -> None:
        process = await world.process()
        maximum = process.capabilities.max_delay_seconds
        if maximum is None:
            pytest.skip("this broker delays without bound")
        with pytest.raises(UnsupportedByBroker) as refusal:
            await process.publish(delay_seconds=maximum + 1)
        assert (refusal.value.problem_code, refusal.value.maximum) == ("delay_too_long", maximum)
        await process.publish(delay_seconds=maximum)
        assert world.broker.tells(await process.stats(), depth=0, delayed=1)

    async def test_what_is_accepted_is_reported_though_its_caller_is_gone(self, world: World) -> None:
        process = await world.process()
        publishing = asyncio.create_task(process.publish({"n": 1}))
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert [data(message)["n"] for message in await process.take(1)] == [1]

        async def reported() -> bool:
            return sum(event.count for event in process.events if event.kind == "accepted") == 1

        # A consumer may have it before the broker confirms.
        await until(reported)

    async def test_an_unknown_queue(self, world: World) -> None:
        binding = world.broker.connect()
        gateway = Gateway({binding.name: binding}, Router([Rule("orders.*", binding)]), TokenSealer(KEYS))
        process = Process(world.queue, lambda _: gateway)
        for verb in (process.publish, process.receive, process.stats, process.dead):
            with pytest.raises(QueueNotFound):
                await verb()
