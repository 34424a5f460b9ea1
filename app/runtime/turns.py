"""Long work in short turns of the event loop: what one request asks for keeps no other request waiting.

Work on bodies is CPU time of one thread, and the event loop is that thread. So long work is done in pieces. In one turn
of the loop all pieces together take some milliseconds; then the rest of the loop has its turn. A piece that is large by
itself runs in a thread, where the interpreter hands over to the event loop every few milliseconds.
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
"""How long the pieces of one turn may take together before the next one waits for another turn."""

SMALL_BYTES = 1_024
"""Reading a body up to this size takes less than a millisecond, whatever it holds: it needs no turn."""

LARGE_BYTES = 32_768
"""Reading a body up to this size takes less than 20 ms, whatever it holds. A larger one is read in a thread."""

_THREADS = 2
"""One large body must not hold up all others; more threads would only compete for the same interpreter."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Turns:
    """The turns of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = asyncio.Lock()
        self._spent = 0.0

    def spend(self, seconds: float) -> None:
        """A piece of work took ``seconds`` of this turn."""
        if not self._spent:
            self._loop.call_soon(self._begin)
        self._spent += seconds

    @property
    def is_over(self) -> bool:
        """Whether the next piece has to wait for another turn."""
        return self._spent >= SLICE_SECONDS or self._lock.locked()

    async def next(self) -> None:
        """Wait for a turn, behind those who wait already."""
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
    """``function(*arguments)``, which works on about ``size`` bytes. Raises what it raises.

    The function must not touch what belongs to the event loop: for a large ``size`` it runs in a thread. Where the
    caller is cancelled meanwhile, it runs to its end, and its result is dropped.
    """
    if size > LARGE_BYTES:
        return await asyncio.get_running_loop().run_in_executor(_executor, function, *arguments)
    return (await _in_turns(lambda _: function(*arguments), (None,)))[0]


async def mapped(
    function: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], int] = lambda item: 0
) -> list[Result]:
    """``function`` of each of ``items``, in order; ``size`` tells how many bytes it works on. As :func:`run`."""
    results: list[Result] = []
    for is_large, several in groupby(items, lambda item: size(item) > LARGE_BYTES):
        if is_large:
            results += [await run(function, item, size=size(item)) for item in several]
        else:
            results += await _in_turns(function, several)
    return results


async def _in_turns(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``function`` of each of ``items``, as many in one turn as fit."""
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
