"""What is particular to Amazon SQS: native batches, message groups, long polls, handles, missing queues and roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from babelgate.brokers.binding import MAX_HANDLE_LENGTH, Delivery, DeliveryLimit, NativeQueue, Outgoing
from babelgate.brokers.sqs.binding import SqsBinding, connect
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.message import MAX_ATTRIBUTES, Read, entry
from babelgate.brokers.sqs.publish import publish
from babelgate.brokers.sqs.queue import SqsQueue, queue_of
from babelgate.brokers.sqs.receive import SqsReceiver
from babelgate.brokers.sqs.settle import SqsSettler, receipt_of
from babelgate.clock import now_ms
from babelgate.errors import (
    BodyTooLarge,
    BrokerRejected,
    BrokerUnavailable,
    ConfigError,
    LeaseLost,
    OutcomeUnknown,
    PurgeInProgress,
    UnsupportedByBroker,
)
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Policy, Router, Rule
from tests.brokers.sqs.harness import STANDARD, SqsBroker, binding, client, take_all, url_of
from tests.harness.broker import Server
from tests.harness.local import eventually
from tests.harness.world import KEYS, World, data, kinds, until

pytestmark = pytest.mark.sqs


def body(n: int = 0, size: int = 0) -> bytes:
    """A small envelope."""
    meta = b'"meta":{"id":"m%d","queue":"q","lang":"go","schema_version":1,"created_at":1}' % n
    return b'{"job":"j","trace_id":"t","data":{"n":%d,"x":"%b"},%b,"attempts":0}' % (n, b"x" * size, meta)


def number(found: bytes | str) -> int:
    n: int = json.loads(found)["data"]["n"]
    return n


class CountedClient(SqsClient):
    """Counts the calls of each operation, and fails those that ``fails`` names."""

    def __init__(self, one: SqsBinding) -> None:
        super().__init__(one.name, one._settings, one.timeout_seconds)
        self.calls: list[tuple[str, list[str]]] = []
        self.fails: set[str] = set()
        """Deduplication ids of entries that fail."""

    async def call(self, operation: str, **parameters: Any) -> Any:
        entries = parameters.get("Entries", [])
        self.calls.append((operation, [each.get("MessageDeduplicationId", each["Id"]) for each in entries]))
        failed = [each for each in entries if each.get("MessageDeduplicationId") in self.fails]
        if failed:
            parameters["Entries"] = [each for each in entries if each not in failed]
        answer = dict(await super().call(operation, **parameters)) if parameters.get("Entries", [1]) else {}
        if failed:
            refused = [{"Id": each["Id"], "Code": "InternalError", "SenderFault": False} for each in failed]
            answer["Failed"] = [*answer.get("Failed", []), *refused]
        return answer


@pytest.fixture
async def counted(one: SqsBinding) -> AsyncIterator[CountedClient]:
    made = CountedClient(one)
    yield made
    await made.close()


async def test_a_hundred_messages_are_ten_calls(counted: CountedClient, queue: str) -> None:
    target = queue_of(queue, STANDARD)
    outcomes = await publish(counted, target, [Outgoing(body(n)) for n in range(100)], entry, 1_048_576)
    assert outcomes == [None] * 100
    assert [len(ids) for operation, ids in counted.calls if operation == "SendMessageBatch"] == [10] * 10


async def test_a_call_has_at_most_the_largest_size(counted: CountedClient, queue: str) -> None:
    target = queue_of(queue, STANDARD)
    messages = [Outgoing(body(n, size)) for n, size in enumerate([100_000, 100_000, 100_000, 300_000, 10])]
    outcomes = await publish(counted, target, messages, entry, 262_144)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [BodyTooLarge, type(None)]
    assert [len(ids) for operation, ids in counted.calls if operation == "SendMessageBatch"] == [2, 2]


async def test_concurrent_settles_share_calls(counted: CountedClient, queue: str) -> None:
    """Of single messages and of several, of acks and of extends."""
    target = queue_of(queue, STANDARD)
    assert await publish(counted, target, [Outgoing(body(n)) for n in range(30)], entry, 1_048_576) == [None] * 30
    settler = SqsSettler(counted, now_ms)
    receiver = SqsReceiver(counted, settler, now_ms, 20)
    handles: list[str] = []
    while len(handles) < 30:
        handles += [each.handle for each in await receiver.reserve(target, 10, 20, 30)]
    counted.calls.clear()
    extended = await asyncio.gather(*(settler.extend(target, [handle], 30) for handle in handles))
    assert all(isinstance(deadline, int) for (deadline,) in extended)
    groups = [handles[:1], *([handle] for handle in handles[1:12]), handles[12:15], handles[15:]]
    acked = await asyncio.gather(*(settler.ack(target, group) for group in groups))
    assert acked == [[None] * len(group) for group in groups]
    sizes: dict[str, list[int]] = {}
    for operation, ids in counted.calls:
        sizes.setdefault(operation, []).append(len(ids))
    assert sizes == {"ChangeMessageVisibilityBatch": [10] * 3, "DeleteMessageBatch": [10] * 3}
    await receiver.close()


async def test_a_message_that_cannot_be_carried_fails_alone(one: SqsBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    bad = body(1).replace(b'"x":""', '"x":"\ufffe"'.encode())
    messages = [
        Outgoing(body(0)),
        Outgoing(bad),
        Outgoing(body(2), {"bad name": "x"}),
        Outgoing(body(3), {"empty": ""}),
    ]
    outcomes = await one.publish(native, messages)
    assert [type(outcome) for outcome in outcomes] == [type(None)] + [UnsupportedByBroker] * 3
    assert "U+FFFE" in str(outcomes[1])
    assert [number(each.body) for each in await one.reserve(native, 10, 20, 30)] == [0]


def keyed(n: int, key: str) -> Outgoing:
    return Outgoing(body(n), ordering_key=key, dedup_id=f"{key}{n}")


async def taken(one: SqsBinding, native: NativeQueue, count: int) -> list[int]:
    """The numbers of so many messages, each acked before the next is received."""
    found: list[int] = []
    while len(found) < count:
        deliveries = await one.reserve(native, 10, 20, 30)
        found += [number(each.body) for each in deliveries]
        assert await one.ack(native, [each.handle for each in deliveries]) == [None] * len(deliveries)
    return found


async def test_no_message_overtakes_an_earlier_one_of_its_group(
    one: SqsBinding, counted: CountedClient, queue: str
) -> None:
    native = one.native_queue(f"{queue}.fifo", STANDARD)
    counted.fails = {"a1"}
    messages = [keyed(n, key) for n in range(4) for key in "ab"]
    outcomes = await publish(counted, native.options, messages, entry, 1_048_576)
    of_a, of_b = outcomes[::2], outcomes[1::2]
    assert of_b == [None] * 4
    assert [type(outcome) is type(None) for outcome in of_a] == [True, False, False, False]
    assert [type(outcome) for outcome in of_a[2:]] == [BrokerUnavailable] * 2, "they were not sent"
    sent = [ids for operation, ids in counted.calls if operation == "SendMessageBatch"]
    assert sent == [["a0", "b0"], ["a1", "b1"], ["b2"], ["b3"]], "one of a group in a call"
    assert sorted(await taken(one, native, 5)) == [0, 0, 1, 2, 3]


async def test_a_group_is_delivered_in_order(one: SqsBinding, queue: str) -> None:
    native = one.native_queue(f"{queue}.fifo", STANDARD)
    assert await one.publish(native, [keyed(n, "a key with spaces ☕") for n in range(12)]) == [None] * 12
    assert await taken(one, native, 12) == list(range(12))


async def test_a_message_is_dropped_as_a_duplicate_only_if_it_is_one(one: SqsBinding, queue: str) -> None:
    native = one.native_queue(f"{queue}.fifo", STANDARD)
    await one.publish(native, [Outgoing(body(1), dedup_id="same"), Outgoing(body(2), dedup_id="same")])
    await one.publish(native, [Outgoing(body(3)), Outgoing(body(3))])
    assert await taken(one, native, 3) == [1, 3, 3], "what may repeat another one has no id"


async def test_a_redriven_message_keeps_its_group(elastic: Server, queue: str) -> None:
    world = World(SqsBroker(elastic, STANDARD), f"{queue}.fifo")
    process = await world.process()
    for n in range(12):
        await process.publish({"n": n}, ordering_key="k")
    for _ in range(12):
        await process.reject(await process.one())
    assert len(await process.dead()) == 12, "each record has a group of its own"
    assert (await process.redrive()).redriven == 12
    sqs = client(elastic.port)
    found = await asyncio.to_thread(take_all, sqs, await asyncio.to_thread(url_of, sqs, queue_of(world.queue, {})))
    assert {each["Attributes"]["MessageGroupId"] for each in found} == {"k"}
    await world.close()


async def test_more_headers_than_there_is_room_for_are_refused(elastic: Server, queue: str) -> None:
    world = World(SqsBroker(elastic, STANDARD), queue)
    process = await world.process()
    headers = {f"h{n}": "x" for n in range(5)}
    with pytest.raises(UnsupportedByBroker) as refusal:
        await process.publish_body(json.dumps({"job": "j", "data": {}, "headers": headers}).encode())
    assert (refusal.value.problem_code, refusal.value.maximum) == ("too_many_headers", 4)
    await world.close()


def test_a_copy_keeps_what_there_is_room_for() -> None:
    found = Outgoing(body(), {f"h{n}": "x" for n in range(9)}, carried=None, is_envelope=False)
    assert len(entry(queue_of("q", {}), found)["MessageAttributes"]) == 9
    copied = entry(queue_of("q", {}), Outgoing(body(), {f"h{n}": "x" for n in range(9)}))
    assert len(copied["MessageAttributes"]) == MAX_ATTRIBUTES
    assert copied["MessageAttributes"]["bq-job"] == {"DataType": "String", "StringValue": "j"}


async def test_a_copy_keeps_attributes_that_are_no_texts(one: SqsBinding, plain: Any, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    attributes = {
        "raw": {"DataType": "Binary.x", "BinaryValue": b"\x00\xff"},
        "count": {"DataType": "Number", "StringValue": "7"},
        "name": {"DataType": "String", "StringValue": "☕"},
    }
    url = await asyncio.to_thread(url_of, plain, native.options)
    sent = body(1).decode()
    await asyncio.to_thread(lambda: plain.send_message(QueueUrl=url, MessageBody=sent, MessageAttributes=attributes))
    (delivery,) = await one.reserve(native, 1, 20, 30)
    assert (delivery.body.decode(), delivery.headers) == (sent, {"raw": "AP8=", "count": "7", "name": "☕"})
    await one.publish_dead_letters(native, [Outgoing(delivery.body, delivery.headers, carried=delivery.carried)])
    dead = await asyncio.to_thread(url_of, plain, native.options.dead)
    (record,) = await asyncio.to_thread(take_all, plain, dead)
    assert {name: record["MessageAttributes"][name] for name in attributes} == attributes


async def test_one_long_poll_serves_all_who_wait(either: Server, queue: str) -> None:
    async with binding(either.url()) as one:
        native = one.native_queue(queue, STANDARD)
        waits = [asyncio.create_task(one.reserve(native, 1, 10, 30)) for _ in range(5)]
        await eventually(lambda: one._receiver._in_flight)
        await asyncio.sleep(0.2)
        assert len(one._receiver._in_flight) == 1
        await one.publish(native, [Outgoing(body(1))])
        served = [each for wait in waits for each in await wait]
        assert [number(each.body) for each in served] == [1]


async def test_what_arrives_for_nobody_is_shown_again(either: Server, queue: str) -> None:
    async with binding(either.url()) as one, binding(either.url()) as other:
        native = one.native_queue(queue, STANDARD)
        await other.publish(native, [Outgoing(body(0))])
        await taken(one, native, 1)
        assert not await one.reserve(native, 1, 0.2, 30)
        assert len(one._receiver._in_flight) == 1, "its poll goes on"
        await other.publish(native, [Outgoing(body(1))])
        await eventually(lambda: not one._receiver._in_flight)
        (delivery,) = await other.reserve(native, 1, 20, 30)
        assert (number(delivery.body), delivery.delivery_count) == (1, 2)


async def test_what_arrived_for_nobody_is_no_attempt(either: Server, queue: str) -> None:
    """Amazon counts the receive. The process that gave it back takes it off."""
    async with binding(either.url()) as one:
        native = one.native_queue(queue, STANDARD)
        await one.publish(native, [Outgoing(body(0))])
        await taken(one, native, 1)
        for _ in range(2):
            assert not await one.reserve(native, 1, 0.2, 30)
            polling = list(one._receiver._in_flight)
            assert len(polling) == 1, "its poll goes on"
            await one.publish(native, [Outgoing(body(1))])
            # It takes the message for nobody, and shows it again.
            await asyncio.wait(polling)
            await eventually(lambda: not one._receiver._polls)
            await one._receiver._returning.wait()
            (delivery,) = await one.reserve(native, 1, 20, 30)
            assert (delivery.delivery_count, delivery.redelivered, delivery.expired) == (1, False, False)
            assert await one.release(native, [delivery.handle], 0, failed=True) == [None]
            (delivery,) = await one.reserve(native, 1, 20, 30)
            assert (delivery.delivery_count, delivery.redelivered, delivery.expired) == (2, True, False)
            assert await one.ack(native, [delivery.handle]) == [None]


def received(count: int, receipt: str) -> Read:
    """A message that Amazon has handed out ``count`` times."""
    return Read("id", receipt, body(), {}, count, 0, None, None)


async def test_what_ended_the_receive_before_decides_what_the_next_one_reports() -> None:
    now = now_ms()
    service: Any = Strict(now)
    settler = SqsSettler(service, lambda: now)
    queue = queue_of("q", {})
    handle = ""

    def report(count: int) -> tuple[int, bool, bool]:
        nonlocal handle
        service.until = now + 120_000
        delivery = settler.delivery(received(count, f"receipt {count}"), 30, now)
        handle = delivery.handle
        return delivery.delivery_count, delivery.redelivered, delivery.expired

    assert report(1) == (1, False, False)
    assert await settler.release(queue, [handle], 0, failed=False) == [None]
    assert kinds(await settler.release(queue, [handle], 0, failed=False)) == [LeaseLost], "it is given back once"
    now += 60_000
    assert report(2) == (1, False, False), "given back"
    assert await settler.release(queue, [handle], 90, failed=True) == [None]
    now += 90_000
    assert report(3) == (2, True, False), "a nack"
    now += 30_000
    assert report(4) == (3, True, True), "its lease has expired"
    assert isinstance((await settler.extend(queue, [handle], 60))[0], int)
    now += 59_999
    assert report(5) == (4, True, False), "somebody else has ended it"
    now += 60_000
    assert report(7) == (6, True, False), "another process has had it in between"


async def test_a_nack_after_the_deadline_is_an_expiry() -> None:
    now = now_ms()
    service: Any = Strict(now - 1)
    settler = SqsSettler(service, lambda: now)
    handle = settler.delivery(received(1, "first"), 30, now - 31_000).handle
    assert kinds(await settler.release(queue_of("q", {}), [handle], 0, failed=True)) == [LeaseLost]
    assert settler.delivery(received(2, "second"), 30, now).expired


async def test_the_next_call_takes_what_arrived_between_two(
    either: Server, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("babelgate.brokers.sqs.receive._KEPT_SECONDS", 60)
    async with binding(either.url()) as one:
        native = one.native_queue(queue, STANDARD)
        assert not await one.reserve(native, 1, 0.1, 30)
        await one.publish(native, [Outgoing(body(1))])
        await eventually(lambda: not one._receiver._in_flight)
        (delivery,) = await one.reserve(native, 1, 0.1, 60)
        assert delivery.delivery_count == 1
        assert delivery.lease_expires_at > now_ms() + 40_000, "with the lease of the call that takes it"
        assert await one.ack(native, [delivery.handle]) == [None]


async def test_a_close_shows_what_its_poll_returns(either: Server, queue: str) -> None:
    async with binding(either.url(), {"long_poll_seconds": 2}) as one, binding(either.url()) as other:
        native = one.native_queue(queue, STANDARD)
        assert not await one.reserve(native, 1, 0.1, 600)
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0)
        await other.publish(native, [Outgoing(body(1))])
        await closing
        (delivery,) = await other.reserve(native, 1, 20, 30)
        assert number(delivery.body) == 1


class SlowClient(SqsClient):
    """Its messages take ten seconds to arrive, by a clock of its own."""

    def __init__(self, one: SqsBinding) -> None:
        super().__init__(one.name, one._settings, one.timeout_seconds)
        self.now = now_ms()

    async def unbounded(self, operation: str, **parameters: Any) -> Any:
        answer = await super().unbounded(operation, **parameters)
        self.now += 10_000 * (operation == "ReceiveMessage")
        return answer


async def test_a_foreign_message_of_amazons_largest_size_is_dead_lettered(elastic: Server, queue: str) -> None:
    """Neither the error nor a block fits beside it: the body goes as it is, without the attributes of a record."""
    world = World(SqsBroker(elastic, STANDARD), queue)
    try:
        process = await world.process(policy=Policy(max_attempts=1))
        made = body(size=1_048_576 - len(body()))
        await world.broker.inject(queue, made)
        assert await process.nack(await process.one(), error="no room") == [None]

        async def is_dead() -> bool:
            return list(await world.broker.dead(queue)) == [made]

        await until(is_dead)
        assert await process.is_empty()
        (letter,) = await process.dead()
        assert letter.record == made
    finally:
        await world.close()


@pytest.fixture
async def slow(one: SqsBinding) -> AsyncIterator[SlowClient]:
    made = SlowClient(one)
    yield made
    await made.close()


async def test_a_late_answer_shortens_the_lease_that_is_told(one: SqsBinding, slow: SlowClient, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, [Outgoing(body(1))])
    receiver = SqsReceiver(slow, SqsSettler(slow, lambda: slow.now), lambda: slow.now, 20)
    found: list[Delivery] = []
    while not found:
        asked_at = slow.now
        found = await receiver.reserve(queue_of(queue, STANDARD), 1, 0, 30)
    assert found[0].lease_expires_at == asked_at + 33_000, "Amazon hides it for 33 seconds, perhaps from then on"
    await receiver.close()


class Strict:
    """A service that says what ElasticMQ and moto do not: that a message is not in flight. It has one, in flight until
    ``until`` (Unix ms)."""

    broker = "aws"
    timeout_seconds = 5.0

    def __init__(self, until: int) -> None:
        self.until = until
        self.deleted = 0

    async def url(self, queue: SqsQueue) -> str:
        return "url"

    async def call(self, operation: str, **parameters: Any) -> Any:
        entries: Sequence[dict[str, Any]] = parameters["Entries"]
        if operation == "DeleteMessageBatch":
            self.deleted += len(entries)
            return {"Successful": [{"Id": each["Id"]} for each in entries]}
        if now_ms() < self.until:
            self.until = now_ms() + entries[0]["VisibilityTimeout"] * 1000
            return {"Successful": [{"Id": each["Id"]} for each in entries]}
        code = "AWS.SimpleQueueService.MessageNotInflight"
        return {"Failed": [{"Id": each["Id"], "Code": code, "SenderFault": True} for each in entries]}


@pytest.mark.parametrize("alive", [True, False])
async def test_an_ack_past_the_deadline_needs_a_proof(alive: bool) -> None:
    """Another process may have extended the lease; Amazon deletes a message whose lease is over, too."""
    service: Any = Strict(now_ms() + (60_000 if alive else -1))
    settler = SqsSettler(service, now_ms)
    past = f"{now_ms() - 1:x} 1 id receipt"
    (outcome,) = await settler.ack(queue_of("q", {}), [past])
    assert (type(outcome), service.deleted) == ((type(None), 1) if alive else (LeaseLost, 0))


@pytest.mark.parametrize("passed", [999, 1_001])
@pytest.mark.parametrize("proven", [False, True])
async def test_an_ack_whose_answer_comes_after_the_lease_leaves_the_outcome_open(proven: bool, passed: int) -> None:
    """Amazon may have given the message to somebody else by then, and does not delete it."""
    started = now = now_ms()
    remaining = 30_000 if proven else 1_000

    class Slow(Strict):
        async def call(self, operation: str, **parameters: Any) -> Any:
            nonlocal now
            if operation == "DeleteMessageBatch":
                now += remaining - 1_000 + passed
            return await super().call(operation, **parameters)

    service: Any = Slow(started + 60_000)
    deadline = started - 1 if proven else started + remaining
    (outcome,) = await SqsSettler(service, lambda: now).ack(queue_of("q", {}), [f"{deadline:x} 1 id receipt"])
    assert (type(outcome), service.deleted) == (type(None) if passed < 1_000 else OutcomeUnknown, 1)


async def test_an_extend_counts_for_later_settles_of_this_process() -> None:
    service: Any = Strict(now_ms() + 60_000)
    settler = SqsSettler(service, now_ms)
    handle = f"{now_ms() - 1:x} 1 id receipt"
    assert isinstance((await settler.extend(queue_of("q", {}), [handle], 60))[0], int)
    service.until = 0
    assert await settler.ack(queue_of("q", {}), [handle]) == [None], "its deadline is known here"


async def test_a_receipt_of_an_earlier_receive_is_lost() -> None:
    service: Any = Strict(now_ms() + 60_000)
    settler = SqsSettler(service, now_ms)
    deadline = f"{now_ms() + 60_000:x}"
    queue = queue_of("q", {})
    await settler.extend(queue, [f"{deadline} 2 id second"], 60)
    assert [type(each) for each in await settler.ack(queue, [f"{deadline} 1 id first"])] == [LeaseLost]
    assert await settler.ack(queue, [f"{deadline} 3 id third"]) == [None], "another process has received it since"


@pytest.mark.parametrize("handle", ["", "x", "0 0 id", "zz 1 id receipt", "0 zz id receipt"])
async def test_a_malformed_handle_is_lost(handle: str) -> None:
    service: Any = Strict(now_ms() + 60_000)
    assert [type(each) for each in await SqsSettler(service, now_ms).ack(queue_of("q", {}), [handle])] == [LeaseLost]


async def test_a_long_receipt_handle_fits_a_token(elastic: Server, queue: str) -> None:
    """Those of Amazon have some 400 characters, and may have more."""
    world = World(SqsBroker(elastic, STANDARD), queue)
    process = await world.process()
    await process.publish({"n": 1})
    message = await process.one()
    sealer = process.gateway._sealer
    lease = sealer.open(message.ack_token, queue)
    found = receipt_of(lease.handle)
    assert found is not None
    long = replace(lease, handle=replace(found, receipt="A" * 1_900).handle)
    assert len(long.handle) <= MAX_HANDLE_LENGTH
    assert sealer.open(sealer.seal(long), queue).handle == long.handle
    await world.close()


async def test_a_lease_beyond_twelve_hours_is_refused_in_words(moto: Server, queue: str) -> None:
    async with binding(moto.url()) as one:
        native = one.native_queue(queue, STANDARD)
        await one.publish(native, [Outgoing(body(1))])
        (delivery,) = await one.reserve(native, 1, 20, 30)
        await asyncio.sleep(1.1)
        (outcome,) = await one.extend(native, [delivery.handle], 43_200)
        assert isinstance(outcome, UnsupportedByBroker) and outcome.problem_code == "lease_too_long"
        assert isinstance((await one.extend(native, [delivery.handle], 30))[0], int)


@pytest.mark.parametrize("verb", ["publish", "receive"])
async def test_a_missing_queue_says_what_to_do(one: SqsBinding, queue: str, verb: str) -> None:
    native = one.native_queue(queue, {})
    with pytest.raises(BrokerRejected, match="create: missing"):
        await (one.publish(native, [Outgoing(body())]) if verb == "publish" else one.reserve(native, 1, 0, 30))
    stats = await one.stats(native)
    assert (stats.depth, stats.dead) == (0, 0)
    assert await one.purge(native) == 0
    assert await one.read_dead(native, None, 10) == ([], None)


async def test_a_queue_is_created_with_its_attributes(one: SqsBinding, plain: Any, queue: str) -> None:
    options = {"create": "missing", "attributes": {"VisibilityTimeout": 77}}
    native = one.native_queue(f"{queue}.fifo", options | {"content_based_deduplication": True})
    await asyncio.gather(*(one.publish(native, [Outgoing(body(n), dedup_id=f"{n}")]) for n in range(3)))

    def attributes(name: str) -> dict[str, str]:
        url = plain.get_queue_url(QueueName=name)["QueueUrl"]
        found: dict[str, str] = plain.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return found

    made = await asyncio.to_thread(attributes, f"{queue}.fifo")
    assert (made["VisibilityTimeout"], made["FifoQueue"], made["ContentBasedDeduplication"]) == ("77", "true", "true")
    await one.publish_dead_letters(native, [Outgoing(body())])
    assert (await asyncio.to_thread(attributes, f"{queue}-dlq.fifo"))["FifoQueue"] == "true"


async def test_a_queue_that_is_deleted_is_looked_up_again(one: SqsBinding, plain: Any, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, [Outgoing(body())])
    url = await asyncio.to_thread(lambda: plain.get_queue_url(QueueName=queue)["QueueUrl"])
    await asyncio.to_thread(lambda: plain.delete_queue(QueueUrl=url))
    (outcome,) = await one.publish(native, [Outgoing(body())])
    assert isinstance(outcome, BrokerRejected), "its URL was known"
    assert await one.publish(native, [Outgoing(body())]) == [None]


async def test_a_url_and_an_arn_lead_to_the_queue(moto: Server, queue: str) -> None:
    sqs = client(moto.port)
    url = await asyncio.to_thread(url_of, sqs, queue_of(queue, {}))
    arn = f"arn:aws:sqs:us-east-1:123456789012:{queue}"
    async with binding(moto.url()) as one:
        for n, name in enumerate((url, arn)):
            native = one.native_queue(name, {})
            assert native.name == queue
            await one.publish(native, [Outgoing(body(n))])
            assert await taken(one, native, 1) == [n]


def with_redrive_policy(sqs: Any, queue: str, receives: int) -> None:
    """Create a queue, and the one to which Amazon moves its messages after so many receives."""
    dead = sqs.create_queue(QueueName=f"{queue}-dlq")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": str(receives)})
    sqs.create_queue(QueueName=queue, Attributes={"RedrivePolicy": policy})


async def test_a_native_redrive_policy_is_warned_of_at_the_start(
    elastic: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(with_redrive_policy, client(elastic.port), queue, 2)
    one = connect("aws", elastic.url(), {}, now_ms)
    rules = [Rule(queue, one, Policy(max_attempts=attempts)) for attempts in (2, 3)]
    for rule, warned in zip(rules, (False, True), strict=True):
        gateway = Gateway({"aws": one}, Router([rule]), TokenSealer(KEYS))
        await gateway.start()
        (info,) = await gateway.overview.brokers(ANYONE)
        assert [f"to '{queue}-dlq' after 2 deliveries" in each for each in info.warnings] == [True] * warned
        if warned:
            await eventually(lambda: "max_attempts 3 of its route is never reached" in caplog.text)
        await gateway.close()


@pytest.mark.parametrize("suffix", ["", "-dlq"])
async def test_a_short_retention_is_warned_of(moto: Server, queue: str, suffix: str) -> None:
    """ElasticMQ has none."""
    plain, name, retention = client(moto.port), queue + suffix, "MessageRetentionPeriod"
    async with binding(moto.url()) as one:
        native = one.native_queue(queue, {})
        assert await one.queue_warnings(native, 3600) == []
        made = await asyncio.to_thread(plain.create_queue, QueueName=name, Attributes={retention: "600"})
        (warning,) = await one.queue_warnings(native, 3600)
        assert warning == f"Amazon SQS drops messages of the queue {name} after 600 s (MessageRetentionPeriod)."
        assert await one.queue_warnings(native, 600) == []
        url, longest = made["QueueUrl"], {retention: "1209600"}
        await asyncio.to_thread(plain.set_queue_attributes, QueueUrl=url, Attributes=longest)
        assert await one.queue_warnings(native, 10_000_000) == [], "it cannot be longer"


async def test_a_native_redrive_policy_is_served(one: SqsBinding, plain: Any, queue: str) -> None:
    await asyncio.to_thread(with_redrive_policy, plain, queue, 2)
    native = one.native_queue(queue, {})
    assert await one.delivery_limit(native) == DeliveryLimit(2, f"{queue}-dlq")
    await one.publish(native, [Outgoing(body(1))])
    for _ in range(2):
        (delivery,) = await one.reserve(native, 1, 20, 30)
        await one.release(native, [delivery.handle], 0, failed=True)
    assert await one.reserve(native, 1, 0, 30) == [], "Amazon moves it now"
    records, _ = await one.read_dead(native, None, 10)
    assert [number(each.body) for each in records] == [1]


async def test_a_second_purge_within_a_minute_says_when(moto: Server, queue: str) -> None:
    async with binding(moto.url()) as one:
        native = one.native_queue(queue, STANDARD)
        await one.publish(native, [Outgoing(body())])
        assert await one.purge(native) == 1
        with pytest.raises(PurgeInProgress):
            await one.purge(native)


async def test_without_a_region_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError) as refusal:
        async with binding("sqs://"):
            pass
    assert refusal.value.key == "region"


async def test_a_role_is_assumed(moto: Server, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With moto as the service that gives its credentials."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{moto.port}")
    role = "arn:aws:iam::123456789012:role/gateway"
    async with binding(f"{moto.url()}&assume_role_arn={role}") as one:
        native = one.native_queue(queue, STANDARD)
        await one.publish(native, [Outgoing(body(1))])
        credentials = one._client._client._request_signer._credentials
        assert (await credentials.get_frozen_credentials()).access_key.startswith("ASIA")
        assert await taken(one, native, 1) == [1]


async def test_a_reject_at_another_process_dead_letters_at_the_receiver(elastic: Server, queue: str) -> None:
    world = World(SqsBroker(elastic, STANDARD), queue)
    receiver, other = await world.process(), await world.process()
    await receiver.publish({"n": 1})
    message = await receiver.one()
    assert await other.reject(message, error="no stock") == [None]
    (letter,) = await other.dead()
    assert (data(message), letter.error) == ({"n": 1}, "no stock")
    await receiver.publish({"n": 2})
    message = await receiver.one(1)
    await receiver.close()
    assert [type(each) for each in await other.reject(message)] == [LeaseLost], "nobody has its body any more"

    async def comes_again() -> bool:
        return [data(each) for each in await other.receive()] == [{"n": 2}]

    await until(comes_again)
    await world.close()


async def test_a_delayed_nack_is_counted_as_leased_and_a_delayed_message_is_not(one: SqsBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish(native, [Outgoing(body(1)), Outgoing(body(2), delay_seconds=900)])
    (delivery,) = await one.reserve(native, 1, 20, 30)
    assert await one.release(native, [delivery.handle], 600, True) == [None]

    async def are_counted() -> bool:
        stats = await one.stats(native)
        return (stats.depth, stats.in_flight, stats.delayed) == (0, 1, 1)

    await until(are_counted)
