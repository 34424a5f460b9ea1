"""What is special to Kafka: looks at a queue after the broker was killed, and dead letters that are removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.kafka import admin
from babelgate.brokers.kafka.admin import KafkaAdmin
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.consumer_thread import resumed
from babelgate.brokers.kafka.emptiness import LogEnds
from babelgate.brokers.kafka.membership import generation_of
from babelgate.brokers.kafka.reader import Position
from babelgate.errors import BodyTooLarge, BrokerUnavailable, UnsupportedByBroker
from tests.brokers.kafka.harness import STANDARD, binding, create, limit_bytes, read, set_topic, settings, write
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.harness.world import LIMIT_SECONDS, until

pytestmark = pytest.mark.kafka


def letters(count: int) -> list[Outgoing]:
    return [Outgoing(b'{"n":%d}' % number, dedup_id="i") for number in range(count)]


@pytest.mark.parametrize("call", [".list_consumer_group_offsets(", ".describe_consumer_groups(", ".describe_cluster("])
def test_the_client_for_administration_is_not_asked_what_may_end_the_process(call: str) -> None:
    """In librdkafka 2.16 a fault or an assertion does, when the coordinator of a group moves, or a broker is fenced."""
    sources = Path(admin.__file__).parent.glob("*.py")
    assert [each.name for each in sources if call in each.read_text("utf-8")] == []


@pytest.mark.slow
async def test_a_broker_that_was_fenced_is_asked(queue: str) -> None:
    """At first it answers that the cluster has no broker."""
    with kafka() as server:
        async with binding(server.url(), {"timeout_seconds": 5}) as opened:
            await opened.publish(opened.native_queue(queue, STANDARD), letters(1))
            server.pause()
            # The server's broker.session.timeout.ms, and a second.
            asking = time.monotonic() + 4
            while time.monotonic() < asking:
                with pytest.raises(BrokerUnavailable):
                    await opened.ping()
            server.resume()

            async def answers() -> bool:
                await opened.ping()
                return True

            await until(answers)
            assert await opened.publish(opened.native_queue(queue, STANDARD), letters(1)) == [None]


async def test_a_topic_that_several_create_at_once(one: KafkaBinding, other: KafkaBinding, queue: str) -> None:
    """It is one topic, and no call fails because another was faster."""
    native = one.native_queue(queue, STANDARD)
    calls = [each.publish(native, letters(1)) for each in (one, other, one, other)]
    assert await asyncio.gather(*calls) == [[None]] * 4
    assert len(await one.peek(native, 10)) == 4


async def test_a_binding_that_was_closed_can_be_opened_again(one: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    for number in range(3):
        assert await one.publish(native, letters(1)) == [None]
        assert len(await one.peek(native, 10)) == 1
        (found,) = await one.reserve(native, 10, LIMIT_SECONDS, 60)
        assert await one.ack(native, [found.handle]) == [None]
        assert (await one.stats(native)).depth == 0, number
        await one.close()
        await one.open()


@pytest.mark.slow
async def test_a_queue_is_counted_again_after_its_broker_was_killed(queue: str) -> None:
    """While leaders and coordinators are not there yet the error is BrokerUnavailable, and no other."""
    with kafka() as server:
        async with binding(server.url(), {"timeout_seconds": 5}) as opened:
            native = opened.native_queue(queue, STANDARD)
            await opened.publish(native, letters(3))
            for _ in range(3):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)

                async def is_counted() -> bool:
                    try:
                        return (await opened.stats(native)).depth == 3
                    except BrokerUnavailable:
                        return False

                await until(is_counted)


async def test_a_removed_letter_is_listed_by_no_process(one: KafkaBinding, other: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish_dead_letters(native, letters(6))
    page, cursor = await one.read_dead(native, None, 3)
    assert cursor is not None
    rest, end = await one.read_dead(native, cursor, 3)
    assert ([each.body for each in (*page, *rest)], end) == ([each.body for each in letters(6)], None)
    removed, _ = await one.remove_dead(native, [page[2], rest[1]], None)
    assert removed == [True, True]
    left = [page[0].body, page[1].body, rest[0].body, rest[2].body]
    for process in (one, other):
        found, _ = await process.read_dead(native, None, 10)
        assert [each.body for each in found] == left
        assert (await process.stats(native)).dead == 4
    again, _ = await other.remove_dead(native, [page[2], rest[1]], None)
    assert again == [False, False]


async def test_of_two_removals_at_once_one_has_removed(one: KafkaBinding, other: KafkaBinding, queue: str) -> None:
    native = one.native_queue(queue, STANDARD)
    await one.publish_dead_letters(native, letters(20))
    page, _ = await one.read_dead(native, None, 20)
    answers = await asyncio.gather(*(each.remove_dead(native, page[1:], None) for each in (one, other, one, other)))
    counts = [sum(column) for column in zip(*(removed for removed, _ in answers), strict=True)]
    assert counts == [1] * 19
    found, _ = await other.read_dead(native, None, 20)
    assert [each.body for each in found] == [page[0].body]


async def test_what_is_removed_from_the_front_is_deleted(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    """And so is a marked letter behind it."""
    native = one.native_queue(queue, STANDARD)
    await one.publish_dead_letters(native, letters(4))
    page, _ = await one.read_dead(native, None, 4)
    assert await one.remove_dead(native, [page[1]], None) == ([True], None)
    assert await one.remove_dead(native, [page[0]], None) == ([True], None)
    left: list[Any] = await asyncio.to_thread(read, server.port, f"{queue}.dlq")
    assert [each.value() for each in left] == [page[2].body, page[3].body]
    assert await one.purge_dead(native) == 2
    assert await one.read_dead(native, None, 4) == ([], None)


async def test_the_largest_body_of_a_topic(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    """The limit of the error is the truth: so many bytes are taken, and one more is refused before a byte is sent."""
    create(server.port, queue, partitions=1, **{"max.message.bytes": "3000"})
    native = one.native_queue(queue, STANDARD)

    def sized(size: int) -> Outgoing:
        return Outgoing(b'{"n":"%s"}' % (b"x" * (size - 8)), dedup_id="i", headers={"name": "wert"}, ordering_key="key")

    (refusal,) = await one.publish(native, [sized(3000)])
    assert isinstance(refusal, BodyTooLarge)
    assert refusal.actual == 3000
    largest = refusal.limit
    (refusal,) = await one.publish(native, [sized(largest + 1)])
    assert isinstance(refusal, BodyTooLarge)
    assert (refusal.actual, refusal.limit) == (largest + 1, largest)
    assert await one.publish(native, [sized(largest)]) == [None]
    stored: Any
    (stored,) = await asyncio.to_thread(read, server.port, queue)
    longer = {"value": stored.value() + b"x", "key": stored.key(), "headers": stored.headers()}
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        await asyncio.to_thread(write, server.port, queue, longer)


async def test_a_batch_is_larger_than_the_largest_body(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    """The broker's limit counts all records that are written at once."""
    create(server.port, queue, partitions=1, **{"max.message.bytes": "3000"})
    native = one.native_queue(queue, STANDARD)
    small = [Outgoing(b'{"n":"%d%s"}' % (number, b"x" * 400), dedup_id="i") for number in range(200)]
    assert await one.publish(native, small) == [None] * 200
    stored: list[Any] = await asyncio.to_thread(read, server.port, queue)
    assert [each.value() for each in stored] == [each.body for each in small]


