"""Background work of one gateway: opens brokers that were down, warns of routes, and removes what is past retention."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from app.brokers.binding import Binding, DeadStore
from app.clock import Clock
from app.errors import BabelgateError, BrokerError, BrokerUnavailable, ConfigError, OutcomeUnknown
from app.gateway.route_warnings import delivery_warnings
from app.gateway.routing import Route
from app.observe.logs import get_logger
from app.runtime.background import BackgroundTasks
from app.runtime.backoff import Backoff

log = get_logger("babelgate.maintenance")

RETENTION_SECONDS = 60.0
"""How often dead letters and idempotency keys past their retention are removed."""

_FIRST_REOPEN_SECONDS = 1.0
_LAST_REOPEN_SECONDS = 10.0


class Maintenance:
    """Runs the background work."""

    def __init__(
        self,
        routes: Callable[[], AsyncIterator[Route]],
        clock: Clock,
        sweep_keys: Callable[[], Awaitable[None]],
        routes_to: Callable[[str], Iterable[Route]] = lambda broker: (),
    ) -> None:
        """``routes``: those whose retention this process applies. ``sweep_keys``: removes expired idempotency keys.
        ``routes_to`` a broker: those of which :meth:`warn` warns.
        """
        self._routes = routes
        self._clock = clock
        self._sweep_keys = sweep_keys
        self._routes_to = routes_to
        self._tasks: BackgroundTasks[None] = BackgroundTasks()

    def start(self) -> None:
        """Start the work; needs a running event loop."""
        self._tasks.start(self._retain())

    def reopen(self, binding: Binding) -> None:
        """Keep trying to open a broker that was down at the start."""
        self._tasks.start(self._reopen(binding))

    def warn(self, binding: Binding) -> None:
        """Log warnings about the routes to a broker that was just opened."""
        self._tasks.start(self._warn(binding))

    async def stop(self) -> None:
        """Stop all work; idempotent."""
        await self._tasks.cancel()

    async def expire(self) -> int:
        """Remove dead letters past their queue's retention; return the number removed."""
        removed = 0
        async for route in self._routes():
            retention = route.policy.dead_letter_retention_seconds
            if retention is None or not isinstance(route.binding, DeadStore):
                continue
            try:
                removed += await route.binding.purge_dead(route.native, self._clock() - round(retention * 1000))
            except (BrokerUnavailable, OutcomeUnknown) as error:
                # Outages of brokers are logged elsewhere.
                log.debug("dead letters not expired", queue=route.queue, broker=route.broker, error=error)
            except BabelgateError as error:
                log.warning("dead letters not expired", queue=route.queue, broker=route.broker, error=error)
        return removed

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(RETENTION_SECONDS)
            try:
                await self.expire()
                await self._sweep_keys()
            except Exception:
                log.exception("expiring failed; tried again later")

    async def _warn(self, binding: Binding) -> None:
        for warning in await delivery_warnings(self._routes_to(binding.name)):
            log.warning(warning, broker=binding.name)

    async def _reopen(self, binding: Binding) -> None:
        backoff = Backoff(_FIRST_REOPEN_SECONDS, _LAST_REOPEN_SECONDS)
        while True:
            await asyncio.sleep(backoff.failed())
            try:
                await binding.open()
            except BrokerError as error:
                log.debug("broker not opened", broker=binding.name, error=error)
            except ConfigError as error:
                log.error("broker stays closed", broker=binding.name, error=error)
                return
            else:
                await self._warn(binding)
                return
