"""Decides whether a queue is known to be empty for a receive: a receive that does not know is no empty list."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from babelgate.brokers.bounded import finished, within
from babelgate.brokers.kafka.admin import KafkaAdmin
from babelgate.brokers.kafka.partitions import AckedOffsets, TopicInUse
from babelgate.brokers.kafka.reader import KafkaReader, Position
from babelgate.errors import BrokerUnavailable
from babelgate.runtime.cache import Cache

JOIN_SECONDS = 5.0
"""How long the partitions of a topic may take to come, after it was subscribed or after one was revoked: the default of
``group.consumer.heartbeat.interval.ms``. Also how long messages of another member's partition may
wait without an ack or a sign of it (:data:`babelgate.brokers.kafka.commits.SIGN_SECONDS`) before it may be dead."""

_PROGRESS_BYTES = 4 * 1024 * 1024
_PROGRESS_BYTES_EACH = 400

_Ends = Mapping[str, Mapping[int, int]]


class Progress(Struct):
    """What the group had committed of a partition, ``since`` when this process has seen nothing else, and whether the
    log is known to have a record there."""

    offset: int
    metadata: int
    since: float
    is_record: bool = False


class Doubt(Struct, frozen=True):
    """Why it is not known whether the queue is empty. ``may_pass``: it is worth to wait for the rest of the call's
    time."""

    reason: str
    may_pass: bool

    def error(self, broker: str) -> BrokerUnavailable:
        """The error of the receive. A broker that has answered is not lost."""
        made = BrokerUnavailable(broker, self.reason)
        made.answered = not self.may_pass
        return made


class Look(Struct):
    """What the cluster has said during a receive: the ends of all partitions; which were assigned here then; those in
    which not all is acked, and of these the ones elsewhere without any progress for JOIN_SECONDS."""

    ends: Mapping[int, int]
    assigned: frozenset[int]
    unacked: frozenset[int]
    stalled: frozenset[int]

    def doubt(self, topic: TopicInUse, now: float, *, is_member: bool) -> Doubt | None:
        """Why an empty answer would say something that is not known; None if the queue is empty for this process: all
        was read, and what is not acked is leased here, or another member has it and makes progress."""
        if any(topic.is_behind(number, end) for number, end in self.ends.items()):
            return Doubt("records of the log have not arrived", True)
        elsewhere = {number for number in self.unacked if number not in topic.partitions}
        if not is_member and self.unacked:
            return Doubt("this process is no member of the consumer group now", True)
        for number, partition in topic.partitions.items():
            if len(partition) or partition.position < self.ends.get(number, 0):
                held = f"{partition.span} offsets behind the first unacked message of partition {number}"
                return Doubt(f"max_held is reached: messages are ready {held}", False)
        if not self.assigned <= topic.partitions.keys():
            return Doubt("a partition has moved to another member of the group", True)
        if elsewhere and not topic.answered:
            return Doubt("the consumer group has not answered", True)
        if stalled := elsewhere & self.stalled:
            number = min(stalled)
            reason = f"another member of the group has partition {number}, and has acked none of its messages for "
            reason += f"{JOIN_SECONDS:g} s, nor shown that it works on them"
            return Doubt(reason, False)
        if elsewhere and now - topic.moved_at < JOIN_SECONDS:
            return Doubt("", True)
        return None


class LogEnds:
    """The ends of topics, by one question at a time for all that ask at once.

    An empty answer to a reserve takes a question that began during the reserve. A reserve that has waited for a while
    shares the question of another one, so that many idle queues together ask no more often than one.
    """

    def __init__(self, admin: KafkaAdmin, shared_seconds: float) -> None:
        """``shared_seconds``: how long to wait for the answer about several topics."""
        self._admin = admin
        self._shared_seconds = shared_seconds
        self._began = -math.inf
        self._names: frozenset[str] = frozenset()
        self._asking: asyncio.Task[_Ends] | None = None

    async def of(self, name: str, since: float, others: Iterable[str]) -> Mapping[int, int]:
        """The ends of the partitions of the topic ``name``, as the cluster knew them at some time after ``since``, a
        time of the loop. ``others``: topics whose ends may be asked for soon, too.

        Raises BrokerError. A cancelled call leaves the question to those who share it. Where a question about several
        topics fails or is slow, each asks for its own: one partition without a leader is enough for that.
        """
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or self._began < since or name not in self._names or _has_failed(asking):
            self._began, self._names = loop.time(), frozenset({name, *others})
            asking = self._asking = loop.create_task(self._ask(self._names))
            asking.add_done_callback(_has_failed)
        if len(self._names) == 1 or (await finished(asking, self._shared_seconds) and not _has_failed(asking)):
            found = await asyncio.shield(asking)
        else:
            found = await self._ask({name})
        return found.get(name, {})

    async def _ask(self, names: Collection[str]) -> _Ends:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        positions = await self._admin.positions(*names)
        offsets = await self._admin.offsets(positions, latest=True, again=len(names) == 1)
        for (name, number), offset in offsets.items():
            found[name][number] = offset
        return found


def _has_failed(asking: asyncio.Task[_Ends]) -> bool:
    return asking.done() and (asking.cancelled() or asking.exception() is not None)


class Emptiness:
    """Asks the cluster, for all receives of a process. ``now``: a time of the loop."""

    def __init__(self, broker: str, group: str, admin: KafkaAdmin, reader: KafkaReader, timeout_seconds: float) -> None:
        self._broker = broker
        self._group = group
        self._admin = admin
        self._reader = reader
        self._ends = LogEnds(admin, timeout_seconds / 2)
        self._progress: Cache[str, Progress] = Cache(_PROGRESS_BYTES, _PROGRESS_BYTES_EACH)

    async def look(self, topic: TopicInUse, since: float, until: float, waiting: Iterable[str]) -> Look:
        """Ask, in the time until ``until``. ``since``: when the receive began. ``waiting``: the topics for which
        receives wait. Raises BrokerUnavailable without an answer."""
        loop = asyncio.get_running_loop()
        name = topic.queue.name
        ends = await within(until - loop.time(), self._broker, self._ends.of(name, since, waiting))
        assigned = frozenset(topic.partitions)
        others = [(name, number) for number in ends if number not in assigned]
        left = until - loop.time()
        committed = await within(left, self._broker, self._admin.commits.of(self._group, others)) if others else {}
        unacked, stalled = set(), set()
        for position in others:
            offset, metadata = committed.get(position, (0, ""))
            acked = AckedOffsets(offset, metadata)
            first = next((each for each in range(offset, ends[position[1]]) if each not in acked), None)
            if first is None:
                self._progress.forget(_key(position))
                continue
            unacked.add(position[1])
            progress = self._note(position, offset, hash(metadata), loop.time())
            if loop.time() - progress.since < JOIN_SECONDS:
                continue
            if not progress.is_record:
                # The end of a transaction has an offset, too.
                read = self._reader.read(position, first, 1)
                found, _ = await within(until - loop.time(), self._broker, read)
                progress.is_record = any(each.offset() not in acked for each in found)
            if progress.is_record:
                stalled.add(position[1])
            else:
                unacked.discard(position[1])
        unacked |= {number for number, each in topic.partitions.items() if len(each.leased)}
        return Look(ends, assigned, frozenset(unacked), frozenset(stalled))

    def _note(self, position: Position, offset: int, metadata: int, now: float) -> Progress:
        known = self._progress.get(_key(position))
        if known is None or (known.offset, known.metadata) != (offset, metadata):
            known = Progress(offset, metadata, now)
            self._progress.keep(_key(position), known)
        return known


def _key(position: Position) -> str:
    return f"{position[0]}:{position[1]}"
