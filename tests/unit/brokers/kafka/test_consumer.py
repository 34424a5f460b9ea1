"""What a member of the group does with the events of its thread, of which a stand-in has as many as a test gives it."""

from __future__ import annotations

from collections import deque
from typing import Any

from babelgate.brokers.kafka.consumer import GroupConsumer
from babelgate.brokers.kafka.partitions import Partition, TopicInUse
from babelgate.brokers.kafka.url import queue_of, settings_of
from babelgate.errors import LeaseLost


class Record:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "q"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Thread:
    closed = False

    def __init__(self) -> None:
        self.events: deque[Any] = deque()

    def close(self) -> None:
        self.closed = True


async def test_a_log_that_was_cut_under_a_lease_ends_the_member() -> None:
    unused: Any = None
    consumer = GroupConsumer("kafka", settings_of("kafka://127.0.0.1:1", {}), unused, unused, 5.0)
    queue = queue_of("q", {})
    topic = consumer._topics["q"] = TopicInUse(queue)
    partition = topic.partitions[0] = Partition(1, 100, None, queue.max_held)
    thread: Any = Thread()
    consumer._thread = thread
    assert partition.arrive(100, "record")
    assert [offset for offset, _, _ in partition.take(1)] == [100]
    handle = f"{consumer._incarnation}.1.0.100"
    assert consumer.outstanding(queue, [handle]) == [True]

    thread.events.append(("records", [Record(101)]))
    consumer._hear()
    assert not thread.closed

    thread.events.append(("records", [Record(0), Record(1)]))
    consumer._hear()
    assert thread.closed, "the next member reads from the new beginning"
    assert not topic.partitions
    (outcome,) = await consumer.ack(queue, [handle])
    assert isinstance(outcome, LeaseLost)
    assert consumer._failure is not None
    assert "the partition 0 of the topic q" in consumer._failure.text
