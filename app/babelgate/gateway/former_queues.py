"""The queues that a reload of the configuration has moved: what is left where they were before."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct

from babelgate.brokers.binding import Binding
from babelgate.envelope import Limits
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.draining import QueueDrains
from babelgate.gateway.model import Settlement
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route, Router, Rule
from babelgate.gateway.runtimes import QueueRuntimes

_REMEMBERED = 20
"""Configurations whose routes are remembered for the settles of leases that were handed out by them."""


class Superseded(Struct):
    """The connection ``was``, which another one to the same server has replaced: ``successor``. ``since``: by the
    clock of :class:`FormerQueues`."""

    was: Binding
    successor: Binding
    since: float


class FormerQueues:
    """Finds who settles a lease that was handed out before its queue moved. ``drains``: empties the former queues.
    ``clock``: seconds."""

    def __init__(
        self,
        runtimes: QueueRuntimes,
        sealer: TokenSealer,
        pauses: Pauses,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._runtimes = runtimes
        self._sealer = sealer
        self._routers: deque[Router] = deque(maxlen=_REMEMBERED)
        self.is_used = False
        """Whether some queue has moved."""
        self.drains = QueueDrains(runtimes, pauses, limits)
        self.brokers: dict[str, Binding] = {}
        """Those that a reload has removed. They stay open: no look can prove that nothing comes any more of them."""
        self.replaced: list[Binding] = []
        """Those whose broker has another connection since a reload. They stay open, too, until they are let go."""
        self.superseded: Sequence[Superseded] = ()
        """Of these, those that may be let go: see :mod:`babelgate.gateway.superseded`."""
        self.left_routes: Sequence[weakref.ref[Route]] = ()
        """The routes that reloads have found in use, and that lead elsewhere now, or over another connection."""

    def __bool__(self) -> bool:
        return self.is_used

    @property
    def open_bindings(self) -> Sequence[Binding]:
        """All that are not in use any more, and stay open."""
        return [*self.brokers.values(), *self.replaced]

    @property
    def connections(self) -> dict[str, Binding]:
        """The same, by the names of brokers that were removed, and by keys that stay."""
        return {f"{each.name} #{id(each)}": each for each in self.replaced} | self.brokers

    def let_go(self, superseded: Superseded) -> None:
        """Forget a connection: its successor settles what came over it."""
        was, successor = superseded.was, superseded.successor
        self.replaced = [each for each in self.replaced if each is not was]
        self.superseded = [each for each in self.superseded if each is not superseded]
        for each in self.superseded:
            if each.successor is was:
                each.successor = successor
        self._routers = deque((_rebound(each, was, successor) for each in self._routers), maxlen=_REMEMBERED)

    def remember(self, router: Router) -> None:
        """Remember the routes of the last configuration, if some queue is elsewhere by the present one."""
        self._routers.appendleft(router)
        self.is_used = True

    def holder(self, runtime: QueueRuntime, lease: Lease) -> QueueRuntime | None:
        """The former runtime that settles ``lease``; None if ``runtime``, the one of now, does.

        Two connections to one server both reach a lease that the broker keeps. One that this process keeps belongs to
        the connection that it came over.
        """
        queue = runtime.route.queue
        formers = [each for each in self._runtimes.formers(queue) if lease.is_at(each.route)]
        for each in formers:
            if each.holds(lease.handle):
                return each
        if lease.is_at(runtime.route):
            return None
        if formers:
            return formers[0]
        route = self._route(queue, lease)
        return None if route is None else self._runtimes.former(route)

    def runtimes(self, runtime: QueueRuntime, settlement: Settlement) -> Mapping[str, QueueRuntime]:
        """By their tokens, the former runtimes that settle some of the leases."""
        found = {}
        for token in settlement.tokens:
            # Settling it by the present route gives the error as the result of the token.
            with contextlib.suppress(Exception):
                lease = self._sealer.open(token, runtime.route.queue)
                if (holder := self.holder(runtime, lease)) is not None:
                    found[token] = holder
        return found

    async def give_back(self, queue: str, leases: Sequence[Lease], router: Router) -> None:
        """Return the messages of ``leases`` to where they are from. Never raises BabelgateError."""
        runtime = self._runtimes.get(queue)
        if runtime is None:
            try:
                runtime = self._runtimes.of(router.route(queue))
            except BabelgateError:
                return
        handles: dict[QueueRuntime, list[str]] = {}
        for lease in leases:
            holder = self.holder(runtime, lease) or runtime
            if holder is not runtime or lease.is_at(runtime.route):
                handles.setdefault(holder, []).append(lease.handle)
        for holder, left in handles.items():
            await holder.give_back(left)

    def _route(self, queue: str, lease: Lease) -> Route | None:
        for router in self._routers:
            try:
                route = router.route(queue)
            except BabelgateError:
                continue
            if lease.is_at(route):
                return route
        return None

    async def close(self) -> None:
        """Stop emptying queues, 10 s at most; idempotent."""
        await self.drains.close()


def _rebound(router: Router, was: Binding, successor: Binding) -> Router:
    """``router`` with another connection to the same server."""
    rules = [each for each in (*router.rules, router.default) if each is not None]
    if all(each.binding is not was and each.parking is not was for each in rules):
        return router

    def rebound(rule: Rule) -> Rule:
        binding = successor if rule.binding is was else rule.binding
        return replace(rule, binding=binding, parking=successor if rule.parking is was else rule.parking)

    return Router([*map(rebound, router.rules)], None if router.default is None else rebound(router.default))
