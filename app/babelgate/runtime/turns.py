"""Splits long work into short turns of the event loop, so that one request does not delay the others.

Work on bodies needs CPU time of the event loop's thread. Long work is therefore done in pieces. All pieces of one turn
of the loop together take a few milliseconds; then other work of the loop runs. A piece that is large by itself runs in
a thread, where the interpreter switches to the event loop every few milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

SLICE_SECONDS = 0.005
"""How long the pieces of one turn may take together; the next piece waits for another turn."""

BACKGROUND_SECONDS = 0.001
"""How long a piece of work in the background takes: a request of several turns waits for as many pieces."""

RECENT_SECONDS = 0.1
"""How long after a small request others are expected, and work in the background rests for their sake."""

REST_FACTOR = 4
"""The rest after work in the background, as a multiple of the work: small requests have four fifths of the time."""

MAX_REST_SECONDS = 0.1
"""Maximum rest after one piece in the loop, whose time may be that of another process."""

MAX_THREAD_REST_SECONDS = 1.0
"""Maximum rest after one body in a thread. A body of 1 MiB may take 0.6 s; others wait with their large bodies."""

SMALL_BYTES = 1_024
"""Reading any body up to this size takes less than a millisecond: it needs no turn."""

LARGE_BYTES = 32_768
"""Reading any body up to this size takes less than 20 ms. A larger one is read in a thread."""

RETURN_SECONDS = 0.02
"""The longest wait after an answer for its callers to call again."""

_BATCH_TARGET = 256
"""Callers of one call beyond which waiting for more gains little."""

_EMPTY_TURNS = 8
"""Turns without a new caller that end the wait for answered callers. An idle loop makes 8 turns in about 50 µs."""

HAND_OVER_SECONDS = 0.0005
"""How long a thread with a large body keeps the interpreter from the event loop. Python's own 5 ms pass twice in each
small request: before it is read, and after it was answered, because writing to a socket gives the interpreter away."""

_THREADS = 2
"""With one thread, a large body would delay all others; more than two would compete for the same interpreter."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class SmallRequests:
    """Counts the small requests of this process, for which work in the background rests."""

    count = 0


small_requests = SmallRequests()


