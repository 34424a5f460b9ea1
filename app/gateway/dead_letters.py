"""Reads, lists and removes dead letters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from app import envelope
from app.brokers.batching import batches
from app.brokers.binding import DeadRecord, DeadStore
from app.envelope import DeadSummary
from app.errors import BabelgateError, UnknownDeadLetter
from app.gateway.model import DeadLetter, DeadLetterFilter, RemovalResult
from app.gateway.routing import PAGE_BYTES, Route, affordable, offering
from app.runtime import turns

_PAGE = 100
_MAX_SCANNED = 10_000
"""Most records read by one listing. With a filter that matches few, the listing ends early and returns a cursor."""
_ID_DIGITS = 32


class Letter(Struct, frozen=True):
    """A dead letter as it was read: the broker's ``record``, the facts in it, and its id in the API.

    ``letter_id`` is a digest of the record's body, so every letter has one, whatever its bytes are. Letters with equal
    bodies share it.
    """

    record: DeadRecord
    summary: DeadSummary
    letter_id: str

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return len(self.record.body)


class Walk:
    """Reads the dead letters of ``route`` page by page, oldest first, and removes some of those it has read.

    ``cursor`` is the position after the last page, and follows the removals. ``at_end``: there is no further page.
    """

    def __init__(self, route: Route, cursor: str | None = None) -> None:
        self.cursor = cursor
        self.at_end = False
        self.scanned = 0
        self._route = route
        self._store = offering(route, DeadStore)
        self._bytes = 0

    async def page(self, most: int = _PAGE, capacity: int = PAGE_BYTES) -> list[Letter]:
        """At most ``most`` letters; fewer if they are large, so that they fit ``capacity`` bytes. Raises BrokerError,
        and InvalidParameter for a malformed cursor."""
        count = min(affordable(self.scanned, self._bytes, capacity), most)
        records, self.cursor = await self._store.read_dead(self._route.native, self.cursor, count)
        self.at_end = self.cursor is None
        letters = await turns.mapped(_letter, records, lambda record: len(record.body))
        self.scanned += len(letters)
        self._bytes += sum(letter.size for letter in letters)
        return letters

    async def remove(self, letters: Sequence[Letter]) -> list[bool]:
        """Remove letters of pages read so far; per letter whether this call has removed it. Raises BrokerError."""
        removed: list[bool] = []
        for some in batches(letters, self._route.capabilities.max_batch):
            records = [letter.record for letter in some]
            done, self.cursor = await self._store.remove_dead(self._route.native, records, self.cursor)
            removed += done
        return removed


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
    walk = Walk(route, cursor)
    views: list[DeadLetter] = []
    held_bytes = 0
    while len(views) < limit and walk.scanned < _MAX_SCANNED and held_bytes < PAGE_BYTES and not walk.at_end:
        # Never more than is still needed: the cursor points behind a page, not into it.
        for letter in await walk.page(limit - len(views), PAGE_BYTES - held_bytes):
            if matches(letter.summary, matching):
                views.append(view(letter))
                held_bytes += letter.size
    return views, walk.cursor


async def find(route: Route, letter_id: str) -> tuple[Walk, Letter]:
    """The oldest letter with this id, and the walk that has read it. Reads all letters before it.

    Raises UnknownDeadLetter.
    """
    walk = Walk(route)
    while not walk.at_end:
        for letter in await walk.page():
            if letter.letter_id == letter_id:
                return walk, letter
    raise UnknownDeadLetter(queue=route.queue, letter_id=letter_id)


async def remove(route: Route, letter_ids: Iterable[str]) -> list[RemovalResult]:
    """Remove the oldest letter of each id; one result per id, in order, a repeated id once.

    Raises BrokerError if nothing was removed; after that, the ids that are left get the error as their result.
    """
    results: dict[str, BabelgateError | None] = {
        each: UnknownDeadLetter(queue=route.queue, letter_id=each) for each in letter_ids
    }
    wanted = set(results)
    walk = Walk(route)
    try:
        while wanted and not walk.at_end:
            found: dict[str, Letter] = {}
            for letter in await walk.page():
                if letter.letter_id in wanted:
                    found.setdefault(letter.letter_id, letter)
            for letter_id, removed in zip(found, await walk.remove(list(found.values())), strict=True):
                wanted.discard(letter_id)
                if removed:
                    results[letter_id] = None
    except BabelgateError as error:
        if len(wanted) == len(results):
            raise
        results.update(dict.fromkeys(wanted, error.without_frames()))
    return [RemovalResult(letter_id, error) for letter_id, error in results.items()]


def view(letter: Letter) -> DeadLetter:
    """The letter for operators."""
    summary = letter.summary
    return DeadLetter(
        letter_id=letter.letter_id,
        id=summary.id,
        job=summary.job,
        trace_id=summary.trace_id,
        reason=summary.reason,
        error=summary.error,
        failed_at=summary.failed_at,
        attempts=summary.attempts,
        headers=letter.record.headers,
        record=letter.record.body,
    )


def _letter(record: DeadRecord) -> Letter:
    digest = hashlib.sha256(record.body).hexdigest()[:_ID_DIGITS]
    return Letter(record, envelope.describe_dead(record.body), digest)
