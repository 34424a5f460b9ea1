"""Encodes events as journal lines, in a bounded buffer in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from threading import Lock

from msgspec import UNSET, structs

from babelgate.clock import Clock
from babelgate.observe.events import Call, Event, EventKind, Facts
from babelgate.observe.journal.kept_meta import KeptMeta
from babelgate.observe.journal.record import VERSION, JournalEvent, Record, embedded, encode_into
from babelgate.privacy.redaction import Redaction

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
    "dropped": "dropped",
}
"""The events that have a record. The others concern leases and processes, not messages."""
_OUTCOMES: Mapping[EventKind, str] = {"acked": "acked", "nacked": "nacked", "rejected": "rejected"}
_UNKNOWN = Facts()


class Buffer:
    """The lines of one process, in order. One thread adds them, another takes them.

    The buffer grows to ``limit`` bytes plus one line. Further records are dropped and counted, and a gap record reports
    them when there is space again. The lock is never held during I/O.
    """

    def __init__(
        self, node: str, epoch: str, limit: int, clock: Clock, *, bodies: bool = False, meta: Sequence[str] = ()
    ) -> None:
        """``bodies``: whether records include the bodies of events; ``meta``: which members of ``meta`` they keep."""
        self.limit = limit
        self.seq = 0
        """``seq`` of the last record, which is the number of records."""
        self.dropped = 0
        """Number of lost records, in all gaps."""
        self.redaction_of: Callable[[str | None], Redaction | None] = lambda queue: None
        """What is redacted of the bodies of a queue, and of what records keep of them."""
        self._node = node
        self._epoch = epoch
        self._clock = clock
        self._bodies = bodies
        self._kept = KeptMeta(meta) if meta else None
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
        """Add a record for each message of an event. Never blocks on I/O and never raises."""
        if isinstance(reported, Call):
            return
        kind = reported.kind
        event = _EVENTS.get(kind)
        if event is None:
            return
        messages = reported.messages
        if reported.count > len(messages):
            messages = [*messages, *repeat(_UNKNOWN, reported.count - len(messages))]
        kept = self._kept
        bodies = iter(reported.bodies) if self._bodies or kept is not None else None
        at, node, epoch, queue, broker = self._clock(), self._node, self._epoch, reported.queue, reported.broker
        lease_seconds, outcome = reported.lease_seconds, _OUTCOMES.get(kind, reported.reason)
        to_queue = reported.to_queue or UNSET
        redaction = None if bodies is None else self.redaction_of(queue)
        with self._lock:
            lines, space = self._lines, self.limit - self._taken
            for facts in messages:
                body = None if bodies is None else next(bodies, None)
                if len(lines) >= space:
                    self._drop(at)
                    continue
                if self._lost:
                    self._add_gap(at)
                if redaction is not None and body is not None:
                    body = redaction.redacted(body)
                envelope, other = embedded(body if self._bodies else None)
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
                    meta=UNSET if kept is None or body is None else kept.read(body),
                )
                try:
                    encode_into(record, lines)
                except ValueError:
                    encode_into(_legible(record), lines)

    def take(self) -> bytes | bytearray:
        """Take all complete lines. They count towards the limit until :meth:`written`."""
        with self._lock:
            lines, self._lines = self._lines, bytearray()
            self._taken += len(lines)
        return lines

    def written(self, count: int) -> None:
        """Free ``count`` bytes of taken lines, which were handed to the system."""
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
    """Return ``record`` with ``?`` for unpaired surrogates, which JSON can escape and UTF-8 cannot encode."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    texts = {name: text.encode("utf-8", "replace").decode() for name, text in found.items() if isinstance(text, str)}
    return structs.replace(record, **texts)
