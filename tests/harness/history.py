"""Journals in memory, and what a search in them gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from babelgate.gateway.history import History, Journaled
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.observe.journal.record import VERSION, JournalEvent, Record
from babelgate.observe.journal.search import Page, Query, cursor_of, place_of

AT = 1_790_000_000_000


def record(event: JournalEvent = "accepted", at: int = 0, **members: Any) -> Record:
    """A record of the message ``m`` in the queue ``q``, ``at`` ms after AT."""
    values: dict[str, Any] = {
        "node": "gw",
        "epoch": "e" * 20,
        "seq": at + 1,
        "queue": "q",
        "broker": "local",
        "job": "j",
        "message_id": "m",
        "trace_id": "t",
        "attempts": 0,
        "created_at": AT,
        "lease_seconds": None,
        "bytes": 10,
        "lang": "go",
        "outcome": None,
    }
    return Record(v=VERSION, event=event, at=AT + at, **values | members)


class MemorySearch:
    """The search in ``records``. A call looks at ``looks`` of them, which may be none of those that are searched."""

    def __init__(self, records: Iterable[Record] = (), looks: int = 1_000_000) -> None:
        self.records = [*records]
        self.looks = looks
        self.calls: list[tuple[Query, int, str | None]] = []

    async def find(self, query: Query, limit: int, cursor: str | None = None) -> Page:
        self.calls.append((query, limit, cursor))
        oldest_first = query.message_id is not None or query.trace_id is not None
        ordered = sorted(self.records, key=place, reverse=not oldest_first)
        if cursor is not None:
            after = place_of(cursor)
            ordered = [each for each in ordered if (place(each) > after) == oldest_first and place(each) != after]
        found: list[Record] = []
        for index, each in enumerate(ordered):
            if index == self.looks or len(found) == limit:
                return Page(found, cursor_of(place(ordered[index - 1])), self._since())
            if _matches(query, each):
                found.append(each)
        return Page(found, None, self._since())

    def _since(self) -> int | None:
        return min((each.at for each in self.records), default=None)


def _matches(query: Query, each: Record) -> bool:
    members = ("message_id", "trace_id", "job", "queue", "event")
    return all(getattr(query, name) in (None, getattr(each, name)) for name in members) and (
        (query.since is None or each.at >= query.since) and (query.until is None or each.at < query.until)
    )


def place(each: Record) -> tuple[int, str, str, int]:
    return each.at, each.node, each.epoch, each.seq


class Directly:
    """Peers in this process: their histories, and the addresses of those that are silent."""

    def __init__(self, *others: History, silent: Sequence[str] = ()) -> None:
        self.others = others
        self.silent = silent

    async def ask(self, inquiry: Inquiry) -> tuple[list[Finding], Sequence[str]]:
        found = await asyncio.gather(*(each.here(inquiry) for each in self.others))
        return [each for each in found if each is not None], self.silent


def history(
    search: MemorySearch, *others: History, node: str = "gw", files: str = "", silent: Sequence[str] = ()
) -> History:
    """A reader of ``search`` and of ``others``. ``files``: by default those of this node alone."""
    return History(Journaled(search, node, lambda: files or node), Directly(*others, silent=silent))
