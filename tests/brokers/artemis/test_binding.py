"""What is special to Artemis: its limits, credit, typed properties, and what the broker does by itself."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from proton import Message, byte, char, decimal64, float32, short, symbol, timestamp, uint, ulong

from babelgate.brokers.artemis.binding import ArtemisBinding
from babelgate.brokers.binding import Delivery, DeliveryLimit, Outgoing
from babelgate.errors import BrokerRejected, BrokerUnavailable, StorageFull
from babelgate.gateway.routing import Policy
from tests.brokers.artemis.harness import ArtemisBroker, binding, browse, count, send
from tests.brokers.artemis.server import ArtemisServer
from tests.harness.world import World, until
from tests.suites.publish import envelope_of

pytestmark = pytest.mark.artemis
BODY = b'{"job":"a","data":{}}'


async def test_what_comes_next_is_nobodys_before_it_is_asked_for(
    one: ArtemisBinding, other: ArtemisBinding, queue: str
) -> None:
    """No credit is left behind by a wait that has ended, nor by a poll."""
    native = one.native_queue(queue, {})
    assert await one.reserve(native, 100, 0.05, 30) == []
    assert await one.reserve(native, 100, 0, 30) == []
    await other.publish(native, [Outgoing(BODY)] * 3)
    assert len(await other.reserve(native, 100, 0, 30)) == 3


async def test_each_delivery_is_settled_by_itself(one: ArtemisBinding, other: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(b"%d" % number) for number in range(5)])
    taken = await one.reserve(native, 5, 10, 30)
    assert await one.ack(native, [taken[3].handle, taken[1].handle]) == [None, None]
    await one.close()
    rest = list(await other.reserve(native, 5, 10, 30))
    while len(rest) < 3:
        # They come back one by one, so that the first receive may not find all.
        rest += await other.reserve(native, 5, 10, 30)
    assert [each.body for each in rest] == [b"0", b"2", b"4"]
    assert [each.delivery_count for each in rest] == [0, 0, 0], "a connection that ends is no failure"


async def test_only_a_failed_delivery_is_counted(one: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(BODY)])
    for failed, counted in ((False, 0), (True, 0), (False, 1), (True, 1), (False, 2)):
        (delivery,) = await one.reserve(native, 1, 10, 30)
        assert (delivery.delivery_count, delivery.redelivered) == (counted, counted > 0)
        assert await one.release(native, [delivery.handle], 0, failed) == [None]


async def test_the_brokers_own_limit_is_reported_and_kept(one: ArtemisBinding, artemis: ArtemisServer) -> None:
    native = one.native_queue(f"limited.{uuid.uuid4().hex}", {})
    assert await one.delivery_limit(native) == DeliveryLimit(2, "DLQ")
    await one.publish(native, [Outgoing(BODY)])
    for _ in range(2):
        (delivery,) = await one.reserve(native, 1, 10, 30)
        await one.release(native, [delivery.handle], 0, failed=True)
    assert await one.reserve(native, 1, 0, 30) == []
    moved: Any = await asyncio.to_thread(browse, artemis.port, "DLQ")
    assert native.name in [(each.annotations or {}).get(symbol("x-opt-ORIG-QUEUE")) for each in moved]


async def test_a_missing_queue_that_nobody_may_create_is_an_error(one: ArtemisBinding) -> None:
    native = one.native_queue(f"closed.{uuid.uuid4().hex}", {})
    for call in (one.publish(native, [Outgoing(BODY)]), one.reserve(native, 1, 0, 30)):
        with pytest.raises(BrokerRejected, match="auto-create-queues"):
            await call


async def test_a_queue_is_anycast_whatever_the_default_is(one: ArtemisBinding) -> None:
    native = one.native_queue(f"multicast.{uuid.uuid4().hex}", {})
    assert await one.publish(native, [Outgoing(BODY)]) == [None]
    assert len(await one.reserve(native, 1, 0, 30)) == 1


async def test_an_address_that_is_full_rejects_single_messages(one: ArtemisBinding) -> None:
    native = one.native_queue(f"full.{uuid.uuid4().hex}", {})
    outcomes = await one.publish(native, [Outgoing(b"x" * 4000) for _ in range(10)])
    assert outcomes[0] is None
    assert isinstance(outcomes[-1], StorageFull)
    taken = await one.reserve(native, 100, 10, 30)
    assert len(taken) == list(outcomes).count(None)
    assert await one.release(native, [taken[0].handle], 0, failed=True) == [None]
    taken = [*taken[1:], *await one.reserve(native, 1, 10, 30)]
    assert await one.ack(native, [each.handle for each in taken]) == [None] * len(taken)

    async def has_room() -> bool:
        return await one.publish(native, [Outgoing(b"after")]) == [None]

    await until(has_room)


async def test_without_credit_nothing_is_sent(artemis: ArtemisServer) -> None:
    async with binding(artemis.url(), {"timeout_seconds": 6}) as one:
        native = one.native_queue(f"blocked.{uuid.uuid4().hex}", {})
        outcome: Any = None
        while outcome is None:
            (outcome,) = await one.publish(native, [Outgoing(b"x" * 4000)])
        assert isinstance(outcome, BrokerUnavailable)
        assert "no credit" in outcome.reason


TYPED = {
    "text": "ü",
    "bytes": b"\xff\x00",
    "utf8": b"abc",
    "bool": True,
    "byte": byte(-3),
    "short": short(-300),
    "uint": uint(7),
    "ulong": ulong(2**64 - 1),
    "float": float32(0.25),
    "double": 0.5,
    "char": char("ä"),
    "decimal": decimal64(5),
    "time": timestamp(1_700_000_000_000),
    "uuid": uuid.UUID(int=5),
    "symbol": symbol("word"),
    "null": None,
    "map": {"a": [1, {"b": b"\x01"}]},
}
SHOWN = {
    "text": "ü",
    "bytes": "/wA=",
    "utf8": "abc",
    "bool": "true",
    "byte": "-3",
    "short": "-300",
    "uint": "7",
    "ulong": "18446744073709551615",
    "float": "0.25",
    "double": "0.5",
    "char": "ä",
    "decimal": "\0\0\0\0\0\0\0\5",
    "time": "1700000000000",
    "uuid": "00000000-0000-0000-0000-000000000005",
    "symbol": "word",
    "map": '{"a":[1,{"b":"\\u0001"}]}',
}


async def test_typed_properties_are_texts_and_stay_what_they_are(
    one: ArtemisBinding, artemis: ArtemisServer, queue: str
) -> None:
    native = one.native_queue(queue, {})
    properties: Any = TYPED
    sent = Message(
        body=BODY.decode(), properties=properties, reply_to="answers", subject="s", priority=7, durable=True, id="m"
    )
    await asyncio.to_thread(send, artemis.port, queue, sent)
    (delivery,) = await one.reserve(native, 1, 10, 30)
    assert delivery.headers == SHOWN
    retry = Outgoing(BODY, dict(delivery.headers) | {"bool": "false"}, carried=delivery.carried)
    assert await one.publish(native, [retry]) == [None]
    assert await one.publish_dead_letters(native, [retry]) == [None]
    assert await one.ack(native, [delivery.handle]) == [None]
    for name in (queue, f"{queue}.dlq"):
        found: Any
        (found,) = await asyncio.to_thread(browse, artemis.port, name)
        kept = {key: value for key, value in found.properties.items() if not key.startswith("bq_")}
        assert kept == TYPED | {"bool": "false"}
        # proton shows the types by classes, which compare by value.
        for key, value in (TYPED | {"bool": "false"}).items():
            assert type(kept[key]) is (memoryview if isinstance(value, bytes) else type(value)), key
        assert (found.reply_to, found.subject, found.priority, found.durable) == ("answers", "s", 7, True)


async def test_a_copy_is_no_duplicate(one: ArtemisBinding, artemis: ArtemisServer, queue: str) -> None:
    native = one.native_queue(queue, {})
    sent = Message(body=BODY.decode(), properties={"_AMQ_DUPL_ID": queue}, durable=True)
    await asyncio.to_thread(send, artemis.port, queue, sent)
    (delivery,) = await one.reserve(native, 1, 10, 30)
    assert await one.publish(native, [Outgoing(BODY, delivery.headers, carried=delivery.carried)]) == [None]
    assert len(await one.reserve(native, 1, 10, 30)) == 1


async def test_a_purge_takes_delayed_messages_and_no_leased_one(one: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(BODY)])
    (leased,) = await one.reserve(native, 1, 10, 30)
    await one.publish(native, [Outgoing(BODY), Outgoing(BODY, delay_seconds=600)])
    assert await one.purge(native) == 2
    assert await one.ack(native, [leased.handle]) == [None]


async def test_large_bodies(one: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    bodies = [b"x" * 3_000_000, b"\xff" * 200_000]
    assert await one.publish(native, [Outgoing(body, is_envelope=False) for body in bodies]) == [None, None]
    found: list[bytes] = []

    async def have_come() -> bool:
        found.extend(each.body for each in await one.reserve(native, 10, 1, 30))
        return len(found) == 2

    await until(have_come)
    assert found == bodies


@pytest.mark.parametrize("size", [60_000, 90_000, 101_000, 103_000, 200_000, 1_048_000])
async def test_attempts_count_at_any_size(artemis: ArtemisServer, queue: str, size: int) -> None:
    """Artemis does not count those of messages that it takes for large ones."""
    world = World(ArtemisBroker(artemis), queue)
    process = await world.process(policy=Policy(max_attempts=5))
    await process.publish_body(envelope_of(size, queue))
    assert await process.nack(await process.one()) == [None]
    leased = await process.one(0.3)
    assert (leased.attempts, leased.redelivered) == (1, True)
    again = await process.one()
    assert (again.attempts, again.redelivered) == (2, True)

    async def is_alone() -> bool:
        return await asyncio.to_thread(count, artemis.port, queue) == 1

    # The original of a copy goes after the copy has come.
    await until(is_alone)
    (bound,) = process.gateway.bindings.values()
    assert isinstance(bound, ArtemisBinding)
    connection = await bound._client.connected()
    connection.abort("killed")
    after = await process.one()
    # The broker itself counts a connection that was lost, where it counts.
    assert after.attempts in (2, 3)
    attempts = after.attempts
    while attempts < 4:
        assert await process.nack(after) == [None]
        attempts += 1
        after = await process.one()
        assert after.attempts == attempts
    assert await process.nack(after, error="no") == [None]
    (letter,) = await process.dead()
    assert (letter.reason, letter.attempts, letter.error) == ("failed", 5, "no")
    assert await process.is_empty()
    await world.close()


async def test_large_messages_are_taken_whole_and_all(one: ArtemisBinding, queue: str) -> None:
    """Artemis sends large ones in parts, and ends many a drain between two parts."""
    native = one.native_queue(queue, {})
    bodies = [b"%d" % number + b"x" * 1_000_000 for number in range(8)]
    for _ in range(40):
        assert await one.publish(native, [Outgoing(body, is_envelope=False) for body in bodies]) == [None] * 8
        taken: list[Delivery] = []
        while len(taken) < 8:
            found = await one.reserve(native, 5, 10, 30)
            assert 1 <= len(found) <= 5
            taken += found
        assert [each.body for each in taken] == bodies
        assert await one.ack(native, [each.handle for each in taken]) == [None] * 8
        assert await one.reserve(native, 5, 0, 30) == []


async def test_large_messages_are_listed_and_purged_all(one: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    for _ in range(5):
        await one.publish(native, [Outgoing(b"x" * 200_000, is_envelope=False)] * 20)
        assert len(await one.peek(native, 30)) == 20
        assert await one.purge(native) == 20


async def test_full_pages_are_followed_by_all_the_rest(one: ArtemisBinding, queue: str) -> None:
    """A drain whose credit was used up does not end the next one."""
    native = one.native_queue(queue, {})
    for _ in range(20):
        await one.publish(native, [Outgoing(b"%d" % number) for number in range(300)])
        assert len(await one.peek(native, 400)) == 300
        taken = [each for _ in range(6) for each in await one.reserve(native, 50, 0, 30)]
        assert [int(each.body) for each in taken] == list(range(300))
        assert await one.ack(native, [each.handle for each in taken]) == [None] * 300


async def test_pages_of_dead_letters_skip_none(one: ArtemisBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    for _ in range(3):
        await one.publish_dead_letters(native, [Outgoing(b"%d" % number) for number in range(400)])
    for _ in range(10):
        cursor, found = None, 0
        while found == 0 or cursor is not None:
            page, cursor = await one.read_dead(native, cursor, 100)
            found += len(page)
        assert found == 1200


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"addressFullMessagePolicy": "DROP", "maxSizeBytes": 20_000_000}, "confirms them (address-full-policy DROP)"),
        ({"pageFullMessagePolicy": "DROP", "pageLimitBytes": 10_000}, "confirms them (page-full-policy DROP)"),
        ({"defaultRingSize": 10}, "drops its oldest messages beyond 10 (ring-size)"),
        ({"defaultLastValueQueue": True}, "keeps only the last message of each last-value key"),
        ({"defaultPurgeOnNoConsumers": True}, "drops its messages when no consumer is connected"),
        ({"expiryDelay": 60_000}, "moves to Expired messages that are older than 60 s (expiry-delay)"),
        ({"expiryDelay": 60_000, "expiryAddress": ""}, "drops messages that are older than 60 s (expiry-delay)"),
        ({"maxExpiryDelay": 90_000}, "messages that are older than 90 s (max-expiry-delay)"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".dlq"])
async def test_settings_that_lose_messages_are_warned_of(
    one: ArtemisBinding, queue: str, suffix: str, settings: Mapping[str, object], text: str
) -> None:
    """Before the queue is created, and of the queue itself."""
    native, address = one.native_queue(queue, {}), queue + suffix
    assert await one.queue_warnings(native, 60) == []
    arguments = json.dumps([address, json.dumps(settings)])
    made = await one._management._call("broker", arguments, writes=True, _AMQ_OperationName="addAddressSettings")
    assert made is not None and made[0], made
    (before,) = await one.queue_warnings(native, 60)
    assert address in before and text in before
    await (one.publish_dead_letters if suffix else one.publish)(native, [Outgoing(BODY)])
    assert list(await one.queue_warnings(native, 60)) == [before]
