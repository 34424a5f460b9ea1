"""The list of queues for people: selected, sorted, grouped and paged, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from babelgate.brokers.binding import Binding, QueueStats
from babelgate.gateway.authorization import Caller
from babelgate.gateway.names import Pattern
from babelgate.gateway.overview import known_queues, routes_of
from babelgate.gateway.pauses import PauseChange, Pauses
from babelgate.gateway.rates import MAX_SHOWN, Flow, Rates
from babelgate.gateway.recent_counts import RecentCounts
from babelgate.gateway.routing import Router
from babelgate.runtime import turns
from babelgate.runtime.background import error_seen

PAGE_ROWS = MAX_SHOWN
"""Queues of one page."""
MAX_COUNTED = 1_000
"""The most queues whose counts are read to sort or to add them: SQLite takes 0.4 s of CPU time for that."""
_FRESH_SECONDS = 1.5
"""How old the counts of the shown queues may be: a page asks again after two seconds."""
_SORTED_FRESH_SECONDS = 10.0
"""How old the counts may be by which queues are sorted or grouped."""
_NAMES_SECONDS = 5.0
"""How old the names of the queues may be: those of 10,000 queues take 0.05 s of CPU time."""
_FIRST_SECONDS = 2.0
_LATER_SECONDS = 0.2
"""How long a list waits for names, the first one and those that have earlier ones: a broker may be slow."""

Order = Literal["queue", "depth", "in_flight", "delayed", "dead", "oldest_age_seconds"]
Grouping = Literal["broker", "route"]

DEFAULT_ROUTE = "*"
"""What the route of queues that no rule names is called: it matches all names."""


class QueueSelection(Struct, frozen=True, kw_only=True):
    """Which queues: those with ``text`` in their names, or that match it if it has a ``*``; those of ``broker``; those
    that the rule ``route`` routes, by its name or pattern; those that are ``paused``. Empty: all."""

    text: str = ""
    broker: str = ""
    route: str = ""
    paused: bool = False


class ListedQueue(Struct, frozen=True, kw_only=True):
    """A queue. Counts that are not known are None."""

    queue: str
    broker: str
    stats: QueueStats
    flow: Flow
    pause: PauseChange | None


class QueuePage(Struct, frozen=True, kw_only=True):
    """A page of the selected queues, of which there are ``total``. ``is_ordered`` False: they are sorted by name,
    because there are too many to read all of their counts. ``is_complete`` False: some broker has not listed its
    queues yet."""

    queues: Sequence[ListedQueue]
    total: int
    is_ordered: bool
    is_complete: bool


class QueueGroup(Struct, frozen=True, kw_only=True):
    """Queues of one broker or one route. ``stats``: their sums, and the greatest age; None where no queue has it, or
    where there are too many queues."""

    name: str
    queues: int
    stats: QueueStats


class _Listing:
    """The queues of one broker. ``names``: None before it has listed any."""

    def __init__(self) -> None:
        self.names: frozenset[str] | None = None
        self.read_at = 0.0
        self.reading: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Whether the names are to be read now, by the loop's clock."""
        if self.reading is not None and not self.reading.done():
            return False
        return self.names is None or now - self.read_at > _NAMES_SECONDS


