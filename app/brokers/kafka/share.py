"""Receives and settles messages by share groups: the members of each topic, and the records that they have."""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from confluent_kafka import AcknowledgeType

from app.brokers.binding import Delivery, Outcome
from app.brokers.bounded import signalled, within
from app.brokers.kafka.admin import KafkaAdmin
from app.brokers.kafka.errors import settle_error
from app.brokers.kafka.message import delivery_of
from app.brokers.kafka.options import KafkaQueue
from app.brokers.kafka.publish import KafkaProducer
from app.brokers.kafka.share_copies import renewed
from app.brokers.kafka.share_group import ShareGroupSettings, ShareLimits, failure_of
from app.brokers.kafka.share_topic import HOLD_SECONDS, ShareMember, ShareRecord, ShareTopic, loop_time
from app.brokers.kafka.url import KafkaSettings
from app.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger
from app.runtime.background import error_seen

_SPARE_SECONDS = 0.1
_RECHECK_SECONDS = 0.02
_WATCH_SECONDS = 0.2

_GUARD_SECONDS = 1.0
"""How often members without the group are looked for."""

_CLOSE_SECONDS = 3.0

_throttled = LogThrottle(get_logger("babelgate.kafka"))


class ShareConsumer:
    """The members of all topics with ``consume: share`` in this process. A topic is joined with the first reserve."""

    def __init__(
        self,
        broker: str,
        settings: KafkaSettings,
        admin: KafkaAdmin,
        producer: KafkaProducer,
        timeout_seconds: float,
    ) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._client = settings.client
        self._admin = admin
        self._producer = producer
        self._group = ShareGroupSettings(broker, settings.client, settings.share_lock_seconds)
        self._limits: ShareLimits | None = None
        self._incarnation = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._topics: dict[str, ShareTopic] = {}
        self._watching: asyncio.Task[None] | None = None
        self._guarding: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._probed_at = 0.0
        self._copying: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Leave the group; the broker gets all back that is not settled."""
        for task in (self._watching, self._guarding, self._probe, *self._copying):
            if task is not None:
                task.cancel()
        self._watching = self._guarding = self._probe = None
        topics, self._topics = list(self._topics.values()), {}
        ended = [member.ended for topic in topics for member in topic.members]
        for topic in topics:
            topic.close()
        if ended:
            await asyncio.wait(ended, timeout=_CLOSE_SECONDS)

    async def reserve(self, queue: KafkaQueue, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`app.brokers.binding.Binding.reserve`. BrokerUnavailable where no member was free to ask."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        until = since + wait_seconds
        last = until + self._timeout_seconds - _SPARE_SECONDS
        if not self._admin.knows(queue.name):
            await within(max(last - since, 0.5), self._broker, self._admin.ensured(queue, queue.name))
        if self._limits is None:
            self._limits = await within(last - loop.time(), self._broker, self._group.limits(last - loop.time()))
        topic = self._use(queue)
        topic.waiting += 1
        try:
            while True:
                if topic.failed_at >= since:
                    raise topic.failure.without_frames()
                if taken := self._take(topic, limit):
                    return taken
                self._look(topic, limit, since)
                topic.changed.clear()
                left = until - loop.time()
                if left <= 0:
                    break
                await signalled(topic.changed, min(left, _WATCH_SECONDS))
            await within(last - loop.time(), self._broker, self._probed(since))
            return await self._last_look(topic, limit, since, last)
        finally:
            topic.waiting -= 1
            topic.used_at = loop.time()

    async def ack(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """Accept; those of one member that come while its commit is under way share the next one."""
        return await self._settle(queue, handles, AcknowledgeType.ACCEPT)

    async def release(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """Release: the broker delivers the records again, to any process."""
        return await self._settle(queue, handles, AcknowledgeType.RELEASE)

    def outstanding(self, queue: KafkaQueue, handles: Sequence[str]) -> list[bool]:
        """Whether each record is leased, and still locked as far as this process knows."""
        now = asyncio.get_running_loop().time()
        found = [self._find(queue, handle) for handle in handles]
        return [each is not None and not self._is_over(each, now) for each in found]

    async def prove(self, queue: KafkaQueue, handles: Sequence[str]) -> list[Outcome]:
        """The client can ask for no lock. It lasts until its time is over or its connection ends, which the client
        reports with its statistics: those after an answer of the cluster are waited for."""
        await within(self._timeout_seconds, self._broker, self._probed(asyncio.get_running_loop().time()))
        members = {each.member for handle in handles if (each := self._find(queue, handle)) is not None}
        reports = [each.report() for each in members]
        if reports and (await asyncio.wait(reports, timeout=self._timeout_seconds))[1]:
            raise BrokerUnavailable(self._broker, "a member of the share group has not reported its connections")
        return [None if is_out else LeaseLost() for is_out in self.outstanding(queue, handles)]

    def leased(self, name: str) -> Mapping[int, Collection[int]]:
        """The offsets of the topic ``name`` that this process has leased, by partition."""
        topic = self._topics.get(name)
        found: dict[int, list[int]] = {}
        for each in topic.leased.values() if topic is not None else ():
            found.setdefault(each.key[0], []).append(each.key[1])
        return found

    def drop_ready(self, name: str, ends: Mapping[int, int]) -> None:
        """Forget ready records before these offsets of the topic's partitions, which were deleted."""
        topic = self._topics.get(name)
        if topic is not None:
            self._give_back([each for each in topic.ready if each.key[1] < ends.get(each.key[0], 0)])

    # Reserving

    def _use(self, queue: KafkaQueue) -> ShareTopic:
        topic = self._topics.get(queue.name)
        if topic is None:
            topic = self._topics[queue.name] = ShareTopic(self._broker, queue)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
            self._guarding = asyncio.create_task(self._guard())
        return topic

    def _look(self, topic: ShareTopic, limit: int, since: float) -> None:
        """Let members look for messages, and begin one of the right size if none is free."""
        size = topic.look(limit, since)
        if size is not None:
            number = next(self._numbers)
            tell = partial(self._told, asyncio.get_running_loop(), topic, number)
            topic.add(ShareMember(number, self._client, topic.queue.name, size, self._timeout_seconds, tell))

    def _take(self, topic: ShareTopic, limit: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        ready = [each for each in topic.ready if now - each.since < HOLD_SECONDS]
        ready.sort(key=attrgetter("timestamp", "key"))
        taken = []
        for each in ready[:limit]:
            handle = topic.lease(each, self._incarnation)
            taken.append(delivery_of(each.message, handle, redelivered=each.count > 1))
        return taken

    async def _last_look(self, topic: ShareTopic, limit: int, since: float, until: float) -> list[Delivery]:
        """What comes until a member has polled in vain for a while. Raises BrokerUnavailable without a free member."""
        loop = asyncio.get_running_loop()
        while True:
            if taken := self._take(topic, limit):
                return taken
            if topic.failed_at >= since:
                raise topic.failure.without_frames()
            self._look(topic, limit, -math.inf)
            if not topic.copying and topic.has_looked(since):
                return []
            if loop.time() >= until:
                raise BrokerUnavailable(self._broker, topic.reason())
            topic.changed.clear()
            await signalled(topic.changed, _RECHECK_SECONDS)

    async def _probed(self, since: float) -> None:
        """Wait for an answer of the cluster to a question after ``since``, which all topics share."""
        loop = asyncio.get_running_loop()
        probe = self._probe
        if probe is None or self._probed_at < since or (probe.done() and (probe.cancelled() or probe.exception())):
            self._probed_at = loop.time()
            probe = self._probe = asyncio.ensure_future(self._admin.probe(self._timeout_seconds))
            probe.add_done_callback(error_seen)
        await asyncio.shield(probe)

    # Settling

    def _find(self, queue: KafkaQueue, handle: str) -> ShareRecord | None:
        """The record of ``handle`` if it is leased here."""
        topic = self._topics.get(queue.name)
        return None if topic is None else topic.leased.get(handle)

    def _is_over(self, record: ShareRecord, now: float) -> bool:
        assert self._limits is not None
        return now - record.since >= self._limits.lock_seconds - _SPARE_SECONDS

    async def _settle(self, queue: KafkaQueue, handles: Sequence[str], kind: AcknowledgeType) -> list[Outcome]:
        now = asyncio.get_running_loop().time()
        outcomes: list[Outcome] = [None] * len(handles)
        waiting: list[tuple[int, ShareRecord]] = []
        for index, handle in enumerate(handles):
            record = self._find(queue, handle)
            if record is None or self._is_over(record, now):
                topic = self._topics.get(queue.name)
                known = topic is not None and kind == AcknowledgeType.ACCEPT and topic.was_accepted(handle)
                outcomes[index] = None if known else LeaseLost()
            else:
                waiting.append((index, record))
        if not waiting:
            return outcomes
        self._send([record for _, record in waiting], kind)
        answers = [record.settled for _, record in waiting if record.settled is not None]
        await asyncio.wait(answers, timeout=self._timeout_seconds)
        for index, record in waiting:
            answer = record.settled
            if answer is None or not answer.done():
                outcomes[index] = OutcomeUnknown(self._broker, f"no answer within {self._timeout_seconds:g} s")
            elif (error := answer.result()) is not None:
                outcomes[index] = error
            elif record.kind != kind:
                outcomes[index] = LeaseLost()
        return outcomes

    def _send(self, records: Iterable[ShareRecord], kind: AcknowledgeType) -> None:
        """Let the members settle the records, unless they do so already."""
        by_member: dict[ShareMember, list[ShareRecord]] = {}
        for each in records:
            if each.settled is None:
                each.kind = kind
                each.settled = asyncio.get_running_loop().create_future()
                by_member.setdefault(each.member, []).append(each)
        for member, several in by_member.items():
            member.settle(several, kind)

    def _give_back(self, records: Sequence[ShareRecord]) -> None:
        """Release records that nobody has here."""
        for each in records:
            each.state = "returned"
        self._send(records, AcknowledgeType.RELEASE)

    # Events of the threads

    def _told(self, loop: asyncio.AbstractEventLoop, topic: ShareTopic, number: int, kind: str, what: Any) -> None:
        """In the thread of a member."""
        # The event loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._hear, topic, number, kind, what)

    def _hear(self, topic: ShareTopic, number: int, kind: str, what: Any) -> None:
        member = topic.member(number)
        if member is None:
            return
        now = asyncio.get_running_loop().time()
        if kind == "records":
            self._arrive(topic, member, *what)
        elif kind == "looked":
            member.looked_at = loop_time(what)
        elif kind == "joined":
            member.joined = what
            if member.open_at is not None:
                member.open_at = now
        elif kind == "settled":
            failures = set()
            for key, error in what.items():
                failure = None if error is None else settle_error(error, self._broker).without_frames()
                failures.add(type(failure))
                topic.settled(member, key, failure)
            if LeaseLost in failures:
                # What was locked together is released together: the session has ended, or the lock.
                self._give_back(topic.lose([member]))
            if not member.load:
                member.free_at = now
        elif kind == "reported":
            member.reported()
        elif kind == "lost":
            self._give_back(topic.lose([member]))
        elif kind == "failed":
            topic.fail(member, failure_of(what, self._broker))
            _throttled.warning("a member of the share group has failed", broker=self._broker, error=str(topic.failure))
        else:
            topic.remove(member)
        topic.changed.set()

    def _arrive(self, topic: ShareTopic, member: ShareMember, messages: Sequence[Any], since: float) -> None:
        assert self._limits is not None
        member.take_load(messages, since)
        self._give_back(topic.lose(topic.holders(member)))
        limit = self._limits.deliveries
        worn = [each for each in member.load.values() if 1 < each.count >= limit - 1]
        if worn:
            for each in worn:
                each.state = "copied"
            task = asyncio.create_task(self._copy(topic, worn, limit))
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(self, topic: ShareTopic, worn: Sequence[ShareRecord], limit: int) -> None:
        """Write records anew that the broker would drop after another delivery, and accept the originals."""
        assert self._limits is not None
        lock_ends = worn[0].since + self._limits.lock_seconds - _SPARE_SECONDS
        topic.copying += 1
        try:
            async for record, error in renewed(self._producer, self._broker, worn, lock_ends):
                if error is None:
                    self._send([record], AcknowledgeType.ACCEPT)
                    continue
                _throttled.warning(
                    "a message that was delivered too often cannot be written anew",
                    queue=topic.queue.name,
                    partition=record.key[0],
                    offset=record.key[1],
                    deliveries=record.count,
                    limit=limit,
                    error=str(error),
                )
                if record.count < limit:
                    self._give_back([record])
            answers = [each.settled for each in worn if each.settled is not None]
            if answers:
                await asyncio.wait(answers, timeout=self._timeout_seconds)
        finally:
            topic.copying -= 1
            topic.changed.set()

    async def _watch(self) -> None:
        """Give back what nobody asks for, and close members and topics that are not used."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            assert self._limits is not None
            now = asyncio.get_running_loop().time()
            for topic in list(self._topics.values()):
                self._give_back(topic.unclaimed(now))
                expired = topic.expired(now, self._limits.lock_seconds)
                for each in expired:
                    topic.leased.pop(each.handle, None)
                self._give_back(expired)
                if topic.close_idle(now):
                    del self._topics[topic.queue.name]

    async def _guard(self) -> None:
        """Replace members that stay without the group although the cluster answers."""
        while True:
            await asyncio.sleep(_GUARD_SECONDS)
            absent = [each for each in self._topics.values() if any(not member.joined for member in each.free)]
            try:
                if absent:
                    await self._probed(asyncio.get_running_loop().time())
                answered = True
            except BabelgateError:
                answered = False
            for topic in self._topics.values():
                topic.replace_absent(answered=answered)
