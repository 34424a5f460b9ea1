"""Receives, streams and leases at a time that all processes count together, in a store that a broker offers.

A process has a share of each limit, and decides by it at once. Ten times a second it reports to the store what it has
and gets its next share. So only the first use of a limit after a pause waits for the store. What a killed process had,
and its share, comes back after PATIENCE_SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from babelgate.brokers.rate_store import CountShare, HeldCount, RateStore
from babelgate.errors import BabelgateError
from babelgate.observe.logs import get_logger

SYNC_SECONDS = 0.1
"""Time between two exchanges with the store, while a limit is in use."""
RETRY_SECONDS = 1.0
"""The same while the store does not answer."""
PATIENCE_SECONDS = 10.0
"""After this time without an exchange a process counts no more."""
ACTIVE_SECONDS = 3.0
"""A process gets a share for so long after the last look at it. A receive that waits looks at least once a second."""
WAIT_SECONDS = 0.5
"""How long a receive waits at most for a share in which it has a place."""
_REMIND_SECONDS = 1.0
"""A number that has not changed is reported again after this time."""
_MOST = 500
"""Numbers of one call."""

log = get_logger(__name__)


class SharedCount:
    """The share of this process in one limit. ``others``: how many the other processes had, by the last answer."""

    __slots__ = ("_counts", "_granted", "_key", "_running", "looked_at", "most", "name", "others", "sent", "sent_at")

    def __init__(self, counts: SharedCounts, name: str, most: int, running: Mapping[Any, int], key: str) -> None:
        """``running[key]``: how many this process has. ``most``: how many all may have."""
        self._counts = counts
        self._running = running
        self._key = key
        self._granted: int | None = None
        self.name = name
        self.most = most
        self.others = 0
        self.looked_at = self.sent_at = 0.0
        self.sent = 0

    @property
    def own(self) -> int:
        """How many this process has."""
        return self._running[self._key]

    @property
    def total(self) -> int:
        """How many all processes have, as far as this one knows."""
        return self.own + (0 if self._counts.is_alone else self.others)

    def ceiling(self) -> int:
        """How many this process may have now: all, while the store does not answer. It gets a share from now on."""
        self.looked_at = self._counts.watch(self)
        return self.most if self._granted is None or self._counts.is_alone else self._granted

    def is_settled(self) -> bool:
        """Whether there is a place in its share, or none in the limit, by the last answer of the store."""
        room = self.ceiling() - self.own
        if self._counts.is_alone:
            return True
        is_full = self.total >= self.most and self.looked_at - self.sent_at < WAIT_SECONDS
        return self._granted is not None and (room > 0 or is_full)

    async def settle(self, counts: Sequence[SharedCount]) -> None:
        """Wait until each of ``counts``, of the same process, :meth:`is settled <is_settled>`, at most WAIT_SECONDS."""
        await self._counts.settle(counts)

    def follow(self, before: SharedCount) -> None:
        """Go on with the share of ``before``, the same number with another limit, until the next exchange."""
        self._granted = None if before._granted is None else min(before._granted, self.most)
        self.others, self.sent, self.sent_at = before.others, before.sent, before.sent_at

    def adopt(self, share: CountShare, sent: int, now: float) -> bool:
        """Use this share, which is the answer to ``sent``. Returns whether it has grown."""
        before, self._granted = self._granted, share.granted
        self.others, self.sent, self.sent_at = share.others, sent, now
        return before is None or share.granted > before


class SharedCounts:
    """Exchanges what this process has for its shares. ``is_alone``: the store does not answer, so this process counts
    for itself. ``when_grown`` is called after some share has grown."""

    def __init__(self, store: RateStore) -> None:
        self._store = store
        self._process = secrets.token_hex(8)
        self._watched: dict[str, SharedCount] = {}
        self._task: asyncio.Task[None] | None = None
        self._sync_soon = asyncio.Event()
        self._exchanged = asyncio.Event()
        """Set, and replaced, after each exchange."""
        self.is_alone = self._is_closed = False
        self.when_grown: Callable[[], None] = _nothing

    def watch(self, count: SharedCount) -> float:
        """Exchange a number from now on, until it is not in use. Returns the loop's time."""
        loop = asyncio.get_running_loop()
        if self._watched.get(count.name) is not count and not self._is_closed:
            self._watched[count.name] = count
            self._sync_soon.set()
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._run())
        return loop.time()

    async def settle(self, counts: Sequence[SharedCount]) -> None:
        """Wait until there is a place in each of these shares, or none in its limit, for at most WAIT_SECONDS."""
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_SECONDS
        hurries = True
        while not all([count.is_settled() for count in counts]) and (left := end - loop.time()) > 0:
            if hurries:
                self._sync_soon.set()
                # What others have changes no faster than they report it.
                hurries = False
            try:
                await asyncio.wait_for(self._exchanged.wait(), left)
            except TimeoutError:
                return

    async def learn(self, counts: Sequence[SharedCount]) -> None:
        """Ask how many the other processes have of these, at most WAIT_SECONDS, and not at all while the store does not
        answer. It claims no share."""
        began = asyncio.get_running_loop().time()
        for count in counts:
            self.watch(count)
        self._sync_soon.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                # An exchange that has begun before knows nothing of them.
                while not self.is_alone and any(count.sent_at < began for count in counts):
                    await self._exchanged.wait()

    async def close(self) -> None:
        """Stop exchanging, and leave what this process had to the others, within WAIT_SECONDS; idempotent."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        left, self._watched = iter(self._watched.values()), {}
        if self.is_alone:
            return
        # Without an answer it counts until PATIENCE_SECONDS have passed.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(WAIT_SECONDS):
                while counts := list(islice(left, _MOST)):
                    sent = [HeldCount(each.name, 0, each.most, False) for each in counts]
                    await self._store.share(self._process, PATIENCE_SECONDS, sent)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watched:
            self._sync_soon.clear()
            try:
                has_grown = await self._exchange()
            except Exception as error:
                self._failed(error)
                self._tell()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.is_alone:
                self.is_alone = False
                log.info("receives, streams and leases are shared again")
            self._tell()
            if has_grown:
                self.when_grown()
            timer = loop.call_later(SYNC_SECONDS, self._sync_soon.set)
            await self._sync_soon.wait()
            timer.cancel()

    async def _exchange(self) -> bool:
        """Tell all that is in use or has changed. Returns whether some share has grown."""
        now = asyncio.get_running_loop().time()
        due = iter([each for each in self._watched.values() if _is_due(each, now)])
        has_grown = False
        while counts := list(islice(due, _MOST)):
            sent = [HeldCount(each.name, each.own, each.most, now - each.looked_at < ACTIVE_SECONDS) for each in counts]
            shares = await self._store.share(self._process, PATIENCE_SECONDS, sent)
            for count, share, said in zip(counts, shares, sent, strict=True):
                has_grown |= count.adopt(share, said.own, now)
                if not (said.own or said.is_active or count.own) and count.looked_at < now:
                    self._watched.pop(count.name, None)
        return has_grown

    def _tell(self) -> None:
        exchanged, self._exchanged = self._exchanged, asyncio.Event()
        exchanged.set()

    def _failed(self, error: Exception) -> None:
        if self.is_alone:
            return
        self.is_alone = True
        what = "receives, streams and leases are not shared: this process counts for itself"
        if isinstance(error, BabelgateError):
            log.warning(what, reason=error.detail)
        else:
            log.error(what, exc_info=error)
        self.when_grown()


def _is_due(count: SharedCount, now: float) -> bool:
    return now - count.looked_at < ACTIVE_SECONDS or count.own != count.sent or now - count.sent_at >= _REMIND_SECONDS


def _nothing() -> None:
    """No call waits for room."""
