"""The depth of queues that have a limit of it: counted by the broker, and estimated between two counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from babelgate.errors import BabelgateError
from babelgate.gateway.routing import Route
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Recent

FRESH_SECONDS = 0.25
"""Age at which a count is replaced, while messages are published."""
_COUNT_SECONDS = 2.0
"""How long a publish waits for the first count of a queue."""
MAX_QUEUES = 10_000
"""Queues whose last count is kept."""

log = get_logger(__name__)


class QueueFull(BabelgateError):
    """The queue {queue} has about {depth} messages, and its limit is {limit}. Nothing was published."""

    code = "queue_full"
    retryable = True


class QueueDepth:
    """What is known of the depth of one queue: its ready and delayed messages, parked ones included."""

    def __init__(self, route: Route, clock: Callable[[], float], counting: BackgroundTasks[None]) -> None:
        self.route = route
        self._clock = clock
        self._tasks = counting
        self._counted: int | None = None
        self._counted_at: float | None = None
        self._counting: asyncio.Task[None] | None = None
        self._published = 0
        """Messages that this process has published since the start of the last count."""

    @property
    def is_known(self) -> bool:
        """Whether the broker was asked already. It may have had no answer."""
        return self._counted_at is not None

    def allows(self, most: int) -> bool:
        """Whether one more message leaves at most ``most``. Counts again in the background when it is time."""
        if self._counted_at is None or self._clock() - self._counted_at > FRESH_SECONDS:
            self._count_soon()
        return self._counted is None or self._counted + self._published < most

    def check(self, most: int) -> None:
        """Raise QueueFull unless one more message leaves at most ``most``."""
        if not self.allows(most):
            depth = (self._counted or 0) + self._published
            raise QueueFull(queue=self.route.queue, depth=depth, limit=most, retry_after=1)

    def take(self, messages: int) -> None:
        """Count messages that are published now."""
        self._published += messages

    async def know(self) -> None:
        """Wait for the first count, at most 2 s. Raises nothing: without an answer there is no limit."""
        if not self.is_known:
            await asyncio.wait([self._count_soon()], timeout=_COUNT_SECONDS)

    def _count_soon(self) -> asyncio.Task[None]:
        if self._counting is None:
            self._counting = self._tasks.start(self._count())
        return self._counting

    async def _count(self) -> None:
        before = self._published
        try:
            stats = await self.route.stats()
            known = [count for count in (stats.depth, stats.delayed) if count is not None]
            self._counted = sum(known) if known else None
        except BabelgateError:
            self._counted = None
        except Exception:
            self._counted = None
            log.exception("depth of a queue not counted", queue=self.route.queue)
        finally:
            self._published -= before
            self._counted_at = self._clock()
            self._counting = None


class Depths:
    """The depths of the queues of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._clock = clock
        self._known: Recent[str, QueueDepth] = Recent(MAX_QUEUES)
        self._counting: BackgroundTasks[None] = BackgroundTasks()

    def of(self, route: Route) -> QueueDepth:
        """What is known of the depth of a queue."""
        known = self._known.get(route.queue)
        if known is None or (known.route is not route and not known.route.leads_where(route)):
            # A new queue, or one that a reload of the configuration has moved to another place.
            known = self._known[route.queue] = QueueDepth(route, self._clock, self._counting)
        return known

    def leave(self, routes: Iterable[Route]) -> None:
        """Forget what is known of queues by ``routes``, which lead elsewhere now: it would keep their connections."""
        left = {id(route) for route in routes}
        for queue in [queue for queue, known in self._known.items() if id(known.route) in left]:
            del self._known[queue]

    async def close(self) -> None:
        """Stop counting; idempotent."""
        await self._counting.cancel()
