"""Sends dead letters to a queue: publish, confirm, then remove."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from babelgate import envelope
from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import NO_HEADERS, DeadStore, Outcome, Outgoing
from babelgate.brokers.errors import failure_for_each
from babelgate.clock import Clock
from babelgate.envelope import Envelope, Limits, Poison
from babelgate.errors import MAX_DETAIL, BabelgateError, UnknownDeadLetter, shortened
from babelgate.gateway.dead_letters import Letter, Walk
from babelgate.gateway.expiry import without_expiry
from babelgate.gateway.model import EVERY_LETTER, DeadLetterFilter, RedriveFailure, RedriveResult
from babelgate.gateway.routing import Route
from babelgate.observe.audit.notes import note
from babelgate.observe.events import Event, Facts, Observe
from babelgate.runtime import turns

_PAGE = 100
_MAX_ERRORS = 20
_PACE_SECONDS = 0.5
"""A rate applies to pages of about this duration, and a longer pause is divided into such parts. A binding may
keep the letters of a reader taken, and so in order, for a second after its last call."""

EDITED, FORCED = "edited", "forced"


@dataclass(frozen=True, slots=True)
class RedriveOrder:
    """The letters to send back: those that match a filter, or those with ``ids``; None: no such condition.

    ``limit`` None: no limit. ``force``: a record without a valid envelope is sent as its original bytes.
    ``per_second`` None: no limit of the rate. ``dry_run``: only count, at any rate.
    """

    matching: DeadLetterFilter = EVERY_LETTER
    ids: frozenset[str] | None = None
    limit: int | None = None
    force: bool = False
    per_second: float | None = None
    dry_run: bool = False


class ReadyLetter(Struct, frozen=True):
    """A dead letter, the message to publish, and its facts. ``how``: EDITED, FORCED, or None for the message itself.
    ``envelope``: of an edited letter."""

    letter: Letter
    outgoing: Outgoing
    facts: Facts
    how: str | None = None
    envelope: Envelope | None = None


class Redrive:
    """One run over the dead letters of ``source``, in pages.

    If the process stops between publish and removal, the dead letter remains and another redrive sends it twice; none
    is lost. Letters that were dead-lettered after ``started_at`` (Unix ms) are left for another run.
    """

    def __init__(
        self, source: Route, target: Route, order: RedriveOrder, clock: Clock, observe: Observe, started_at: int
    ) -> None:
        self.ended = False
        self.stopped: BabelgateError | None = None
        """The error that ended the run early: the target took no message of a batch."""
        self._source, self._target, self._order = source, target, order
        self._clock, self._observe, self._started_at = clock, observe, started_at
        # A redrive of all letters sends most of what it reads.
        background = order.dry_run or order.ids is not None or order.matching != EVERY_LETTER
        self._walk = Walk(source, matching=order.matching, background=background)
        self._wanted = None if order.ids is None else set(order.ids)
        self.left = None if order.ids is None else set(order.ids)
        """The ids of the order whose letters were not sent; None for an order by filter."""
        self._matched = self._redriven = self._failed = 0
        self._left_some = False
        self._errors: list[RedriveFailure] = []
        self._resume_at = 0.0

    @property
    def result(self) -> RedriveResult:
        """The result so far. ``complete`` is true only at the end."""
        return RedriveResult(
            scanned=self._walk.scanned,
            matched=self._matched,
            redriven=0 if self._order.dry_run else self._redriven,
            failed=self._failed,
            dry_run=self._order.dry_run,
            complete=self.ended and not self._left_some and not self._failed and self.stopped is None,
            errors=tuple(self._errors),
            errors_omitted=self._failed - len(self._errors),
        )

    async def run(self) -> RedriveResult:
        """Send all pages. Raises BrokerError; letters that were sent before stay sent."""
        while not self.ended:
            await self.page()
            while not self.ended and await self.rest():
                pass
        result = self.result
        note(redriven=result.redriven, failed=result.failed, dry_run=result.dry_run or None)
        return result

    async def page(self) -> None:
        """Read one page and send the selected letters of it."""
        selected = await self._select(await self._walk.page(self._page_size(), wanted=self._wanted))
        limit = self._order.limit
        if limit is not None and len(selected) > limit - self._redriven:
            selected, self._left_some, self.ended = selected[: limit - self._redriven], True, True
        if self._order.dry_run:
            self._redriven += len(selected)
        else:
            await self._send(selected)
        if self._walk.at_end or (self._wanted is not None and not self._wanted):
            self.ended = True
        elif limit is not None and self._redriven >= limit:
            self.ended = self._left_some = True
        if self.ended and self._wanted and self._walk.at_end:
            for letter_id in sorted(self._wanted):
                error = UnknownDeadLetter(queue=self._source.queue, letter_id=letter_id)
                self._fail(letter_id, None, error.problem_code, error.detail)
        if self._order.per_second is not None and selected and not self._order.dry_run:
            self._resume_at = asyncio.get_running_loop().time() + len(selected) / self._order.per_second

    async def rest(self) -> bool:
        """Wait for a part of the pause that the rate requires before the next page; False: it is over."""
        left = self._resume_at - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, _PACE_SECONDS))
        if left <= _PACE_SECONDS:
            return False
        await self._source.offering(DeadStore).read_dead(self._source.native, self._walk.cursor, 1)
        return True

    def _page_size(self) -> int:
        per_second = self._order.per_second
        return _PAGE if per_second is None else min(max(int(per_second * _PACE_SECONDS), 1), _PAGE)

    async def _select(self, letters: Sequence[Letter]) -> list[ReadyLetter]:
        selected: list[ReadyLetter] = []
        for letter in letters:
            if self._wanted is not None:
                if letter.letter_id not in self._wanted:
                    continue
                self._wanted.discard(letter.letter_id)
            elif (letter.summary.failed_at or 0) > self._started_at:
                self._left_some = True
                continue
            self._matched += 1
            now, force = self._clock(), self._order.force
            try:
                ready = await turns.run(
                    unchanged, letter, self._source, self._target, now, force, size=len(letter.record.body)
                )
            except Poison as poison:
                self._fail(letter.letter_id, letter.summary.id, poison.code, poison.detail)
            else:
                selected.append(ready)
        return selected

    async def _send(self, selected: Sequence[ReadyLetter]) -> None:
        sizes = [each.letter.size for each in selected]
        for slice_ in batches(selected, self._target.capabilities.max_batch, BATCH_BYTES, sizes):
            sent, refused = await send(self._source, self._target, slice_, self._observe)
            for each, error in refused:
                self._fail(each.letter.letter_id, each.letter.summary.id, error.problem_code, error.detail)
            await self._walk.remove([each.letter for each in sent])
            self._redriven += len(sent)
            if self.left is not None:
                self.left.difference_update(each.letter.letter_id for each in sent)
            if not sent:  # The target is down or refuses all.
                self.stopped, self.ended = refused[-1][1], True
                break

    def _fail(self, letter_id: str, message_id: str | None, code: str, detail: str) -> None:
        self._failed += 1
        if len(self._errors) < _MAX_ERRORS:
            if message_id is not None and len(message_id) > MAX_DETAIL:
                message_id = None  # Another program's: the gateway's own ids are shorter.
            self._errors.append(RedriveFailure(letter_id, message_id, code, shortened(detail)))


def unchanged(letter: Letter, source: Route, target: Route, now: int, force: bool) -> ReadyLetter:
    """The message to publish for an unedited letter.

    Raises Poison for an expired envelope, and for a record without a valid one unless ``force``: its original bytes are
    then sent as they are.
    """
    record = letter.record
    try:
        body = envelope.redriven(record.body)
    except Poison:
        original = envelope.original(record.body)
        if not force:
            # The reason for which it was dead-lettered, not what its wrapper lacks.
            envelope.inspect(original, Limits())
            raise
        carried = record.carried if target.binding is source.binding else None
        outgoing = Outgoing(original, headers_for(letter, source, target), carried=carried, is_envelope=False)
        return ReadyLetter(letter, outgoing, _facts(letter, outgoing), FORCED)
    ttl = target.policy.ttl_seconds
    if ttl is not None and target.policy.has_expired(envelope.inspect(body, Limits()).created_at, now):
        raise Poison(
            "message_expired", f"The message is older than the {ttl:g} seconds that {target.queue!r} keeps it."
        )
    carried = record.carried if is_home(source, target) else None
    headers = headers_for(letter, source, target)
    outgoing = with_priority_of(letter, Outgoing(body, headers, carried=carried), target)
    return ReadyLetter(letter, outgoing, _facts(letter, outgoing))


def with_priority_of(letter: Letter, outgoing: Outgoing, target: Route) -> Outgoing:
    """``outgoing`` with the priority of ``letter``, unless it has one or keeps that of the letter, or can have none."""
    priority, has_own = letter.record.priority, outgoing.priority is not None or outgoing.carried is not None
    if priority is None or has_own or outgoing.ordering_key is not None or not target.capabilities.priorities:
        return outgoing
    return replace(outgoing, priority=priority)


def is_home(source: Route, target: Route) -> bool:
    """Whether letters of ``source`` return to the queue that they came from."""
    return target.binding is source.binding and target.native == source.native


def headers_for(letter: Letter, source: Route, target: Route) -> dict[str, str]:
    """The native headers that go along: headers can go back home, even if the API accepts none for that queue. A
    time to live of the message's own ends here: it was its sender's, and the redrive is its operator's."""
    kept = target.capabilities.headers or is_home(source, target)
    return without_expiry(letter.record.headers if kept else NO_HEADERS)


