"""All numbers together: of this process, of its siblings, and of the brokers."""

from __future__ import annotations

import asyncio

from app.cluster.worker_metrics import Workers
from app.gateway.gauges import Gauges
from app.observe.metrics.catalogue import LEASES_IN_FLIGHT, WORKERS
from app.observe.metrics.exposition import exposition
from app.observe.metrics.instruments import Snapshot, decode, encode, merged
from app.observe.metrics.recorder import Metrics
from app.runtime import turns


class Scraping:
    """Answers who asks for numbers. Scrapes at the same time share one collection."""

    def __init__(self, metrics: Metrics, gauges: Gauges, siblings: Workers | None = None) -> None:
        """``siblings``: the other workers of this gateway."""
        self._metrics = metrics
        self._gauges = gauges
        self._siblings = siblings
        self._collecting: asyncio.Task[Snapshot] | None = None

    async def start(self) -> None:
        """Become known to the siblings."""
        if self._siblings is not None:
            await self.tell()

    async def show(self, accept: str) -> tuple[bytes, str]:
        """The text for Prometheus, as its header ``accept`` wants it, and the content type. Takes at most 3 s."""
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.get_running_loop().create_task(self._collect())
        snapshot = await asyncio.shield(self._collecting)
        # Of a thousand queues it is long: requests are served meanwhile.
        return await asyncio.to_thread(exposition, snapshot, accept)

    async def tell(self) -> bytes:
        """The numbers of this process for a sibling, which are on disk before they are told."""
        text = await asyncio.to_thread(encode, await self._own())
        if self._siblings is not None:
            await self._siblings.keep(text)
        return text

    async def alone(self) -> Snapshot:
        """The numbers of this process and of the brokers."""
        return _whole(await self._own(), await self._gauges.of_brokers())

    async def close(self) -> None:
        """Leave what was counted to the siblings; idempotent."""
        await self._gauges.close()
        if self._siblings is not None:
            await self.tell()
            await self._siblings.close()

    async def _collect(self) -> Snapshot:
        if self._siblings is None:
            return await self.alone()
        brokers, others, text = await asyncio.gather(self._gauges.of_brokers(), self._siblings.ask(), self.tell())
        total = await asyncio.to_thread(lambda: merged([decode(text), *others.snapshots]))
        total[WORKERS.otel] = {("up",): 1.0 + others.up, ("silent",): float(others.silent)}
        return _whole(total, brokers)

    async def _own(self) -> Snapshot:
        return dict(await turns.mapped(self._metrics.read, self._metrics.names)) | self._gauges.here()


def _whole(processes: Snapshot, brokers: Snapshot) -> Snapshot:
    """Where the broker tells the leases in flight, they are not those that processes keep."""
    leases = processes.get(LEASES_IN_FLIGHT.otel, {}) | brokers.get(LEASES_IN_FLIGHT.otel, {})
    return processes | brokers | {LEASES_IN_FLIGHT.otel: leases}
