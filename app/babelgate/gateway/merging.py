"""Merges what several gateways find in their journals into pages in one order.

A cursor is the place of a record in that order, and all gateways read on from there. A page ends where the first of
them has more to read: what others have found behind that place comes with a later page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from babelgate.observe.journal.record import Record
from babelgate.observe.journal.search import Place, Query, cursor_of, place_of

MAX_FOUND_BYTES = 4 * 1024 * 1024
"""Of the texts in the records of one gateway in one page. An id or a job can have the size of a message."""


class Inquiry(Struct, frozen=True):
    """What a gateway asks its peers for: at most ``limit`` records behind ``cursor``. ``files``: names the journal of
    the gateway that asks."""

    query: Query
    limit: int
    cursor: str | None
    files: str


class Finding(Struct, frozen=True):
    """What one gateway found: records in order, and the cursor of its next page.

    ``node``: its name in records; ``files``: names the files that it searched; ``since``: it has searched everything
    from this time on (Unix ms; None: it has no record).
    """

    node: str
    files: str
    records: Sequence[Record] = ()
    next_cursor: str | None = None
    since: int | None = None


def cut(found: Finding) -> Finding:
    """``found`` with as many of its records as take at most MAX_FOUND_BYTES, at least one."""
    size = 0
    for index, record in enumerate(found.records):
        texts = (record.job, record.message_id, record.trace_id, *(record.meta or {}).values())
        size += sum(len(text) for text in texts if text)
        if index and size > MAX_FOUND_BYTES:
            kept = found.records[:index]
            return structs.replace(found, records=kept, next_cursor=cursor_of(_place(kept[-1])))
    return found


def merge(query: Query, limit: int, findings: Iterable[Finding]) -> tuple[list[Record], str | None]:
    """The next records of the search, at most ``limit``, and its next cursor; None: it has read everything.

    A record that several have found is given once.
    """
    findings = [*findings]
    newest_first = query.message_id is None and query.trace_id is None
    found = {_place(record): record for each in findings for record in each.records}
    places = sorted(found, reverse=newest_first)
    cursor = None
    if ends := [place_of(each.next_cursor) for each in findings if each.next_cursor is not None]:
        end = max(ends) if newest_first else min(ends)
        places = [place for place in places if (place >= end if newest_first else place <= end)]
        cursor = cursor_of(end)
    if len(places) > limit:
        places = places[:limit]
        cursor = cursor_of(places[-1])
    return [found[place] for place in places], cursor


def _place(record: Record) -> Place:
    return record.at, record.node, record.epoch, record.seq
