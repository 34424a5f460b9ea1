"""Lists dead letters and redrives them to a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from app import envelope
from app.brokers.batching import batches
from app.brokers.binding import NO_HEADERS, DeadRecord, DeadStore, Outcome, Outgoing
from app.brokers.errors import failure_for_each
from app.clock import Clock
from app.envelope import DeadSummary, Limits, Poison
from app.errors import BabelgateError
from app.gateway.batcher import BATCH_BYTES
from app.gateway.model import DeadLetter, DeadLetterFilter, RedriveResult
from app.gateway.routing import PAGE_BYTES, Route, affordable, offering
from app.observe.events import Event, Facts, Observe
from app.runtime import turns

DEFAULT_REDRIVE_LIMIT = 1000
_PAGE = 100
_MAX_SCANNED = 10_000
"""Most records read by one listing. With a filter that matches few, the listing ends early and returns a cursor."""
_MAX_ERRORS = 20


def matches(summary: DeadSummary, matching: DeadLetterFilter) -> bool:
    """Whether ``summary`` meets all conditions; ``after`` is inclusive and ``before`` exclusive for ``failed_at``."""
    if matching.job is not None and summary.job != matching.job:
        return False
    if matching.reason is not None and summary.reason != matching.reason:
        return False
    if matching.trace_id is not None and summary.trace_id != matching.trace_id:
        return False
    if matching.before is not None and (summary.failed_at is None or summary.failed_at >= matching.before):
        return False
    return matching.after is None or (summary.failed_at is not None and summary.failed_at >= matching.after)


async def list_dead(
    route: Route, matching: DeadLetterFilter, limit: int, cursor: str | None
) -> tuple[list[DeadLetter], str | None]:
    """Up to ``limit`` matching dead letters, oldest first, and the cursor after them (None: no more)."""
    store = offering(route, DeadStore)
    views: list[DeadLetter] = []
    scanned = scanned_bytes = held_bytes = 0
    while len(views) < limit and scanned < _MAX_SCANNED and held_bytes < PAGE_BYTES:
        # Never more than is still needed: the cursor points behind a page, not into it.
        count = min(limit - len(views), affordable(scanned, scanned_bytes, PAGE_BYTES - held_bytes))
        records, cursor = await store.read_dead(route.native, cursor, count)
        scanned += len(records)
        scanned_bytes += sum(map(_size, records))
        for record, summary in zip(records, await turns.mapped(_summary, records, _size), strict=True):
            if matches(summary, matching):
                views.append(_view(record, summary))
                held_bytes += _size(record)
        if cursor is None:
            break
    return views, cursor


async def redrive(
    source: Route,
    target: Route,
    matching: DeadLetterFilter,
    limit: int | None,
    dry_run: bool,
    clock: Clock,
    observe: Observe,
) -> RedriveResult:
    """Send matching dead letters of ``source`` to ``target``: publish, confirm, then remove.

    If the process stops between publish and removal, the dead letter remains and another redrive sends it twice; none
    is lost. Messages that are dead-lettered while it runs are left for the next call.
    """
    store = offering(source, DeadStore)
    limit = DEFAULT_REDRIVE_LIMIT if limit is None else limit
    started = clock()
    scanned = scanned_bytes = matched = redriven = failed = 0
    errors: list[dict[str, Any]] = []
    cursor: str | None = None
    complete = reached_end = False
    while redriven < limit and not reached_end:
        count = min(affordable(scanned, scanned_bytes, PAGE_BYTES), _PAGE)
        records, cursor = await store.read_dead(source.native, cursor, count)
        complete = reached_end = cursor is None
        scanned += len(records)
        scanned_bytes += sum(map(_size, records))
        ready: list[_Ready] = []
        problems: list[dict[str, Any]] = []
        for record, summary in zip(records, await turns.mapped(_summary, records, _size), strict=True):
            if not matches(summary, matching):
                continue
            if (summary.failed_at or 0) > started:
                complete = False
                continue
            matched += 1
            try:
                size = _size(record)
                outgoing = await turns.run(_redriven_message, record, summary, source, target, started, size=size)
            except Poison as poison:
                problems.append({"id": summary.id, "code": poison.code, "detail": poison.detail})
            else:
                ready.append(_Ready(record, summary, outgoing))
        if len(ready) > limit - redriven:
            ready, complete, reached_end = ready[: limit - redriven], False, True
        if dry_run:
            redriven += len(ready)
        slices = batches(ready, target.capabilities.max_batch, BATCH_BYTES, lambda each: _size(each.record))
        for slice_ in () if dry_run else slices:
            sent, refused = await _send(target, slice_)
            problems += refused
            if sent:
                # They are sent, even if their removal fails.
                observe(_redriven(source, target, sent))
            _, cursor = await store.remove_dead(source.native, [each.record for each in sent], cursor)
            redriven += len(sent)
            if not sent:  # the target is down or refuses all, so stop
                complete, reached_end = False, True
                break
        failed += len(problems)
        errors += problems[: _MAX_ERRORS - len(errors)]
    return RedriveResult(scanned, matched, 0 if dry_run else redriven, failed, dry_run, complete, errors)


class _Ready(NamedTuple):
    """A dead letter, its summary, and the message to publish."""

    record: DeadRecord
    summary: DeadSummary
    outgoing: Outgoing


def _redriven_message(record: DeadRecord, summary: DeadSummary, source: Route, target: Route, now: int) -> Outgoing:
    """The message to publish. Raises Poison for a record without a valid envelope, or with an expired one."""
    body = envelope.redriven(record.body)
    ttl = target.policy.ttl_seconds
    if ttl is not None and target.policy.has_expired(envelope.inspect(body, Limits()).created_at, now):
        raise Poison(
            "message_expired", f"The message is older than the {ttl:g} seconds that {target.queue!r} keeps it."
        )
    # Headers can go back to the queue that they came from, even if the API accepts none for it.
    home = target.binding is source.binding and target.native == source.native
    kept = target.capabilities.headers or home
    return Outgoing(
        body, record.headers if kept else NO_HEADERS, dedup_id=summary.id, carried=record.carried if home else None
    )


async def _send(target: Route, ready: Sequence[_Ready]) -> tuple[list[_Ready], list[dict[str, Any]]]:
    """Publish ``ready``; return the confirmed ones, and the errors of the others."""
    outcomes: Sequence[Outcome]
    try:
        messages = [each.outgoing for each in ready]
        outcomes = await target.binding.publish(target.native, messages) if messages else []
    except BabelgateError as error:
        outcomes = failure_for_each(error, len(ready))
    sent: list[_Ready] = []
    refused: list[dict[str, Any]] = []
    for each, outcome in zip(ready, outcomes, strict=True):
        if outcome is None:
            sent.append(each)
        else:
            refused.append({"id": each.summary.id, "code": outcome.problem_code, "detail": outcome.detail})
    return sent, refused


def _redriven(source: Route, target: Route, sent: Sequence[_Ready]) -> Event:
    facts = [
        Facts(
            message_id=summary.id,
            trace_id=summary.trace_id,
            job=summary.job,
            size=len(record.body),
            traceparent=record.headers.get("traceparent"),
        )
        for record, summary, _ in sent
    ]
    return Event("redriven", source.queue, source.broker, len(facts), messages=facts, to_queue=target.queue)


def _summary(record: DeadRecord) -> DeadSummary:
    return envelope.describe_dead(record.body)


def _size(record: DeadRecord) -> int:
    return len(record.body)


def _view(record: DeadRecord, summary: DeadSummary) -> DeadLetter:
    return DeadLetter(
        id=summary.id,
        job=summary.job,
        trace_id=summary.trace_id,
        reason=summary.reason,
        error=summary.error,
        failed_at=summary.failed_at,
        attempts=summary.attempts,
        headers=record.headers,
        record=record.body,
    )
