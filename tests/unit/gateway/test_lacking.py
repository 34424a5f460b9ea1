"""Brokers that lack an ability: what the gateway does instead, or how it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from babelgate.brokers.servicebus import properties
from babelgate.errors import BodyTooLarge, BrokerUnavailable, UnsupportedByBroker
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Policy
from tests.harness.memory import lacking
from tests.harness.setting import Setting
from tests.harness.world import JOB, data


def code(error: BaseException | None) -> str:
    assert isinstance(error, UnsupportedByBroker), error
    return error.problem_code


async def test_without_delays_any_delay_is_refused(queue: str) -> None:
    process = Setting(queue, lacking(max_delay_seconds=0, max_retry_delay_seconds=0)).process
    with pytest.raises(UnsupportedByBroker) as refusal:
        await process.publish(delay_seconds=1)
    assert (code(refusal.value), refusal.value.maximum) == ("delay_too_long", 0)
    await process.publish(delay_seconds=0)
    message = await process.one()
    with pytest.raises(UnsupportedByBroker) as refusal:
        await process.nack(message, delay=0.5)
    assert code(refusal.value) == "delay_too_long"
    assert await process.nack(message, delay=0) == [None]


async def test_without_headers_they_are_refused(queue: str) -> None:
    setting = Setting(queue, lacking(headers=False))
    entry: dict[str, Any] = {"envelope": {"job": JOB, "data": {}}, "headers": {"a": "1"}}
    with pytest.raises(UnsupportedByBroker) as refusal:
        await setting.process.publish_body(json.dumps(entry).encode())
    assert code(refusal.value) == "headers_unsupported"
    await setting.process.publish_body(json.dumps(entry | {"headers": {}}).encode())
    assert len(await setting.process.receive(10)) == 1


@pytest.mark.parametrize("ordering", ["fifo", "key"])
async def test_an_ordering_key_reaches_a_broker_that_keeps_order(queue: str, ordering: str) -> None:
    setting = Setting(queue, lacking(ordering=ordering))
    for body in ({"envelope": {"job": JOB, "data": {}}, "ordering_key": "a"}, {"job": JOB, "data": {}}):
        await setting.process.gateway.publish(ANYONE, queue, json.dumps(body).encode(), ordering_key="a")
    assert [sent.ordering_key for sent in setting.binding.ready(queue)] == ["a", "a"]


async def test_a_message_with_an_ordering_key_has_no_priority(queue: str) -> None:
    setting = Setting(queue, lacking(ordering="fifo", priorities=True))
    draft = {"job": JOB, "data": {}}
    given: list[dict[str, Any]] = [draft | {"priority": 0, "ordering_key": "a"}, draft | {"priority": 9}]
    refused, _ = await setting.process.gateway.publish_many(
        ANYONE, queue, [json.dumps(each).encode() for each in given]
    )
    assert isinstance(refused, UnsupportedByBroker) and "ordering_key" in str(refused)
    assert (code(refused), refused.pointer) == ("priority_unsupported", "/priority")
    assert [(sent.priority, sent.ordering_key) for sent in setting.binding.ready(queue)] == [(9, None)]
    ignoring = Setting(queue, lacking(ordering="none", priorities=True), policy=Policy(ordering_key="ignore"))
    await ignoring.process.publish_body(json.dumps(given[0]).encode())
    assert [(sent.priority, sent.ordering_key) for sent in ignoring.binding.ready(queue)] == [(0, None)]


@pytest.mark.parametrize("where", ["draft", "entry", "query", "batch"])
async def test_without_order_an_ordering_key_is_refused(queue: str, where: str) -> None:
    gateway = Setting(queue, lacking(ordering="none")).process.gateway
    draft: dict[str, Any] = {"job": JOB, "data": {}}
    body = {"envelope": draft, "ordering_key": "a"} if where == "entry" else draft | {"ordering_key": "a"}
    if where == "batch":
        (refused,) = await gateway.publish_many(ANYONE, queue, [json.dumps(body).encode()])
        assert isinstance(refused, UnsupportedByBroker)
    else:
        text = json.dumps(draft if where == "query" else body).encode()
        with pytest.raises(UnsupportedByBroker) as raised:
            await gateway.publish(ANYONE, queue, text, ordering_key="a" if where == "query" else None)
        refused = raised.value
    assert (code(refused), refused.pointer) == ("ordering_unsupported", "/ordering_key")
    await gateway.publish(ANYONE, queue, json.dumps(draft).encode())


async def test_without_order_a_route_may_ignore_the_key(queue: str) -> None:
    setting = Setting(queue, lacking(ordering="none"), policy=Policy(ordering_key="ignore"))
    body = json.dumps({"job": JOB, "data": {}, "ordering_key": "a"}).encode()
    await setting.process.gateway.publish(ANYONE, queue, body, ordering_key="a")
    assert [sent.ordering_key for sent in setting.binding.ready(queue)] == [None]


PROPERTIES = {"SessionId": "a", "TimeToLive": 60, "ScheduledEnqueueTimeUtc": "Tue, 24 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize("where", ["draft", "entry", "request", "batch"])
async def test_broker_properties_reach_a_broker_that_has_them(queue: str, where: str) -> None:
    setting = Setting(queue, lacking(broker_properties=properties.PROPERTIES))
    gateway, draft = setting.process.gateway, {"job": JOB, "data": {}}
    expected = {"SessionId": "a", "TimeToLive": 60.0, "ScheduledEnqueueTimeUtc": 1_795_514_400_000}
    body: dict[str, Any] = {"envelope": draft} if where == "entry" else dict(draft)
    if where == "batch":
        text = json.dumps(body | {"broker_properties": PROPERTIES}).encode()
        await gateway.publish_many(ANYONE, queue, [text, json.dumps(body).encode()])
    else:
        given = PROPERTIES if where == "request" else None
        text = json.dumps(body | ({} if given else {"broker_properties": PROPERTIES})).encode()
        await gateway.publish(ANYONE, queue, text, broker_properties=given)
        await gateway.publish(ANYONE, queue, json.dumps(body).encode())
    assert [sent.properties for sent in setting.binding.ready(queue)] == [expected, {}]
    with_properties, without = await setting.process.receive(2)
    assert with_properties.broker_properties == {**PROPERTIES, "DeliveryCount": 1}
    assert without.broker_properties == {}


@pytest.mark.parametrize(("name", "place"), [("To", "/To"), ("a/b", "/a~1b"), ("\ud800", ""), ("x" * 5000, "")])
async def test_broker_properties_of_a_queue_without_any_are_refused(queue: str, name: str, place: str) -> None:
    setting = Setting(queue, lacking())
    body = {"job": JOB, "data": {}, "broker_properties": {"SessionId": None, name: 5}}
    with pytest.raises(UnsupportedByBroker) as refusal:
        await setting.process.publish_body(json.dumps(body).encode())
    assert (code(refusal.value), refusal.value.pointer) == ("broker_property_unsupported", f"/broker_properties{place}")
    refusal.value.detail.encode()
    assert setting.binding.ready(queue) == []


async def test_a_short_maximum_of_leases_is_kept(queue: str) -> None:
    process = Setting(queue, lacking(max_lease_seconds=300)).process
    with pytest.raises(UnsupportedByBroker) as refusal:
        await process.receive(lease=301)
    assert code(refusal.value) == "lease_too_long"
    await process.publish()
    message = await process.one(lease=300)
    with pytest.raises(UnsupportedByBroker) as refusal:
        await process.extend(message, lease=301)
    assert code(refusal.value) == "lease_too_long"
    assert await process.ack(message) == [None]


async def test_a_body_beyond_the_broker_is_too_large(queue: str) -> None:
    process = Setting(queue, lacking(max_body_bytes=1000)).process
    with pytest.raises(BodyTooLarge) as refusal:
        await process.publish({"fill": "x" * 1000})
    assert refusal.value.limit == 1000
    await process.publish({"fill": "x" * 100})


@pytest.mark.parametrize(
    ("counting", "body_attempts", "failures", "expected"),
    [
        ("added", 2, 1, 3),
        ("zero_based", 2, 1, 2),
        ("zero_based", 0, 3, 3),
        ("one_based", 0, 0, 0),
        ("one_based", 0, 3, 3),
        ("one_based", 5, 3, 5),
        ("none", 2, 3, 2),
        ("added", -1, 2, 2),
    ],
)
async def test_counts_are_reconciled(
    queue: str, counting: str, body_attempts: int, failures: int, expected: int
) -> None:
    setting = Setting(queue, lacking(delivery_count=counting))
    await setting.process.publish()
    message = await setting.process.one()
    await setting.process.ack(message)
    body = message.body.replace(b'"attempts":0', b'"attempts":%d' % body_attempts)
    await setting.inject(body)
    for _ in range(failures):
        await setting.process.one(lease=1)
        setting.now += 1000
    again = await setting.process.one()
    assert again.attempts == expected
    assert again.redelivered is (expected > 0 or failures > 0)


@pytest.mark.parametrize("verb", ["peek", "purge", "dead", "redrive"])
async def test_what_a_broker_does_not_offer_is_refused_in_words(queue: str, verb: str) -> None:
    process = Setting(queue).process
    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "peek": lambda: process.gateway.peek(ANYONE, queue, 1),
        "purge": lambda: process.gateway.purge(ANYONE, queue),
        "dead": process.dead,
        "redrive": process.redrive,
    }
    with pytest.raises(UnsupportedByBroker) as refusal:
        await verbs[verb]()
    assert refusal.value.problem_code == "unsupported_by_broker"
    assert "'memory'" in refusal.value.detail


async def test_without_dead_letters_a_reject_is_refused_and_poison_is_never_handed_out(queue: str) -> None:
    setting = Setting(queue)
    await setting.process.publish({"n": 1})
    message = await setting.process.one()
    assert [code(error) for error in await setting.process.reject(message)] == ["unsupported_by_broker"]
    assert await setting.process.ack(message) == [None]
    await setting.inject(b"poison")
    assert await setting.process.receive() == []
    assert (await setting.process.stats()).in_flight == 1, "neither handed out nor dropped"


async def test_no_call_brings_more_than_the_broker_takes_at_once(queue: str) -> None:
    setting = Setting(queue, lacking(max_batch=10))
    process = setting.process
    await process.publish_all([{"n": n} for n in range(60)])
    # One more than a batch takes. Of more, those that would wait too long for a slow machine would be refused.
    for start in range(60, 85, 11):
        await asyncio.gather(*(process.publish({"n": n}) for n in range(start, min(start + 11, 85))))
    messages = [message for _ in range(9) for message in await process.receive(100)]
    assert [data(message)["n"] for message in messages] == list(range(85))

    def part(start: int) -> list[Message]:
        return messages[start : start + 25]

    assert await process.ack(*part(0)) == [None] * 25
    assert await process.extend(*part(25), lease=60) == [None] * 25
    assert await process.nack(*part(25)) == [None] * 25
    await asyncio.gather(*(process.ack(message) for message in part(50)))
    await process.gateway.give_back(queue, messages[75:])
    assert {verb: max(sizes) for verb, sizes in setting.binding.calls.items()} == {
        "publish": 10,
        "reserve": 10,
        "ack": 10,
        "extend": 10,
        "release": 10,
    }


async def test_a_broker_that_fails_may_be_asked_again(queue: str) -> None:
    setting = Setting(queue, lacking(max_batch=2))
    process = setting.process
    await process.publish_all([{"n": n} for n in range(2)])
    messages = await process.take(2)
    setting.binding.fail_after("ack", 0)
    assert [type(error) for error in await process.ack(*messages)] == [BrokerUnavailable] * 2
    setting.binding.faults.clear()
    assert await process.ack(*messages) == [None, None]


async def test_a_slice_of_a_long_settle_that_fails_fails_alone(queue: str) -> None:
    setting = Setting(queue, lacking(max_batch=2))
    process = setting.process
    await process.publish_all([{"n": n} for n in range(5)])
    messages = await process.take(5)
    setting.binding.fail_after("release", 1)
    assert [type(error) for error in await process.nack(*messages)] == [type(None)] * 2 + [BrokerUnavailable] * 3
    stats = await process.stats()
    assert (stats.depth, stats.in_flight) == (2, 3)
