"""When a record leaves its retry tier, and what is committed when: with a consumer that only notes what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from babelgate.brokers.kafka.message import Written
from babelgate.brokers.kafka.retry_member import TierMember, _before, _Waiting
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable

TIER = "orders.retry.1"
NOW = 1_700_000_000_000
CREATED, APPENDED = 1, 2


class Record:
    """A record of confluent-kafka."""

    def __init__(self, offset: int, timestamp: tuple[int, int] = (APPENDED, NOW), partition: int = 0) -> None:
        self._offset = offset
        self._timestamp = timestamp
        self._partition = partition

    def topic(self) -> str:
        return TIER

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def value(self) -> bytes:
        return b"%d" % self._offset

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None


class Consumer:
    """What the re-injector asks of its consumer, in order."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.first = 0
        self.refusal: KafkaException | None = None

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append(("pause", [each.partition for each in partitions]))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append(("resume", [each.partition for each in partitions]))

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return []

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        return self.first, 1000

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        self.log.append(("commit", {each.partition: each.offset for each in offsets}))
        if self.refusal is not None:
            raise self.refusal
        return offsets


class Scene:
    """A member without its thread, at the time ``now``. ``answer`` decides what becomes of each written value."""

    def __init__(self, answer: Callable[[bytes], BabelgateError | None] = lambda value: None) -> None:
        self.log: list[Any] = []
        self.now = NOW
        self.set_back = 0
        self.answer = answer
        self.consumer = Consumer(self.log)
        self.member = TierMember("main", {}, {TIER: 5.0}, self.move, lambda: self.now + self.set_back, lambda: self.now)

    async def move(self, records: Sequence[Written]) -> list[BabelgateError | None]:
        """In the place of the re-injector's own."""
        values = [each.value or b"" for each in records]
        assert {each.topic for each in records} == {"orders"}
        self.log.append(("write", [int(each) for each in values]))
        return [self.answer(each) for each in values]

    def hold(self, *records: Record) -> None:
        for each in records:
            self.member._hold(self.consumer, each, 5.0)

    async def turn(self, now: int) -> list[Any]:
        """What the thread does at ``now`` after a poll."""
        self.now = now
        del self.log[:]

        def work() -> None:
            self.member._send_due(self.consumer)
            self.member._commit(self.consumer)

        await asyncio.to_thread(work)
        return self.log


def due(scene: Scene, partition: int = 0) -> list[int]:
    return [each.due - NOW for each in scene.member._held[TIER, partition]]


async def test_a_delay_counts_from_the_date_of_the_record() -> None:
    scene = Scene()
    scene.hold(
        Record(0, (APPENDED, NOW - 2000)),
        Record(1, (CREATED, NOW - 1000)),
        Record(2, (APPENDED, NOW - 9000)),
        Record(3, (APPENDED, NOW + 60_000)),
        Record(4, (0, -1)),
        Record(5, (APPENDED, -1)),
    )
    assert due(scene) == [3000, 4000, 0, 5000, 5000, 5000], "never in the past, never later than a whole delay"


async def test_a_partition_with_a_record_that_waits_is_paused_once() -> None:
    scene = Scene()
    scene.hold(Record(0), Record(1), Record(0, partition=1))
    assert scene.log == [("pause", [0]), ("pause", [1])]


def test_no_record_overtakes_the_one_before_it() -> None:
    held = [_Waiting(at, None) for at in (1, 3, 2, 4)]
    assert [[each.due for each in _before(held, now)] for now in (0, 1, 2, 3, 4)] == [
        *([], [1], [1], [1, 3, 2], [1, 3, 2, 4]),
    ]


async def test_an_offset_is_committed_after_the_write_is_confirmed() -> None:
    scene = Scene()
    scene.hold(Record(7), Record(8), Record(9, (APPENDED, NOW + 1000)))
    assert await scene.turn(NOW + 4999) == []
    assert await scene.turn(NOW + 5000) == [("write", [7, 8, 9]), ("resume", [0]), ("commit", {0: 10})]


async def test_those_that_are_due_leave_their_partitions_in_the_order_in_which_they_fell_due() -> None:
    scene = Scene()
    scene.hold(Record(1, (APPENDED, NOW - 1000)), Record(2, (APPENDED, NOW - 2000)))
    scene.hold(Record(3, (APPENDED, NOW - 1500), partition=1), Record(4, (APPENDED, NOW - 3000), partition=2))
    assert (await scene.turn(NOW + 5000))[0] == ("write", [4, 3, 1, 2])


async def test_what_is_not_due_yet_waits_and_is_not_committed() -> None:
    scene = Scene()
    scene.hold(Record(7, (APPENDED, NOW - 1000)), Record(8))
    assert await scene.turn(NOW + 4000) == [("write", [7]), ("commit", {0: 8})]
    assert await scene.turn(NOW + 5000) == [("write", [8]), ("resume", [0]), ("commit", {0: 9})]


async def test_after_a_failure_all_are_written_again_in_their_order() -> None:
    failure: BabelgateError | None = BrokerUnavailable("main", "down")
    scene = Scene(lambda value: failure)
    scene.hold(Record(0), Record(1), Record(2))
    assert await scene.turn(NOW + 5000) == [("write", [0, 1, 2])]
    failure = None
    assert await scene.turn(NOW + 5999) == [], "there is a pause of a second"
    assert await scene.turn(NOW + 6000) == [("write", [0, 1, 2]), ("resume", [0]), ("commit", {0: 3})]


