"""The operations on the dead letters of queues: read, remove, redrive, edit, and the jobs of long redrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from babelgate import envelope
from babelgate.brokers.binding import DeadStore
from babelgate.clock import Clock
from babelgate.envelope import Envelope, Limits, Poison, Publication
from babelgate.envelope.options import EXPIRES_AT_HEADER, NEVER_EXPIRES
from babelgate.errors import (
    BabelgateError,
    BrokerError,
    EnvelopeError,
    ForceNeedsOtherQueue,
    InvalidParameter,
    NotRedrivable,
    OutcomeUnknown,
    Problem,
    UnknownDeadLetter,
    UnsupportedByBroker,
)
from babelgate.gateway import dead_letters
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.dead_letters import Letter, find, list_dead, search, shown
from babelgate.gateway.letter_groups import LetterGroups, count_groups
from babelgate.gateway.letter_scans import LetterScans, LockPerQueue
from babelgate.gateway.model import (
    EVERY_LETTER,
    DeadLetter,
    DeadLetterFilter,
    LetterEdit,
    RedrivenLetter,
    RedriveResult,
    RemovalResult,
)
from babelgate.gateway.names import check_queue_name
from babelgate.gateway.overview import count_purge, noted_purge
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.redacting import as_shown, with_values
from babelgate.gateway.redrive import (
    EDITED,
    FORCED,
    ReadyLetter,
    Redrive,
    RedriveOrder,
    headers_for,
    is_home,
    send,
    unchanged,
    with_priority_of,
)
from babelgate.gateway.redrive_files import RedriveJob
from babelgate.gateway.redrive_jobs import RedriveJobs
from babelgate.gateway.routing import Route
from babelgate.gateway.spans import redriving
from babelgate.observe.audit.notes import note
from babelgate.observe.events import Facts, Observe
from babelgate.observe.tracing.trace import Trace, Tracing
from babelgate.runtime import turns

DEFAULT_REDRIVE_LIMIT = 1000
FOREGROUND_SECONDS = 60
"""The longest redrive with a rate that a request waits for. A longer one must be a job."""


class DeadLetterOperations:
    """Each operation takes a Caller and first checks its right: reading needs ``listen``, changing ``manage``. Sending
    to another queue needs ``send`` there, and an edited letter ``send`` on its target in any case, because it is a new
    message (raises Forbidden). All raise QueueNotFound, InvalidParameter, and
    UnsupportedByBroker for a broker without a DeadStore. All but a purge, a plain page and jobs are scans, and raise
    Overloaded as :class:`LetterScans`."""

    def __init__(
        self,
        runtime_of: Callable[[str], QueueRuntime],
        limits: Limits,
        clock: Clock,
        observe: Observe,
        tracing: Tracing,
        jobs_directory: Path | None,
    ) -> None:
        """``runtime_of``: the runtime of a queue. ``jobs_directory``: keeps the records of jobs; None: no jobs."""
        self._runtime_of = runtime_of
        self._limits, self._clock, self._observe, self._tracing = limits, clock, observe, tracing
        self._lock = LockPerQueue()
        """Excludes two redrives of one queue in this process, which would send letters twice."""
        self._scans = LetterScans()
        self.jobs = RedriveJobs(jobs_directory, clock, observe, self._lock)

    async def page(
        self, caller: Caller, queue: str, matching: DeadLetterFilter, limit: int, cursor: str | None
    ) -> tuple[list[DeadLetter], str | None]:
        """A page of matching dead letters, oldest first, and the cursor after it (None: no more).

        With a filter it is a scan.
        """
        route = self._route(caller, Right.OBSERVE, queue)
        if matching == EVERY_LETTER:
            return await list_dead(route, matching, limit, cursor)

        async def read(_: object) -> dict[None, tuple[list[DeadLetter], str | None]]:
            return {None: await list_dead(route, matching, limit, cursor)}

        return await self._scans.shared(caller, route, (matching, limit, cursor), None, read)

    async def groups(
        self, caller: Caller, queue: str, matching: DeadLetterFilter = EVERY_LETTER, cursor: str | None = None
    ) -> LetterGroups:
        """Count the matching letters by reason, job and error, from ``cursor`` on. Reads at most MAX_SCANNED."""
        route = self._route(caller, Right.OBSERVE, queue)

        async def read(_: object) -> dict[None, LetterGroups]:
            return {None: await count_groups(route, matching, cursor)}

        return await self._scans.shared(caller, route, ("groups", matching, cursor), None, read)

    async def get(self, caller: Caller, queue: str, letter_id: str, cursor: str | None = None) -> DeadLetter:
        """The oldest dead letter with this id.

        ``cursor``, here and below: where the search begins, as for :meth:`page`. It reads at most MAX_SCANNED letters.
        Raises UnknownDeadLetter, and DeadLetterNotReached.
        """
        route = self._route(caller, Right.OBSERVE, queue)
        return await shown(
            await self._scans.shared(caller, route, cursor, letter_id, partial(search, route, cursor)), route
        )

    async def remove_one(self, caller: Caller, queue: str, letter_id: str, cursor: str | None = None) -> None:
        """Remove the oldest dead letter with this id. Raises like :meth:`get`."""
        route = self._route(caller, Right.MANAGE, queue)
        with self._scans.place(caller):
            async with self._lock(queue):
                walk, letter = await find(route, letter_id, cursor)
                (removed,) = await walk.remove([letter])
        if not removed:
            raise UnknownDeadLetter(queue=queue, letter_id=letter_id)

    async def remove(self, caller: Caller, queue: str, letter_ids: Sequence[str]) -> Sequence[RemovalResult]:
        """Remove the oldest dead letter of each id; one result per id, a repeated id once."""
        route = self._route(caller, Right.MANAGE, queue)
        with self._scans.place(caller):
            async with self._lock(queue):
                return await dead_letters.remove(route, letter_ids)

    async def purge(self, caller: Caller, queue: str, *, dry_run: bool = False) -> int:
        """Remove all dead letters; the number removed. With ``dry_run``, the number that would be.

        Raises UnsupportedByBroker, for a dry run also where the broker cannot count its dead letters.
        """
        route = self._route(caller, Right.MANAGE, queue)
        binding = route.offering(DeadStore)
        return noted_purge(
            await (count_purge(route, ("dead",)) if dry_run else binding.purge_dead(route.native)), dry_run
        )

    async def redrive(
        self, caller: Caller, queue: str, order: RedriveOrder, to_queue: str | None, trace: Trace | None
    ) -> RedriveResult:
        """Send the letters of ``order`` to ``to_queue``, or back to ``queue``. Without ``limit``: at most 1000.

        Raises RedriveRunning while a job of the queue runs, ForceNeedsOtherQueue, and InvalidParameter for a rate that
        would take more than FOREGROUND_SECONDS.
        """
        source, target = self._routes(caller, queue, to_queue, order.force)
        limit = DEFAULT_REDRIVE_LIMIT if order.limit is None else order.limit
        if order.per_second is not None:
            most = limit if order.ids is None else min(limit, len(order.ids))
            seconds = most / order.per_second
            if seconds > FOREGROUND_SECONDS:
                reason = (
                    f"{most} dead letters take {seconds:.6g} s at this rate, and a request may take "
                    f"{FOREGROUND_SECONDS} s: set a lower limit, or background"
                )
                raise InvalidParameter(name="per_second", reason=reason, pointer="/per_second")
        await self.jobs.check_idle(queue)
        order = RedriveOrder(order.matching, order.ids, limit, order.force, order.per_second, order.dry_run)

        redrive = partial(Redrive, source, target, order, self._clock, self._observe)

        async def run(_: object) -> dict[None, RedriveResult]:
            return {None: await redrive(self._clock()).run()}

        if order.dry_run:
            with redriving(trace, source):
                return await self._scans.shared(caller, source, (target.queue, order), None, run)
        with self._scans.place(caller):
            async with self._lock(queue):
                with redriving(trace, source):
                    return await redrive(self._clock()).run()

    async def start_job(
        self, caller: Caller, queue: str, order: RedriveOrder, to_queue: str | None, trace: Trace | None
    ) -> RedriveJob:
        """Begin a redrive in the background. Without ``limit``: all letters. For errors see RedriveJobs.start."""
        source, target = self._routes(caller, queue, to_queue, order.force)
        return await self.jobs.start(caller.name, source, target, order, self._beyond(trace, source))

    async def job(self, caller: Caller, queue: str, id: str) -> RedriveJob:
        """A job of the queue. Raises UnknownRedrive."""
        self._route(caller, Right.OBSERVE, queue)
        return await self.jobs.read(queue, id)

    async def jobs_of(self, caller: Caller, queue: str) -> Sequence[RedriveJob]:
        """The jobs of the queue that this host knows, newest first."""
        self._route(caller, Right.OBSERVE, queue)
        return await self.jobs.of_queue(queue)

    async def cancel_job(self, caller: Caller, queue: str, id: str) -> RedriveJob:
        """Stop a job at its next page. Raises UnknownRedrive."""
        self._route(caller, Right.MANAGE, queue)
        return await self.jobs.cancel(queue, id)

    async def resume_job(self, caller: Caller, queue: str, id: str, trace: Trace | None) -> RedriveJob:
        """Go on with a job that was cancelled, interrupted or failed. For errors see RedriveJobs.resume."""
        source = self._route(caller, Right.MANAGE, queue)

        def routes(job: RedriveJob) -> tuple[Route, Route]:
            return self._routes(caller, queue, job.to_queue, job.force)

        return await self.jobs.resume(caller.name, queue, id, routes, self._beyond(trace, source))

    async def redrive_one(
        self,
        caller: Caller,
        queue: str,
        letter_id: str,
        to_queue: str | None,
        edit: LetterEdit | None,
        force: bool,
        trace: Trace | None,
        cursor: str | None = None,
    ) -> RedrivenLetter:
        """Send the oldest letter with this id, edited if ``edit`` is given, to ``to_queue`` or back to ``queue``.

        The letter is removed after the confirm; it stays where anything fails before. Raises like :meth:`get`,
        NotRedrivable, ForceNeedsOtherQueue, and the errors of a publish, whose pointers lead into the request.
        """
        source, target = self._routes(caller, queue, to_queue, force, edits=edit is not None)
        if edit is not None and force:
            reason = "an edited letter is validated, and never sent by force: leave out one of the two"
            raise InvalidParameter(name="force", reason=reason, pointer="/force")
        with self._scans.place(caller):
            async with self._lock(queue):
                with redriving(trace, source):
                    walk, letter = await find(source, letter_id, cursor)
                    ready = await self._ready(letter, edit, source, target, force, trace)
                    _, refused = await send(source, target, [ready], self._observe)
                    if refused:
                        raise _placed(refused[0][1], edit, ready.envelope)
                    try:
                        (removed,) = await walk.remove([letter])
                    except BrokerError as error:
                        reason = f"the message was sent to {target.queue}, but its dead letter may still be there"
                        raise OutcomeUnknown(broker=source.broker, reason=reason) from error
        how = ready.how
        return RedrivenLetter(letter_id, ready.facts.message_id, target.queue, how == EDITED, how == FORCED, removed)

    async def preview(
        self,
        caller: Caller,
        queue: str,
        letter_id: str,
        to_queue: str | None,
        edit: LetterEdit,
        trace: Trace | None,
        cursor: str | None = None,
    ) -> bytes:
        """The body that :meth:`redrive_one` would send for this edit. Changes nothing. Raises like it."""
        source, target = self._routes(caller, queue, to_queue, force=False, edits=True)
        with self._scans.place(caller):
            _, letter = await find(source, letter_id, cursor)
        body = (await self._ready(letter, edit, source, target, False, trace)).outgoing.body
        return await turns.run(as_shown, body, source, target, size=len(body))

    async def _ready(
        self, letter: Letter, edit: LetterEdit | None, source: Route, target: Route, force: bool, trace: Trace | None
    ) -> ReadyLetter:
        try:
            if edit is None:
                return await turns.run(unchanged, letter, source, target, self._clock(), force, size=letter.size)
            size = letter.size + len(edit.data or edit.body or b"")
            return await turns.run(self._edited, letter, edit, source, target, trace, size=size)
        except Poison as poison:
            raise NotRedrivable(letter_id=letter.letter_id, reason=poison.detail) from None

    def _edited(
        self, letter: Letter, edit: LetterEdit, source: Route, target: Route, trace: Trace | None
    ) -> ReadyLetter:
        """The message of an edited letter, validated like a publish to ``target``. It keeps the letter's native headers
        unless the edit has its own. Raises Poison for new data of a record without an object, or for an old message."""
        if edit.data is not None:
            body = envelope.with_data(letter.record.body, edit.data)
            queue = _named_queue(body) or target.queue
        else:
            body = edit.body or b""
            named = _named_queue(body)
            queue = source.queue if named == source.queue else target.queue
        try:
            body = with_values(body, letter, source)
            trace_id = None if trace is None else trace.trace_id
            publication = envelope.read_publication(body, queue, self._limits, self._clock, trace_id)
            _refuse_key(publication)
            outgoing = self._runtime_of(target.queue).outgoing(publication, None, None)
        except EnvelopeError as error:
            moved = [Problem(_pointer(edit, each.pointer), each.code, each.detail) for each in error.problems]
            raise type(error)(moved, error.facts.get("trace_id")) from None
        except UnsupportedByBroker as error:
            raise _placed(error, edit) from None
        sent = publication.envelope
        if target.policy.has_expired(sent.created_at, self._clock()):
            raise Poison("message_expired", f"the message is older than ttl_seconds of the queue {target.queue!r}.")
        if sent.attempts:
            outgoing = replace(outgoing, body=envelope.with_attempts(sent.body, 0))
        if not publication.headers:
            # The body's own time to live is the only header in ``outgoing``.
            headers = {**outgoing.headers, **headers_for(letter, source, target), **outgoing.headers}
            outgoing = replace(outgoing, headers=headers)
        elif EXPIRES_AT_HEADER in letter.record.headers:
            # A job has the time in its body, too.
            outgoing = replace(outgoing, headers={EXPIRES_AT_HEADER: NEVER_EXPIRES, **outgoing.headers})
        outgoing = with_priority_of(letter, outgoing, target)
        traceparent = outgoing.headers.get("traceparent")
        size = len(outgoing.body)
        facts = Facts(0, sent.id, sent.trace_id, sent.job, sent.created_at, sent.lang, size, traceparent)
        return ReadyLetter(letter, outgoing, facts, EDITED, sent)

    def _routes(
        self, caller: Caller, queue: str, to_queue: str | None, force: bool, *, edits: bool = False
    ) -> tuple[Route, Route]:
        note(to_queue=to_queue, force=force or None, edited=edits or None)
        source = self._route(caller, Right.MANAGE, queue)
        target = source
        if to_queue is not None and to_queue != queue:
            check_queue_name(to_queue, "to_queue")
            target = self._route(caller, Right.SEND, to_queue)
        elif edits:
            caller.require(Right.SEND, queue)
        if force and is_home(source, target):
            raise ForceNeedsOtherQueue(queue=queue, pointer="/force")
        source.offering(DeadStore)
        return source, target

    def _route(self, caller: Caller, right: Right, queue: str) -> Route:
        caller.require(right, queue)
        return self._runtime_of(queue).route

    def _beyond(self, trace: Trace | None, source: Route) -> Trace | None:
        """A trace for a job, which goes on after its request: its span is a child of the request's."""
        with redriving(trace, source) as span:
            return self._tracing.of_peer(span.traceparent)


