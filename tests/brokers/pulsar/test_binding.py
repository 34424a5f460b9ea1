"""What is special to Pulsar: acks by any process, permits, partitions and keys."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence

import pytest

from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.brokers.pulsar import queue as pulsar_queue
from babelgate.brokers.pulsar.admin import TopicCounts
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.brokers.pulsar.consumer import Taken
from babelgate.brokers.pulsar.errors import ConnectionEnded
from babelgate.brokers.pulsar.receive import PermitReceiver
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost
from tests.brokers.pulsar.harness import binding
from tests.brokers.pulsar.raw import ENCRYPTED, batched, field, metadata, send
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.local import eventually, free_port
from tests.harness.proxy import proxy
from tests.harness.world import until

pytestmark = pytest.mark.pulsar


def made(number: int) -> bytes:
    return json.dumps({"job": "a", "n": number}).encode()


def numbers(bodies: list[bytes]) -> list[int]:
    return [json.loads(body)["n"] for body in bodies]


async def test_another_process_acks_by_the_id_alone(one: PulsarBinding, other: PulsarBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(1)), Outgoing(made(2))])
    # A busy broker may send the second one later.
    (first,), (second,) = await one.reserve(native, 1, 20, 30), await one.reserve(native, 1, 20, 30)
    assert one.acks_anywhere(native, first.handle)
    assert await other.ack(native, [first.handle]) == [None]
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 1), "the broker has done it before it answered"
    assert await other.ack(native, [first.handle]) == [None], "again"
    proofs = await one.extend(native, [first.handle], 30)
    assert [type(proof) for proof in proofs] == [LeaseLost], "no copy of it is made"
    assert one.outstanding(native, [first.handle, second.handle]) == [False, True]
    assert await one.ack(native, [second.handle]) == [None]


async def test_what_is_not_acked_elsewhere_is_proven(one: PulsarBinding, queue: str) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(1))])
    (delivery,) = await one.reserve(native, 1, 20, 30)
    (proof,) = await one.extend(native, [delivery.handle], 30)
    assert isinstance(proof, int)
    assert await one.ack(native, [delivery.handle]) == [None]


async def test_nothing_is_held_for_nobody(one: PulsarBinding, other: PulsarBinding, queue: str) -> None:
    """One process waited, and has leases; what comes later is for the one that waits."""
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(1))])
    (leased,) = await one.reserve(native, 100, 20, 30)
    await one.publish(native, [Outgoing(made(number)) for number in range(2, 12)])
    seen: list[bytes] = []
    while len(seen) < 10:
        found = await other.reserve(native, 100, 30, 30)
        assert found, "it is not delivered to whom waits"
        assert {delivery.delivery_count for delivery in found} == {0}
        await other.ack(native, [delivery.handle for delivery in found])
        seen += [delivery.body for delivery in found]
    assert sorted(numbers(seen)) == list(range(2, 12))
    assert await one.ack(native, [leased.handle]) == [None]


async def test_what_is_given_back_is_not_handed_out_as_well(
    one: PulsarBinding, other: PulsarBinding, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reserve begins in the turn of the event loop in which what arrived for nobody is given back."""
    monkeypatch.setattr(pulsar_queue, "_LINGER_SECONDS", 3600)
    native = one.native_queue(queue, {})
    await other.publish(native, [Outgoing(made(1))])
    (leased,) = await one.reserve(native, 1, 20, 30)
    assert await one.reserve(native, 1, 0.1, 30) == []
    (receiving,) = one._queues.values()
    await other.publish(native, [Outgoing(made(2))])
    (consumer,) = receiving._consumers.by_topic.values()
    await eventually(lambda: len(consumer.entries) == 2)
    receiving._rest()
    (delivery,) = await one.reserve(native, 1, 60, 30)
    assert await one.ack(native, [leased.handle, delivery.handle]) == [None, None]
    stats = await other.stats(native)
    assert (numbers([delivery.body]), stats.depth, stats.in_flight) == ([2], 0, 0)


