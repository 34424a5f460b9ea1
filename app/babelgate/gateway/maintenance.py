"""Background work of one gateway: opens brokers that were down, watches their settings, and removes what is past
retention."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from babelgate.brokers.binding import Binding, DeadStore
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerError, BrokerUnavailable, ConfigError, OutcomeUnknown
from babelgate.gateway import dead_letters
from babelgate.gateway.route_warnings import broker_warnings
from babelgate.gateway.routing import Route
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.backoff import Backoff

log = get_logger(__name__)

RETENTION_SECONDS = 60.0
"""How often dead letters and idempotency keys past their retention are removed."""

_EXPIRY_SHARE = 0.01
"""A queue with a long retention is read less often: after this share of it, because each time reads up to 10,000
letters. So a letter is kept at most so much longer."""

WARN_SECONDS = 300.0
"""How often brokers are asked about settings with which they lose messages: anybody may change them at any time."""

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
        warn_seconds: float = WARN_SECONDS,
    ) -> None:
        """``routes``: those whose retention this process applies. ``sweep_keys``: removes expired idempotency keys.
        ``routes_to`` a broker: those of which :meth:`warn` warns.
        """
        self.warnings: dict[str, Sequence[str]] = {}
        """The warnings about each broker when it was last asked."""
        self._routes = routes
        self._clock = clock
        self._sweep_keys = sweep_keys
        self._routes_to = routes_to
        self._warn_seconds = warn_seconds
        self._runs = 0
        self._left: set[int] = set()
        """The ids of bindings that are not in use any more: their warnings are not logged."""
        self._watching: dict[int, asyncio.Task[None]] = {}
        """By the ids of the bindings that are asked for warnings."""
        self._opening: dict[int, asyncio.Task[None]] = {}
        """What tries to open a binding, by its id."""
        self._tasks: BackgroundTasks[None] = BackgroundTasks()

    def start(self) -> None:
        """Start the work; needs a running event loop."""
        self._tasks.start(self._retain())

    def reopen(self, binding: Binding) -> None:
        """Keep trying to open a broker that was down at the start."""
        self._opening[id(binding)] = self._tasks.start(self._reopen(binding))

    def leave(self, binding: Binding) -> None:
        """Warn of ``binding`` no more: its broker is removed, or has another connection now."""
        self._left.add(id(binding))
        self._end_watch(binding)
        self.warnings.pop(binding.name, None)

    def forget(self, binding: Binding) -> None:
        """Do nothing more with a ``binding`` that was left: it is closed."""
        self._left.discard(id(binding))
        if (opening := self._opening.pop(id(binding), None)) is not None:
            opening.cancel()

    def warn(self, binding: Binding) -> None:
        """Ask a broker that was just opened for its warnings, now and every ``warn_seconds``, and log each new one."""
        self._left.discard(id(binding))
        self._end_watch(binding)
        self._watching[id(binding)] = self._tasks.start(self._watch_settings(binding))

    def _end_watch(self, binding: Binding) -> None:
        if (watch := self._watching.pop(id(binding), None)) is not None:
            watch.cancel()

    async def stop(self) -> None:
        """Stop all work; idempotent."""
        await self._tasks.cancel()

    async def expire(self) -> int:
        """Remove dead letters past their queue's retention, of the queues whose turn it is; return the number removed.
        The first call is every queue's turn."""
        removed = 0
        run, self._runs = self._runs, self._runs + 1
        async for route in self._routes():
            retention = route.policy.dead_letter_retention_seconds
            if retention is None or not isinstance(route.binding, DeadStore):
                continue
            if run % max(int(retention * _EXPIRY_SHARE / RETENTION_SECONDS), 1):
                continue
            try:
                removed += await dead_letters.expire(route, self._clock() - round(retention * 1000))
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

    async def _watch_settings(self, binding: Binding) -> None:
        while True:
            try:
                found = await broker_warnings(binding, self._routes_to(binding.name))
            except BabelgateError as error:
                # Outages of brokers are logged elsewhere.
                log.debug("broker not asked for warnings", broker=binding.name, error=error)
            except Exception:
                log.exception("broker not asked for warnings; tried again later", broker=binding.name)
            else:
                before = self.warnings.get(binding.name, ())
                for warning in found:
                    if warning not in before:
                        log.warning(warning, broker=binding.name)
                self.warnings[binding.name] = found
            await asyncio.sleep(self._warn_seconds)

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
                if id(binding) not in self._left:
                    self.warn(binding)
                return
