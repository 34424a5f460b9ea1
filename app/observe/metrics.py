"""Prometheus counters, fed by the gateway's events. Each process counts for itself."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    generate_latest,
)

from app.observe.events import Call, Event

MAX_QUEUES = 1000
"""Past so many queues the rest share the label ``_other``: every label value is a time series that is never freed."""
OTHER = "_other"
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SETTLED = ("acked", "nacked", "rejected", "extended", "lease_lost")
_REASONS = ("failed", "poison", "unknown_urn")

Add = Callable[[float], None]


class Metrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(f"babelgate_{name}", text, ("queue", "broker", *more), registry=self._registry)

        self._published = counter("published", "Messages a broker has durably accepted.")
        self._delivered = counter("delivered", "Messages handed out to consumers.")
        self._settled = counter("settled", "Ends of leases asked for, by outcome.", "outcome")
        self._expired = counter("lease_expired", "Leases that ran out, of those that this process keeps.")
        self._dead_lettered = counter("dead_lettered", "Messages moved to a dead-letter queue.", "reason")
        self._redriven = counter("redriven", "Dead letters sent back.")
        self._here = counter("local_settles", "Settles asked for where they had to be carried out.")
        self._forwarded = counter("forwarded_settles", "Settles that went to the process that can.", "result")
        self._poison = counter("poison", "Bodies found on a queue that no consumer can take.")
        self._queues: set[str] = set()
        self._adders: dict[tuple[str, str, str, str | None], tuple[Add, ...]] = {}

    def observe(self, event: Event | Call) -> None:
        """Count one event."""
        if isinstance(event, Call):
            return
        key = (event.kind, event.queue, event.broker, event.reason)
        adders = self._adders.get(key)
        if adders is None:
            adders = self._resolve(event)
            # An unlisted queue is looked up again each time, so that the cache stays as small as the label set.
            if event.queue in self._queues:
                self._adders[key] = adders
        for add in adders:
            add(event.count)

    def exposition(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self._registry)

    def _resolve(self, event: Event) -> tuple[Add, ...]:
        if len(self._queues) < MAX_QUEUES:
            self._queues.add(event.queue)
        labels = (event.queue if event.queue in self._queues else OTHER, event.broker)
        if event.kind in _SETTLED:
            return (self._settled.labels(*labels, event.kind).inc,)
        if event.kind == "dead_lettered":
            return (self._dead_lettered.labels(*labels, event.reason if event.reason in _REASONS else "failed").inc,)
        if event.kind == "poison":
            return (self._poison.labels(*labels).inc, self._dead_lettered.labels(*labels, "poison").inc)
        if event.kind == "forwarded":
            return (self._forwarded.labels(*labels, event.reason or "failed").inc,)
        plain = {
            "accepted": self._published,
            "delivered": self._delivered,
            "redriven": self._redriven,
            "lease_expired": self._expired,
            "settled_here": self._here,
        }
        return (plain[event.kind].labels(*labels).inc,)
