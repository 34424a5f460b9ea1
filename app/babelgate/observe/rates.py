"""Counts what happened on each queue in the last hour, by minute, in bounded memory."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from babelgate.clock import Clock, now_ms
from babelgate.observe.events import Call, Event, EventKind, Facts

MINUTES = 60
"""How many minutes are kept. The last one is the running minute."""
MINUTE_MS = 60_000

MAX_QUEUES = 10_000
"""Queues with figures. One more takes the place of the one that was used longest ago. A queue takes some 180 bytes for
each minute of the hour in which it was used, and 400 for itself: at most 115 MB for all queues."""

COUNTS = (
    "published",
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "dead_lettered",
    "redriven",
    "lease_expired",
    "broker_errors",
    "dropped",
)
"""The counted transitions of messages, and the calls to the broker that failed."""

PUBLISH_BOUNDS = tuple(0.0005 * 2**power for power in range(15))
"""Upper bounds of the buckets for calls that publish, in seconds: 0.5 ms to 8.2 s."""
DELIVERY_BOUNDS = (2, 5, 10, 25, 50, 100, 250, 1_000, 2_500, 10_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000)
"""Upper bounds of the buckets for the ages of delivered messages, in milliseconds: to 6 hours."""

_PUBLISH = len(COUNTS)
_DELIVERY = _PUBLISH + len(PUBLISH_BOUNDS) + 1
LANES = _DELIVERY + len(DELIVERY_BOUNDS) + 1
"""Numbers of one minute of one queue: the counts, the buckets of publishes, the buckets of deliveries."""
_ROW = LANES + 1
"""A row is the minute since the epoch, then its numbers."""

_COUNTED_AS: Mapping[EventKind, str] = {
    "accepted": "published",
    "delivered": "delivered",
    "acked": "acked",
    "nacked": "nacked",
    "rejected": "rejected",
    "dead_lettered": "dead_lettered",
    "poison": "dead_lettered",
    "redriven": "redriven",
    "lease_expired": "lease_expired",
    "dropped": "dropped",
}
_EVENTS = {kind: COUNTS.index(count) for kind, count in _COUNTED_AS.items()}
_PUBLISHED, _ACKED = COUNTS.index("published"), COUNTS.index("acked")
_BROKER_ERRORS = COUNTS.index("broker_errors")
_CANCELLED = "CancelledError"
"""The error of a call whose caller has gone. The broker did not fail."""

Lanes = Sequence[int]


class QueueSum(Struct, array_like=True):
    """The numbers of ``queue``: the sum of the hour in ``lanes``, and in ``recent`` the counts of the last 60 s.

    A count of the last 60 s is that of the running minute and a share of that of the minute before.
    """

    queue: str
    lanes: list[int]
    recent: list[float]


class RatesReport(Struct):
    """The figures of some queues in one process.

    ``began``: when the process began to count. ``complete_since``: from when on nothing is missing, because no queue
    was dropped since. Both in Unix ms. ``minutes``: the sum of all queues by minute since the epoch, without minutes in
    which nothing happened. ``queues``: the busiest of them. ``flows``: of each queue that was asked for,
    the messages that were published and acked by minute.
    """

    began: int
    complete_since: int
    minutes: dict[int, list[int]]
    queues: list[QueueSum] = []
    flows: dict[str, dict[int, tuple[int, int]]] = {}


class _QueueMinutes:
    """The rows of one queue. ``at``: where the numbers of the running ``minute`` begin in ``rows``."""

    __slots__ = ("at", "complete_since", "minute", "rows")

    def __init__(self, complete_since: int) -> None:
        self.rows = array("I")
        self.minute = -1
        self.at = 0
        self.complete_since = complete_since

    def begin(self, minute: int) -> None:
        """Make ``minute`` the running one. Its row takes the place of one that is older than the hour, if there is."""
        rows, free = self.rows, -1
        for index, held in enumerate(rows[::_ROW]):
            if held == minute:
                self.minute, self.at = minute, index * _ROW + 1
                return
            if not minute - MINUTES < held < minute:
                free = index
        row = array("I", (minute, *[0] * LANES))
        if free < 0:
            free = len(rows) // _ROW
            rows.extend(row)
        else:
            rows[free * _ROW : (free + 1) * _ROW] = row
        self.minute, self.at = minute, free * _ROW + 1

    def read(self, minute: int) -> Iterator[tuple[int, memoryview]]:
        """Each minute of the hour that ends with ``minute``, and its numbers."""
        numbers = memoryview(self.rows)
        for index, held in enumerate(self.rows[::_ROW]):
            if minute - MINUTES < held <= minute:
                yield held, numbers[index * _ROW + 1 : (index + 1) * _ROW]


class RateCounters:
    """The counters of one process. An instance belongs to the thread of the event loop."""

    def __init__(self, clock: Clock = now_ms, max_queues: int = MAX_QUEUES) -> None:
        """``clock``: Unix ms."""
        self._clock = clock
        self._max_queues = max_queues
        self._began = clock()
        self._complete_since = self._began
        # The one that was used longest ago comes first: a queue moves to the end with each new minute.
        self._queues: dict[str, _QueueMinutes] = {}

    def observe(self, reported: Event | Call) -> None:
        """Count one event, or one call. Allocates nothing but the row of a new minute."""
        delivered: Sequence[Facts] = ()
        if isinstance(reported, Call):
            error = reported.error
            if error is None:
                if reported.operation != "send":
                    return
                lane, count = _PUBLISH + bisect_left(PUBLISH_BOUNDS, reported.seconds), reported.count
            elif error == _CANCELLED:
                return
            else:
                lane, count = _BROKER_ERRORS, 1
        else:
            kind = reported.kind
            if kind not in _EVENTS:
                return
            lane, count = _EVENTS[kind], reported.count
            if kind == "delivered":
                delivered = reported.messages
        now = self._clock()
        minute = now // MINUTE_MS
        series = self._queues.get(reported.queue)
        if series is None or series.minute != minute:
            series = self._begin(reported.queue, minute)
        rows, at = series.rows, series.at
        rows[at + lane] += count
        for facts in delivered:
            # Only the first delivery: later ones wait for consumers that have failed.
            if not facts.attempts and facts.created_at is not None:
                rows[at + _DELIVERY + bisect_left(DELIVERY_BOUNDS, now - facts.created_at)] += 1

    def of_queue(self, queue: str) -> RatesReport:
        """The minutes of ``queue``; no I/O, some 100 µs."""
        series, minute = self._queues.get(queue), self._clock() // MINUTE_MS
        if series is None:
            return RatesReport(self._began, self._complete_since, {})
        minutes = {held: numbers.tolist() for held, numbers in series.read(minute)}
        return RatesReport(self._began, series.complete_since, minutes)

    def flow(self, queue: str) -> dict[int, tuple[int, int]]:
        """The messages of ``queue`` that were published and acked by minute since the epoch; no I/O, some 20 µs."""
        series, minute = self._queues.get(queue), self._clock() // MINUTE_MS
        if series is None:
            return {}
        return {held: (numbers[_PUBLISHED], numbers[_ACKED]) for held, numbers in series.read(minute)}

    def queues(self) -> list[str]:
        """The queues with figures, which may be older than the hour."""
        return list(self._queues)

    def adding(self, queues: Sequence[str], total: RatesReport) -> Iterator[None]:
        """Add the figures of ``queues`` to ``total``, which is that of none; yields after each queue.

        In ``total.queues`` are then all queues that were used within the hour.
        """
        now = self._clock()
        minute = now // MINUTE_MS
        # The numbers of a row are added all at once, as the digits of one large number. Each digit has 32 bits, and no
        # process handles 2**32 messages in an hour.
        sums: dict[int, int] = {}
        for queue in queues:
            series = self._queues.get(queue)
            if series is not None:
                hour, recent = 0, [0.0] * len(COUNTS)
                for held, numbers in series.read(minute):
                    row = int.from_bytes(numbers, sys.byteorder)
                    hour += row
                    sums[held] = sums.get(held, 0) + row
                    if held >= minute - 1:
                        weight = recent_share(held, now)
                        recent = [before + weight * count for before, count in zip(recent, numbers, strict=False)]
                if hour:
                    total.queues.append(QueueSum(queue, _digits(hour), recent))
            yield
        total.minutes |= {held: _digits(number) for held, number in sums.items()}

    def nothing(self) -> RatesReport:
        """The report of no queue."""
        return RatesReport(self._began, self._complete_since, {}, [])

    def _begin(self, queue: str, minute: int) -> _QueueMinutes:
        series = self._queues.pop(queue, None)
        if series is None:
            if len(self._queues) >= self._max_queues:
                dropped = self._queues.pop(next(iter(self._queues)))
                # It may be this very queue that comes again.
                self._complete_since = max(self._complete_since, (dropped.minute + 1) * MINUTE_MS)
            series = _QueueMinutes(self._complete_since)
        self._queues[queue] = series
        series.begin(minute)
        return series


def recent_share(minute: int, now: int) -> float:
    """The share of the counts of ``minute`` that falls within the last 60 s, if they are spread evenly: all of those of
    the running minute, and none of those before the last one. ``now``: Unix ms."""
    running, ran = divmod(now, MINUTE_MS)
    return 1.0 if minute == running else 1 - ran / MINUTE_MS if minute == running - 1 else 0.0


def _digits(number: int) -> list[int]:
    return array("I", number.to_bytes(4 * LANES, sys.byteorder)).tolist()


def publish_seconds(lanes: Lanes, share: float) -> float | None:
    """The duration in which ``share`` (0.5: the median) of the publishes were confirmed; None without any."""
    found = _quantile(lanes[_PUBLISH:_DELIVERY], PUBLISH_BOUNDS, share)
    return None if found is None else round(found, 6)


def delivery_seconds(lanes: Lanes, share: float) -> float | None:
    """The age at which ``share`` of the messages were first delivered; None without any."""
    found = _quantile(lanes[_DELIVERY:], DELIVERY_BOUNDS, share)
    return None if found is None else round(found / 1000, 6)


def _quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Within a bucket the values are taken to be spread evenly. Beyond the last bound it is that bound."""
    wanted, below = share * sum(counts), 0
    if not wanted:
        return None
    for index, (count, bound) in enumerate(zip(counts, bounds, strict=False)):
        if below + count >= wanted:
            lower = bounds[index - 1] if index else 0
            return lower + (bound - lower) * (wanted - below) / count
        below += count
    return bounds[-1]
