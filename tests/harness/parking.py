"""Gateways whose queues park their messages on a SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from babelgate.brokers.binding import Binding
from babelgate.brokers.sqlite.binding import connect
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.idempotency import KeyPolicy
from babelgate.gateway.model import Message, Nack, Receipt, Settlement
from babelgate.gateway.parking import Mover
from babelgate.gateway.routing import Policy, Router, Rule
from tests.harness.memory import MemoryBinding, lacking
from tests.harness.world import KEYS

NOW = 1_700_000_000_000
CAPPED = lacking(max_delay_seconds=900, max_retry_delay_seconds=900, priorities=True)


class Site:
    """Gateways with a capped broker in memory, and a SQLite file as the place to park. The test sets the clock."""

    def __init__(self, directory: Path, queue: str) -> None:
        self.now = NOW
        self.queue = queue
        self.capped: MemoryBinding = MemoryBinding("capped", CAPPED, self.clock)
        self._url = f"sqlite:///{directory}/parking.db"

    def clock(self) -> int:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    @asynccontextmanager
    async def gateway(
        self, *, parking: bool = True, routed: bool = True, policy: Policy | None = None
    ) -> AsyncIterator[Replica]:
        local = connect("local", self._url, {}, self.clock)
        bindings: dict[str, Binding] = {"capped": self.capped, "local": local}
        rule = Rule("*", self.capped, policy or Policy(), parking=local if parking else None)
        gateway = Gateway(
            bindings,
            Router([], rule if routed else None),
            TokenSealer(KEYS),
            clock=self.clock,
            idempotency=KeyPolicy("local"),
        )
        await local.open()
        try:
            yield Replica(self, gateway, local)
        finally:
            await gateway.close()


class Replica:
    """One gateway of a site, which moves when it is told to."""

    def __init__(self, site: Site, gateway: Gateway, local: Binding) -> None:
        self.site = site
        self.gateway = gateway
        self.local = local
        self.mover = Mover(
            gateway.router, gateway.bindings, gateway.queue_runtimes, gateway.pauses, lambda: site.now / 1000
        )

    async def publish(self, body: bytes, **how: Any) -> Receipt:
        return await self.gateway.publish(ANYONE, self.site.queue, body, **how)

    async def one(self) -> Message:
        (message,) = await self.gateway.receive(ANYONE, self.site.queue)
        return message

    async def parked(self) -> int | None:
        stats = await self.gateway.router.route(self.site.queue).stats()
        assert (stats.depth, stats.in_flight) == (0, 0)
        return stats.delayed

    async def nack(self, message: Message, delay: float | None) -> Sequence[BabelgateError | None]:
        settlement = Settlement(nacks=[Nack([message.ack_token], delay, "busy")])
        return [each.error for each in await self.gateway.settle(ANYONE, self.site.queue, settlement)]
