"""The members of the share group for one topic, and which of their records are ready and leased."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import AcknowledgeType

from app.brokers.binding import Outcome
from app.brokers.kafka.membership import Watchdog
from app.brokers.kafka.options import KafkaQueue
from app.brokers.kafka.share_member import Key, ShareThread, Tell, member_settings
from app.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown
from app.runtime.cache import Cache

MOST_MEMBERS = 32
"""Members of a topic in a process. One that has a lease receives nothing more, so each serves one load at a time."""

SIZES = (1, 16, 256)
"""How many records a load should have, by the number that is asked for. A member has one of these sizes for good. What
a load has beyond that is locked for nobody."""

_ALONE_SECONDS = 0.3
"""So long one member alone looks for messages. Then all do: the group may have given the partitions to others."""

HOLD_SECONDS = 4.0
"""How long after it was locked a record may be handed out. After that it is released."""

MARGIN_SECONDS = 10.0
"""What a lease is shorter than the lock of the broker: HOLD_SECONDS, and the time to settle it at its end."""

_LINGER_SECONDS = 1.0
"""After this time without receives and leases here, what was not asked for is released."""

_IDLE_SECONDS = 30.0
"""How long a member without a load stays in the group. To join takes heartbeats of the group, 5 s by default."""

_ACCEPTED_BYTES = 4 * 1024 * 1024
"""Of the handles that were acked last, remembered for each queue: about 10,000."""

State = Literal["ready", "leased", "copied", "returned"]


class ShareRecord:
    """A record that a member has locked. ``since``: a time of the loop before the lock began. ``count``: how often the
    broker has delivered it. ``settled``: the outcome of ``kind``, once it is sent."""

    __slots__ = ("count", "handle", "key", "kind", "member", "message", "settled", "since", "state", "timestamp")

    def __init__(self, member: ShareMember, message: Any, since: float) -> None:
        self.member = member
        self.message = message
        self.since = since
        self.key: Key = (message.partition(), message.offset())
        self.timestamp: int = message.timestamp()[1]
        self.count: int = message.delivery_count() or 1
        self.state: State = "ready"
        self.handle = ""
        self.kind: AcknowledgeType | None = None
        self.settled: asyncio.Future[Outcome] | None = None


class ShareMember:
    """One member, as the event loop knows it. ``loads``: how many loads it had. ``size``: one of SIZES. ``open_at``:
    since when it polls, as one that has joined; None while it does not. ``looked_at``: when its last poll began that
    has ended without a record."""

    def __init__(
        self, number: int, client: Mapping[str, Any], topic: str, size: int, timeout_seconds: float, tell: Tell
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.loads = 0
        self.load: dict[Key, ShareRecord] = {}
        self.joined = False
        self.closing = False
        self.size = size
        self.open_at: float | None = loop.time()
        self.looked_at = -1.0
        self.free_at = loop.time()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.watchdog = Watchdog(loop.time)
        self._report: asyncio.Future[None] | None = None
        self._thread = ShareThread(member_settings(client, size), topic, timeout_seconds, tell)

    def open(self) -> None:
        """Poll until there is a load."""
        if self.open_at is None and not self.closing:
            self.open_at = asyncio.get_running_loop().time()
            self._thread.open()

    def take_load(self, messages: Sequence[Any], since: float) -> None:
        """The records of a poll, which may be locked since ``since``, of ``time.monotonic``."""
        began = loop_time(since)
        self.loads += 1
        self.open_at = None
        for each in messages:
            record = ShareRecord(self, each, began)
            self.load[record.key] = record

    def settle(self, records: Collection[ShareRecord], kind: AcknowledgeType) -> None:
        """Send the records' ends to the broker."""
        self._thread.settle([(each.key, kind) for each in records])

    def report(self) -> asyncio.Future[None]:
        """Done when the client has reported its connections again."""
        if self._report is None:
            self._report = asyncio.get_running_loop().create_future()
            self._thread.report()
        return self._report

    def reported(self) -> None:
        """The client has reported its connections, or is used no more."""
        report, self._report = self._report, None
        if report is not None and not report.done():
            report.set_result(None)

    def close(self) -> None:
        """Give back what is not settled, and end."""
        self.closing = True
        self._thread.close()


def loop_time(monotonic: float) -> float:
    """The time of the event loop at a time of ``time.monotonic``."""
    return asyncio.get_running_loop().time() - (time.monotonic() - monotonic)