class _NamedMeta(Struct):
    queue: Any = None


class _NamedBody(Struct):
    meta: _NamedMeta | None = None
    envelope: _NamedBody | None = None


def _named_queue(body: bytes) -> str | None:
    """``meta.queue`` of an envelope or of the envelope in an entry, if it is a string."""
    try:
        found = msgspec.json.decode(body, type=_NamedBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    inner = found if found.meta is not None or found.envelope is None else found.envelope
    named = inner.meta.queue if inner.meta is not None else None
    return named if isinstance(named, str) else None


def _refuse_key(publication: Publication) -> None:
    if publication.idempotency_key is not None:
        detail = "A dead letter is removed when it was sent, and takes no idempotency_key."
        raise EnvelopeError([Problem("/idempotency_key", "invalid_idempotency_key", detail)])


def _placed(error: BabelgateError, edit: LetterEdit | None, sent: Envelope | None = None) -> BabelgateError:
    """``error`` with a pointer of the request. ``sent``: the edited envelope that the broker refused."""
    if edit is None or not isinstance(error, UnsupportedByBroker) or not error.pointer:
        return error
    return error.moved(_pointer(edit, error.pointer if sent is None else sent.placed(error.pointer)))


def _pointer(edit: LetterEdit, pointer: str) -> str:
    """``pointer`` of the edited body as a pointer of the request. New data are a part of the body, so a problem of
    another part is one of the edit as a whole."""
    if edit.data is None:
        return "/edit/body" + pointer
    return "/edit" + (pointer if pointer == "/data" or pointer.startswith("/data/") else "")
