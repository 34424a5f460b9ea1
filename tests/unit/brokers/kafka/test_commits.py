"""Commits of acks: one at a time, what they fall back to, and what becomes of them when the member leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from babelgate.brokers.kafka.commits import AckCommit, Committer
from babelgate.brokers.kafka.partitions import Partition, TopicInUse
from babelgate.brokers.kafka.reader import Position
from babelgate.brokers.kafka.url import KafkaQueue
from babelgate.errors import LeaseLost, OutcomeUnknown

HERE: Position = ("orders", 0)


class Thread:
    """Keeps the commits that it is handed."""

    def __init__(self) -> None:
        self.sent: list[Mapping[Position, tuple[int, int, str]]] = []

    def commit(self, offsets: Mapping[Position, tuple[int, int, str]]) -> None:
        self.sent.append(offsets)


class Member:
    """A committer with a partition of leased records, and the thread that it hands its commits to."""

    def __init__(self) -> None:
        self.thread = Thread()
        self.settled: list[Position] = []
        self.commits = Committer("kafka", 5, lambda position, partition: self.settled.append(position))
        thread: Any = self.thread
        self.commits.thread = thread
        self.partition = Partition(7, 0, None, 100)
        for offset in range(10):
            self.partition.arrive(offset, None)
        self.partition.take(10)

    def ack(self, *offsets: int) -> AckCommit:
        commit = self.commits.pending = self.commits.pending or AckCommit()
        for offset in offsets:
            assert self.partition.begin(offset)
            commit.offsets.setdefault(HERE, []).append(offset)
        commit.states[HERE] = self.partition
        self.commits.send()
        return commit


async def test_one_commit_is_under_way_and_later_acks_share_the_next() -> None:
    member = Member()
    first, second, third = member.ack(0), member.ack(2), member.ack(1)
    assert second is third is not first
    assert [each[HERE][:2] for each in member.thread.sent] == [(7, 1)]
    assert isinstance(member.commits.outcome(first, HERE), OutcomeUnknown)
    member.commits.ended({HERE: None})
    assert first.done.done()
    assert member.commits.outcome(first, HERE) is None
    assert [each[HERE] for each in member.thread.sent[1:]] == [(7, 3, "")]
    assert not second.done.done()
    member.commits.ended({HERE: None})
    assert member.commits.outcome(second, HERE) is None
    assert member.settled == [HERE, HERE]
    assert member.commits.under_way is None


async def test_signs_of_life_are_given_every_two_seconds_in_one_commit() -> None:
    member = Member()
    topic = TopicInUse(KafkaQueue("orders"))
    topic.partitions[0] = member.partition
    topic.partitions[1] = Partition(8, 0, None, 100)
    for _ in range(3):
        member.commits.give_signs([topic])
    assert [set(each) for each in member.thread.sent] == [{HERE}], "the other partition has no lease"
    member.commits.ended({HERE: None})
    assert len(member.partition.leased) == 10


async def test_metadata_that_is_too_large_is_left_out_from_then_on() -> None:
    member = Member()
    commit = member.ack(5)
    assert member.thread.sent[0][HERE][1] == 0
    assert member.thread.sent[0][HERE][2]
    member.commits.ended({HERE: KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)})
    assert not commit.done.done()
    assert member.thread.sent[1] == {HERE: (7, 0, "")}
    member.commits.ended({HERE: None})
    assert member.commits.outcome(commit, HERE) is None
    member.ack(3)
    assert member.thread.sent[2] == {HERE: (7, 0, "")}


async def test_a_refused_commit_is_a_lost_lease_and_acks_nothing() -> None:
    member = Member()
    commit = member.ack(0)
    member.commits.ended({HERE: KafkaError(KafkaError.STALE_MEMBER_EPOCH)})
    assert isinstance(member.commits.outcome(commit, HERE), LeaseLost)
    assert 0 in member.partition.leased
    assert not member.partition.was_acked(0)


async def test_after_the_member_has_left_all_outcomes_are_unknown() -> None:
    member = Member()
    under_way, pending = member.ack(0), member.ack(1)
    member.commits.thread = None
    member.commits.fail()
    await asyncio.wait_for(asyncio.gather(under_way.done, pending.done), 60)
    for commit in (under_way, pending):
        assert isinstance(member.commits.outcome(commit, HERE), OutcomeUnknown)
    # An answer that comes now belongs to nothing.
    member.commits.ended({HERE: None})
    assert member.settled == []
