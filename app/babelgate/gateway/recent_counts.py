"""What brokers say of queues, asked for once in some seconds however many pages show it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import QueueStats
from babelgate.errors import BabelgateError
from babelgate.gateway.outages import Outages
from babelgate.gateway.routing import Route
from babelgate.runtime.cache import Cache

_COUNTED_AT_ONCE = 50
_COUNT_SECONDS = 2.0
"""Time-out for the counts of all queues of one reading."""
_COUNTS_BYTES = 2 * 1024 * 1024
_COUNTS_ENTRY_BYTES = 1_024


class RecentCounts:
    """Reads counts from the brokers, and remembers those of some 2,000 queues."""

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._counts: Cache[str, tuple[float, QueueStats]] = Cache(_COUNTS_BYTES, _COUNTS_ENTRY_BYTES)

    async def read(self, routes: Iterable[Route], fresh_seconds: float) -> dict[str, QueueStats]:
        """The counts by queue, at most ``fresh_seconds`` old, without those that were not available within 2 s.

        A broker whose circuit is open is not asked.
        """
        found: dict[str, QueueStats] = {}
        missing = []
        now = time.monotonic()
        for route in routes:
            known = self._counts.get(route.queue)
            if known is not None and now - known[0] < fresh_seconds:
                found[route.queue] = known[1]
            elif not self._outages.circuits[route.broker].is_open:
                missing.append(route)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COUNT_SECONDS):
                for some in batches(missing, _COUNTED_AT_ONCE):
                    await asyncio.gather(*(self._count(route, found) for route in some))
        return found

    async def _count(self, route: Route, found: dict[str, QueueStats]) -> None:
        with contextlib.suppress(BabelgateError):
            stats = found[route.queue] = await route.stats()
            self._counts.keep(route.queue, (time.monotonic(), stats))