async def send(
    source: Route, target: Route, ready: Sequence[ReadyLetter], observe: Observe
) -> tuple[list[ReadyLetter], list[tuple[ReadyLetter, BabelgateError]]]:
    """Publish ``ready`` as one batch, and report the sent ones; return the confirmed ones, and the others' errors."""
    outcomes: Sequence[Outcome]
    try:
        messages = [each.outgoing for each in ready]
        outcomes = await target.publish(messages) if messages else []
    except BabelgateError as error:
        outcomes = failure_for_each(error, len(ready))
    sent: list[ReadyLetter] = []
    refused: list[tuple[ReadyLetter, BabelgateError]] = []
    for each, outcome in zip(ready, outcomes, strict=True):
        if outcome is None:
            sent.append(each)
        else:
            refused.append((each, outcome))
    # They are sent, even if their removal fails.
    for how in dict.fromkeys(each.how for each in sent):
        facts = [each.facts for each in sent if each.how == how]
        observe(Event("redriven", source.queue, source.broker, len(facts), how, messages=facts, to_queue=target.queue))
    return sent, refused


def _facts(letter: Letter, outgoing: Outgoing) -> Facts:
    summary = letter.summary
    return Facts(
        message_id=summary.id,
        trace_id=summary.trace_id,
        job=summary.job,
        size=len(outgoing.body),
        traceparent=letter.record.headers.get("traceparent"),
    )
