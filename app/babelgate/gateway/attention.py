"""What an operator should look at: lost brokers, growing dead letters, old messages, errors and warnings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

from babelgate.brokers.binding import QueueStats
from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller
from babelgate.gateway.maintenance import Maintenance
from babelgate.gateway.outages import Outages
from babelgate.gateway.overview import Overview, routes_of
from babelgate.gateway.recent_counts import RecentCounts
from babelgate.gateway.routing import Route, Router
from babelgate.observe.rates import COUNTS, QueueSum

OLD_SECONDS = 900.0
"""From which age on the oldest ready message is old: that of the alert BabelgateOldestMessageTooOld."""

MAX_COUNTED = 200
"""Queues whose counts are read from the brokers for one overview."""
MAX_CONCERNS = 100
"""The most concerns of one overview."""

_MOST_CONFIGURED = 1_000
"""Queues of the configuration whose rights are looked up: it may have any number."""
_FRESH_SECONDS = 5.0
"""How long the counts of a queue are reused: each page that is open asks every few seconds."""

_DEAD_LETTERED, _REDRIVEN, _BROKER_ERRORS = map(COUNTS.index, ("dead_lettered", "redriven", "broker_errors"))

Kind = Literal[
    "circuit_open",
    "storage_refused",
    "dead_letters",
    "old_messages",
    "broker_errors",
    "foreign_messages",
    "broker_warning",
    "queue_paused",
    "push_circuit_open",
]


class Concern(Struct, frozen=True, kw_only=True):
    """Something that needs attention. ``queue`` None: it concerns the whole broker. ``detail``: a sentence.

    ``count``: new dead letters of the last hour, failed calls of the last hour, or foreign messages.
    ``oldest_age_seconds``: of old messages.
    """

    kind: Kind
    broker: str
    queue: str | None = None
    count: int | None = None
    oldest_age_seconds: float | None = None
    detail: str


class WatchedQueue(NamedTuple):
    """A queue, and what its broker says of it. Counts that are not known are None."""

    route: Route
    stats: QueueStats


class Attention:
    """Finds what needs attention, from what this process knows and from the brokers' counts of some queues.

    ``sums``, here and below: the figures of the last hour by queue, busiest first.
    """

    def __init__(
        self, overview: Overview, router: Router, outages: Outages, maintenance: Maintenance, counts: RecentCounts
    ) -> None:
        self._overview = overview
        self._router = router
        self._outages = outages
        self._maintenance = maintenance
        self._counts = counts

    async def counted(
        self, caller: Caller, sums: Mapping[str, QueueSum], first: Iterable[str]
    ) -> dict[str, WatchedQueue]:
        """Up to MAX_COUNTED queues of ``caller`` with their counts: those of ``first``, then those with new dead
        letters, those that are configured by name, and the others of ``sums``.

        Takes 2 s at most. A queue without a route is left out.
        """
        routes: dict[str, Route] = {}
        for queue in self._candidates(caller, sums, first):
            if len(routes) == MAX_COUNTED:
                break
            if queue not in routes:
                with contextlib.suppress(BabelgateError):
                    routes[queue] = self._router.route(queue)
        found = await self._counts.read(routes.values(), _FRESH_SECONDS)
        return {queue: WatchedQueue(route, found.get(queue, QueueStats())) for queue, route in routes.items()}

    def circuits(self, caller: Caller) -> list[tuple[str, Literal["closed", "open"]]]:
        """The state of the circuit of each broker that ``caller`` may manage, by name."""
        circuits, managed = self._outages.circuits, self._overview.managed(caller)
        return [(name, "open" if circuits[name].is_open else "closed") for name in sorted(managed)]

    def concerns(self, caller: Caller, sums: Mapping[str, QueueSum], counted: Iterable[WatchedQueue]) -> list[Concern]:
        """What needs attention, at most MAX_CONCERNS: brokers that fail first, warnings last."""
        managed = sorted(self._overview.managed(caller))
        queues = [(route, stats, sums.get(route.queue)) for route, stats in counted]
        found = [*self._failing(managed), *self._paused(caller), *self._not_pushed(caller)]
        found += [*_dead_letters(queues), *_old(queues), *_errors(queues), *_foreign(queues)]
        found += [
            Concern(kind="broker_warning", broker=name, detail=warning)
            for name in managed
            for warning in self._maintenance.warnings.get(name, ())
        ]
        return found[:MAX_CONCERNS]

    def _candidates(self, caller: Caller, sums: Mapping[str, QueueSum], first: Iterable[str]) -> Iterator[str]:
        yield from first
        growing = {queue: new for queue, each in sums.items() if (new := _new_dead_letters(each)) > 0}
        yield from sorted(growing, key=growing.__getitem__, reverse=True)
        yield from (queue for queue in self._router.configured()[:_MOST_CONFIGURED] if caller.rights(queue))
        yield from sums

    def _failing(self, managed: Iterable[str]) -> Iterator[Concern]:
        for name in managed:
            circuit = self._outages.circuits[name]
            if circuit.is_open:
                detail = f"The broker {name!r} answers no ping, and calls to it are refused: {circuit.reason}."
                yield Concern(kind="circuit_open", broker=name, detail=detail)
            if (refused := self._outages.storage(name)) is not None:
                yield Concern(kind="storage_refused", broker=name, detail=refused)

    def _paused(self, caller: Caller) -> Iterator[Concern]:
        for pause in self._overview.pauses.in_force():
            queue = pause.queue
            if caller.rights(queue):
                broker = self._router.route(queue).broker
                yield Concern(kind="queue_paused", broker=broker, queue=queue, detail=pause.sentence())

    def _not_pushed(self, caller: Caller) -> Iterator[Concern]:
        pushed = self._overview.pushes.circuits()
        for route in routes_of(self._router, pushed):
            if (why := pushed[route.queue]) is not None and caller.rights(route.queue):
                yield Concern(kind="push_circuit_open", broker=route.broker, queue=route.queue, detail=why)


_Queue = tuple[Route, QueueStats, QueueSum | None]


def _new_dead_letters(queue: QueueSum) -> int:
    return queue.lanes[_DEAD_LETTERED] - queue.lanes[_REDRIVEN]


def _dead_letters(queues: Iterable[_Queue]) -> list[Concern]:
    found = []
    for route, stats, hour in queues:
        new = 0 if hour is None else _new_dead_letters(hour)
        # Those of the hour may have been removed since.
        new = new if stats.dead is None else min(new, stats.dead)
        if new > 0:
            total = "" if stats.dead is None else f" All of them: {stats.dead}."
            detail = f"New dead letters of the queue {route.queue!r} within the last hour: {new}.{total}"
            found.append(Concern(kind="dead_letters", broker=route.broker, queue=route.queue, count=new, detail=detail))
    return sorted(found, key=lambda each: -(each.count or 0))


def _old(queues: Iterable[_Queue]) -> list[Concern]:
    found = []
    for route, stats, _ in queues:
        age = stats.oldest_age_seconds
        if age is not None and age > OLD_SECONDS:
            detail = f"The oldest ready message of the queue {route.queue!r} has been there for {age / 60:.0f} minutes."
            found.append(
                Concern(
                    kind="old_messages", broker=route.broker, queue=route.queue, oldest_age_seconds=age, detail=detail
                )
            )
    return sorted(found, key=lambda each: -(each.oldest_age_seconds or 0))


def _errors(queues: Iterable[_Queue]) -> list[Concern]:
    found = []
    for route, _, hour in queues:
        if hour is not None and (failed := hour.lanes[_BROKER_ERRORS]):
            detail = f"Calls to the broker {route.broker!r} for the queue {route.queue!r} that failed within the last "
            detail += f"hour: {failed}."
            found.append(
                Concern(kind="broker_errors", broker=route.broker, queue=route.queue, count=failed, detail=detail)
            )
    return sorted(found, key=lambda each: -(each.count or 0))


def _foreign(queues: Iterable[_Queue]) -> Iterator[Concern]:
    for route, stats, _ in queues:
        if stats.foreign:
            detail = f"Messages of another program that were left on the queue {route.queue!r}: {stats.foreign}."
            yield Concern(
                kind="foreign_messages", broker=route.broker, queue=route.queue, count=stats.foreign, detail=detail
            )
