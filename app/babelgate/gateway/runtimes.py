"""The runtimes of the queues that this process has used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route
from babelgate.runtime.cache import Cache, Recent

KEPT = 2_000
"""Number of runtimes kept. Beyond it those not used for longest go, unless they are busy. A runtime is made within some
10 µs. It has up to 50 objects, and a collection of garbage stops the process while it looks at each of them."""

_NAMES_BYTES = 4 * 1024 * 1024
"""Of the names of the queues whose runtimes went last: about 10,000."""


class QueueRuntimes:
    """``make`` creates the runtime of a route. ``kept`` of them stay, and those that are busy."""

    def __init__(self, make: Callable[[Route], QueueRuntime], kept: int = KEPT) -> None:
        self._make = make
        self._by_queue: Recent[str, QueueRuntime] = Recent(kept, self._is_in_use, self._end)
        self.get = self._by_queue.get
        """The runtime of a queue, by its name; None if there is none. A use must set its ``used``."""
        self._names: Cache[str, None] = Cache(_NAMES_BYTES)
        self._stopped = False

    def __len__(self) -> int:
        return len(self._by_queue)

    def __iter__(self) -> Iterator[QueueRuntime]:
        return iter(self._by_queue.values())

    def queues(self) -> list[str]:
        """The names of the queues, also of many whose runtimes are gone."""
        return [*self._names, *self._by_queue]

    def of(self, route: Route) -> QueueRuntime:
        """The runtime of ``route``, which is created unless there is one."""
        runtime = self._by_queue.get(route.queue)
        if runtime is None or (runtime.route is not route and runtime.route != route):
            runtime = self._make(route)
            if self._stopped:
                runtime.stop_receives()
            self._by_queue[route.queue] = runtime
            self._names.forget(route.queue)
        else:
            runtime.used = True
        return runtime

    def stop_receives(self) -> None:
        """End all waiting receives now; later receives do not wait."""
        self._stopped = True
        for runtime in self:
            runtime.stop_receives()

    def _is_in_use(self, runtime: QueueRuntime) -> bool:
        """Whether it is busy, or was used since the last look."""
        used, runtime.used = runtime.used, False
        return used or runtime.busy

    def _end(self, runtime: QueueRuntime) -> None:
        runtime.stop_timers()
        self._names.keep(runtime.route.queue, None)
