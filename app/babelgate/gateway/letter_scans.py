"""Bounds and shares what reads many dead letters for few: filtered listings, searches by id, dry runs, redrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller
from babelgate.gateway.fair_share import FairShare
from babelgate.gateway.routing import Route

MAX_SCANS = 128
"""Scans of a process, those that wait among them. Each may read MAX_SCANNED letters, which takes some 50 ms of CPU
time."""

MAX_READING = 4
"""Shared scans that read letters of one broker at a time. Each holds up to two pages of PAGE_BYTES in memory."""

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class LockPerQueue:
    """A lock for each queue that is in use."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __call__(self, queue: str) -> asyncio.Lock:
        """The lock of ``queue``, for ``async with``."""
        return self._locks.setdefault(queue, asyncio.Lock())


class _Shared(Generic[Item, Result]):
    """One scan for several callers. ``results``: what it found for each item; empty before its end."""

    def __init__(self) -> None:
        self.callers = 0
        self.wanted: set[Item] = set()
        self.results: Mapping[Item, Result | BabelgateError] = {}


class LetterScans:
    """The scans of a process: operations that may read many dead letters."""

    def __init__(self) -> None:
        self.place = FairShare(MAX_SCANS, "search dead letters").place
        """A place for a scan of a caller during the block. Raises Overloaded when it has its share already."""
        self._reading: dict[str, asyncio.Semaphore] = {}
        self._locks = LockPerQueue()
        self._next: dict[Hashable, _Shared[Any, Any]] = {}

    async def shared(
        self,
        caller: Caller,
        route: Route,
        key: Hashable,
        item: Item,
        read: Callable[[frozenset[Item]], Awaitable[Mapping[Item, Result | BabelgateError]]],
    ) -> Result:
        """The result for ``item`` of a scan that only reads. Raises like :meth:`place`, and what ``read`` does.

        One scan of a queue runs at a time. Callers that come meanwhile wait, and those with the same ``key`` share the
        next one, so that many at once cost as much as two: ``read`` is called with the items of all of them, and must
        do the same for each. When the caller whose call scans is cancelled, the next caller begins again.
        """
        key = route.queue, key
        with self.place(caller):
            shared: _Shared[Item, Result] = self._next.setdefault(key, _Shared())
            shared.callers += 1
            shared.wanted.add(item)
            try:
                async with self._locks(route.queue):
                    if not shared.results:
                        async with self._reading.setdefault(route.broker, asyncio.Semaphore(MAX_READING)):
                            # From now on, callers share the next scan.
                            self._forget(key, shared)
                            try:
                                shared.results = await read(frozenset(shared.wanted))
                            except BabelgateError as error:
                                shared.results = dict.fromkeys(shared.wanted, error.without_frames())
            finally:
                shared.callers -= 1
                if not shared.callers:
                    self._forget(key, shared)
        result = shared.results[item]
        if isinstance(result, BabelgateError):
            raise result
        return result

    def _forget(self, key: Hashable, shared: _Shared[Any, Any]) -> None:
        if self._next.get(key) is shared:
            del self._next[key]
