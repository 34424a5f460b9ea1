"""Which dead letters were removed: of a topic that an operator creates again, and in bounded memory."""

from __future__ import annotations

import asyncio
import random

import pytest
from confluent_kafka.admin import AdminClient

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.kafka.admin import Topic
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.brokers.kafka.dead_letters import OffsetSet, RememberedTopics, RemovedLetters
from tests.brokers.kafka.harness import STANDARD, settings
from tests.brokers.kafka.server import KafkaServer
from tests.harness.world import until

pytestmark = pytest.mark.kafka


def letters(*numbers: int) -> list[Outgoing]:
    return [Outgoing(b'{"n":%d}' % number, dedup_id="i") for number in numbers]


def delete(server: KafkaServer, *topics: str) -> None:
    admin = AdminClient(settings(server.port))
    for asked in admin.delete_topics(list(topics)).values():
        asked.result(60)


@pytest.mark.parametrize("with_markers", [False, True], ids=["letters", "letters-and-markers"])
async def test_letters_of_a_topic_that_was_created_again_are_listed(
    one: KafkaBinding, other: KafkaBinding, server: KafkaServer, queue: str, with_markers: bool
) -> None:
    """Their offsets are those of letters that were removed before."""
    native = one.native_queue(queue, STANDARD)
    await one.publish_dead_letters(native, letters(1, 2, 3))
    page, _ = await one.read_dead(native, None, 10)
    assert await one.remove_dead(native, page[1:], None) == ([True, True], None)
    for process in (one, other):
        assert (await process.stats(native)).dead == 1
    topics = [f"{queue}.dlq", f"{queue}.dlq.removed"] if with_markers else [f"{queue}.dlq"]
    await asyncio.to_thread(delete, server, *topics)

    async def are_written() -> bool:
        return await one.publish_dead_letters(native, letters(4, 5, 6)) == [None] * 3

    await until(are_written)
    wanted = [each.body for each in letters(4, 5, 6)]
    for process in (one, other):
        found, _ = await process.read_dead(native, None, 10)
        assert [each.body for each in found] == wanted
        assert (await process.stats(native)).dead == 3
    assert await other.remove_dead(native, [found[1]], None) == ([True], None)
    for process in (one, other):
        left, _ = await process.read_dead(native, None, 10)
        assert [each.body for each in left] == [wanted[0], wanted[2]]


def test_a_set_of_offsets() -> None:
    chance, offsets, model = random.Random(1), OffsetSet(), set[int]()
    for _ in range(2000):
        offset = chance.randrange(20_000)
        if chance.random() < 0.7:
            offsets.add(offset)
            model.add(offset)
        else:
            offsets.discard(offset)
            model.discard(offset)
    for _ in range(200):
        start, end = chance.randrange(20_000), chance.randrange(20_000)
        wanted = sorted(each for each in model if start <= each < end)
        assert list(offsets.offsets(start, end)) == wanted
        assert offsets.count(start, end) == len(wanted)
    assert all((offset in offsets) == (offset in model) for offset in range(20_000))
    for offset in model:
        offsets.discard(offset)
    assert offsets.size == 0


def test_a_million_removed_letters_take_little_memory() -> None:
    removed = RemovedLetters()
    removed.begin(Topic("dlq", 1, None, b"a" * 16), None)
    for offset in range(1_000_000):
        removed.note(b"0:%d" % offset, removed.marker(b"o" * 16))
    assert removed.of(0).count(0, 2_000_000) == 1_000_000
    assert removed.size < 250_000


def test_topics_beyond_the_bound_are_forgotten_unless_they_are_in_use() -> None:
    remembered = RememberedTopics(most=3)

    async def use() -> None:
        first = remembered.of("first")
        async with first.lock:
            for number in range(10):
                remembered.of(f"other {number}")
                assert len(remembered) <= 4
            assert remembered.of("first") is first
        remembered.of("one more")
        assert len(remembered) == 3

    asyncio.run(use())
    small = RememberedTopics(max_bytes=10_000)
    for number in range(20):
        removed = small.of(str(number))
        removed.begin(Topic("dlq", 1, None, b"a" * 16), None)
        for offset in range(0, 20_000, 4096):
            removed.note(b"0:%d" % offset, removed.marker(b"o" * 16))
    assert len(small) <= 3


def test_a_marker_counts_for_its_topic_only() -> None:
    """One of an older version has no id of the topic, and counts for any."""
    markers = Topic("markers", 1, None, b"m" * 16)
    removed = RemovedLetters()
    removed.begin(Topic("dlq", 1, None, b"a" * 16), markers)
    old = removed.marker(b"o" * 16)
    assert removed.note(b"0:7", old) == (0, 7)
    assert removed.note(b"0:7", old) is None, "the first marker decides"
    removed.begin(Topic("dlq", 1, None, b"b" * 16), markers)
    assert removed.read_up_to == 0
    assert removed.note(b"0:7", old) is None
    assert 7 not in removed.of(0)
    assert removed.note(b"0:8", b"o" * 16) == (0, 8)
    assert removed.note(b"0:8", None) is None
    assert 8 not in removed.of(0)