async def test_a_limit_that_was_lowered_is_learned(one: KafkaBinding, server: KafkaServer, queue: str) -> None:
    """The batch that shows it may be repeated: it says nothing about the sizes of its bodies."""
    create(server.port, queue, partitions=1)
    native = one.native_queue(queue, STANDARD)
    small = [Outgoing(b'{"n":"%s"}' % (b"x" * 400), dedup_id="i")] * 100
    assert await one.publish(native, small[:1]) == [None]
    await asyncio.to_thread(limit_bytes, server.port, queue, 3000)
    refusals = await one.publish(native, small)
    assert any(refusals)
    for refusal in refusals:
        assert refusal is None or (isinstance(refusal, BrokerUnavailable) and "max.message.bytes" in str(refusal))
    assert await one.publish(native, small) == [None] * 100


async def test_the_client_shows_the_generation_of_its_group(server: KafkaServer, queue: str) -> None:
    """In bytes that are not documented: it changes with each subscription, also for a member without a partition."""
    create(server.port, queue, f"{queue}-other")
    member_settings = settings(server.port) | {"group.id": queue, "group.protocol": "consumer"}

    def generations() -> list[int]:
        holder, member = Consumer(member_settings), Consumer(member_settings)
        found = [generation_of(member)]
        try:
            holder.subscribe([queue])
            limit = time.monotonic() + LIMIT_SECONDS
            while not holder.assignment() and time.monotonic() < limit:
                holder.poll(0.1)
            for topics in ([queue], [queue, f"{queue}-other"], [queue]):
                member.subscribe(topics)
                while generation_of(member) in (0, found[-1]) and time.monotonic() < limit:
                    holder.poll(0.01)
                    member.poll(0.01)
                found.append(generation_of(member))
            return found
        finally:
            member.close()
            holder.close()

    first, *others = await asyncio.to_thread(generations)
    assert first <= 0 < others[0] < others[1] < others[2]


