"""Splits long work into short turns of the event loop, so that one request does not delay the others.

Work on bodies needs CPU time of the event loop's thread. So long work is done in pieces. All pieces of one turn of the
loop together take a few milliseconds; then other work of the loop runs. A piece that is large by itself runs in a
thread, where the interpreter switches to the event loop every few milliseconds.
"""

from __future__ import annotations

import asyncio
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

SMALL_BYTES = 1_024
"""Reading any body up to this size takes less than a millisecond: it needs no turn."""

LARGE_BYTES = 32_768
"""Reading any body up to this size takes less than 20 ms. A larger one is read in a thread."""

RETURN_SECONDS = 0.02
"""How long after an answer its callers are waited for at most."""

_ENOUGH = 256
"""So many callers share a call well enough."""

_EMPTY_TURNS = 8
"""So many turns without another caller end the wait for those that were answered. An idle loop makes 8 turns in about
50 µs."""

_THREADS = 2
"""With one thread, a large body would delay all others; more than two would compete for the same interpreter."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Turns:
    """The turns of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = asyncio.Lock()
        self._spent = 0.0

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


async def run(function: Callable[..., Result], *arguments: Any, size: int) -> Result:
    """The result of ``function(*arguments)``, which works on about ``size`` bytes, or an unknown number if that is 0;
    raises its errors.

    The function must not use objects of the event loop: for a ``size`` above LARGE_BYTES it runs in a thread. When the
    caller is cancelled, such a function runs to its end, and its result is dropped.
    """
    if 0 < size <= SMALL_BYTES:
        return function(*arguments)
    if size > LARGE_BYTES:
        return await asyncio.get_running_loop().run_in_executor(_executor, function, *arguments)
    return (await _in_turns(lambda _: function(*arguments), (None,)))[0]


async def next_turn() -> None:
    """Wait for a turn of the event loop that no other caller gets: for work of milliseconds that has to run in it."""
    await _turns().next()


async def returned(count: Callable[[], int], expected: int, latest: float) -> None:
    """Wait for callers that come back after an answer, so that one call to the broker serves all of them.

    ``count``: how many wait now. The wait ends when they are as many as ``expected`` or simply many, when several turns
    bring nobody, or at ``latest``, by the loop's clock.
    """
    expected = min(expected, _ENOUGH)
    waiting, empty = count(), 0
    while waiting < expected and empty < _EMPTY_TURNS and asyncio.get_running_loop().time() < latest:
        await asyncio.sleep(0)
        before, waiting = waiting, count()
        empty = 0 if waiting > before else empty + 1


async def mapped(
    function: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], int] = lambda item: 0
) -> list[Result]:
    """The results of ``function`` for ``items``, in order; ``size``: the bytes of an item. Else like :func:`run`."""
    items = list(items)
    if len(items) == 1:
        return [await run(function, items[0], size=size(items[0]))]
    if max(map(size, items), default=0) <= LARGE_BYTES:
        return await _in_turns(function, items)
    results: list[Result] = []
    for is_large, several in groupby(items, lambda item: size(item) > LARGE_BYTES):
        if is_large:
            results += [await run(function, item, size=size(item)) for item in several]
        else:
            results += await _in_turns(function, several)
    return results


async def in_background(items: Iterable[Item]) -> list[Item]:
    """The ``items`` of an iterator that works for each of them: about BACKGROUND_SECONDS a turn, then as long a pause.

    For work that may take twice as long for the sake of all others. The iterator must not be used elsewhere.
    """
    results: list[Item] = []
    began = time.perf_counter()
    for item in items:
        results.append(item)
        spent = time.perf_counter() - began
        if spent > BACKGROUND_SECONDS:
            await asyncio.sleep(spent)
            began = time.perf_counter()
    return results


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
