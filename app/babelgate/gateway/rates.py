"""The figures of the last hour: of one queue by minute, and of all queues of a caller with what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Literal, Protocol

from msgspec import Struct

from babelgate.brokers.binding import QueueStats
from babelgate.clock import Clock
from babelgate.gateway.attention import Attention, Concern, WatchedQueue
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.maintenance import Maintenance
from babelgate.gateway.outages import Outages
from babelgate.gateway.overview import Overview
from babelgate.gateway.recent_counts import RecentCounts
from babelgate.gateway.routing import Router
from babelgate.observe.rates import (
    COUNTS,
    LANES,
    MINUTE_MS,
    MINUTES,
    QueueSum,
    RateCounters,
    RatesReport,
    delivery_seconds,
    publish_seconds,
    recent_share,
)
from babelgate.runtime import turns

MAX_SHOWN = 100
"""The most queues of an answer."""
_REPORTED_QUEUES = 1_000
"""Queues that a process reports: the busiest, and as many with dead letters or errors. With several processes the sum
of a queue is exact while none of them uses more."""

_SUM_BYTES = 8 * LANES
"""Of the numbers of a queue, of which 10,000 are sorted in 10 ms."""

_PUBLISHED, _DELIVERED, _DEAD_LETTERED, _BROKER_ERRORS = map(
    COUNTS.index, ("published", "delivered", "dead_lettered", "broker_errors")
)


class RatesQuery(Struct, frozen=True):
    """Which figures a process is asked for: those of ``queue``, the flows of ``flows``, or those of all queues that
    match one of ``patterns``."""

    queue: str | None = None
    patterns: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()


class Siblings(Protocol):
    """The other processes of this gateway."""

    async def rates(self, query: RatesQuery) -> tuple[Sequence[RatesReport], int]:
        """The reports of those that answer within a second, and how many do not. Never raises."""


class Alone:
    """The siblings of a process that has none."""

    async def rates(self, query: RatesQuery) -> tuple[Sequence[RatesReport], int]:
        return (), 0


class Processes(Struct, frozen=True):
    """How many processes the figures are of (``up``), and how many did not answer in time (``silent``)."""

    up: int
    silent: int


class RateFigures(Struct, frozen=True, kw_only=True):
    """What happened in some time. ``lease_expired``: leases that expired before a settle; ``broker_errors``: calls to
    the broker that failed; ``dropped``: expired messages that were removed, because their route says so.

    ``publish_…``: the duration of a publish at the broker. ``delivery_…``: from ``created_at`` of a message to its
    first delivery, with its delay. Both in seconds, from buckets; None when there were none.
    """

    published: int
    delivered: int
    acked: int
    nacked: int
    rejected: int
    dead_lettered: int
    redriven: int
    lease_expired: int
    broker_errors: int
    dropped: int
    publish_p50_seconds: float | None
    publish_p99_seconds: float | None
    delivery_p50_seconds: float | None
    delivery_p99_seconds: float | None


class Minute(RateFigures, frozen=True, kw_only=True):
    """The figures of one minute, which began ``at`` (Unix ms)."""

    at: int


class QueueRates(Struct, frozen=True, kw_only=True):
    """The figures of one queue.

    ``complete_since`` (Unix ms): the figures from then on are complete. Earlier ones lack what a process had counted
    that has ended since, or what was forgotten for the sake of other queues. ``minutes``: from the oldest known one to
    the running one, at most 60; ``hour``: their sum.
    """

    queue: str
    broker: str
    complete_since: int
    processes: Processes
    hour: RateFigures
    minutes: Sequence[Minute]


class PerSecond(Struct, frozen=True, kw_only=True):
    """Messages a second, the mean of the last 60 s."""

    published_per_second: float
    delivered_per_second: float
    acked_per_second: float


class BusyQueue(PerSecond, frozen=True, kw_only=True):
    """One of the busiest queues. ``hour``: the figures of the last hour. ``stats``: what the broker says of it, at most
    5 s old."""

    queue: str
    broker: str
    hour: RateFigures
    stats: QueueStats


class BrokerCircuit(Struct, frozen=True, kw_only=True):
    """Whether this process refuses calls to the broker (``open``)."""

    broker: str
    circuit: Literal["closed", "open"]


class RatesOverview(PerSecond, frozen=True, kw_only=True):
    """The figures of all queues on which the caller has any right.

    ``queues``: the busiest, by messages published and delivered in the last 60 s, then in the hour. ``brokers``: those
    that the caller may manage. ``attention``: what somebody should look at, most urgent first.
    """

    complete_since: int
    processes: Processes
    hour: RateFigures
    minutes: Sequence[Minute]
    queues: Sequence[BusyQueue]
    brokers: Sequence[BrokerCircuit]
    attention: Sequence[Concern]


class Flow(Struct, frozen=True, kw_only=True):
    """The messages of a queue in each minute of the last hour, the running one last. ``…_per_second``: the mean of the
    last 60 s."""

    published: Sequence[int]
    acked: Sequence[int]
    published_per_second: float
    acked_per_second: float


class Rates:
    """The operations. All check the caller's rights, and take about 1 s at most, or 3 s while a broker is slow."""

    def __init__(
        self,
        counters: RateCounters,
        clock: Clock,
        router: Router,
        overview: Overview,
        outages: Outages,
        maintenance: Maintenance,
        counts: RecentCounts,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._router = router
        self._attention = Attention(overview, router, outages, maintenance, counts)
        self.siblings: Siblings = Alone()
        """The other processes whose figures are added."""

    async def queue(self, caller: Caller, queue: str) -> QueueRates:
        """The figures of one queue. Raises InvalidParameter, Forbidden, QueueNotFound."""
        caller.require_any(queue)
        route = self._router.route(queue)
        reports, processes = await self._reports(RatesQuery(queue))
        total, minutes = self._minutes(reports)
        return QueueRates(
            queue=queue,
            broker=route.broker,
            complete_since=max(report.complete_since for report in reports),
            processes=processes,
            hour=total,
            minutes=minutes,
        )

    async def overview(self, caller: Caller, limit: int = 20) -> RatesOverview:
        """The figures of all queues of ``caller``, and up to ``limit`` of the busiest, at most MAX_SHOWN."""
        patterns = {pattern for right in Right for pattern in caller.patterns(right)}
        reports, processes = await self._reports(RatesQuery(None, tuple(sorted(patterns))))
        total, minutes = self._minutes(reports)
        sums = {each.queue: each for each in _busiest(_added(report.queues for report in reports))}
        counted = await self._attention.counted(caller, sums, islice(sums, min(limit, MAX_SHOWN)))
        shown = [each for each in islice(sums, min(limit, MAX_SHOWN)) if each in counted]
        now = self._clock()
        recent = [
            sum(recent_share(each.at // MINUTE_MS, now) * getattr(each, name) for each in minutes) for name in COUNTS
        ]
        return RatesOverview(
            **_per_second(recent),
            complete_since=max(report.complete_since for report in reports),
            processes=processes,
            hour=total,
            minutes=minutes,
            queues=[_busy(sums[queue], counted[queue]) for queue in shown],
            brokers=[BrokerCircuit(broker=name, circuit=state) for name, state in self._attention.circuits(caller)],
            attention=self._attention.concerns(caller, sums, counted.values()),
        )

    async def flows(self, caller: Caller, queues: Sequence[str]) -> dict[str, Flow]:
        """The flows of ``queues``, of the first MAX_SHOWN. Raises InvalidParameter, Forbidden."""
        names = queues[:MAX_SHOWN]
        for queue in names:
            caller.require_any(queue)
        reports, _ = await self._reports(RatesQuery(flows=tuple(names))) if names else ((), None)
        running, ran = divmod(self._clock(), MINUTE_MS)
        share = 1 - ran / MINUTE_MS

        def made(queue: str) -> Flow:
            found = [report.flows[queue] for report in reports if queue in report.flows]
            nothing = 0, 0
            published, acked = (
                [
                    sum(each.get(minute, nothing)[index] for each in found)
                    for minute in range(running - MINUTES + 1, running + 1)
                ]
                for index in (0, 1)
            )
            return Flow(
                published=published,
                acked=acked,
                published_per_second=(published[-1] + share * published[-2]) / 60,
                acked_per_second=(acked[-1] + share * acked[-2]) / 60,
            )

        return dict(zip(names, await turns.mapped(made, names), strict=True))

    async def report(self, query: RatesQuery) -> RatesReport:
        """The figures of this process alone."""
        if query.queue is not None:
            return self._counters.of_queue(query.queue)
        if query.flows:
            report = self._counters.nothing()
            report.flows = {queue: flow for queue in query.flows if (flow := self._counters.flow(queue))}
            return report
        known = self._counters.queues()
        if "*" not in query.patterns:
            asking = Caller("", {pattern: frozenset(Right) for pattern in query.patterns})
            rights = await turns.mapped(asking.rights, known)
            known = [queue for queue, granted in zip(known, rights, strict=True) if granted]
        report = self._counters.nothing()
        await turns.in_background(self._counters.adding(known, report))
        size = len(report.queues) * _SUM_BYTES
        report.queues = await turns.run(_reported, report.queues, size=size, background=True)
        return report

    async def _reports(self, query: RatesQuery) -> tuple[list[RatesReport], Processes]:
        own, (others, silent) = await asyncio.gather(self.report(query), self.siblings.rates(query))
        return [own, *others], Processes(1 + len(others), silent)

    def _minutes(self, reports: Sequence[RatesReport]) -> tuple[RateFigures, list[Minute]]:
        """The figures of the hour, and of each minute since some process began to count."""
        running = self._clock() // MINUTE_MS
        first = max(min(report.began for report in reports) // MINUTE_MS, running - MINUTES + 1)
        lanes = {
            minute: _sum([report.minutes[minute] for report in reports if minute in report.minutes])
            for minute in range(first, running + 1)
        }
        minutes = [Minute(**_members(numbers), at=minute * MINUTE_MS) for minute, numbers in lanes.items()]
        return RateFigures(**_members(_sum(lanes.values()))), minutes


def _members(lanes: Sequence[int]) -> dict[str, Any]:
    """The members of RateFigures."""
    return dict(zip(COUNTS, lanes, strict=False)) | {
        f"{name}_p{percent}_seconds": seconds(lanes, percent / 100)
        for name, seconds in (("publish", publish_seconds), ("delivery", delivery_seconds))
        for percent in (50, 99)
    }


def _sum(several: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip([0] * LANES, *several, strict=True)]


def _added(reports: Iterable[Sequence[QueueSum]]) -> list[QueueSum]:
    """The sums of each queue over several processes."""
    found: dict[str, QueueSum] = {}
    for each in chain.from_iterable(reports):
        before = found.get(each.queue)
        if before is not None:
            recent = [one + other for one, other in zip(before.recent, each.recent, strict=True)]
            each = QueueSum(each.queue, _sum((before.lanes, each.lanes)), recent)
        found[each.queue] = each
    return list(found.values())


def _reported(sums: Sequence[QueueSum]) -> list[QueueSum]:
    troubled = [each for each in sums if each.lanes[_DEAD_LETTERED] or each.lanes[_BROKER_ERRORS]]
    found = [*_busiest(sums, _REPORTED_QUEUES), *_busiest(troubled, _REPORTED_QUEUES)]
    return list({each.queue: each for each in found}.values())


def _busiest(sums: Sequence[QueueSum], most: int | None = None) -> list[QueueSum]:
    def activity(each: QueueSum) -> tuple[float, int, str]:
        recent, lanes = each.recent, each.lanes
        busy = recent[_PUBLISHED] + recent[_DELIVERED], lanes[_PUBLISHED] + lanes[_DELIVERED]
        return -busy[0], -busy[1], each.queue

    return sorted(sums, key=activity)[:most]


def _per_second(recent: Sequence[float]) -> dict[str, float]:
    """The members of PerSecond."""
    return {f"{name}_per_second": round(count / 60, 3) for name, count in zip(COUNTS[:3], recent, strict=False)}


def _busy(total: QueueSum, counted: WatchedQueue) -> BusyQueue:
    return BusyQueue(
        queue=total.queue,
        broker=counted.route.broker,
        **_per_second(total.recent),
        hour=RateFigures(**_members(total.lanes)),
        stats=counted.stats,
    )
