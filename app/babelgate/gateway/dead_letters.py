"""Reads, lists and removes dead letters."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from msgspec import Struct

from babelgate import envelope
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadRecord, DeadStore
from babelgate.envelope import DeadSummary
from babelgate.errors import BabelgateError, DeadLetterNotReached, UnknownDeadLetter
from babelgate.gateway.model import EVERY_LETTER, DeadLetter, DeadLetterFilter, RemovalResult
from babelgate.gateway.page_sizes import PAGE_BYTES, affordable
from babelgate.gateway.routing import Route
from babelgate.observe.audit.notes import note
from babelgate.runtime import turns

_PAGE = 100
MAX_SCANNED = 10_000
"""Most records read by one listing, or by the search for one letter. A listing with a filter that matches few ends
early and returns a cursor; a search that has not found its letter names the cursor to continue with."""
_EXPIRY_PAGE = 250
"""Letters that the expiry reads at a time. Some brokers find each page by reading all before it, so that few large ones
are cheaper."""
_MAX_PAGES = 200
"""Most calls of the broker by one listing. A page has no more letters than are still wanted, so that a listing of few
would make a call for each letter that does not match."""
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

    ``matching``: of which letters the caller has use. ``background``: other requests go first, because many letters may
    be read for few. ``cursor`` is the position after the last page, and follows the removals. ``at_end``: there is no
    further page. ``pages``: how many were read.
    """

    def __init__(
        self,
        route: Route,
        cursor: str | None = None,
        matching: DeadLetterFilter = EVERY_LETTER,
        *,
        background: bool = False,
    ) -> None:
        self.cursor = cursor
        self.at_end = False
        self.scanned = self.pages = 0
        self._route = route
        self._matching, self._texts = matching, _texts(matching)
        self._background = background
        self._store = route.offering(DeadStore)
        self._bytes = 0

    async def page(
        self, most: int = _PAGE, capacity: int = PAGE_BYTES, wanted: Collection[str] | None = None
    ) -> list[Letter]:
        """Read at most ``most`` letters; fewer if they are large, so that they fit ``capacity`` bytes. Returns those
        that match and whose id is ``wanted`` (None: all). Raises BrokerError, and InvalidParameter for a malformed
        cursor."""
        count = min(affordable(self.scanned, self._bytes, capacity), most)
        records, self.cursor = await self._store.read_dead(self._route.native, self.cursor, count)
        self.at_end = self.cursor is None
        read = partial(_letter, wanted, self._texts)
        letters = await turns.mapped(read, records, lambda record: len(record.body), self._background)
        self.scanned += len(records)
        self.pages += 1
        self._bytes += sum(len(record.body) for record in records)
        return [letter for letter in letters if letter is not None and matches(letter.summary, self._matching)]

    async def search(self, wanted: Collection[str]) -> dict[str, Letter]:
        """Read on for the letters with the ids ``wanted``, at most MAX_SCANNED: the oldest letter of each id that was
        found. Raises like :meth:`page`."""
        found: dict[str, Letter] = {}
        while len(found) < len(wanted) and self.scanned < MAX_SCANNED and not self.at_end:
            for letter in await self.page(min(_PAGE, MAX_SCANNED - self.scanned), wanted=wanted):
                found.setdefault(letter.letter_id, letter)
        return found

    def missing(self, letter_id: str) -> BabelgateError:
        """Why a search has not found this letter: there is none, or the search has ended before the letters did."""
        if self.at_end:
            return UnknownDeadLetter(queue=self._route.queue, letter_id=letter_id)
        return DeadLetterNotReached(
            queue=self._route.queue, letter_id=letter_id, scanned=self.scanned, next_cursor=self.cursor
        )

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
    if matching.error is not None and summary.error != matching.error:
        return False
    if matching.before is not None and (summary.failed_at is None or summary.failed_at >= matching.before):
        return False
    return matching.after is None or (summary.failed_at is not None and summary.failed_at >= matching.after)


