"""What happened to messages: reads the journals of this gateway and its peers."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, Protocol

from msgspec import Struct

from babelgate.errors import BabelgateError, Forbidden, InvalidParameter, StateUnavailable
from babelgate.gateway.authorization import READERS, Caller
from babelgate.gateway.fair_share import FairShare
from babelgate.gateway.merging import Finding, Inquiry, cut, merge
from babelgate.gateway.names import check_queue_name
from babelgate.gateway.standing import Standing, in_order, moment, standing
from babelgate.observe.journal.kept_meta import split
from babelgate.observe.journal.record import Record
from babelgate.observe.journal.search import InvalidCursor, Page, Query, is_of

MAX_SEARCHES = 32
"""Searches of a process at a time. Each may hold a page of each gateway in memory."""

_SEARCH_SECONDS = 2.0
"""How long a search goes on to the next pages while it has found nothing that its caller may see. An answer without
events and with a cursor ends it then."""

_MAX_QUOTED = 200
"""Characters of an id that an error repeats."""


class JournalDisabled(BabelgateError):
    """This gateway keeps no journal, so it does not know what happened to a message. Set journal.landing."""

    code = "journal_disabled"


class MessageNotFound(BabelgateError):
    """No event of the message {message_id} that you may see is known. {where}"""

    code = "message_not_found"


class TraceNotFound(BabelgateError):
    """No event of the trace {trace_id} that you may see is known. {where}"""

    code = "trace_not_found"


class Search(Protocol):
    """The search in the journal files that this process reaches: :class:`babelgate.observe.journal.search`."""

    async def find(self, query: Query, limit: int, cursor: str | None = None) -> Page:
        """A page of at most ``limit`` records: oldest first for an id, else newest first."""


class Journaled(Struct, frozen=True):
    """The journal of this process. ``node``: its name in records. ``files``: returns a name of the files that
    ``search`` reaches, the same in each process that reaches these. ``meta``: the members that its records keep."""

    search: Search
    node: str
    files: Callable[[], str]
    meta: Sequence[str] = ()


class PeerJournals(Protocol):
    """The journals of other gateways."""

    async def ask(self, inquiry: Inquiry) -> tuple[Sequence[Finding], Sequence[str]]:
        """What the peers find, and the addresses of those without an answer. Takes at most a few seconds."""


class NoPeerJournals:
    """A gateway without peers."""

    async def ask(self, inquiry: Inquiry) -> tuple[Sequence[Finding], Sequence[str]]:
        """Nothing."""
        return (), ()


class SearchedGateway(Struct, frozen=True):
    """The ``node`` of gateways whose journal was searched, from ``since`` on (Unix ms; None: it has no record yet)."""

    node: str
    since: int | None


class Searched(Struct, frozen=True):
    """How far a search went. ``since``: all gateways that answered have searched everything from this time on (Unix ms;
    None: none of them has a record). ``silent``: addresses of peers that gave no answer."""

    since: int | None
    gateways: Sequence[SearchedGateway]
    silent: Sequence[str]


class EventPage(Struct, frozen=True):
    """A page of events. ``next_cursor`` leads to the next page; None: there is none."""

    events: Sequence[Record]
    next_cursor: str | None
    searched: Searched


class MessageHistory(Struct, frozen=True):
    """A message with those of its events that the caller may see, oldest first, and where it is after these.

    ``trace_id`` and ``job``: the first known ones.
    """

    message_id: str | None
    trace_id: str | None
    job: str | None
    standing: Standing
    events: Sequence[Record]


class History:
    """The read operations on the journals of all gateways that answer.

    A Caller sees the events of the queues on which it has the right ``listen`` or ``manage``. Each operation raises
    Forbidden without such a right on any queue, JournalDisabled, InvalidParameter for a bad ``cursor``,
    StateUnavailable if the journal cannot be read, and Overloaded while this process searches as much for the caller as
    it may.
    """

    def __init__(self, journal: Journaled | None = None, peers: PeerJournals | None = None) -> None:
        """``journal``: None where none is configured."""
        self._journal = journal
        self._peers = peers or NoPeerJournals()
        self._share = FairShare(MAX_SEARCHES, "search the journal")

    @property
    def enabled(self) -> bool:
        """Whether this gateway keeps a journal."""
        return self._journal is not None

    @property
    def meta(self) -> Sequence[str]:
        """The members of ``meta`` by which messages are found."""
        return () if self._journal is None else self._journal.meta

    async def message(
        self, caller: Caller, message_id: str, limit: int = 1000, cursor: str | None = None
    ) -> tuple[MessageHistory, EventPage]:
        """The message and the page of its events, oldest first. Raises MessageNotFound."""
        found = await self._find(caller, Query(message_id=message_id), limit, cursor)
        if not found.events:
            where = _where(found.searched, "message", message_id)
            raise MessageNotFound(message_id=_quoted(message_id), where=where, searched=found.searched)
        return _message(message_id, found.events), found

    async def trace(
        self, caller: Caller, trace_id: str, limit: int = 1000, cursor: str | None = None
    ) -> tuple[Sequence[MessageHistory], EventPage]:
        """The messages of a trace in the order of their first events, and the page of all their events, oldest first.

        Raises TraceNotFound.
        """
        found = await self._find(caller, Query(trace_id=trace_id), limit, cursor)
        if not found.events:
            where = _where(found.searched, "trace", trace_id)
            raise TraceNotFound(trace_id=_quoted(trace_id), where=where, searched=found.searched)
        by_id: dict[str | None, list[Record]] = {}
        for record in found.events:
            by_id.setdefault(record.message_id, []).append(record)
        return [_message(message_id, records) for message_id, records in by_id.items()], found

    async def events(self, caller: Caller, query: Query, limit: int = 100, cursor: str | None = None) -> EventPage:
        """A page of the events that ``query`` names by job, queue, kind, time or a member of ``meta``, newest first.

        It may have fewer events than ``limit``, or none, and still a next page. Raises InvalidParameter for an illegal
        name of a queue and for a member that this journal does not keep, and Forbidden without the right ``listen`` or
        ``manage`` on the queue.
        """
        if query.queue is not None:
            check_queue_name(query.queue)
            if caller.rights(query.queue).isdisjoint(READERS):
                reason = f"This needs the right 'listen', 'manage' or 'observe' on the queue {query.queue!r}."
                raise Forbidden(reason=reason)
        return await self._find(caller, query, limit, cursor)

    async def here(self, inquiry: Inquiry) -> Finding | None:
        """What this process finds, for a peer that checks the rights of its caller. None: it keeps no journal.

        Nothing if it reaches the same files as the peer. Raises InvalidParameter for a bad cursor, StateUnavailable.
        """
        if self._journal is None:
            return None
        if self._journal.files() == inquiry.files:
            return Finding(self._journal.node, inquiry.files)
        return await self._read(self._journal, inquiry)

    async def _read(self, journal: Journaled, inquiry: Inquiry) -> Finding:
        try:
            page = await journal.search.find(inquiry.query, inquiry.limit, inquiry.cursor)
        except InvalidCursor:
            raise InvalidParameter(name="cursor", reason="it is not the next_cursor of a search") from None
        except OSError as error:
            raise StateUnavailable(reason=f"the journal cannot be read: {error}") from error
        return cut(Finding(journal.node, journal.files(), page.records, page.next_cursor, page.reaches_back_to))

    async def _find(self, caller: Caller, query: Query, limit: int, cursor: str | None) -> EventPage:
        """The next page with an event that ``caller`` may see; one without any after _SEARCH_SECONDS."""
        caller.require_anywhere(*READERS)
        journal = self._journal
        if journal is None:
            raise JournalDisabled
        wanted = query.meta
        if wanted is not None:
            _check_kept(split(wanted)[0], journal.meta)
        may_see = cache(lambda queue: queue is not None and not caller.rights(queue).isdisjoint(READERS))
        until = time.monotonic() + _SEARCH_SECONDS
        with self._share.place(caller):
            while True:
                inquiry = Inquiry(query, limit, cursor, journal.files())
                own, (others, silent) = await asyncio.gather(self._read(journal, inquiry), self._peers.ask(inquiry))
                records, cursor = merge(query, limit, [own, *others])
                visible = [record for record in records if may_see(record.queue)]
                if wanted is not None:
                    # A peer of an earlier version does not know this condition.
                    visible = [record for record in visible if is_of(record, "meta", wanted)]
                if visible or cursor is None or time.monotonic() >= until:
                    return EventPage(visible, cursor, _searched([own, *others], silent))


def _check_kept(name: str, kept: Sequence[str]) -> None:
    """Raises InvalidParameter for a member that records do not keep."""
    if name not in kept:
        known = f"keeps {', '.join(kept)}" if kept else "keeps none"
        raise InvalidParameter(name="meta", reason=f"the journal of this gateway {known} (journal.meta)")


def _searched(findings: Sequence[Finding], silent: Sequence[str]) -> Searched:
    # A gateway that reaches the files of another one has not searched them again.
    reach = {each.files: each.since for each in reversed(findings)}
    since: dict[str, int | None] = {}
    for each in findings:
        known = [time for time in (since.get(each.node), reach[each.files]) if time is not None]
        since[each.node] = max(known, default=None)
    return Searched(
        max((time for time in since.values() if time is not None), default=None),
        [SearchedGateway(node, time) for node, time in sorted(since.items())],
        silent,
    )


def _message(message_id: str | None, records: Sequence[Record]) -> MessageHistory:
    events = in_order(records)
    trace_id = next((each.trace_id for each in events if each.trace_id is not None), None)
    job = next((each.job for each in events if each.job is not None), None)
    return MessageHistory(message_id, trace_id, job, standing(events), events)


def _where(searched: Searched, kind: Literal["message", "trace"], sought: str) -> str:
    """Sentences about what was searched, and where older events may be."""
    names = [
        f"{each.node} (no record)" if each.since is None else f"{each.node} (from {moment(each.since)} on)"
        for each in searched.gateways
    ]
    quoted = shlex.quote(sought) if sought.isprintable() and len(sought) <= _MAX_QUOTED else "ID"
    sentences = [
        f"Searched: the journals of {', '.join(names)}.",
        *([f"No answer from {', '.join(searched.silent)}."] if searched.silent else []),
        f"Older events may be in a data lake: babelgate pipeline {kind} {quoted} --lake LAKE",
    ]
    return " ".join(sentences)


def _quoted(sought: str) -> str:
    return sought if len(sought) <= _MAX_QUOTED else f"{sought[:_MAX_QUOTED]}…"
