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
        self._former: dict[tuple[str, str], QueueRuntime] = {}
        """By queue and broker: of queues that a reload of the configuration has moved to another broker."""
        self._left: set[tuple[str, str]] = set()
        """The queues and the brokers that they have left."""
        self._stopped = False

    def __len__(self) -> int:
        return len(self._by_queue)

    def __iter__(self) -> Iterator[QueueRuntime]:
        yield from self._by_queue.values()
        yield from self._former.values()

    def queues(self) -> list[str]:
        """The names of the queues, also of many whose runtimes are gone."""
        return [*self._names, *self._by_queue]

    def of(self, route: Route) -> QueueRuntime:
        """The runtime of ``route``, which is created unless there is one."""
        runtime = self._by_queue.get(route.queue)
        if runtime is None or (runtime.route is not route and runtime.route != route):
            if (route.queue, route.broker) in self._left:
                # A request that began before the queue moved.
                return self.former(route)
            runtime = self._make(route)
            if self._stopped:
                runtime.stop_receives()
            self._by_queue[route.queue] = runtime
            self._names.forget(route.queue)
        else:
            runtime.used = True
        return runtime

    def move(self, route: Route, former: Route) -> QueueRuntime | None:
        """Serve the queue of ``route`` by it from now on, and what is left on the broker of ``former`` by that one.

        Returns the runtime of ``former``, if this process has used it: its receives continue with the new one.
        """
        queue = route.queue
        self._left.add((queue, former.broker))
        self._left.discard((queue, route.broker))
        before = self._by_queue.get(queue)
        returned = self._former.pop((queue, route.broker), None)
        if before is not None:
            del self._by_queue[queue]
            self._former[queue, former.broker] = before
        if returned is not None:
            self._by_queue[queue] = returned
        elif before is not None:
            self.of(route)
        return before

    def former(self, former: Route) -> QueueRuntime:
        """The runtime of a route that its queue had before, which is created unless there is one."""
        key = former.queue, former.broker
        if key not in self._former:
            self._former[key] = self._make(former)
        return self._former[key]

    def holder(self, queue: str, broker: str) -> QueueRuntime | None:
        """The runtime that has handed out the messages of ``queue`` on ``broker``; None if it is gone."""
        runtime = self._by_queue.get(queue)
        return runtime if runtime is not None and runtime.route.broker == broker else self._former.get((queue, broker))

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
