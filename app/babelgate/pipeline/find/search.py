"""Finds one message, or all messages of a trace, in the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

from msgspec import Struct

from babelgate.pipeline.journal.commits import IngestedState
from babelgate.pipeline.journal.reader import Snapshot, gaps
from babelgate.pipeline.metrics.dates import DAY_MS, midnight

MAX_EVENTS = 10_000
"""The most events returned, because an id shared by many messages must not fill the driver's memory."""
_MEMBERS = ("event", "queue", "broker", "attempts", "lease_seconds", "outcome", "to_queue", "node")
_WAITING = frozenset({"accepted", "nacked", "lease_expired", "redriven"})
_BEGINNINGS = frozenset({"accepted", "redriven"})


class MessageEvent(Struct, frozen=True):
    """One event of a message. Times are Unix ms; ``after_ms``: since the previous event, null for the first."""

    at: int
    after_ms: int | None
    event: str
    queue: str | None
    broker: str | None
    attempts: int | None
    lease_seconds: float | None
    outcome: str | None
    to_queue: str | None
    node: str


class QueueState(Struct, frozen=True):
    """The state of a message in one queue since ``since`` (Unix ms): waiting, leased, acked, dead_lettered, or the name
    of its last event.

    ``lease_until``: end of the lease, Unix ms; ``reason``: of dead-lettering. Both are null in other states.
    """

    queue: str | None
    state: str
    since: int
    lease_until: int | None = None
    reason: str | None = None


class FoundMessage(Struct, frozen=True):
    """A message found: its members, its state in each queue, and its events in order."""

    message_id: str | None
    trace_id: str | None
    job: str | None
    lang: str | None
    created_at: int | None
    bytes: int | None
    standings: Sequence[QueueState]
    events: Sequence[MessageEvent]


class SearchScope(Struct, frozen=True):
    """The extent of a search: records and processes, and the time range of the records (Unix ms, null without any)."""

    records: int
    processes: int
    first_at: int | None
    last_at: int | None


class MissingRecords(Struct, frozen=True):
    """Records missing between two times, Unix ms. ``records``: their number, null if unknown."""

    kind: str
    node: str
    records: int | None
    from_at: int | None
    to_at: int | None


class SearchResult(Struct, frozen=True):
    """The messages found. ``at_least``: the records of ``missing`` may contain more events; ``truncated``: there are
    more than :data:`MAX_EVENTS` events."""

    messages: Sequence[FoundMessage]
    searched: SearchScope
    at_least: bool
    missing: Sequence[MissingRecords]
    truncated: bool


def search_result(
    journal: Snapshot, rows: Sequence[dict[str, Any]], dates: Collection[str] | None = None
) -> SearchResult:
    """What the records ``rows`` of ``journal`` say, which a search on ``dates`` (ISO 8601; None: all) has found."""
    truncated = len(rows) > MAX_EVENTS
    by_id: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows[:MAX_EVENTS]:
        by_id.setdefault(row["message_id"], []).append(row)
    known = journal.known()
    searched = _search_scope(journal, known, dates)
    missing = list(_missing_records(known, rows[0]["at"] if rows else searched.first_at, dates))
    messages = [_found_message(message_id, events) for message_id, events in by_id.items()]
    return SearchResult(messages, searched, bool(missing), missing, truncated)


def dates_between(journal: Snapshot, first: date | None, last: date | None) -> list[str] | None:
    """The ISO dates of the journal from ``first`` to ``last``, both included; None if both are None."""
    if first is None and last is None:
        return None
    low, high = (first or date.min).isoformat(), (last or date.max).isoformat()
    return [day for day in journal.dates() if low <= day <= high]


def _causes_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``rows`` with a consumer's answer before the dead-lettering that it caused, which the gateway records first."""
    ordered = list(rows)
    for at, (one, other) in enumerate(pairwise(rows)):
        same = all(one[name] == other[name] for name in ("queue", "node", "epoch"))
        if same and one["event"] == "dead_lettered" and other["event"] in ("rejected", "nacked"):
            ordered[at : at + 2] = other, one
    return ordered


def _found_message(message_id: str | None, rows: Sequence[dict[str, Any]]) -> FoundMessage:
    rows = _causes_first(rows)

    def first(member: str) -> Any:
        return next((row[member] for row in rows if row[member] is not None), None)

    happened = [
        MessageEvent(
            at=row["at"],
            after_ms=None if before is None else max(row["at"] - before["at"], 0),
            **{name: row[name] for name in _MEMBERS},
        )
        for before, row in zip((None, *rows), rows, strict=False)
    ]
    facts = {name: first(name) for name in ("trace_id", "job", "lang", "created_at", "bytes")}
    return FoundMessage(message_id=message_id, standings=list(_queue_states(happened)), events=happened, **facts)


def _queue_states(events: Sequence[MessageEvent]) -> Iterator[QueueState]:
    """Yields the state in each queue where the message is, or where it ended."""
    by_queue: dict[str | None, list[MessageEvent]] = {}
    for event in events:
        by_queue.setdefault(event.queue, []).append(event)
        if event.to_queue is not None and event.to_queue != event.queue:
            by_queue.setdefault(event.to_queue, []).append(event)
    for queue, happened in by_queue.items():
        # Clocks of two processes may place an ack before its delivery, so only a new beginning cancels an end.
        began = max((at for at, each in enumerate(happened) if each.event in _BEGINNINGS), default=0)
        since = happened[began:]
        acked = next((each for each in reversed(since) if each.event == "acked"), None)
        tried = max((at for at, each in enumerate(since) if each.event == "delivered"), default=0)
        # A reject or last nack is recorded next to the dead-lettering, in either order.
        dead = next((each for each in since[tried:] if each.event in ("dead_lettered", "poison")), None)
        last = since[-1]
        if acked is not None:
            yield QueueState(queue, "acked", acked.at)
        elif dead is not None:
            yield QueueState(queue, "dead_lettered", dead.at, reason=dead.outcome)
        elif last.event == "delivered":
            until = None if last.lease_seconds is None else last.at + round(last.lease_seconds * 1000)
            yield QueueState(queue, "leased", last.at, lease_until=until)
        elif last.event not in _WAITING:
            yield QueueState(queue, last.event, last.at)
        elif last.to_queue is None or last.to_queue == queue:
            yield QueueState(queue, "waiting", last.at)


def _search_scope(journal: Snapshot, known: IngestedState, dates: Collection[str] | None) -> SearchScope:
    ranges = [each for numbers in known.seqs.values() for each in numbers]
    first = min((first_at for _, _, first_at, _ in ranges), default=None)
    last = max((last_at for _, _, _, last_at in ranges), default=None)
    counts = journal.dates()
    days = counts if dates is None else {day: counts[day] for day in dates}
    if dates is not None and days:
        begin, end = midnight(date.fromisoformat(min(days))), midnight(date.fromisoformat(max(days))) + DAY_MS - 1
        first, last = max(first or begin, begin), min(last or end, end)
    elif not days:
        first = last = None
    return SearchScope(sum(days.values()), len(known.seqs), first, last)


def _missing_records(
    known: IngestedState, since: int | None, dates: Collection[str] | None
) -> Iterator[MissingRecords]:
    """Yields the missing records from ``since`` (Unix ms) on. Earlier ones cannot concern the message."""
    end = None if not dates else midnight(date.fromisoformat(max(dates))) + DAY_MS
    for kind, node, _, _, _, records, from_at, to_at in gaps(known):
        is_over = since is not None and to_at is not None and to_at < since
        if kind != "open_end" and not is_over and (end is None or from_at < end):
            yield MissingRecords(kind, node, records, from_at, to_at)