async def test_a_resumed_partition_goes_on_at_once(server: KafkaServer, queue: str) -> None:
    """librdkafka by itself always takes nearly a second, so that a backlog came in steps of a thousand a second."""
    write(server.port, queue, *({"value": b"%d" % number} for number in range(2000)))
    found = settings(server.port) | {"group.id": queue, "auto.offset.reset": "earliest", "queued.min.messages": 10}
    consumer: Any = Consumer(found)

    def pauses() -> list[float]:
        at, taken = [TopicPartition(queue, 0)], 0
        waits: list[float] = []
        consumer.subscribe([queue])
        while len(waits) < 8:
            taken += len(consumer.consume(100, 60))
            consumer.pause(at)
            resumed(consumer, at)
            since = time.monotonic()
            (record,) = consumer.consume(1, 60)
            waits.append(time.monotonic() - since)
            assert record.value() == b"%d" % taken
            taken += 1
        consumer.close()
        return waits

    assert min(await asyncio.to_thread(pauses)) < 0.5


class Asked(KafkaAdmin):
    """An administration that notes what it is asked for."""

    fails_together = False
    """Whether questions about several topics fail; a cluster cannot be made to fail one at will."""

    def __init__(self, port: int) -> None:
        super().__init__("kafka", settings(port), LIMIT_SECONDS)
        self.asked: list[set[str]] = []

    async def offsets(self, positions: Sequence[Position], *, latest: bool, again: bool = True) -> dict[Position, int]:
        names = {name for name, _ in positions}
        self.asked.append(names)
        if self.fails_together and len(names) > 1:
            raise BrokerUnavailable(self.broker, "one partition has no leader")
        return await super().offsets(positions, latest=latest, again=again)