@pytest.mark.parametrize(
    ("error", "warned"),
    [
        (BrokerUnavailable(broker="main", reason="it is gone"), False),
        (BrokerRejected(broker="main", reason="it is full"), True),
    ],
    ids=["outage", "refusal"],
)
async def test_what_cannot_be_given_back_is_tried_again(
    one: PulsarBinding,
    other: PulsarBinding,
    queue: str,
    error: BabelgateError,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An outage is logged for the calls of clients, which fail, too."""
    publish, failures = one._publisher.publish, 0

    async def fail_twice(topic: str, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        nonlocal failures
        if failures == 2:
            return await publish(topic, messages)
        failures += 1
        return [error] * len(messages)

    monkeypatch.setattr(one._publisher, "publish", fail_twice)
    native = one.native_queue(queue, {})
    await other.publish(native, [Outgoing(made(1))])
    (leased,) = await one.reserve(native, 1, 20, 30)
    assert await one.reserve(native, 1, 0.1, 30) == []
    await other.publish(native, [Outgoing(made(2))])
    await eventually(lambda: failures == 2)
    (delivery,) = await other.reserve(native, 1, 60, 30)
    assert (numbers([delivery.body]), delivery.delivery_count) == ([2], 0)
    assert ("messages were not given back" in caplog.text) is warned
    assert await one.ack(native, [leased.handle]) == [None]
    assert await other.ack(native, [delivery.handle]) == [None]


async def test_what_a_failed_receive_has_taken_is_for_the_next_one(
    one: PulsarBinding, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(1))])
    take, calls = PermitReceiver._take, 0

    async def fail_twice(receiver: PermitReceiver, taken: list[Taken], limit: int, until: float) -> None:
        nonlocal calls
        calls += 1
        if calls != 1:
            await take(receiver, taken, limit, until)
        if calls <= 2:
            raise ConnectionEnded("another partition")

    monkeypatch.setattr(PermitReceiver, "_take", fail_twice)
    with pytest.raises(BrokerUnavailable, match="another partition"):
        await one.reserve(native, 1, 20, 30)
    (delivery,) = await one.reserve(native, 1, 60, 30)
    assert (numbers([delivery.body]), delivery.delivery_count) == ([1], 0)
    assert await one.ack(native, [delivery.handle]) == [None]


async def test_a_topic_with_partitions(
    one: PulsarBinding, other: PulsarBinding, server: PulsarServer, queue: str
) -> None:
    path = f"persistent/public/default/{queue}/partitions"
    assert await asyncio.to_thread(server.admin, path, "PUT", b"3") is not None
    native = one.native_queue(queue, {})
    await one.publish(native, [Outgoing(made(number), ordering_key=f"key {number % 5}") for number in range(30)])
    found: list[Delivery] = []
    while len(found) < 30:
        found += await one.reserve(native, 100, 20, 30)
    assert sorted(numbers([delivery.body for delivery in found])) == list(range(30))
    for key in range(5):
        of_key = [delivery.body for delivery in found if json.loads(delivery.body)["n"] % 5 == key]
        assert numbers(of_key) == sorted(numbers(of_key)), "a key is in one partition"
    assert await other.ack(native, [delivery.handle for delivery in found]) == [None] * 30
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 0)
    assert queue in await one.queues()


async def test_pages_of_dead_letters_of_several_partitions(
    one: PulsarBinding, other: PulsarBinding, server: PulsarServer, queue: str
) -> None:
    """Each page has the letters after the last one, though the broker delivers those of all partitions at once."""
    path = f"persistent/public/default/{queue}.dlq/partitions"
    assert await asyncio.to_thread(server.admin, path, "PUT", b"3") is not None
    native, dead = one.native_queue(queue, {}), one.native_queue(f"{queue}.dlq", {})
    written = [Outgoing(made(number), ordering_key=f"key {number % 50}") for number in range(1500)]
    assert await one.publish(dead, written) == [None] * 1500
    found: list[int] = []
    cursor = None
    for reader in itertools.cycle((one, other)):
        page, cursor = await reader.read_dead(native, cursor, 400)
        found += numbers([record.body for record in page])
        if cursor is None:
            break
        assert len(page) == 400
    assert sorted(found) == list(range(1500))
    assert len(await other.peek(dead, 10)) == 10, "no reader holds any"
    (last, *_), _ = await other.read_dead(native, None, 1)
    assert (await one.remove_dead(native, [last], None))[0] == [True]
    (first, *_), _ = await one.read_dead(native, None, 1)
    assert first.key.split("-")[:4] != last.key.split("-")[:4]


async def test_each_of_several_readers_gets_all_dead_letters(
    one: PulsarBinding, other: PulsarBinding, queue: str
) -> None:
    """The broker divides them among consumers that read at the same time."""
    native, dead = one.native_queue(queue, {}), one.native_queue(f"{queue}.dlq", {})
    assert await one.publish(dead, [Outgoing(made(number)) for number in range(700)]) == [None] * 700

    async def pages(reader: PulsarBinding) -> list[int]:
        found: list[int] = []
        cursor = None
        while True:
            page, cursor = await reader.read_dead(native, cursor, 300)
            found += numbers([record.body for record in page])
            if cursor is None:
                return found

    assert await asyncio.gather(*map(pages, (one, one, other))) == [list(range(700))] * 3


@pytest.mark.parametrize(("backlog", "held", "counted"), [(0, 2, (0, 0)), (3, 2, (1, 2)), (1, 5, (0, 5))])
async def test_nothing_is_held_of_an_empty_backlog(
    one: PulsarBinding, queue: str, backlog: int, held: int, counted: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count of what is held is the broker's, and was seen to be too high after a process was killed."""

    async def counts(_: str) -> TopicCounts:
        return TopicCounts(backlog, held)

    monkeypatch.setattr(one._admin, "counts", counts)
    stats = await one.stats(one.native_queue(queue, {}))
    assert (stats.depth, stats.in_flight) == counted


async def test_messages_of_a_key_go_to_one_consumer(one: PulsarBinding, other: PulsarBinding, queue: str) -> None:
    native = one.native_queue(queue, {"key_shared": True})
    assert one.capabilities(native).ack_scope == "owner"
    waits = [asyncio.create_task(each.reserve(native, 1, 30, 30)) for each in (one, other)]
    keys = [f"key {number}" for number in range(20)]
    while not all(wait.done() for wait in waits):
        await one.publish(native, [Outgoing(made(0), ordering_key=key) for key in keys])
        await asyncio.wait(waits, timeout=0.1)
    mine, theirs = [{delivery.carried.key for delivery in await wait} for wait in waits]
    assert not mine & theirs
    handles = [delivery.handle for delivery in await waits[0]]
    assert [type(outcome) for outcome in await other.ack(native, handles)] == [LeaseLost]
    assert await one.ack(native, handles) == [None]


async def test_the_next_host_serves_where_one_does_not_answer(server: PulsarServer, queue: str) -> None:
    async with binding(f"pulsar://127.0.0.1:{free_port()},127.0.0.1:{server.port}") as opened:
        native = opened.native_queue(queue, {})
        assert await opened.publish(native, [Outgoing(made(1))]) == [None]
        (delivery,) = await opened.reserve(native, 1, 20, 30)
        assert await opened.ack(native, [delivery.handle]) == [None]


async def test_the_next_host_serves_when_one_is_lost(server: PulsarServer, queue: str) -> None:
    async with (
        proxy("127.0.0.1", server.port) as first,
        binding(f"pulsar://127.0.0.1:{first.port},127.0.0.1:{server.port}") as opened,
    ):
        native = opened.native_queue(queue, {})
        assert await opened.publish(native, [Outgoing(made(1))]) == [None]
        (lost,) = await opened.reserve(native, 1, 20, 30)
        assert first.connections
        await first.stop()

        async def answers() -> bool:
            await opened.ping()
            return True

        await until(answers)
        assert opened.outstanding(native, [lost.handle]) == [False]
        (delivery,) = await opened.reserve(native, 1, 20, 30)
        assert await opened.ack(native, [delivery.handle]) == [None]
        assert await opened.publish(native, [Outgoing(made(2))]) == [None]


@pytest.mark.parametrize(
    ("policy", "body", "text"),
    [
        ("messageTTL", "60", "drops messages that are not acknowledged after 60 s (message TTL)"),
        (
            "backlogQuota?backlogQuotaType=destination_storage",
            '{"limitSize": 1000000, "policy": "consumer_backlog_eviction"}',
            "backlog quota (destination_storage, consumer_backlog_eviction)",
        ),
        (
            "backlogQuota?backlogQuotaType=message_age",
            '{"limitTime": 3600, "policy": "consumer_backlog_eviction"}',
            "backlog quota (message_age, consumer_backlog_eviction)",
        ),
        ("subscriptionExpirationTime", "5", "is deleted with its messages after 300 s without a consumer"),
    ],
)
async def test_policies_that_lose_messages_are_warned_of(
    server: PulsarServer, queue: str, policy: str, body: str, text: str
) -> None:
    """Those of the namespace hold for the topic and for its dead letters, and before these exist."""
    namespace = f"public/{queue}"
    assert await asyncio.to_thread(server.admin, f"namespaces/{namespace}", "PUT") is not None
    async with binding(server.url().replace("/?", f"/{namespace}?")) as one:
        native = one.native_queue(queue, {})
        assert await one.queue_warnings(native, 60) == []
        path = f"namespaces/{namespace}/{policy}"
        assert await asyncio.to_thread(server.admin, path, "POST", body.encode()) is not None

        async def warned() -> bool:
            found = await one.queue_warnings(native, 60)
            return [text in each for each in found] == [True, True] and f"{queue}.dlq " in found[1]

        await until(warned)


async def test_without_the_admin_interface_topics_have_no_warnings(server: PulsarServer, queue: str) -> None:
    async with binding(server.url().partition("?")[0]) as one:
        assert await one.queue_warnings(one.native_queue(queue, {}), 60) == []


async def test_what_cannot_be_read_is_given_back_as_it_is_beside_a_lease(
    one: PulsarBinding, server: PulsarServer, queue: str
) -> None:
    """By the broker, which counts that. No copy of it is published."""
    native, payload = one.native_queue(queue, {}), batched(b"", b"")
    assert await one.publish(native, [Outgoing(b"leased")]) == [None]
    (leased,) = await one.reserve(native, 1, 30, 30)
    await send(server, queue, metadata(payload, field(11, 2), ENCRYPTED), payload)
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert await one.release(native, [delivery.handle], 0, False) == [None]
    (again,) = await one.reserve(native, 1, 30, 30)
    assert again.handle.split("-")[:3] == delivery.handle.split("-")[:3]
    assert (again.body, again.delivery_count) == (payload, 1)
    assert await one.ack(native, [leased.handle, again.handle]) == [None] * 2
    stats = await one.stats(native)
    assert (stats.depth, stats.in_flight) == (0, 0)


async def test_nothing_is_copied_while_the_broker_does_not_answer(
    server: PulsarServer, other: PulsarBinding, queue: str
) -> None:
    """Whether the copy was stored would not be known, and both it and the original be delivered."""
    async with binding(server.url(), {"timeout_seconds": 5}) as one:
        native = one.native_queue(queue, {})
        await other.publish(native, [Outgoing(made(1))])
        assert await one.publish(native, [Outgoing(made(2))]) == [None]
        taken: list[Delivery] = []
        while len(taken) < 2:
            taken += await one.reserve(native, 2 - len(taken), 20, 30)
        kept, returned = taken

        async def gave_back() -> list[Outcome]:
            return list(await one.release(native, [returned.handle], 0, failed=False))

        server.pause()
        try:
            assert [type(outcome) for outcome in await gave_back()] == [BrokerUnavailable], "nothing was written"
        finally:
            server.resume()

        async def is_given_back() -> bool:
            return await gave_back() == [None]

        await until(is_given_back)
        assert await one.ack(native, [kept.handle]) == [None]
        (again,) = await other.reserve(native, 10, 20, 30)
        assert again.body == returned.body
        assert await other.ack(native, [again.handle]) == [None]
        assert await other.reserve(native, 10, 0, 30) == []