class _Turns:
    """The turns of one event loop.

    ``background``: held by the one caller that works in the background.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = asyncio.Lock()
        self._spent = 0.0
        self.background = asyncio.Lock()
        self._owed = 0.0
        self._worked_at = 0.0
        self._counted = small_requests.count
        self._small_at = -RECENT_SECONDS

    def spend(self, seconds: float) -> None:
        """Note that a piece of work took ``seconds`` of this turn."""
        if not self._spent:
            self._loop.call_soon(self._begin)
        self._spent += seconds

    @property
    def is_over(self) -> bool:
        """Whether the next piece has to wait for another turn."""
        return self._spent >= SLICE_SECONDS or self._lock.locked()

    async def next(self) -> None:
        """Wait for a turn, after those that wait already."""
        async with self._lock:
            await asyncio.sleep(0)

    @property
    def is_shared(self) -> bool:
        """Whether there have been small requests a moment ago."""
        now = self._loop.time()
        if small_requests.count != self._counted:
            self._counted, self._small_at = small_requests.count, now
        return now - self._small_at < RECENT_SECONDS

    def worked(self, seconds: float, longest: float = MAX_REST_SECONDS) -> None:
        """Note that a piece of work in the background took ``seconds``; ``longest``: of the rest after it."""
        self._owed = min(self._owed + seconds * REST_FACTOR, longest)
        self._worked_at = self._loop.time()

    async def rest(self) -> None:
        """Rest before the next piece of work in the background, if much was done since the last rest."""
        if self._owed < BACKGROUND_SECONDS:
            return
        owed, self._owed = self._owed, 0.0
        # The other requests run here; those that are seen to arrive get the whole rest.
        await asyncio.sleep(0)
        if self.is_shared:
            await asyncio.sleep(max(self._worked_at + owed - self._loop.time(), 0))

    def _begin(self) -> None:
        self._spent = 0.0


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()
_executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="large-bodies")


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    turns = _of_loop.get(loop)
    if turns is None:
        turns = _of_loop[loop] = _Turns(loop)
    return turns


async def run(function: Callable[..., Result], *arguments: Any, size: int, background: bool = False) -> Result:
    """The result of ``function(*arguments)``, which works on about ``size`` bytes, or an unknown number if that is 0;
    raises its errors.

    The function must not use objects of the event loop: for a ``size`` above LARGE_BYTES it runs in a thread. When the
    caller is cancelled, such a function runs to its end, and its result is dropped. While there are small requests,
    one such function runs at a time, with rests between them, like work in the background.

    ``background``: a shorter one runs like :func:`in_background`.
    """
    if 0 < size <= SMALL_BYTES:
        return function(*arguments)
    if size > LARGE_BYTES:
        return await _in_thread(function, *arguments)
    work = _in_background if background else _in_turns
    return (await work(lambda _: function(*arguments), (None,)))[0]


async def next_turn() -> None:
    """Wait for a turn of the event loop that no other caller gets: for work of milliseconds that has to run in it."""
    await _turns().next()


async def wait_for_callers(count: Callable[[], int], expected: int, latest: float) -> None:
    """Wait for callers that come back after an answer, so that one call to the broker serves all of them.

    ``count``: how many wait now. The wait ends when they are as many as ``expected`` or simply many, when several turns
    bring no other caller, or at ``latest``, by the loop's clock.
    """
    expected = min(expected, _BATCH_TARGET)
    waiting, empty = count(), 0
    while waiting < expected and empty < _EMPTY_TURNS and asyncio.get_running_loop().time() < latest:
        await asyncio.sleep(0)
        before, waiting = waiting, count()
        empty = 0 if waiting > before else empty + 1


async def mapped(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[Item], int] = lambda item: 0,
    background: bool = False,
) -> list[Result]:
    """The results of ``function`` for ``items``, in order; ``size``: the bytes of an item. Else like :func:`run`."""
    items = list(items)
    if len(items) == 1:
        return [await run(function, items[0], size=size(items[0]), background=background)]
    work = _in_background if background else _in_turns
    if max(map(size, items), default=0) <= LARGE_BYTES:
        return await work(function, items)
    results: list[Result] = []
    for is_large, several in groupby(items, lambda item: size(item) > LARGE_BYTES):
        if is_large:
            results += [await run(function, item, size=size(item)) for item in several]
        else:
            results += await work(function, several)
    return results


async def in_background(items: Iterable[Item]) -> list[Item]:
    """The ``items`` of an iterator that works for each of them: about BACKGROUND_SECONDS a turn, for one caller at a
    time. While there are small requests, all callers together rest for REST_FACTOR times as long as they work.

    For work that may take longer for the sake of small requests. The iterator must not be used elsewhere.
    """
    turns = _turns()
    results: list[Item] = []
    left = iter(items)
    while True:
        async with turns.background:
            await turns.rest()
            began = time.perf_counter()
            try:
                for item in left:
                    results.append(item)
                    if time.perf_counter() - began > BACKGROUND_SECONDS:
                        break
                else:
                    return results
            finally:
                turns.worked(time.perf_counter() - began)


async def _in_background(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    return await in_background(map(function, items))


class _HandingOver:
    """While a thread works on a large body, the interpreter is handed over soon; else as seldom as Python does it,
    because each hand-over costs time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._usual = sys.getswitchinterval()

    def __enter__(self) -> None:
        with self._lock:
            self._working += 1
            sys.setswitchinterval(HAND_OVER_SECONDS)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._working -= 1
            if not self._working:
                sys.setswitchinterval(self._usual)


handing_over = _HandingOver()
"""For a thread, while it works on a large body."""


async def _in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    turns, loop = _turns(), asyncio.get_running_loop()
    spent = 0.0

    def timed() -> Result:
        nonlocal spent
        began = time.thread_time()
        try:
            with handing_over:
                return function(*arguments)
        finally:
            spent = time.thread_time() - began

    if not turns.is_shared:
        return await loop.run_in_executor(_executor, timed)

    async with turns.background:
        await turns.rest()
        try:
            return await loop.run_in_executor(_executor, timed)
        finally:
            turns.worked(spent, MAX_THREAD_REST_SECONDS)


async def _in_turns(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of ``function`` for ``items``, as many in one turn as its time allows."""
    turns = _turns()
    results: list[Result] = []
    left = iter(items)
    while True:
        if turns.is_over:
            await turns.next()
        began = time.perf_counter()
        try:
            for item in left:
                results.append(function(item))
                if time.perf_counter() - began > SLICE_SECONDS:
                    break
            else:
                return results
        finally:
            turns.spend(time.perf_counter() - began)
