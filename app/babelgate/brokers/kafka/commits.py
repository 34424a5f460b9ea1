"""Gathers acks into commits: one is under way at a time, so that no later one is overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError

from babelgate.brokers.binding import Outcome
from babelgate.brokers.kafka.consumer_thread import ConsumerThread
from babelgate.brokers.kafka.errors import translate
from babelgate.brokers.kafka.partitions import Partition, TopicInUse
from babelgate.brokers.kafka.reader import Position
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

SIGN_SECONDS = 2.0
"""How often a member shows that it works on what it has leased. Others count on it for
:data:`babelgate.brokers.kafka.emptiness.JOIN_SECONDS`."""

_throttled = LogThrottle(get_logger(__name__))


class AckCommit:
    """Acks that one commit records: the offsets of each partition, and the future of its outcome."""

    def __init__(self) -> None:
        self.offsets: dict[Position, list[int]] = {}
        self.states: dict[Position, Partition] = {}
        self.outcomes: dict[Position, KafkaError | None] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Committer:
    """The commits of one member. ``thread``: that of the member, None without one. ``settled`` is called with each
    partition whose acks have ended."""

    def __init__(self, broker: str, timeout_seconds: float, settled: Callable[[Position, Partition], None]) -> None:
        self.thread: ConsumerThread | None = None
        self.pending: AckCommit | None = None
        self.under_way: AckCommit | None = None
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._settled = settled
        self._signed_at = 0.0
        self._plain: set[str] = set()
        """Topics whose commits the broker takes without metadata only."""

    def send(self) -> None:
        """Commit the pending acks, unless a commit is under way."""
        if self.under_way is not None or self.pending is None or self.thread is None:
            return
        commit, self.pending = self.pending, None
        self.under_way = commit
        wanted = {}
        for position, offsets in commit.offsets.items():
            partition = commit.states[position]
            offset, metadata = partition.commit(offsets)
            if position[0] in self._plain:
                metadata = ""
            wanted[position] = (partition.generation, offset, metadata)
        self.thread.commit(wanted)

    def record(self, position: Position, partition: Partition, *offsets: int) -> AckCommit:
        """The next commit, which will record the acks of ``offsets``; without any it shows whether the partition is
        still ours."""
        pending = self.pending = self.pending or AckCommit()
        pending.offsets.setdefault(position, []).extend(offsets)
        pending.states[position] = partition
        return pending

    def give_signs(self, topics: Iterable[TopicInUse]) -> None:
        """Commit for each partition in which all messages are leased, unless that was done in the last SIGN_SECONDS."""
        now = asyncio.get_running_loop().time()
        if now - self._signed_at < SIGN_SECONDS:
            return
        self._signed_at = now
        for topic in topics:
            for number, partition in topic.partitions.items():
                if partition.give_sign():
                    self.record((topic.queue.name, number), partition)
        self.send()

    def proof(self, commit: AckCommit, position: Position) -> Outcome:
        """The outcome of a proof: LeaseLost where the group has given the partition to another member."""
        error = commit.outcomes.get(position)
        if error is not None and error.code() == KafkaError.STALE_MEMBER_EPOCH:
            return BrokerUnavailable(self._broker, "the consumer group is about to move partitions")
        outcome = self.outcome(commit, position)
        if isinstance(outcome, OutcomeUnknown):
            return BrokerUnavailable(self._broker, outcome.reason)
        return outcome

    def ended(self, results: Mapping[Position, KafkaError | None]) -> None:
        """Partitions of the commit that is under way have their answers."""
        commit = self.under_way
        if commit is None:
            return
        too_large = {}
        for position, error in results.items():
            if position not in commit.offsets or position in commit.outcomes:
                continue
            partition = commit.states[position]
            if error is not None and error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                self._plain.add(position[0])
                _throttled.warning(
                    "acks behind an unacked message are not recorded: offset.metadata.max.bytes is too small",
                    broker=self._broker,
                    topic=position[0],
                )
                offset, _ = partition.commit(())
                too_large[position] = (partition.generation, offset, "")
                continue
            commit.outcomes[position] = error
            partition.end(commit.offsets[position], committed=error is None)
            self._settled(position, partition)
        if too_large and self.thread is not None:
            self.thread.commit(too_large)
        elif commit.outcomes.keys() == commit.offsets.keys():
            self.under_way = None
            commit.done.set_result(None)
            self.send()

    def outcome(self, commit: AckCommit, position: Position) -> Outcome:
        """The outcome of the acks of ``position``."""
        if position not in commit.outcomes:
            if commit is self.pending or commit is self.under_way:
                return OutcomeUnknown(self._broker, f"no answer to a commit within {self._timeout_seconds:g} s")
            return OutcomeUnknown(self._broker, "the member left the group before its commit was answered")
        error = commit.outcomes[position]
        return None if error is None else translate(error, self._broker, written=True).without_frames()

    def fail(self) -> None:
        """End all commits without an answer."""
        for commit in (self.under_way, self.pending):
            if commit is not None and not commit.done.done():
                commit.done.set_result(None)
        self.under_way = self.pending = None
