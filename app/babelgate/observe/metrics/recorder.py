"""Counts the events and calls of one process, which the gateway and the HTTP layer report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from babelgate.clock import Clock, now_ms
from babelgate.errors import BabelgateError
from babelgate.observe.events import Call, Event
from babelgate.observe.metrics.catalogue import (
    BATCH_SIZE,
    CATALOGUE,
    CONSUMED_MESSAGES,
    DEAD_LETTERED,
    DELIVERED,
    DROPPED,
    END_TO_END,
    EXTENDED,
    FORWARDED_SETTLES,
    HTTP_DURATION,
    LEASE_EXPIRED,
    LOCAL_SETTLES,
    MALFORMED,
    MALFORMED_KINDS,
    OPERATION_DURATION,
    OTHER,
    OTHER_VALUE,
    OUTCOMES,
    POISON,
    PUBLISHED,
    PUSH_DURATION,
    REASONS,
    REDRIVEN,
    RESULTS,
    SCHEMA_ACTIONS,
    SCHEMA_VIOLATIONS,
    SENT_MESSAGES,
    SETTLED,
    Metric,
)
from babelgate.observe.metrics.instruments import Count, Histogram, Labels, Sampled, Snapshot
from babelgate.observe.metrics.labels import QueueLabels

CLIENT_GONE = "client_gone"
"""The error of a request whose client disconnected before the answer."""

# https://www.rfc-editor.org/rfc/rfc9110#section-9 and RFC 5789, as the conventions of OpenTelemetry have it.
_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
_PLAIN = {
    "accepted": PUBLISHED,
    "delivered": DELIVERED,
    "redriven": REDRIVEN,
    "extended": EXTENDED,
    "lease_expired": LEASE_EXPIRED,
    "dropped": DROPPED,
    "settled_here": LOCAL_SETTLES,
}
# Series that start with 0 at the first event of a queue: Prometheus sees no increase in a series that starts with 1.
_FROM_THE_START: tuple[tuple[Metric, Labels], ...] = (
    *((metric, ()) for metric in (PUBLISHED, DELIVERED, REDRIVEN, LEASE_EXPIRED, POISON, DROPPED)),
    *((SETTLED, (outcome,)) for outcome in OUTCOMES),
    *((DEAD_LETTERED, (reason,)) for reason in REASONS),
)


class _CallInstruments(NamedTuple):
    duration: Histogram
    messages: Count | None
    batches: Histogram | None


class Metrics:
    """The counters and histograms of one process. An instance belongs to the thread of the event loop."""

    def __init__(
        self,
        clock: Clock = now_ms,
        systems: Mapping[str, str] | None = None,
        labels: QueueLabels | None = None,
    ) -> None:
        """``systems`` is OpenTelemetry's name of the system of each broker, by its name. ``labels``: the
        queues with a label, where several workers share the choice."""
        self._clock = clock
        self._systems = systems or {}
        self._errors = frozenset(_codes(BabelgateError)) | {CLIENT_GONE}
        self._queues = labels or QueueLabels()
        self._registered: set[tuple[str, str]] = set()
        self._counts: dict[str, dict[Labels, Count]] = {m.otel: {} for m in CATALOGUE if m.kind == "counter"}
        self._histograms: dict[str, dict[Labels, Histogram]] = {m.otel: {} for m in CATALOGUE if m.kind == "histogram"}
        self._by_event: dict[tuple[str, str, str, str | None], tuple[Count, ...]] = {}
        self._by_call: dict[tuple[str, str, str, str | None], _CallInstruments] = {}
        self._by_request: dict[tuple[str, str, int, str, str | None], Histogram] = {}
        self._end_to_end: dict[tuple[str, str], Histogram] = {}
        # From the start: Prometheus sees no increase in a series that starts with 1.
        self._malformed = {kind: self._count(MALFORMED, (kind,)) for kind in MALFORMED_KINDS}

    @property
    def queues(self) -> Iterable[str]:
        """The queues with their own label, also those that only other workers have seen."""
        self._queues.refresh()
        return list(self._queues.chosen)

    def label(self, queue: str) -> str:
        """Return the label value of ``queue``."""
        return queue if queue in self._queues else OTHER

    def _has_no_label(self, queue: str) -> bool:
        """Whether the queue is one of OTHER, now and for ever."""
        return queue not in self._queues and self._queues.is_full

    def register(self, queue: str, broker: str) -> str:
        """Return the label value of ``queue``, after giving it its own label if fewer than MAX_QUEUES have one.

        Creates the counters of a new queue.
        """
        label = queue if self._queues.choose(queue) else OTHER
        if (label, broker) not in self._registered:
            self._registered.add((label, broker))
            for metric, more in _FROM_THE_START:
                self._count(metric, (label, broker, *more))
        return label

    def observe(self, reported: Event | Call) -> None:
        """Count one event, or one call."""
        if type(reported) is Call:
            self._count_call(reported)
            return
        assert type(reported) is Event
        kind, count = reported.kind, reported.count
        key = (kind, reported.queue, reported.broker, reported.reason)
        instruments = self._by_event.get(key)
        if instruments is None and self._has_no_label(reported.queue):
            key = (kind, OTHER, reported.broker, reported.reason)
            instruments = self._by_event.get(key)
        if instruments is None:
            instruments = self._event_instruments(reported)
            # Cache only declared reasons, so that the cache is bounded.
            if reported.reason is None or reported.reason in _KEPT:
                self._by_event[key] = instruments
        for instrument in instruments:
            instrument.value += count
        if kind == "acked":
            self._count_ends(reported)

    def request(
        self,
        method: str,
        route: str,
        status: int,
        scheme: str,
        error: str | None,
        seconds: float,
        sampled: Sampled | None = None,
    ) -> None:
        """Count one HTTP request. ``route`` is a template; ``status`` is 0 if there was no answer."""
        if method not in _METHODS:
            method = OTHER_VALUE
        key = (method, route, status, scheme, error)
        instrument = self._by_request.get(key)
        if instrument is None:
            labels = (method, route, str(status or ""), scheme, self._error(error))
            instrument = self._histogram(HTTP_DURATION, labels)
            if error is None or error in self._errors:
                self._by_request[key] = instrument
        instrument.observe(seconds, sampled)

    def pushed(self, queue: str, broker: str, outcome: str, seconds: float) -> None:
        """Count one post of a message of ``queue``, with an outcome in PUSH_OUTCOMES."""
        label = OTHER if self._has_no_label(queue) else self.register(queue, broker)
        self._histogram(PUSH_DURATION, (label, broker, outcome)).observe(seconds)

    def malformed(self, kind: str) -> None:
        """Count one request of a kind in MALFORMED_KINDS that the server refused before any endpoint."""
        self._malformed[kind].value += 1

    def snapshot(self) -> Snapshot:
        """Return a copy of all values."""
        found: Snapshot = {name: {} for name in self.names}
        for name, labels, instrument in self.instruments():
            found[name][labels] = instrument.read()
        return found

    @property
    def names(self) -> Iterable[str]:
        """The names of all metrics in OpenTelemetry."""
        return (*self._counts, *self._histograms)

    def instruments(self) -> Iterator[tuple[str, Labels, Count | Histogram]]:
        """Yield each metric's name with the labels and the instrument of each series. Others may be added meanwhile."""
        for name in self.names:
            yield from [(name, labels, count) for labels, count in self._counts.get(name, {}).items()]
            yield from [(name, labels, histogram) for labels, histogram in self._histograms.get(name, {}).items()]

    def _count_call(self, call: Call) -> None:
        key = (call.operation, call.queue, call.broker, call.error)
        instruments = self._by_call.get(key)
        if instruments is None and self._has_no_label(call.queue):
            key = (call.operation, OTHER, call.broker, call.error)
            instruments = self._by_call.get(key)
        if instruments is None:
            instruments = self._call_instruments(call)
            if call.error is None or call.error in self._errors:
                self._by_call[key] = instruments
        instruments.duration.observe(call.seconds)
        if instruments.messages is not None:
            instruments.messages.value += call.count
        if instruments.batches is not None and call.coalesced:
            instruments.batches.observe(call.count)

    def _count_ends(self, event: Event) -> None:
        key = (event.queue, event.broker)
        instrument = self._end_to_end.get(key)
        if instrument is None and self._has_no_label(event.queue):
            key = (OTHER, event.broker)
            instrument = self._end_to_end.get(key)
        if instrument is None:
            key = (self.register(event.queue, event.broker), event.broker)
            instrument = self._end_to_end[key] = self._histogram(END_TO_END, key)
        now = self._clock()
        for facts in event.messages:
            if facts.created_at is not None:
                # The clock of the producer may be ahead.
                instrument.observe(max(now - facts.created_at, 0) / 1000)

    def _event_instruments(self, event: Event) -> tuple[Count, ...]:
        labels = (self.register(event.queue, event.broker), event.broker)
        kind, reason = event.kind, event.reason
        if kind in OUTCOMES:
            return (self._count(SETTLED, (*labels, kind)),)
        if kind == "dead_lettered":
            return (self._count(DEAD_LETTERED, (*labels, reason if reason in REASONS else "failed")),)
        if kind == "poison":
            return (self._count(POISON, labels), self._count(DEAD_LETTERED, (*labels, "poison")))
        if kind == "schema_violation":
            return (self._count(SCHEMA_VIOLATIONS, (*labels, reason if reason in SCHEMA_ACTIONS else "refused")),)
        if kind == "forwarded":
            return (self._count(FORWARDED_SETTLES, (*labels, reason if reason in RESULTS else "failed")),)
        return (self._count(_PLAIN[kind], labels),)

    def _call_instruments(self, call: Call) -> _CallInstruments:
        queue = self.register(call.queue, call.broker)
        system = self._systems.get(call.broker, OTHER_VALUE)
        labels = (call.operation, system, queue, self._error(call.error))
        messages = {"send": SENT_MESSAGES, "receive": CONSUMED_MESSAGES}.get(call.operation)
        return _CallInstruments(
            self._histogram(OPERATION_DURATION, labels),
            None if messages is None else self._count(messages, labels),
            self._histogram(BATCH_SIZE, (queue, call.broker)) if call.operation == "send" else None,
        )

    def _error(self, code: str | None) -> str:
        return "" if code is None else code if code in self._errors else OTHER_VALUE

    def _count(self, metric: Metric, labels: Labels) -> Count:
        instruments = self._counts[metric.otel]
        instrument = instruments.get(labels)
        if instrument is None:
            instrument = instruments[labels] = Count()
        return instrument

    def _histogram(self, metric: Metric, labels: Labels) -> Histogram:
        instruments = self._histograms[metric.otel]
        instrument = instruments.get(labels)
        if instrument is None:
            instrument = instruments[labels] = Histogram(metric.bounds)
        return instrument


_KEPT = frozenset({*REASONS, *RESULTS, *SCHEMA_ACTIONS})


def _codes(error: type[BabelgateError]) -> Iterable[str]:
    yield error.code
    for below in error.__subclasses__():
        yield from _codes(below)
