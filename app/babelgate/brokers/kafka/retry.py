"""Moves records from retry tiers back to their topics when they are due: one group of consumers with the SDKs' own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from babelgate.brokers.bounded import signalled
from babelgate.brokers.kafka.admin import KafkaAdmin, Topic
from babelgate.brokers.kafka.errors import translate
from babelgate.brokers.kafka.membership import guard
from babelgate.brokers.kafka.message import Written, room_of
from babelgate.brokers.kafka.publish import KafkaProducer
from babelgate.brokers.kafka.retry_member import TierMember
from babelgate.brokers.kafka.url import KafkaQueue, KafkaSettings
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BodyTooLarge, BrokerRejected, BrokerUnavailable
from babelgate.runtime.cache import Cache

GROUP = "babelqueue-retry-reinject"
"""The group of the SDKs of BabelQueue: each tier is served by one member, theirs or ours."""

_REFRESH_SECONDS = 30.0
"""How often topics are looked for that another process has created."""

_AGAIN_SECONDS = 1.0
"""The pause after a look for topics that failed."""

_WATCHED_BYTES = 16 * 1024 * 1024
_WATCHED_ENTRY_BYTES = 8_000
"""Of a queue that was used, with its options: a route has at most 99 delays."""


class KafkaReinjector:
    """The member of this process, which begins with the first retry tier of a queue in use, and ends with the binding.

    A tier waits for its own records only. The offset is committed after the write is confirmed, so that a process that
    stops in between leaves a record twice; it is never lost. One that has only lost its place in the group in between,
    as in a restart of the broker, knows what it has written. A record that cannot be written, because its topic does
    not exist any more or takes no message of its size, stays on its tier: it is tried again and again, with warnings,
    and what comes after it in its partition waits, too, until the topic is there, or takes it, or a purge deletes it.

    ``moved``: how many records this process has moved.
    """

    def __init__(
        self, settings: KafkaSettings, admin: KafkaAdmin, producer: KafkaProducer, clock: Clock, steady_clock: Clock
    ) -> None:
        self.broker = admin.broker
        self.moved = 0
        self._enabled = settings.reinject
        self._settings = dict(settings.client) | {
            # A member that subscribes while an answer about its topics is lost joins the group after the next look at
            # them only, and that is five minutes later by default.
            "topic.metadata.refresh.interval.ms": 5_000,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
        }
        self._admin = admin
        self._producer = producer
        self._clocks = clock, steady_clock
        self._watched: Cache[str, KafkaQueue] = Cache(_WATCHED_BYTES, _WATCHED_ENTRY_BYTES)
        """The queues used last, which may have tiers."""
        self._served: dict[str, KafkaQueue] = {}
        """The queues that were used and have tiers: as many as the cluster has topics for, at most."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._member: TierMember | None = None
        self._guarding: asyncio.Task[None] | None = None

    def watch(self, queue: KafkaQueue, tier: str | None = None) -> None:
        """Serve the retry tiers of ``queue`` from now on; ``tier``: one of them, which exists. No I/O."""
        is_served = tier is None or (self._member is not None and tier in self._member.tiers)
        if not self._enabled or self._admin.closed or (self._watched.get(queue.name) == queue and is_served):
            return
        if queue.retry_delays_seconds:
            self._watched.keep(queue.name, queue)
            self._changed.set()
            if self._task is None:
                self._task = asyncio.ensure_future(self._refresh())

    async def close(self) -> None:
        """Leave the group."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._watched.clear()
        self._served.clear()
        if self._guarding is not None:
            self._guarding.cancel()
            self._guarding = None
        member, self._member = self._member, None
        if member is not None:
            await member.close()

    async def move(self, records: Sequence[Written]) -> list[BabelgateError | None]:
        """Write records that are due to their topics; return the error of each, None once it is confirmed.

        Raises BrokerUnavailable when nothing was written.
        """
        topics = {name: await self._topic(name) for name in dict.fromkeys(each.topic for each in records)}
        results = [self._refusal(each, topics[each.topic]) for each in records]
        ready = [index for index, refusal in enumerate(results) if refusal is None]
        errors = await self._producer.send([records[index] for index in ready]) if ready else ()
        for index, error in zip(ready, errors, strict=True):
            if error is None:
                self.moved += 1
            else:
                self._admin.forget(records[index].topic)
                results[index] = translate(error, self.broker, written=True)
        return results

    async def _topic(self, name: str) -> Topic | BabelgateError:
        """The topic, or why it takes no records. The producer would wait for seconds for one that does not exist."""
        try:
            topic = await self._admin.topic(name)
        except Exception as error:
            # A header of another program may name what can be no topic.
            refusal = translate(error, self.broker, written=False)
            if isinstance(refusal, BrokerUnavailable):
                raise refusal from None
            return refusal
        return topic or BrokerRejected(self.broker, f"the topic {name} does not exist")

    def _refusal(self, record: Written, topic: Topic | BabelgateError) -> BabelgateError | None:
        """Why the record cannot be written; None if it may be."""
        if isinstance(topic, BabelgateError):
            return topic
        if topic.max_bytes is not None and len(record.value or b"") > (room := room_of(record, topic.max_bytes)):
            # It may take more by now.
            self._admin.forget(record.topic)
            return BodyTooLarge(actual=len(record.value or b""), limit=max(room, 0))
        return None

    async def _refresh(self) -> None:
        """Look for the tiers of the watched queues, again and again."""
        while True:
            self._changed.clear()
            try:
                existing = await self._admin.all_names()
            except BabelgateError:
                # The broker is down, and the next look is soon enough.
                existing = None
            if existing is not None:
                used = self._served | {name: queue for name in self._watched if (queue := self._watched.get(name))}
                self._served = {name: queue for name, queue in used.items() if not existing.isdisjoint(queue.tiers)}
                tiers = {
                    queue.tier(index): seconds
                    for queue in self._served.values()
                    for index, seconds in enumerate(queue.retry_delays_seconds)
                    if queue.tier(index) in existing
                }
                if self._member is not None:
                    self._member.tiers = tiers
                elif tiers:
                    self._member = TierMember(self.broker, self._settings, tiers, self.move, *self._clocks)
                    self._member.start()
                    has_group = partial(self._admin.commits.is_answered, GROUP)
                    self._guarding = asyncio.create_task(
                        guard(self._member.is_healthy, has_group, self._member.replace)
                    )
            await signalled(self._changed, _REFRESH_SECONDS if existing is not None else _AGAIN_SECONDS)
