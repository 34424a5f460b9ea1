"""The queues that a reload of the configuration has moved to another broker: what is left on the former one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from babelgate.envelope import Limits
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.draining import QueueDrains
from babelgate.gateway.model import Extend, Nack, Reject, Settlement
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

    def _route(self, queue: str, broker: str) -> Route | None:
        for router in self._routers:
            try:
                route = router.route(queue)
            except BabelgateError:
                continue
            if route.broker == broker:
                return route
        return None

    async def leave(self, broker: str) -> None:
        """Stop emptying the queues of a broker that is closed, and finish what is in flight there."""
        for queue, name in self.drains.keys:
            if name == broker:
                await self.drains.stop(queue, name)
                runtime = self._runtimes.forget_former(queue, name)
                if runtime is not None:
                    await runtime.close()

    def is_empty(self, broker: str) -> bool:
        """Whether no queue has anything left on ``broker``, leases included."""
        keys = [key for key in self.drains.keys if key[1] == broker]
        return all(key in self.drains.empty for key in keys)

    async def close(self) -> None:
        """Stop emptying queues, 10 s at most; idempotent."""
        await self.drains.close()


def _tokens(settlement: Settlement) -> Sequence[str]:
    requests: Sequence[Nack | Reject | Extend] = [*settlement.nacks, *settlement.rejects, *settlement.extends]
    return [*settlement.acks, *(token for request in requests for token in request.ack_tokens)]