async def list_dead(
    route: Route, matching: DeadLetterFilter, limit: int, cursor: str | None
) -> tuple[list[DeadLetter], str | None]:
    """Up to ``limit`` matching dead letters, oldest first, and the cursor after them (None: no more)."""
    walk = Walk(route, cursor, matching, background=matching != EVERY_LETTER)
    views: list[DeadLetter] = []
    held_bytes = 0
    while len(views) < limit and held_bytes < PAGE_BYTES and not walk.at_end:
        if walk.scanned >= MAX_SCANNED or walk.pages >= _MAX_PAGES:
            break
        # Never more than is still needed: the cursor points behind a page, not into it.
        for letter in await walk.page(limit - len(views), PAGE_BYTES - held_bytes):
            views.append(await shown(letter, route))
            held_bytes += letter.size
    return views, walk.cursor


async def find(route: Route, letter_id: str, cursor: str | None) -> tuple[Walk, Letter]:
    """The oldest letter with this id after ``cursor``, and the walk that has read it.

    Reads the letters before it. Raises UnknownDeadLetter, and DeadLetterNotReached after MAX_SCANNED of them.
    """
    walk = Walk(route, cursor, background=True)
    found = await walk.search({letter_id})
    if letter_id not in found:
        raise walk.missing(letter_id)
    return walk, found[letter_id]


async def search(route: Route, cursor: str | None, letter_ids: Collection[str]) -> dict[str, Letter | BabelgateError]:
    """The oldest letter of each id after ``cursor``, or why it was not found. Raises like :meth:`Walk.page`."""
    walk = Walk(route, cursor, background=True)
    found = await walk.search(letter_ids)
    return {each: found.get(each) or walk.missing(each) for each in letter_ids}


async def remove(route: Route, letter_ids: Iterable[str]) -> list[RemovalResult]:
    """Remove the oldest letter of each id; one result per id, in order, a repeated id once.

    Raises BrokerError if nothing was removed; after that, the ids that are left get the error as their result.
    """
    results: dict[str, BabelgateError | None] = {
        each: UnknownDeadLetter(queue=route.queue, letter_id=each) for each in letter_ids
    }
    wanted = set(results)
    walk = Walk(route, background=True)
    try:
        while wanted and not walk.at_end:
            found: dict[str, Letter] = {}
            for letter in await walk.page(wanted=wanted):
                found.setdefault(letter.letter_id, letter)
            for letter_id, removed in zip(found, await walk.remove(list(found.values())), strict=True):
                wanted.discard(letter_id)
                if removed:
                    results[letter_id] = None
    except BabelgateError as error:
        if len(wanted) == len(results):
            raise
        results.update(dict.fromkeys(wanted, error.without_frames()))
    removed_count = sum(error is None for error in results.values())
    note(removed=removed_count, failed=len(results) - removed_count)
    return [RemovalResult(letter_id, error) for letter_id, error in results.items()]


async def expire(route: Route, before_ms: int) -> int:
    """Remove the letters with a ``failed_at`` before ``before_ms`` (Unix ms), wherever they stand in the queue; return
    the number removed. Letters without that time, of other programs, stay.

    Ends behind MAX_SCANNED letters that stay: most brokers list the oldest first. Raises BrokerError; the letters of
    earlier pages are removed then.
    """
    walk = Walk(route, matching=DeadLetterFilter(before=before_ms), background=True)
    removed = 0
    while not walk.at_end and walk.scanned - removed < MAX_SCANNED:
        old = await walk.page(_EXPIRY_PAGE)
        removed += (await walk.remove(old)).count(True)
    return removed


async def shown(letter: Letter, route: Route) -> DeadLetter:
    """The letter for operators, redacted as the route says."""
    summary, record, redaction = letter.summary, letter.record.body, route.policy.redaction
    if redaction is not None:
        record = await turns.run(redaction.redacted, record, size=len(record), background=True)
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
        record=record,
    )


def _texts(matching: DeadLetterFilter) -> Sequence[bytes]:
    """What stands in the body of each letter that matches, unless something is escaped there."""
    wanted = (matching.job, matching.reason, matching.trace_id, matching.error)
    return [b'"%b"' % text.encode(errors="surrogatepass") for text in wanted if text is not None]


def _letter(wanted: Collection[str] | None, texts: Sequence[bytes], record: DeadRecord) -> Letter | None:
    body = record.body
    # Reading the facts in a record takes five times as long, and in an unusual one forty times.
    if texts and b"\\" not in body and not all(text in body for text in texts):
        return None
    digest = hashlib.sha256(body).hexdigest()[:_ID_DIGITS]
    if wanted is not None and digest not in wanted:
        return None
    return Letter(record, envelope.describe_dead(body), digest)
