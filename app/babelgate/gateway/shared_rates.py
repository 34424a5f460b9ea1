"""Rates that all processes count together, in a store that a broker offers.

Each process decides by itself, at once, and reports ten times a second to the store what it has taken. The
answer is what all have taken. So no request waits for the store. In between each process may take what its own bucket
has; what is too much is a debt of all, so the rate holds in the long run.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from babelgate.brokers.rate_store import RateStore, TakenRate
from babelgate.errors import BabelgateError, OutcomeUnknown
from babelgate.gateway.buckets import Bucket
from babelgate.gateway.shared_counts import SharedCount, SharedCounts
from babelgate.observe.logs import get_logger

SYNC_SECONDS = 0.1
"""Time between two exchanges with the store, while anything is taken."""
RETRY_SECONDS = 1.0
"""The same while the store does not answer."""
_MOST = 500
"""Rates of one exchange."""

log = get_logger(__name__)


class SharedBucket(Bucket):
    """A bucket of one process that follows the one of all. ``unreported``: seconds of the rate that were taken, and not
    reported yet."""

    __slots__ = ("_touched", "name", "unreported")

    def __init__(self, name: str, rate: float, capacity: float, touched: Callable[[SharedBucket], None]) -> None:
        super().__init__(rate, capacity)
        self.name = name
        self.unreported = 0.0
        self._touched = touched

    def take(self, now: float, amount: float) -> None:
        """Take ``amount``, and report it with the next call."""
        super().take(now, amount)
        self.unreported += amount / self.rate
        self._touched(self)

    def adopt(self, empty_at: float) -> None:
        """All have taken as much as empties the bucket at ``empty_at``; what is unreported comes on top."""
        self._empty_at = empty_at + self.unreported


class SharedRates:
    """Exchanges what was taken with the store. ``counts``: what is shared beside rates."""

    def __init__(self, store: RateStore, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._store = store
        self._clock = clock
        self._touched: dict[str, SharedBucket] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_alone = False
        self.counts = SharedCounts(store)

    @property
    def is_alone(self) -> bool:
        """Whether the store does not answer, so that this process counts for itself."""
        return self._is_alone or self.counts.is_alone

    def bucket(self, label: str, scope: tuple[str, str], rate: float, capacity: float) -> SharedBucket:
        """The bucket of a rate. ``label``: the name of its limit; ``scope``: identity and queue."""
        return SharedBucket(_name(label, scope), rate, capacity, self._touch)

    def count(self, label: str, scope: tuple[str, str], most: int, running: Mapping[Any, int], key: str) -> SharedCount:
        """The share in a number at a time, which is ``running[key]`` in this process. ``most``: of all processes."""
        return SharedCount(self.counts, _name(label, scope), most, running, key)

    async def close(self) -> None:
        """Stop exchanging; idempotent."""
        await self.counts.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _touch(self, bucket: SharedBucket) -> None:
        self._touched[bucket.name] = bucket
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._exchange())

    async def _exchange(self) -> None:
        while self._touched:
            buckets = [self._touched.pop(name) for name in list(self._touched)[:_MOST]]
            reports = [bucket.unreported for bucket in buckets]
            for bucket in buckets:
                bucket.unreported = 0.0
            rates = [
                TakenRate(bucket.name, taken, bucket.capacity / bucket.rate)
                for bucket, taken in zip(buckets, reports, strict=True)
            ]
            try:
                found = await self._store.take(rates)
            except Exception as error:
                self._failed(error)
                for bucket, taken in zip(buckets, reports, strict=True):
                    # What may have been counted is not counted twice.
                    bucket.unreported += 0.0 if isinstance(error, OutcomeUnknown) else taken
                    self._touched.setdefault(bucket.name, bucket)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._is_alone:
                self._is_alone = False
                log.info("rates are shared again")
            now = self._clock()
            for bucket, empty_in in zip(buckets, found, strict=True):
                bucket.adopt(now + empty_in)
            await asyncio.sleep(SYNC_SECONDS)

    def _failed(self, error: Exception) -> None:
        if not self._is_alone:
            self._is_alone = True
            if isinstance(error, BabelgateError):
                log.warning("rates are not shared: this process counts for itself", reason=error.detail)
            else:
                log.error("rates are not shared: this process counts for itself", exc_info=error)


def _name(label: str, scope: tuple[str, str]) -> str:
    """The name of a limit of one scope in the store."""
    digest = hashlib.sha256("\0".join(scope).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{label}:{digest}"
