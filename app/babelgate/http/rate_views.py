"""Requests and answers of the endpoints for rates, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from babelgate.http.views import StatsView, Strict, View


class RatesParameters(Strict):
    limit: int = Field(default=20, ge=1, le=100)
    """Maximum number of the busiest queues to return: 1 to 100."""


class ProcessesView(View):
    """The processes of this gateway, its workers, on the host that answers."""

    up: int
    """How many processes the figures are of."""
    silent: int
    """How many did not answer in time, so that their figures are missing."""


class FiguresView(View):
    """What happened within some time. `null`: nothing of the kind."""

    published: int
    """Messages that the broker has durably accepted."""
    delivered: int
    """Messages delivered to consumers."""
    acked: int
    """Leases that ended with an ack."""
    nacked: int
    """Leases that ended with a nack."""
    rejected: int
    """Leases that ended with a reject."""
    dead_lettered: int
    """Messages moved to the dead-letter queue."""
    redriven: int
    """Dead letters sent back, by their original queue."""
    lease_expired: int
    """Leases that expired before a settle."""
    broker_errors: int
    """Calls to the broker that failed."""
    dropped: int
    """Expired messages that were removed, because their route has `expired: drop`."""
    publish_p50_seconds: float | None
    """Median duration of a publish at the broker, in seconds."""
    publish_p99_seconds: float | None
    """The duration in which 99 % of the publishes were confirmed, in seconds."""
    delivery_p50_seconds: float | None
    """Median age of a message at its first delivery, in seconds, from `created_at` on, with its delay."""
    delivery_p99_seconds: float | None
    """The age that 99 % of the messages had at most at their first delivery, in seconds."""


class _Begun(View):
    at: int
    """The beginning of the minute, Unix milliseconds."""


class MinuteView(FiguresView, _Begun):
    """What happened within one minute."""


class _HourView(View):
    complete_since: int = Field(
        description="From when on the figures are complete, Unix milliseconds. Earlier ones lack those of processes "
        "that have ended since, and of queues that were forgotten for the sake of others: 10,000 are remembered."
    )
    processes: ProcessesView
    hour: FiguresView
    minutes: list[MinuteView]
    """The minutes of the last hour since counting began, oldest first. The last one is not over."""


class _Named(View):
    queue: str
    """The name of the queue in paths."""
    broker: str
    """The configured name of the broker."""


class QueueRatesView(_HourView, _Named):
    """The last hour of one queue, in minutes."""


class _PerSecond(View):
    published_per_second: float
    """Messages published a second, the mean of the last 60 seconds."""
    delivered_per_second: float
    """Messages delivered a second, the mean of the last 60 seconds."""
    acked_per_second: float
    """Messages acked a second, the mean of the last 60 seconds."""


class BusyQueueView(_PerSecond, _Named):
    """A queue with its rates, its last hour and its counts."""

    hour: FiguresView
    stats: StatsView


class CircuitView(View):
    """The circuit of a broker."""

    broker: str
    """The configured name of the broker."""
    circuit: Literal["closed", "open"]
    """`open`: this process refuses calls to the broker with 503, because it answered no ping."""


class ConcernView(View):
    """Something that needs attention."""

    kind: Literal[
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
    """What it is, for programs."""
    broker: str
    """The configured name of the broker."""
    queue: str | None
    """The name of the queue in paths; `null`: the broker as a whole."""
    count: int | None
    """New dead letters of the last hour that are still there, failed calls of the last hour, or foreign messages."""
    oldest_age_seconds: float | None
    """Age of the oldest ready message in seconds, for `old_messages`: more than 900."""
    detail: str
    """A sentence for people."""


class RatesView(_HourView, _PerSecond):
    """The last hour of all queues that the caller has any right on."""

    queues: list[BusyQueueView]
    """The busiest queues, by messages published and delivered in the last 60 seconds, then in the last hour."""
    brokers: list[CircuitView]
    """The brokers that the caller may manage, by name."""
    attention: list[ConcernView]
    """What needs attention, most urgent first: at most 100. Up to 200 queues are looked at: the busiest, those with new
    dead letters, and those configured by name."""
