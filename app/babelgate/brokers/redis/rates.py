"""Rates, and numbers at a time, that processes share in one Redis database."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.rate_store import CountShare, HeldCount, TakenRate
from babelgate.brokers.redis.server import Server

_PREFIX = b"babelgate:rates"
_COUNTS_PREFIX = b"babelgate:counts"


class RedisRates:
    """The rates of one database, each a key that expires once its bucket is full, and the numbers at a time, each a key
    that expires once no process has reported it for a while."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def take(self, rates: Sequence[TakenRate]) -> Sequence[float]:
        """One script call."""
        arguments: list[bytes] = []
        for each in rates:
            arguments += (each.name.encode("ascii"), b"%d" % (each.taken * 1e6), b"%d" % (each.span * 1e6))
        return [int(micros) / 1e6 for micros in await self._server.run("rates", _PREFIX, *arguments)]

    async def share(self, process: str, patience: float, counts: Sequence[HeldCount]) -> Sequence[CountShare]:
        """One script call."""
        arguments: list[bytes] = [process.encode("ascii"), b"%d" % (patience * 1e6)]
        for each in counts:
            arguments += (each.name.encode("ascii"), b"%d" % each.own, b"%d" % each.most, b"%d" % each.is_active)
        found = await self._server.run("shared_counts", _COUNTS_PREFIX, *arguments)
        return [CountShare(int(granted), int(others)) for granted, others in zip(found[::2], found[1::2], strict=True)]
