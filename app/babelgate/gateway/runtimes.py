"""The runtimes of the queues that this process has used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from babelgate.brokers.binding import Binding
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route
from babelgate.runtime.cache import Cache, Recent

KEPT = 2_000
"""Number of runtimes kept. Beyond it those not used for longest go, unless they are busy. A runtime is made within some
10 µs. It has up to 50 objects, and a collection of garbage stops the process while it looks at each of them."""

Location = tuple[str, int, str]
"""See :attr:`babelgate.brokers.route.BrokerRoute.location`."""

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
        self._former: defaultdict[str, dict[Location, QueueRuntime]] = defaultdict(dict)
        """By queue and location: of queues that a reload of the configuration has moved to another one."""
        self._left: set[Location] = set()
        """Where queues were that have moved."""
        self._stopped = False

    def __len__(self) -> int:
        return len(self._by_queue)

    def __iter__(self) -> Iterator[QueueRuntime]:
        yield from self._by_queue.values()
        for each in self._former.values():
            yield from each.values()

    def queues(self) -> list[str]:
        """The names of the queues, also of many whose runtimes are gone."""
        return [*self._names, *self._by_queue]

    def of(self, route: Route) -> QueueRuntime:
        """The runtime of ``route``, which is created unless there is one."""
        runtime = self._by_queue.get(route.queue)
        if runtime is None or (runtime.route is not route and runtime.route != route):
            if self._left and route.location in self._left:
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
        """Serve the queue of ``route`` by it from now on, and what is left where ``former`` leads by that one.

        Returns the runtime of ``former``, if this process has used it: its receives continue with the new one.
        """
        queue = route.queue
        self._left.add(former.location)
        self._left.discard(route.location)
        before = self._by_queue.get(queue)
        returned = self._former[queue].pop(route.location, None)
        if before is not None:
            del self._by_queue[queue]
            self._former[queue][former.location] = before
        if returned is not None:
            self._by_queue[queue] = returned
        elif before is not None:
            self.of(route)
        return before

    def former(self, former: Route) -> QueueRuntime:
        """The runtime of a route that its queue had before, which is created unless there is one."""
        made = self._former[former.queue]
        if former.location not in made:
            made[former.location] = self._make(former)
        return made[former.location]

    def leave(self, binding: Binding) -> bool:
        """Forget the former runtimes of the routes over ``binding``; False: one is busy, and none is forgotten."""
        left = [each for found in self._former.values() for each in found.values() if each.route.binding is binding]
        if any(each.busy for each in left):
            return False
        for each in left:
            each.stop_timers()
            del self._former[each.route.queue][each.route.location]
        return True

    def forget(self, binding: Binding) -> None:
        """Nothing refers to ``binding`` any more: another one may have its id."""
        self._left = {location for location in self._left if location[1] != id(binding)}

    def formers(self, queue: str) -> Collection[QueueRuntime]:
        """The runtimes of the routes that ``queue`` had before, as far as they were used."""
        return self._former[queue].values() if queue in self._former else ()

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
