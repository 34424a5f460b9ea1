"""Encodes events as journal lines, in a bounded buffer in memory.

Records with large bodies, and those of an event with many bodies, are completed by the thread that writes, because
redacting, encrypting and checking them takes longer than the event loop may be held up.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from threading import Lock
from typing import Any

from msgspec import UNSET, Struct, structs

from babelgate.clock import Clock
from babelgate.envelope.contract import CORE_META
from babelgate.observe.events import Call, Carrier, Event, EventKind, Facts
from babelgate.observe.journal.carried import legible, with_carrier
from babelgate.observe.journal.kept_meta import KeptMeta
from babelgate.observe.journal.record import VERSION, JournalEvent, Record, embedded, encode_into
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.privacy.protection import Protection
from babelgate.privacy.redaction import MARKER
from babelgate.runtime.turns import LARGE_BYTES, handing_over

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


class _Unfinished(Struct, frozen=True, gc=False):
    """A record without its body, and where its line belongs: before the byte ``at`` of the other lines."""

    at: int
    record: Record
    body: bytes
    protection: Protection | None
    carrier: Carrier | None


class Buffer:
    """The lines of one process, in order. One thread adds them, another takes them.

    The buffer grows to ``limit`` bytes plus one line. Further records are dropped and counted, and a gap record reports
    them when there is space again. The lock is never held during I/O.
    """

    def __init__(
        self, node: str, epoch: str, limit: int, clock: Clock, *, bodies: bool = False, meta: Sequence[str] = ()
    ) -> None:
        """``bodies``: whether records include the bodies of events, with headers and ordering keys; ``meta``: which
        members of ``meta`` they keep."""
        self.limit = limit
        self.seq = 0
        """``seq`` of the last record, which is the number of records."""
        self.dropped = 0
        """Number of lost records, in all gaps."""
        self.protection_of: Callable[[str | None], Protection | None] = lambda queue: None
        """What becomes of the bodies of a queue, and of what records keep of them."""
        self._node = node
        self._epoch = epoch
        self._clock = clock
        self._bodies = bodies
        self._kept = KeptMeta(meta) if meta else None
        self._lock = Lock()
        self._lines = bytearray()
        self._unfinished: list[_Unfinished] = []
        self._held = 0
        """Bytes of the bodies of unfinished records."""
        self._taken = 0
        self._throttled = LogThrottle(get_logger(__name__))
        """Of the thread that takes."""
        self._lost = 0
        self._first_lost_at = 0
        self._last_lost_at = 0

    @property
    def size(self) -> int:
        """Bytes that are not written yet."""
        return len(self._lines) + self._held + self._taken

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
        carriers = iter(reported.carriers) if self._bodies else None
        at, node, epoch, queue, broker = self._clock(), self._node, self._epoch, reported.queue, reported.broker
        lease_seconds, outcome = reported.lease_seconds, _OUTCOMES.get(kind, reported.reason)
        to_queue = reported.to_queue or UNSET
        protection = None if bodies is None else self.protection_of(queue)
        with self._lock:
            lines, space, inline = self._lines, self.limit - self._taken, 0
            for facts in messages:
                body = None if bodies is None else next(bodies, None)
                carrier = None if carriers is None else next(carriers, None)
                if carrier is not None and not carrier.headers and carrier.ordering_key is None:
                    carrier = None
                if len(lines) + self._held >= space:
                    self._drop(at)
                    continue
                if self._lost:
                    self._add_gap(at)
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
                )
                if body is None:
                    _encode(record, lines)
                elif (inline := inline + len(body)) > LARGE_BYTES:
                    self._unfinished.append(_Unfinished(len(lines), record, body, protection, carrier))
                    self._held += len(body)
                else:
                    _encode(self._with_body(record, body, protection, carrier), lines)

    def take(self) -> bytes | bytearray:
        """Take all lines, after the work that large bodies need. They count towards the limit until :meth:`written`."""
        with self._lock:
            lines, self._lines = self._lines, bytearray()
            unfinished, self._unfinished = self._unfinished, []
            size = len(lines) + self._held
            self._taken += size
            self._held = 0
        if not unfinished:
            return lines
        whole, end = bytearray(), 0
        for each in unfinished:
            whole += lines[end : each.at]
            end = each.at
            with handing_over:
                _encode(self._completed(each), whole)
        whole += lines[end:]
        with self._lock:
            self._taken += len(whole) - size
        return whole

    def written(self, count: int) -> None:
        """Free ``count`` bytes of taken lines, which were handed to the system."""
        with self._lock:
            self._taken -= count
            if self._lost and self.size < self.limit:
                self._add_gap(self._clock())

    def _completed(self, each: _Unfinished) -> Record:
        """The record with its body; without it if that fails, which is logged: the journal goes on."""
        try:
            return self._with_body(each.record, each.body, each.protection, each.carrier)
        except Exception as error:
            # Only its type, because its text may quote the body.
            name = type(error).__name__
            self._throttled.warning("journal record without its body", queue=each.record.queue or "", error=name)
            return each.record

    def _with_body(self, record: Record, body: bytes, protection: Protection | None, carrier: Carrier | None) -> Record:
        """``record``, with what the journal has of ``body`` and of ``carrier``, which is None where it has nothing."""
        kept, found = self._kept, body
        encrypted = None
        if protection is not None:
            found = protection.in_clear(body)
            if self._bodies and record.queue is not None:
                encrypted = protection.encrypted(body, record.queue)
        meta = UNSET if kept is None else kept.read(found)
        if meta and protection is not None and protection.cipher is not None:
            # Also of members that no envelope has: only those of the frame are in clear.
            meta = {name: value if name in CORE_META else MARKER for name, value in meta.items()}
        envelope, other = embedded(found if self._bodies and encrypted is None else None)
        made = structs.replace(
            record,
            envelope=envelope,
            envelope_base64=other,
            meta=meta,
            envelope_encrypted=UNSET if encrypted is None else b64encode(encrypted).decode("ascii"),
        )
        return made if carrier is None else with_carrier(made, carrier, protection)

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


def _encode(record: Record, lines: bytearray) -> None:
    try:
        encode_into(record, lines)
    except ValueError:
        encode_into(_legible(record), lines)


def _legible(record: Record) -> Record:
    """Return ``record`` with ``?`` for unpaired surrogates, which JSON can escape and UTF-8 cannot encode."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    texts: dict[str, Any] = {name: legible(text) for name, text in found.items() if isinstance(text, str)}
    if record.headers is not UNSET:
        texts["headers"] = {legible(name): legible(value) for name, value in record.headers.items()}
    return structs.replace(record, **texts)
