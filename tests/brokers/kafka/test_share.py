"""Share groups: locks of the broker, its count of deliveries, and members that each serve one load at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.brokers.binding import Delivery, NativeQueue, Outgoing
from app.brokers.kafka.binding import KafkaBinding
from app.brokers.kafka.share_group import PREVIEW
from app.errors import BrokerRejected, BrokerUnavailable, ConfigError, LeaseLost, UnsupportedByBroker
from tests.brokers.kafka.harness import STANDARD, binding, create, read, set_share, write
from tests.brokers.kafka.server import KafkaServer
from tests.harness.gateway import gateway
from tests.harness.world import JOB, LIMIT_SECONDS, kinds, until

pytestmark = pytest.mark.kafka

SHARE = {**STANDARD, "consume": "share"}


@pytest.fixture(autouse=True)
def lock(server: KafkaServer) -> None:
    """The lock of the broker as it is by default."""
    set_share(server.port, "share.record.lock.duration.ms", "30000")


def letters(*numbers: int) -> list[Outgoing]:
    return [Outgoing(b'{"n":%d}' % number, dedup_id="i") for number in numbers]


def bodies(found: Sequence[Delivery]) -> list[bytes]:
    return sorted(each.body for each in found)


def numbers(messages: Sequence[Any]) -> list[int]:
    return sorted(each["envelope"]["data"]["n"] for each in messages)


async def take(process: KafkaBinding, queue: NativeQueue, count: int, seconds: float = LIMIT_SECONDS) -> list[Delivery]:
    """So many deliveries, or fewer if no more come within ``seconds``."""
    found: list[Delivery] = []
    limit = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < limit:
        with contextlib.suppress(BrokerUnavailable):
            found += await process.reserve(queue, count - len(found), 1, 20)
    return found


async def test_acks_in_any_order_and_what_is_released_comes_again(
    one: KafkaBinding, other: KafkaBinding, queue: str
) -> None:
    native = one.native_queue(queue, SHARE)
    await one.publish(native, letters(*range(6)))
    held = sorted(await take(one, native, 6), key=lambda each: each.body)
    assert [each.redelivered for each in held] == [False] * 6
    handles = [each.handle for each in held]
    assert await one.ack(native, [handles[4], handles[1]]) == [None] * 2
    assert await one.release(native, [handles[3]], 0, False) == [None]
    assert one.outstanding(native, handles) == [True, False, True, False, False, True]
    assert await one.ack(native, [handles[1]]) == [None], "a repeated ack is done"
    assert kinds(await one.ack(native, [handles[3]])) == [LeaseLost]
    (again,) = await take(other, native, 1)
    assert (again.body, again.redelivered) == (b'{"n":3}', True)
    await one.close()
    rest = await take(other, native, 3)
    assert bodies(rest) == [b'{"n":0}', b'{"n":2}', b'{"n":5}'], "what was not settled"
    assert await other.ack(native, [each.handle for each in [again, *rest]]) == [None] * 4


async def test_a_slow_lease_stops_nobody(one: KafkaBinding, queue: str) -> None:
    """Each member serves one load, so that a receive takes another member while a lease is out."""
    native = one.native_queue(queue, SHARE)
    held = []
    for number in range(5):
        await one.publish(native, letters(number))
        held += await take(one, native, 1, 10)
    assert bodies(held) == [b'{"n":%d}' % number for number in range(5)]
    assert set(await one.ack(native, [each.handle for each in held])) == {None}


async def test_a_message_given_back_twenty_times_is_still_there(
    one: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """The broker drops a record after five deliveries. Before that it is written anew, byte for byte."""
    native = one.native_queue(queue, SHARE)
    headers = [("a", b"\xff"), ("a", None), ("bq-attempts", b"2")]
    create(server.port, queue)
    await asyncio.to_thread(write, server.port, queue, {"value": b"foreign", "key": b"\x00k", "headers": headers})
    for _ in range(20):
        (message,) = await take(one, native, 1)
        assert (message.body, message.declared_attempts) == (b"foreign", 2)
        assert await one.release(native, [message.handle], 0, False) == [None]
    (message,) = await take(one, native, 1)
    assert await one.ack(native, [message.handle]) == [None]
    records = await asyncio.to_thread(read, server.port, queue)
    assert 5 <= len(records) <= 8
    assert {(each.key(), each.value(), tuple(each.headers() or ())) for each in records} == {
        (b"\x00k", b"foreign", tuple(headers))
    }
    assert await take(one, native, 1, 1) == []


async def test_two_processes_share_one_partition(one: KafkaBinding, other: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, SHARE)
    found: dict[KafkaBinding, list[bytes]] = {one: [], other: []}
    await one.publish(native, letters(-1))
    (first,) = await take(one, native, 1)
    await one.ack(native, [first.handle])

    async def consume(process: KafkaBinding) -> None:
        while sum(map(len, found.values())) < 60:
            for each in await take(process, native, 1, 0.5):
                await asyncio.sleep(0.01)
                assert await process.ack(native, [each.handle]) == [None]
                found[process].append(each.body)

    consuming = asyncio.gather(*map(consume, found))
    await asyncio.sleep(1)
    for number in range(60):
        await one.publish(native, letters(number))
    await consuming
    assert sorted(found[one] + found[other]) == sorted(b'{"n":%d}' % number for number in range(60))
    assert all(found.values()), "both have some"


async def test_what_nobody_asks_for_is_released(one: KafkaBinding, other: KafkaBinding, queue: str) -> None:
    """The broker locks a whole batch of a producer. What one process does not hand out goes to the other."""
    native = one.native_queue(queue, SHARE)
    await one.publish(native, letters(*range(10)))
    (held,) = await take(one, native, 1)
    rest = await take(other, native, 9, 15)
    assert bodies([held, *rest]) == [b'{"n":%d}' % number for number in range(10)]
    assert await one.ack(native, [held.handle]) == [None], "its lease goes on"
    assert set(await other.ack(native, [each.handle for each in rest])) == {None}


async def test_a_receive_without_a_wait_tells_empty_from_unknown(one: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, SHARE)

    async def at_once() -> list[Delivery] | None:
        """None where it is unknown, as before the group has answered, or on a busy machine."""
        try:
            return list(await one.reserve(native, 1, 0, 20))
        except BrokerUnavailable:
            return None

    await until(lambda: _is(at_once, 0))
    await one.publish(native, letters(1))
    # An answer that the queue is empty would be wrong now.
    while (found := await at_once()) is None:
        pass
    assert len(found) == 1


async def test_a_receive_that_waits_tells_empty_from_unknown(
    one: KafkaBinding, other: KafkaBinding, queue: str
) -> None:
    """Its wait is over before a member of its process has joined."""
    native = one.native_queue(queue, SHARE)
    await one.publish(native, letters(1))
    assert bodies(await other.reserve(native, 1, 0.01, 20)) == [b'{"n":1}']


async def _is(at_once: Callable[[], Awaitable[list[Delivery] | None]], count: int) -> bool:
    found = await at_once()
    return found is not None and len(found) == count


async def test_a_purge_takes_what_is_ready(one: KafkaBinding, queue: str) -> None:
    """A leased one can still be settled."""
    native = one.native_queue(queue, SHARE)
    await one.publish(native, letters(*range(10)))
    (held,) = await take(one, native, 1)
    assert await one.purge(native) == 9
    assert await take(one, native, 1, 6) == []
    assert await one.ack(native, [held.handle]) == [None]
    await one.publish(native, letters(11))
    assert bodies(await take(one, native, 1)) == [b'{"n":11}']


async def test_a_batch_that_nobody_can_finish_is_neither_lost_nor_copied_for_ever(
    one: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """One slow consumer, and a batch that it takes one by one. What a load has beyond its lease is released, and
    written anew in small batches at last."""
    native = one.native_queue(queue, SHARE)
    await one.publish(native, letters(*range(40)))
    seen = []
    for number in range(40):
        (message,) = await take(one, native, 1)
        if number < 4:
            await asyncio.sleep(4.5)
        assert await one.ack(native, [message.handle]) == [None]
        seen.append(message.body)
    assert sorted(seen) == sorted(b'{"n":%d}' % number for number in range(40))
    assert len(await asyncio.to_thread(read, server.port, queue)) <= 80


@pytest.mark.slow
async def test_a_lease_ends_with_the_lock_of_the_broker(server: KafkaServer, queue: str) -> None:
    """As of a process that stands still: another one gets the message, and the late ack is refused."""
    set_share(server.port, "share.record.lock.duration.ms", "15000")
    options = {"share_lock_seconds": 15}
    async with binding(server.url(), options) as one, binding(server.url(), options) as other:
        native = one.native_queue(queue, SHARE)
        assert one.capabilities(native).max_lease_seconds == 5
        await one.publish(native, letters(0, 1))
        held = await take(one, native, 2)
        assert await one.ack(native, [held[0].handle]) == [None]
        (again,) = await take(other, native, 1)
        assert (again.body, again.redelivered) == (held[1].body, True)
        assert one.outstanding(native, [held[1].handle]) == [False]
        assert kinds(await one.ack(native, [held[1].handle])) == [LeaseLost]
        assert await other.ack(native, [again.handle]) == [None]
        # The member can be used again.
        await one.publish(native, letters(2))
        assert bodies(await take(one, native, 1)) == [b'{"n":2}']


@pytest.mark.slow
def test_the_messages_of_a_killed_process_come_again(server: KafkaServer, queue: str, tmp_path: Path) -> None:
    broker = {"url": server.url(), "timeout_seconds": 30}
    config: dict[str, Any] = {
        "brokers": {"main": broker},
        "default": {"broker": "main", "lease_seconds": 20, **SHARE},
    }
    for name in ("one", "other"):
        (tmp_path / name).mkdir()

    def receive(client: Any, count: int) -> list[Any]:
        found: list[Any] = []
        limit = time.monotonic() + LIMIT_SECONDS
        while len(found) < count and time.monotonic() < limit:
            query = {"max_messages": count - len(found), "wait_seconds": 5}
            answer = client.post(f"/queues/{queue}/messages:receive", params=query)
            assert answer.status_code in (200, 503), answer.text
            found += answer.json().get("messages", ())
        return found

    with gateway(tmp_path / "one", config) as one, gateway(tmp_path / "other", config) as other:
        with one.client() as here, other.client() as there:
            assert PREVIEW in here.get("/brokers").text
            drafts = [{"job": JOB, "data": {"n": number}} for number in range(5)]
            assert here.post(f"/queues/{queue}/messages:batch", json=drafts).status_code == 201
            held = receive(here, 5)
            tokens = [each["ack_token"] for each in held]
            assert here.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": tokens[:2]}).status_code == 200
            one.kill()
            again = receive(there, 3)
        assert numbers(again) == numbers(held[2:])
        assert all(each["redelivered"] and each["attempts"] == 0 for each in again)


async def test_a_lock_that_is_shorter_than_the_option_is_refused(server: KafkaServer, queue: str) -> None:
    async with binding(server.url(), {"share_lock_seconds": 60}) as one:
        native = one.native_queue(queue, SHARE)
        assert one.capabilities(native).max_lease_seconds == 50
        with pytest.raises(BrokerRejected, match=r"share\.record\.lock\.duration\.ms .* 30 s, less than .* 60"):
            await one.reserve(native, 1, 0, 20)
        set_share(server.port, "share.record.lock.duration.ms", "60000")
        assert await take(one, native, 1, 1) == []


async def test_a_share_route_says_what_it_cannot(one: KafkaBinding, queue: str) -> None:
    assert PREVIEW not in await one.warnings()
    native = one.native_queue(queue, SHARE)
    assert PREVIEW in await one.warnings()
    able = one.capabilities(native)
    assert (able.max_lease_seconds, able.ack_scope, able.lease_keeper, able.ordering) == (
        20,
        "owner",
        "gateway",
        "none",
    )
    assert (await one.stats(native)).depth is None
    with pytest.raises(UnsupportedByBroker, match="share group"):
        await one.peek(native, 1)


async def test_options_of_the_consumer_group_are_refused(one: KafkaBinding, server: KafkaServer) -> None:
    for options, key in (({**SHARE, "max_held": 5}, "max_held"), ({**SHARE, "consume": "both"}, "consume")):
        with pytest.raises(ConfigError) as raised:
            one.native_queue("orders", options)
        assert raised.value.key == key
    async with binding(server.url(), {"instance_id": "a"}) as static:
        with pytest.raises(ConfigError) as raised:
            static.native_queue("orders", SHARE)
        assert raised.value.key == "consume"


@pytest.mark.slow
async def test_a_cluster_without_share_groups_is_told_at_the_first_receive(tmp_path: Path, queue: str) -> None:
    server = KafkaServer(tmp_path)
    server.features = ("--feature", "share.version=0")
    await asyncio.to_thread(server.start)
    try:
        async with binding(server.url()) as one:
            native = one.native_queue(queue, SHARE)
            with pytest.raises(BrokerRejected, match=r"share\.version"):
                assert await take(one, native, 1) == []
    finally:
        server.kill()
