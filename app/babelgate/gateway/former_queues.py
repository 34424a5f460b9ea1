"""The queues that a reload of the configuration has moved to another broker: what is left on the former one."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence

from babelgate.brokers.binding import Binding
from babelgate.envelope import Limits
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.draining import QueueDrains
from babelgate.gateway.model import Extend, Message, Nack, Reject, Settlement
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route, Router
from babelgate.gateway.runtimes import QueueRuntimes

_REMEMBERED = 20
"""Configurations whose routes are remembered for the settles of leases that were handed out by them."""


class FormerQueues:
    """Finds who settles a lease that was handed out before its queue moved. ``drains``: empties the former queues."""

    def __init__(self, runtimes: QueueRuntimes, sealer: TokenSealer, pauses: Pauses, limits: Limits) -> None:
        self._runtimes = runtimes
        self._sealer = sealer
        self._routers: deque[Router] = deque(maxlen=_REMEMBERED)
        self.drains = QueueDrains(runtimes, pauses, limits)
        self.brokers: dict[str, Binding] = {}
        """Those that a reload has removed. They stay open: no look can prove that nothing comes any more of them."""

    def __bool__(self) -> bool:
        return bool(self._routers)

    def remember(self, router: Router) -> None:
        """Remember the routes of the last configuration, if some queue has another broker by the present one."""
        self._routers.appendleft(router)

    def broker_of(self, token: str, queue: str) -> str:
        """The broker of the lease of ``token``; empty for no valid token."""
        try:
            return self._sealer.open(token, queue).broker
        except BabelgateError:
            return ""

    def runtimes(self, runtime: QueueRuntime, settlement: Settlement) -> Mapping[str, QueueRuntime]:
        """By their brokers, the former runtimes that settle some of the tokens."""
        route = runtime.route
        brokers = {self.broker_of(token, route.queue) for token in _tokens(settlement)} - {"", route.broker}
        found = {broker: self._route(route.queue, broker) for broker in brokers}
        return {broker: self._runtimes.former(each) for broker, each in found.items() if each is not None}

    async def give_back(self, queue: str, messages: Sequence[Message], router: Router) -> None:
        """Return messages to the brokers that they are from. Never raises BabelgateError."""
        for broker in dict.fromkeys(each.lease.broker for each in messages):
            runtime = self._runtimes.holder(queue, broker)
            if runtime is None:
                with contextlib.suppress(BabelgateError):
                    runtime = self._runtimes.of(router.route(queue))
            if runtime is not None and runtime.route.broker == broker:
                await runtime.give_back([each.lease.handle for each in messages if each.lease.broker == broker])

    def _route(self, queue: str, broker: str) -> Route | None:
        for router in self._routers:
            try:
                route = router.route(queue)
            except BabelgateError:
                continue
            if route.broker == broker:
                return route
        return None

    async def close(self) -> None:
        """Stop emptying queues, 10 s at most; idempotent."""
        await self.drains.close()


def _tokens(settlement: Settlement) -> Sequence[str]:
    requests: Sequence[Nack | Reject | Extend] = [*settlement.nacks, *settlement.rejects, *settlement.extends]
    return [*settlement.acks, *(token for request in requests for token in request.ack_tokens)]
