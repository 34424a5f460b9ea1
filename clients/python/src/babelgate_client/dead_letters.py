"""The dead letters of a queue: list, show, redrive, delete and purge them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote, urlencode

from babelgate_client import calls
from babelgate_client.calls import Call, Repeat
from babelgate_client.generated.models.dead_letter import DeadLetter
from babelgate_client.generated.models.dead_letter_page import DeadLetterPage
from babelgate_client.generated.models.purge_result import PurgeResult
from babelgate_client.generated.models.redrive_result import RedriveResult
from babelgate_client.generated.models.redriven_letter import RedrivenLetter
from babelgate_client.generated.models.removal import Removal

REDRIVE_SECONDS = 60
"""How long a gateway may redrive before it answers."""
_CONDITIONS = ("job", "reason", "before", "after", "trace_id")


class Conditions(TypedDict, total=False):
    """Which dead letters; those that meet all. ``before`` and ``after``: when dead-lettered, in Unix milliseconds."""

    job: str
    reason: Literal["failed", "unknown_urn", "poison"]
    before: int
    after: int
    trace_id: str


class ListOptions(Conditions, total=False):
    """``limit``: 1 to 1,000. ``cursor``: ``next_cursor`` of the page before."""

    limit: int
    cursor: str


class RedriveOptions(Conditions, total=False):
    """Conditions or ``ids`` (``letter_id``, 1 to 1,000). ``limit``: 1,000 by default. ``to_queue``: another queue.

    ``dry_run``: only count. ``force``: also records without a valid envelope, to another queue. ``per_second``: the
    highest rate, at which ``limit`` letters take at most 60 s.
    """

    ids: Sequence[str]
    limit: int
    to_queue: str
    dry_run: bool
    force: bool
    per_second: float


class EditOptions(TypedDict, total=False):
    """``data``: the new payload. ``body``: the whole new message, instead. Others: as those of a redrive of many."""

    data: Mapping[str, Any]
    body: Mapping[str, Any]
    to_queue: str
    force: bool
    cursor: str


class DeadLetters:
    """The dead letters of one queue. Methods raise ProblemError and UnreachableError.

    A redrive, a deletion and a purge are repeated only if they changed nothing.
    """

    def __init__(self, call: Callable[[Call], dict[str, Any]], queue: str) -> None:
        self._call = call
        self._queue = queue

    def list(self, **options: Unpack[ListOptions]) -> DeadLetterPage:
        """A page of dead letters, oldest first."""
        return DeadLetterPage.from_dict(self._call(_list(self._queue, options)))

    def show(self, letter_id: str, *, cursor: str | None = None) -> DeadLetter:
        """One dead letter. ``cursor``: where the search begins; default: at the oldest."""
        return DeadLetter.from_dict(self._call(_show(self._queue, letter_id, cursor)))

    def redrive(self, **options: Unpack[RedriveOptions]) -> RedriveResult:
        """Send dead letters back: each is published, and removed when the broker has stored the message."""
        return RedriveResult.from_dict(self._call(_redrive(self._queue, options)))

    def redrive_one(self, letter_id: str, **options: Unpack[EditOptions]) -> RedrivenLetter:
        """Send one dead letter back, edited or unchanged."""
        return RedrivenLetter.from_dict(self._call(_redrive_one(self._queue, letter_id, options)))

    def delete(self, *letter_ids: str) -> Removal:
        """Remove 1 to 1,000 dead letters; one result for each."""
        return Removal.from_dict(self._call(_delete(self._queue, letter_ids)))

    def purge(self, *, dry_run: bool = False) -> PurgeResult:
        """Remove all dead letters. ``dry_run``: only count them."""
        return PurgeResult.from_dict(self._call(_purge(self._queue, dry_run)))


class AsyncDeadLetters:
    """:class:`DeadLetters` for asyncio."""

    def __init__(self, call: Callable[[Call], Awaitable[dict[str, Any]]], queue: str) -> None:
        self._call = call
        self._queue = queue

    async def list(self, **options: Unpack[ListOptions]) -> DeadLetterPage:
        """As :meth:`DeadLetters.list`."""
        return DeadLetterPage.from_dict(await self._call(_list(self._queue, options)))

    async def show(self, letter_id: str, *, cursor: str | None = None) -> DeadLetter:
        """As :meth:`DeadLetters.show`."""
        return DeadLetter.from_dict(await self._call(_show(self._queue, letter_id, cursor)))

    async def redrive(self, **options: Unpack[RedriveOptions]) -> RedriveResult:
        """As :meth:`DeadLetters.redrive`."""
        return RedriveResult.from_dict(await self._call(_redrive(self._queue, options)))

    async def redrive_one(self, letter_id: str, **options: Unpack[EditOptions]) -> RedrivenLetter:
        """As :meth:`DeadLetters.redrive_one`."""
        return RedrivenLetter.from_dict(await self._call(_redrive_one(self._queue, letter_id, options)))

    async def delete(self, *letter_ids: str) -> Removal:
        """As :meth:`DeadLetters.delete`."""
        return Removal.from_dict(await self._call(_delete(self._queue, letter_ids)))

    async def purge(self, *, dry_run: bool = False) -> PurgeResult:
        """As :meth:`DeadLetters.purge`."""
        return PurgeResult.from_dict(await self._call(_purge(self._queue, dry_run)))


def _list(queue: str, options: Mapping[str, Any]) -> Call:
    return Call("GET", calls.path(queue, "dead-letters") + _query(options))


def _show(queue: str, letter_id: str, cursor: str | None) -> Call:
    return Call("GET", _path(queue, letter_id) + _query({"cursor": cursor}))


def _redrive(queue: str, options: Mapping[str, Any]) -> Call:
    given = _given(options)
    filter_ = {name: given.pop(name) for name in _CONDITIONS if name in given}
    if filter_:
        given["filter"] = filter_
    return _post(calls.path(queue, "dead-letters:redrive"), given, REDRIVE_SECONDS)


def _redrive_one(queue: str, letter_id: str, options: Mapping[str, Any]) -> Call:
    given = _given(options)
    cursor = given.pop("cursor", None)
    edit = {name: given.pop(name) for name in ("data", "body") if name in given}
    if edit:
        given["edit"] = edit
    return _post(_path(queue, letter_id) + ":redrive" + _query({"cursor": cursor}), given)


def _delete(queue: str, letter_ids: Sequence[str]) -> Call:
    return _post(calls.path(queue, "dead-letters:delete"), {"ids": [*letter_ids]})


def _purge(queue: str, dry_run: bool) -> Call:
    return _post(calls.path(queue, "dead-letters:purge"), {"dry_run": dry_run})


def _post(path: str, order: Mapping[str, Any], wait_seconds: float = 0) -> Call:
    return Call("POST", path, calls.encoded(order), wait_seconds=wait_seconds, repeat=Repeat.UNLESS_WRITTEN)


def _path(queue: str, letter_id: str) -> str:
    return f"{calls.path(queue, 'dead-letters')}/{quote(letter_id, safe='')}"


def _query(parameters: Mapping[str, Any]) -> str:
    given = _given(parameters)
    return "?" + urlencode(given) if given else ""


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
