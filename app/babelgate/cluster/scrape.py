"""Collects the metrics of this process, the other workers and the brokers for one scrape."""

from __future__ import annotations

import asyncio

from babelgate.cluster.worker_metrics import Workers
from babelgate.gateway.gauges import Gauges
from babelgate.observe.metrics import process
from babelgate.observe.metrics.catalogue import LEASES_IN_FLIGHT, WORKERS
from babelgate.observe.metrics.exposition import exposition
from babelgate.observe.metrics.instruments import Snapshot, decode, encode, merging
from babelgate.observe.metrics.recorder import Metrics
from babelgate.runtime import turns


class Scraping:
    """Answers scrapes and the other workers. Concurrent scrapes share one collection."""

    def __init__(self, metrics: Metrics, gauges: Gauges, workers: Workers | None = None) -> None:
        """``workers``: the other workers of this gateway; None if there are none."""
        self._metrics = metrics
        self._gauges = gauges
        self._workers = workers
        self._collecting: asyncio.Task[Snapshot] | None = None

    async def start(self) -> None:
        """Make this process known to the other workers."""
        if self._workers is not None:
            await self.report()

    async def show(self, accept: str) -> tuple[bytes, str]:
        """The exposition in the format that the header ``accept`` prefers, and its content type. Takes at most 3 s."""
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.get_running_loop().create_task(self._collect())
        pieces, content_type = exposition(await asyncio.shield(self._collecting), accept)
        # Not in a thread, which would keep the interpreter from the event loop for 5 ms again and again.
        return b"".join(await turns.in_background(pieces)), content_type

    async def report(self) -> bytes:
        """The encoded metrics of this process for another worker; they are written to disk first."""
        text = await asyncio.to_thread(encode, await self._own())
        if self._workers is not None:
            await self._workers.write_own(text)
        return text

    async def alone(self) -> Snapshot:
        """The metrics of this process and of the brokers."""
        return _whole(await self._own(), await self._gauges.of_brokers())

    async def close(self) -> None:
        """Write the last metrics of this process to disk for the other workers; idempotent."""
        await self._gauges.close()
        if self._workers is not None:
            await self.report()
            await self._workers.close()

    async def _collect(self) -> Snapshot:
        if self._workers is None:
            return await self.alone()
        brokers, others, text = await asyncio.gather(self._gauges.of_brokers(), self._workers.read(), self.report())
        total: Snapshot = {}
        await turns.in_background(merging(total, [await asyncio.to_thread(decode, text), *others.snapshots]))
        total[WORKERS.otel] = {("up",): 1.0 + others.up, ("silent",): float(others.silent)}
        return _whole(total, brokers)

    async def _own(self) -> Snapshot:
        counted: Snapshot = {name: {} for name in self._metrics.names}
        read = ((name, labels, instrument.read()) for name, labels, instrument in self._metrics.instruments())
        for name, labels, value in await turns.in_background(read):
            counted[name][labels] = value
        return counted | await self._gauges.of_process() | await asyncio.to_thread(process.of_process)


def _whole(processes: Snapshot, brokers: Snapshot) -> Snapshot:
    """Merge both; a broker's count of leases in flight replaces the count of the processes."""
    leases = processes.get(LEASES_IN_FLIGHT.otel, {}) | brokers.get(LEASES_IN_FLIGHT.otel, {})
    return processes | brokers | {LEASES_IN_FLIGHT.otel: leases}
