"""What happened, as lines that wait in memory for the disk; bounded."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from threading import Lock

from msgspec import UNSET, structs

from app.clock import Clock
from app.observe.events import Call, Event, EventKind, Facts
from app.observe.journal.record import VERSION, JournalEvent, Record, embedded, encode_into

_EVENTS: Mapping[EventKind, JournalEvent] = {
    "accepted": "accepted",
    "delivered": "delivered",
    "acked": "acked",
    "nacked": "nacked",
    "rejected": "rejected",
    "lease_expired": "lease_expired",
    "dead_lettered": "dead_lettered",
    "redriven": "redriven",
    "poison": "poison",
}
"""The transitions that have a record; the others are about leases and processes, not about messages."""
_OUTCOMES: Mapping[EventKind, str] = {"acked": "acked", "nacked": "nacked", "rejected": "rejected"}
_UNKNOWN = Facts()


class Buffer:
    """The lines of one process, in order; one thread observes, another takes.

    Holds ``limit`` bytes at most, and one line more. What is too much is counted, and a gap tells of it as soon as
    there is room. Its lock is never held during I/O.
    """

    def __init__(self, node: str, epoch: str, limit: int, clock: Clock, *, bodies: bool = False) -> None:
        """``bodies``: whether records hold them, where an event does."""
        self.limit = limit
        self.seq = 0
        """Of the last record: how many there are."""
        self.dropped = 0
        """How many were lost, all gaps together."""
        self._node = node
        self._epoch = epoch
        self._clock = clock
        self._bodies = bodies
        self._lock = Lock()
        self._lines = bytearray()
        self._taken = 0
        self._lost = 0
        self._first_lost_at = 0
        self._last_lost_at = 0

    @property
    def size(self) -> int:
        """Bytes that are not written yet."""
        return len(self._lines) + self._taken

    def observe(self, reported: Event | Call) -> None:
        """Add a record of each message of an event; blocks for no I/O, never raises."""
        if isinstance(reported, Call):
            return
        kind = reported.kind
        event = _EVENTS.get(kind)
        if event is None:
            return
        messages = reported.messages
        if reported.count > len(messages):
            messages = [*messages, *repeat(_UNKNOWN, reported.count - len(messages))]
        bodies = iter(reported.bodies) if self._bodies else None
        at, node, epoch, queue, broker = self._clock(), self._node, self._epoch, reported.queue, reported.broker
        lease_seconds, outcome = reported.lease_seconds, _OUTCOMES.get(kind, reported.reason)
        to_queue = reported.to_queue or UNSET
        with self._lock:
            lines, room = self._lines, self.limit - self._taken
            for facts in messages:
                body = None if bodies is None else next(bodies, None)
                if len(lines) >= room:
                    self._drop(at)
                    continue
                if self._lost:
                    self._add_gap(at)
                envelope, other = embedded(body)
                self.seq += 1
                record = Record(
                    VERSION,
                    node,
                    epoch,
                    self.seq,
                    event,
                    at,
                    queue,
                    broker,
                    facts.job,
                    facts.message_id,
                    facts.trace_id,
                    facts.attempts,
                    facts.created_at,
                    lease_seconds,
                    facts.size,
                    facts.lang,
                    outcome,
                    to_queue,
                    envelope,
                    other,
                )
                try:
                    encode_into(record, lines)
                except ValueError:
                    encode_into(_legible(record), lines)

    def take(self) -> bytes | bytearray:
        """All lines, whole; they take room until :meth:`written`. Empty: there are none."""
        with self._lock:
            lines, self._lines = self._lines, bytearray()
            self._taken += len(lines)
        return lines

    def written(self, count: int) -> None:
        """``count`` bytes of what was taken are on their way to the disk: there is room again."""
        with self._lock:
            self._taken -= count
            if self._lost and self.size < self.limit:
                self._add_gap(self._clock())

    def _drop(self, at: int) -> None:
        if not self._lost:
            self._first_lost_at = at
        self._last_lost_at = at
        self._lost += 1
        self.dropped += 1

    def _add_gap(self, at: int) -> None:
        self.seq += 1
        nothing = (None,) * 11
        record = Record(VERSION, self._node, self._epoch, self.seq, "gap", at, *nothing)
        encode_into(
            structs.replace(
                record, count=self._lost, first_lost_at=self._first_lost_at, last_lost_at=self._last_lost_at
            ),
            self._lines,
        )
        self._lost = 0


def _legible(record: Record) -> Record:
    """``record`` with ``?`` for what is no Unicode: JSON can spell half a surrogate pair, UTF-8 cannot."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    texts = {name: text.encode("utf-8", "replace").decode() for name, text in found.items() if isinstance(text, str)}
    return structs.replace(record, **texts)