@pytest.mark.parametrize("fails_together", [False, True])
async def test_the_ends_of_several_logs(
    server: KafkaServer, queue: str, fails_together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for together, and one by one where that fails."""
    names = [f"{queue}.{number}" for number in range(3)]
    for number, name in enumerate(names):
        create(server.port, name, partitions=2)
        write(server.port, name, *[{"value": b"early"}] * number)
    # However slow the broker is.
    monkeypatch.setattr("babelgate.brokers.kafka.admin._ATTEMPT_SECONDS", LIMIT_SECONDS)
    asking = Asked(server.port)
    try:
        # Their partitions have leaders, then.
        await asking.offsets(await asking.positions(*names), latest=True)
        asking.asked.clear()
        asking.fails_together = fails_together
        ends = LogEnds(asking, LIMIT_SECONDS)
        since = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(ends.of(name, since, names) for name in names))
        assert [sum(each.values()) for each in found] == [0, 1, 2]
        assert [len(each) for each in found] == [2, 2, 2]
        write(server.port, names[0], {"value": b"later"})
        assert sum((await ends.of(names[0], asyncio.get_running_loop().time(), names)).values()) == 1
        alone = [{name} for name in (*names, names[0])] if fails_together else []
        assert [each for each in asking.asked if len(each) == 1] == alone
        if not fails_together:
            assert asking.asked == [set(names)] * 2
    finally:
        asking.close()


DAY_MS = 86_400_000


@pytest.mark.parametrize("suffix", ["", ".retry.1", ".dlq"])
@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"retention.ms": "60000"}, "deletes messages after 60 s (retention.ms)"),
        ({"retention.bytes": "1000000"}, "deletes its oldest messages beyond 1000000 bytes (retention.bytes)"),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, "deletes messages after 60 s (retention.ms)"),
        ({"retention.ms": "3600000"}, None),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "60000", "cleanup.policy": "compact"}, None),
    ],
)
async def test_a_topic_that_deletes_what_nobody_consumed_is_warned_of(
    one: KafkaBinding, server: KafkaServer, queue: str, suffix: str, config: Mapping[str, str], text: str | None
) -> None:
    native, topic = one.native_queue(queue, STANDARD), queue + suffix
    assert await one.queue_warnings(native, 3600) == []
    await asyncio.to_thread(lambda: create(server.port, topic, partitions=1, **config))

    async def seen() -> bool:
        return topic in await one._admin.settings_of(topic)

    await until(seen)
    found = [each for each in await one.queue_warnings(native, 3600) if "retention" in each]
    assert [f"The topic {topic} " in each and text is not None and text in each for each in found] == [True] * bool(
        text
    )


async def test_an_envelope_that_its_topic_would_delete_is_refused(
    one: KafkaBinding, server: KafkaServer, queue: str
) -> None:
    """At once, and after the retention was changed as soon as the topic was asked for its warnings."""
    native = one.native_queue(queue, STANDARD)
    await asyncio.to_thread(lambda: create(server.port, queue, partitions=1, **{"retention.ms": str(DAY_MS)}))

    def dated(age_ms: int) -> Outgoing:
        created = time.time_ns() // 1_000_000 - age_ms
        return Outgoing(b'{"job":"a","meta":{"created_at":%d}}' % created, dedup_id="i")

    old, young, copy = dated(DAY_MS + 1), dated(DAY_MS - 600_000), dated(2 * DAY_MS)
    copy = Outgoing(copy.body)
    outcomes = await one.publish(native, [young, old, copy])
    assert [type(each) for each in outcomes] == [type(None), UnsupportedByBroker, type(None)]
    refusal = outcomes[1]
    assert isinstance(refusal, UnsupportedByBroker)
    assert (refusal.problem_code, refusal.facts["maximum"]) == ("message_too_old", 86_400)
    delayed = Outgoing(old.body, dedup_id="i", delay_seconds=0.1)
    assert await one.publish(native, [delayed]) == [None], "it is dated when it leaves its tier"
    late = Outgoing(dated(8 * DAY_MS).body, dedup_id="i", is_late=True)
    assert await one.publish(native, [late]) == [None], "it was parked until now"
    await asyncio.to_thread(set_topic, server.port, queue, "retention.ms", str(3 * DAY_MS))

    async def allowed() -> bool:
        await one.queue_warnings(native, 60)
        return list(await one.publish(native, [old])) == [None]

    await until(allowed)
    await asyncio.to_thread(set_topic, server.port, queue, "message.timestamp.type", "LogAppendTime")

    async def by_the_broker() -> bool:
        await one.queue_warnings(native, 60)
        return list(await one.publish(native, [dated(30 * DAY_MS)])) == [None]

    await until(by_the_broker)