class ShareTopic:
    """A topic in use. ``leased``: its leased records by handle."""

    def __init__(self, broker: str, queue: KafkaQueue) -> None:
        self.queue = queue
        self._broker = broker
        self.members: list[ShareMember] = []
        self.leased: dict[str, ShareRecord] = {}
        self.waiting = 0
        self.copying = 0
        self.used_at = asyncio.get_running_loop().time()
        self.failed_at = -1.0
        self.failure: BabelgateError = BrokerUnavailable(broker, "nothing has failed")
        self.changed = asyncio.Event()
        self._accepted: Cache[str, None] = Cache(_ACCEPTED_BYTES)

    @property
    def ready(self) -> list[ShareRecord]:
        """The records that may be handed out."""
        return [each for member in self.members for each in member.load.values() if each.state == "ready"]

    @property
    def free(self) -> list[ShareMember]:
        """The members without a load."""
        return [each for each in self.members if not each.load and not each.closing]

    def look(self, limit: int, since: float) -> int | None:
        """Let members look for ``limit`` messages, asked for since ``since``; return the size of a member that lacks.

        One of the right size is preferred to a smaller one, and that to a larger one.
        """
        size = next((each for each in SIZES if each >= limit), SIZES[-1])
        free = self.free
        joined = sorted((each for each in free if each.joined), key=lambda each: (each.size > size, -each.size))
        lacking = len(self.members) < MOST_MEMBERS and all(each.size != size for each in free)
        now = asyncio.get_running_loop().time()
        if now - since >= _ALONE_SECONDS:
            for each in joined:
                each.open()
        elif joined and all(each.open_at is None for each in joined) and (joined[0].size <= size or not lacking):
            joined[0].open()
        return size if lacking else None

    def has_looked(self, since: float) -> bool:
        """Whether each free member that has joined has polled in vain after ``since``, and there is one."""
        joined = [each for each in self.free if each.joined]
        return bool(joined) and all(
            each.open_at is not None and each.looked_at >= max(since, each.open_at) for each in joined
        )

    def reason(self) -> str:
        """Why nobody knows whether messages are ready."""
        if self.free:
            return f"the share group has not answered yet for the topic {self.queue.name}"
        leases = f"{len(self.members)} members have leases of the topic {self.queue.name}"
        return f"{leases}, and a member with a lease receives nothing"

    def replace_absent(self, *, answered: bool) -> None:
        """Close the members that stay without the group. ``answered``: the cluster has just answered another client."""
        for each in self.free:
            if each.joined:
                each.watchdog.reset()
            elif each.watchdog.is_absent(answered=answered):
                each.close()
                self.drop(each)

    def add(self, member: ShareMember) -> None:
        """Begin to use a member."""
        self.members.append(member)

    def member(self, number: int) -> ShareMember | None:
        """The member ``number``, if it has not ended."""
        return next((each for each in self.members if each.number == number), None)

    def settled(self, member: ShareMember, key: Key, error: Outcome) -> None:
        """The broker has answered. A record whose end failed cannot be settled any more by this client."""
        record = member.load.pop(key, None)
        if record is None:
            return
        if self.leased.pop(record.handle, None) is not None and error is None and record.kind == AcknowledgeType.ACCEPT:
            self._accepted.keep(record.handle, None)
        if record.settled is not None and not record.settled.done():
            record.settled.set_result(error)

    def lose(self, members: Collection[ShareMember]) -> list[ShareRecord]:
        """End the leases of these members, whose records the broker has released; return what they have to forget."""
        lost = [each for member in members for each in member.load.values() if each.settled is None]
        for each in lost:
            self.leased.pop(each.handle, None)
        return lost

    def holders(self, member: ShareMember) -> list[ShareMember]:
        """The other members that have records of the load of ``member``. The broker locks a record once."""
        return [each for each in self.members if each is not member and not each.load.keys().isdisjoint(member.load)]

    def was_accepted(self, handle: str) -> bool:
        """Whether an ack of the delivery was confirmed."""
        return handle in self._accepted

    def fail(self, member: ShareMember, failure: BabelgateError) -> None:
        """The member is useless: the broker takes its records back."""
        self.failed_at = asyncio.get_running_loop().time()
        self.failure = failure
        self.drop(member)

    def remove(self, member: ShareMember) -> None:
        """The thread of the member has ended."""
        self.drop(member)
        self.members = [each for each in self.members if each is not member]
        if not member.ended.done():
            member.ended.set_result(None)

    def drop(self, member: ShareMember) -> None:
        """Use the member no more. Ends that are on their way have no answer."""
        member.closing = True
        member.reported()
        for key in list(member.load):
            self.settled(member, key, OutcomeUnknown(self._broker, "the member left the share group before the answer"))

    def lease(self, record: ShareRecord, incarnation: str) -> str:
        """Lease a ready record; return its handle."""
        partition, offset = record.key
        record.handle = f"{incarnation}.{record.member.number:x}.{record.member.loads:x}.{partition}.{offset}"
        record.state = "leased"
        self.leased[record.handle] = record
        return record.handle

    def close(self) -> None:
        """End all members."""
        for each in self.members:
            each.close()
            self.drop(each)
        self.changed.set()

    def unclaimed(self, now: float) -> list[ShareRecord]:
        """The ready records that are to be released: they are old, or nobody uses the queue here."""
        unused = not self.waiting and not self.leased and now - self.used_at >= _LINGER_SECONDS
        found = [each for each in self.ready if unused or now - each.since >= HOLD_SECONDS]
        if unused:
            # Others may wait for the records.
            for member in {each.member for each in found}:
                member.close()
        return found

    def expired(self, now: float, lock_seconds: float) -> list[ShareRecord]:
        """The records whose locks have ended."""
        records = [each for member in self.members for each in member.load.values()]
        return [each for each in records if now - each.since >= lock_seconds and each.settled is None]

    def close_idle(self, now: float) -> bool:
        """Close the members that were not needed for a while; return whether none is left."""
        for each in self.free:
            if not self.waiting and now - max(self.used_at, each.free_at) >= _IDLE_SECONDS:
                each.close()
        return not self.members and not self.waiting and now - self.used_at >= _IDLE_SECONDS
