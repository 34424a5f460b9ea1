"""Searches the journal of this host: what its processes write now, what waits to land, and what is indexed."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.observe.journal.index import DamagedIndex, Index, IndexFile
from babelgate.observe.journal.keys import INDEX
from babelgate.observe.journal.record import Record
from babelgate.observe.journal.scan import Moved, Place, Query, Scan, is_of
from babelgate.observe.journal.stores import Store

__all__ = ["InvalidCursor", "JournalSearch", "Page", "Place", "Query", "cursor_of", "is_of", "place_of"]

MAX_LIMIT = 1000
"""Most records of a page."""
_ATTEMPTS = 10
"""A call begins again when a segment lands while it is read, which happens once a minute in each process."""

_places: msgspec.json.Decoder[Place] = msgspec.json.Decoder(Place)


class Page(Struct):
    """A part of what was found.

    ``records``: without bodies; those of a message or a trace oldest first, all others newest first. A page with a
    cursor may be empty, because a call reads a bounded part of the journal. ``reaches_back_to``: of the time from then
    on (Unix ms) all that this host has of the journal was searched; None if nothing is indexed. Of several pages the
    latest one holds.
    """

    records: list[Record]
    next_cursor: str | None
    reaches_back_to: int | None


class InvalidCursor(ValueError):
    """The cursor was not returned by a search."""


class JournalSearch:
    """Searches in a thread of its own, one call after the other."""

    def __init__(self, directory: Path, store: Store, clock: Clock, damaged: Callable[[], None] = lambda: None) -> None:
        """``directory``: that of open segments. ``store``: used by this search alone. ``damaged`` is called after a
        damaged file of the index was renamed away."""
        self._directory = directory
        self._store = store
        self._index = Index(directory / INDEX, clock)
        self._damaged = damaged
        self._files: dict[Path, IndexFile] = {}
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A read from a store may hang, and must not keep the process alive.
        self._thread = Thread(target=self._run, name="journal-search", daemon=True)
        self._closed = False

    async def find(self, query: Query, limit: int, cursor: str | None = None) -> Page:
        """Return up to ``limit`` records, 1 to :data:`MAX_LIMIT`, after ``cursor``.

        Reads 64 frames at most, or as many as have records of the same millisecond. Records of the last 200 ms may be
        missing. What cannot be read shortens ``reaches_back_to``. Raises InvalidCursor, and OSError if the index or
        the directory cannot be read.
        """
        after = None if cursor is None else place_of(cursor)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Page] = loop.create_future()

        def call() -> None:
            if answer.cancelled():
                return
            try:
                page = self._find(query, max(1, min(limit, MAX_LIMIT)), after)
            except Exception as error:
                settle, value = answer.set_exception, error
            else:
                settle, value = answer.set_result, page  # type: ignore[assignment]
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None if answer.done() else settle(value))

        if self._closed:
            raise RuntimeError("the search is closed")
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(call)
        return await answer

    def close(self) -> None:
        """End the thread after the calls that wait. Does not wait for it."""
        self._closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        self._close_files()

    def _find(self, query: Query, limit: int, after: Place | None) -> Page:
        for attempt in range(_ATTEMPTS):
            scan = Scan(query, limit, after)
            try:
                # Either may change during the search: files are deleted, and a rebuilt index reaches further back.
                before = self._reach()
                scan.run(self._directory, self._indexed, self._store)
                reaches = [before, self._reach(), scan.unread_until]
            except Moved:
                if attempt == _ATTEMPTS - 1:
                    raise
            except DamagedIndex as error:
                self._close_files()
                self._index.set_aside(error.path)
                self._damaged()
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                reach = None if None in reaches[:2] else max(each for each in reaches if each is not None)
                return Page(scan.records, None if scan.next_place is None else cursor_of(scan.next_place), reach)
        raise AssertionError

    def _reach(self) -> int | None:
        files = self._indexed()
        return files[-1].since() if files else None

    def _indexed(self) -> list[IndexFile]:
        """The files of the index, newest last. Those that other processes have deleted are closed."""
        paths = self._index.files()
        for path in [*self._files]:
            if path not in paths or not self._files[path].is_current():
                self._files.pop(path).close()
        for path in paths:
            if path not in self._files:
                with contextlib.suppress(FileNotFoundError):
                    self._files[path] = IndexFile(path)
        return [self._files[path] for path in paths if path in self._files]

    def _close_files(self) -> None:
        self._index.close()
        while self._files:
            self._files.popitem()[1].close()


def cursor_of(place: Place) -> str:
    """The cursor behind the record at ``place``."""
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_of(cursor: str) -> Place:
    """The place of the last record before ``cursor``. Raises InvalidCursor."""
    try:
        return _places.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, msgspec.MsgspecError):
        raise InvalidCursor("The cursor was not returned by a search.") from None