async def test_a_clock_that_is_set_back_delays_nothing() -> None:
    """What is held counts by a clock that no one sets."""
    scene = Scene()
    scene.hold(Record(0))
    scene.set_back = -3_600_000
    assert await scene.turn(NOW + 4999) == []
    assert await scene.turn(NOW + 5000) == [("write", [0]), ("resume", [0]), ("commit", {0: 1})]


async def test_a_call_that_fails_as_a_whole_is_repeated() -> None:
    scene = Scene()
    scene.hold(Record(0))

    async def down(records: Sequence[Written]) -> list[BabelgateError | None]:
        raise BrokerUnavailable("main", "down")

    scene.member._move = down
    assert await scene.turn(NOW + 5000) == []
    scene.member._move = scene.move
    assert await scene.turn(NOW + 6000) == [("write", [0]), ("resume", [0]), ("commit", {0: 1})]


async def test_a_record_that_is_refused_keeps_its_partition_waiting_and_no_other() -> None:
    """What was written behind it is not written again, and not committed before it."""
    refusal: BabelgateError | None = BrokerRejected("main", "no")
    scene = Scene(lambda value: refusal if value == b"1" else None)
    scene.hold(Record(0), Record(1), Record(2), Record(9, partition=1))
    assert await scene.turn(NOW + 5000) == [("write", [0, 1, 2, 9]), ("resume", [1]), ("commit", {0: 1, 1: 10})]
    scene.hold(Record(10, partition=1))
    assert await scene.turn(NOW + 5500) == [("write", [10]), ("resume", [1]), ("commit", {1: 11})]
    assert await scene.turn(NOW + 6000) == [("write", [1])]
    refusal = None
    assert await scene.turn(NOW + 7000) == [("write", [1]), ("resume", [0]), ("commit", {0: 3})]


async def test_a_commit_that_fails_is_repeated() -> None:
    scene = Scene()
    scene.consumer.refusal = KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    scene.hold(Record(0))
    assert await scene.turn(NOW + 5000) == [("write", [0]), ("resume", [0]), ("commit", {0: 1})]
    scene.consumer.refusal = None
    assert await scene.turn(NOW + 5999) == []
    assert await scene.turn(NOW + 6000) == [("commit", {0: 1})]
    assert await scene.turn(NOW + 9000) == []


async def test_a_revoked_partition_is_forgotten() -> None:
    scene = Scene()
    scene.hold(Record(0), Record(4, partition=1))
    scene.member._revoked(scene.consumer, [TopicPartition(TIER, 0)])
    assert await scene.turn(NOW + 5000) == [("write", [4]), ("resume", [1]), ("commit", {1: 5})]


async def test_nothing_of_a_revoked_partition_is_committed() -> None:
    scene = Scene()
    scene.consumer.refusal = KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
    scene.hold(Record(0))
    await scene.turn(NOW + 5000)
    scene.member._revoked(scene.consumer, [TopicPartition(TIER, 0)])
    assert await scene.turn(NOW + 6000) == []


async def test_what_was_written_and_not_committed_is_known_when_the_partition_comes_back() -> None:
    """As in a restart of the broker, after which the group does not know its member any more."""
    scene = Scene()
    scene.consumer.refusal = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    scene.hold(Record(0), Record(1))
    await scene.turn(NOW + 5000)
    scene.member._revoked(scene.consumer, [TopicPartition(TIER, 0)])
    scene.consumer.refusal = None
    scene.hold(Record(0), Record(1), Record(2))
    assert await scene.turn(NOW + 6000) == [("write", [2]), ("resume", [0]), ("commit", {0: 3})]
    assert not scene.member._written


async def test_another_record_with_the_offset_of_one_that_was_written_is_moved() -> None:
    scene = Scene()
    scene.consumer.refusal = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    scene.hold(Record(0))
    await scene.turn(NOW + 5000)
    scene.member._revoked(scene.consumer, [TopicPartition(TIER, 0)])
    scene.consumer.refusal = None
    scene.hold(Record(0, (APPENDED, NOW + 1)))
    assert await scene.turn(NOW + 6000) == [("write", [0]), ("resume", [0]), ("commit", {0: 1})]


async def test_as_many_written_records_are_known_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.brokers.kafka.retry_member._MOST_KNOWN", 2)
    scene = Scene()
    scene.consumer.refusal = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    scene.hold(Record(0), Record(1), Record(2))
    await scene.turn(NOW + 5000)
    assert [list(each) for each in scene.member._written.values()] == [[1, 2]]


async def test_what_a_purge_has_deleted_is_not_moved() -> None:
    scene = Scene()
    scene.hold(Record(0), Record(1), Record(2))
    scene.consumer.first = 2
    assert await scene.turn(NOW + 5000) == [("write", [2]), ("resume", [0]), ("commit", {0: 3})]
    scene.hold(Record(3))
    scene.consumer.first = 9
    assert await scene.turn(NOW + 6000) == [("resume", [0]), ("commit", {0: 4})]


async def test_the_next_wait_ends_when_a_record_is_due() -> None:
    scene = Scene(lambda value: BrokerRejected("main", "no"))
    assert scene.member._wait() == 0.2
    scene.hold(Record(0, (APPENDED, NOW - 4900)))
    assert scene.member._wait() == 0.1
    await scene.turn(NOW + 100)
    assert scene.member._wait() == 0.2, "it is tried again after a second"
    scene.now = NOW + 1050
    assert round(scene.member._wait(), 3) == 0.05