class QueueList:
    """The operations. Both show the queues on which the caller has any right, and take about 2 s at most."""

    def __init__(
        self,
        router: Router,
        bindings: Mapping[str, Binding],
        used: Callable[[], Sequence[str]],
        rates: Rates,
        counts: RecentCounts,
        pauses: Pauses,
    ) -> None:
        """``used``: the queues that this process has used."""
        self._router = router
        self._bindings = bindings
        self._used = used
        self._rates = rates
        self._counts = counts
        self._pauses = pauses
        self._listings = {name: _Listing() for name in bindings}
        self._names: Sequence[str] = ()
        self._found: frozenset[str] = frozenset()
        self._has_waited = False

    async def page(
        self,
        caller: Caller,
        selection: QueueSelection,
        order: Order = "queue",
        *,
        descending: bool = False,
        number: int = 1,
    ) -> QueuePage:
        """The page ``number``, from 1 on, of PAGE_ROWS queues. An empty one is after the last."""
        names = await self._selected(caller, selection)
        is_ordered = order == "queue" or len(names) <= MAX_COUNTED
        if order != "queue" and is_ordered:
            counts = await self._counts.read(routes_of(self._router, names), _SORTED_FRESH_SECONDS)
            names = _sorted(names, counts, order, descending)
        elif order == "queue" and descending:
            names.reverse()
        shown = names[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
        routes = routes_of(self._router, shown)
        stats, flows = await asyncio.gather(self._counts.read(routes, _FRESH_SECONDS), self._rates.flows(caller, shown))
        rows = [
            ListedQueue(
                queue=route.queue,
                broker=route.broker,
                stats=stats.get(route.queue, QueueStats()),
                flow=flows[route.queue],
                pause=self._pauses.get(route.queue),
            )
            for route in routes
        ]
        is_complete = all(each.names is not None for each in self._listings.values())
        return QueuePage(queues=rows, total=len(names), is_ordered=is_ordered, is_complete=is_complete)

    async def groups(self, caller: Caller, selection: QueueSelection, by: Grouping) -> list[QueueGroup]:
        """The groups of the selected queues, by name."""
        names = await self._selected(caller, selection)
        keys = await turns.mapped(self._broker_of if by == "broker" else self._rule_of, names)
        groups: dict[str, list[str]] = {}
        for name, key in zip(names, keys, strict=True):
            groups.setdefault(key, []).append(name)
        counts: Mapping[str, QueueStats] = {}
        if len(names) <= MAX_COUNTED:
            counts = await self._counts.read(routes_of(self._router, names), _SORTED_FRESH_SECONDS)
        return [
            QueueGroup(name=key, queues=len(group), stats=_added([counts[name] for name in group if name in counts]))
            for key, group in sorted(groups.items())
        ]

    def configure(self) -> None:
        """Ask the brokers that there are now, after a reload of the configuration. Its routes make other names of what
        they list."""
        self._listings = {name: self._listings.get(name) or _Listing() for name in self._bindings}
        for listing in self._listings.values():
            listing.names = None
        self._names, self._found = (), frozenset()

    async def close(self) -> None:
        """Stop reading names; idempotent."""
        reading = [each.reading for each in self._listings.values() if each.reading is not None]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _selected(self, caller: Caller, selection: QueueSelection) -> list[str]:
        text = selection.text.lower()
        pattern = Pattern(text) if "*" in text else None

        def matches(name: str) -> bool:
            lower = name.lower()
            return (
                (text in lower if pattern is None else pattern.matches(lower))
                and (not selection.route or self._rule_of(name) == selection.route)
                and (not selection.broker or self._broker_of(name) == selection.broker)
                and (not selection.paused or self._pauses.get(name) is not None)
                and bool(caller.rights(name))
            )

        names = await self._known()
        if selection == QueueSelection() and caller.rights("*"):
            return list(names)
        return [name for name, chosen in zip(names, await turns.mapped(matches, names), strict=True) if chosen]

    async def _known(self) -> Sequence[str]:
        """The names of all known queues, sorted."""
        loop = asyncio.get_running_loop()
        for name, listing in self._listings.items():
            if listing.is_due(loop.time()):
                listing.reading = loop.create_task(self._read_names(listing, name))
                listing.reading.add_done_callback(error_seen)
        # A broker that hangs does not keep the names of the others.
        reading = [each.reading for each in self._listings.values() if each.reading and not each.reading.done()]
        if reading:
            await asyncio.wait(reading, timeout=_LATER_SECONDS if self._has_waited else _FIRST_SECONDS)
            self._has_waited = True
        paused = (each.queue for each in self._pauses.in_force())
        more = {*self._used(), *paused, *(() if self._found else self._router.configured())} - self._found
        routed = await self._routed(more)
        return sorted([*self._names, *routed]) if routed else self._names

    async def _routed(self, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names`` that have a route."""
        names = list(names)
        rules = await turns.mapped(self._router.rule, names)
        return frozenset(name for name, rule in zip(names, rules, strict=True) if rule is not None)

    async def _read_names(self, listing: _Listing, name: str) -> None:
        bindings = {name: self._bindings[name]} if name in self._bindings else {}
        listing.names = await self._routed(await known_queues(self._router, bindings, ()))
        listing.read_at = asyncio.get_running_loop().time()
        self._found = frozenset().union(*(each.names or () for each in self._listings.values()))
        self._names = sorted(self._found)

    def _rule_of(self, name: str) -> str:
        rule = self._router.rule(name)
        return DEFAULT_ROUTE if rule is None else rule.match

    def _broker_of(self, name: str) -> str:
        rule = self._router.rule(name)
        return "" if rule is None else rule.binding.name


def _sorted(names: Sequence[str], counts: Mapping[str, QueueStats], order: Order, descending: bool) -> list[str]:
    """``names`` by a count, those without it last."""
    values: dict[str, float] = {}
    for name in names:
        value = getattr(counts.get(name), order, None)
        if value is not None:
            values[name] = value
    return [
        *sorted(values, key=values.__getitem__, reverse=descending),
        *(each for each in names if each not in values),
    ]


def _added(several: Sequence[QueueStats]) -> QueueStats:
    def total(name: str) -> int | None:
        values = [value for each in several if (value := getattr(each, name)) is not None]
        return sum(values) if values else None

    ages = [each.oldest_age_seconds for each in several if each.oldest_age_seconds is not None]
    return QueueStats(
        depth=total("depth"),
        in_flight=total("in_flight"),
        delayed=total("delayed"),
        dead=total("dead"),
        oldest_age_seconds=max(ages, default=None),
    )
