"""Rates that processes share in one Redis database."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.rate_store import TakenRate
from babelgate.brokers.redis.server import Server

_PREFIX = b"babelgate:rates"


class RedisRates:
    """The rates of one database, each a key that expires once its bucket is full."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def take(self, rates: Sequence[TakenRate]) -> Sequence[float]:
        """One script call."""
        arguments: list[bytes] = []
        for each in rates:
            arguments += (each.name.encode("ascii"), b"%d" % (each.taken * 1e6), b"%d" % (each.span * 1e6))
        return [int(micros) / 1e6 for micros in await self._server.run("rates", _PREFIX, *arguments)]
