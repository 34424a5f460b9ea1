"""Every metric, once, as data: the exposition, OTLP, the documentation and the tests are made from this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds that the conventions of OpenTelemetry give for durations of HTTP requests and of messaging operations."""
_LONG_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0)

_PROMETHEUS_UNITS = {"s": "seconds", "By": "bytes"}

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``otel`` is its name in OpenTelemetry, ``labels`` the names of its attributes there, ``unit`` in UCUM.

    ``source``: how the numbers of several workers become one. ``process``: each has its own, and they are added up;
    ``broker``: all ask the same broker, and one of them is enough.
    """

    otel: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    source: Literal["process", "broker"] = "process"

    @property
    def base_unit(self) -> str:
        """The unit as Prometheus spells it: the end of the name; empty where it is a mere number."""
        return _PROMETHEUS_UNITS.get(self.unit, "")

    @property
    def family(self) -> str:
        """The name in Prometheus, without the ``_total`` of a counter."""
        name = self.otel.replace(".", "_")
        return f"{name}_{self.base_unit}" if self.base_unit else name

    @property
    def name(self) -> str:
        """The name in Prometheus."""
        return f"{self.family}_total" if self.kind == "counter" else self.family

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """The names of the labels in Prometheus."""
        return tuple(label.replace(".", "_") for label in self.labels)


_QUEUE = ("queue", "broker")


def _counter(otel: str, text: str, *more: str, unit: str = "{message}", labels: tuple[str, ...] = _QUEUE) -> Metric:
    return Metric(otel, "counter", text, unit, (*labels, *more))


def _gauge(otel: str, text: str, unit: str, *labels: str, source: Literal["process", "broker"] = "process") -> Metric:
    return Metric(otel, "gauge", text, unit, labels, source=source)


PUBLISHED = _counter("babelgate.published", "Messages that a broker has durably accepted.")
DELIVERED = _counter("babelgate.delivered", "Messages handed out to consumers.")
SETTLED = _counter("babelgate.settled", "Ends of leases that consumers asked for, by outcome.", "outcome")
EXTENDED = _counter("babelgate.extended", "Leases that consumers prolonged.")
DEAD_LETTERED = _counter("babelgate.dead_lettered", "Messages moved to a dead-letter queue.", "reason")
REDRIVEN = _counter("babelgate.redriven", "Dead letters sent back, by the queue they were of.")
POISON = _counter("babelgate.poison", "Bodies found on a queue that no consumer can take.")
LEASE_EXPIRED = _counter("babelgate.lease_expired", "Leases that ran out before anybody ended them.")
LOCAL_SETTLES = _counter("babelgate.local_settles", "Settles asked for where they had to be carried out.")
FORWARDED_SETTLES = _counter("babelgate.forwarded_settles", "Settles that went to the process that can.", "result")
END_TO_END = Metric(
    "babelgate.end_to_end", "histogram", "From created_at of a message to its ack.", "s", _QUEUE, _LONG_SECONDS
)
BATCH_SIZE = Metric(
    "babelgate.coalesced_batch_size",
    "histogram",
    "Concurrent publishes that became one call to the broker.",
    "{message}",
    _QUEUE,
    _SIZES,
)

QUEUE_DEPTH = _gauge("babelgate.queue_depth", "Messages ready to be received.", "{message}", *_QUEUE, source="broker")
QUEUE_DELAYED = _gauge(
    "babelgate.queue_delayed", "Messages that wait for their time.", "{message}", *_QUEUE, source="broker"
)
DEAD_LETTERS = _gauge("babelgate.dead_letters", "Dead letters at rest.", "{message}", *_QUEUE, source="broker")
OLDEST_AGE = _gauge(
    "babelgate.oldest_message_age", "Age of the oldest message that is ready.", "s", *_QUEUE, source="broker"
)
LEASES_IN_FLIGHT = _gauge(
    "babelgate.leases_in_flight", "Messages handed out and not settled yet.", "{message}", *_QUEUE
)
BROKER_UP = _gauge("babelgate.broker_up", "Whether the broker answers: 1 or 0.", "", "broker", source="broker")
PUBLISH_INFLIGHT = _gauge("babelgate.publish_inflight", "Publish requests being served.", "{request}", "broker")
RECEIVE_WAITERS = _gauge("babelgate.receive_waiters", "Receives that wait for a message.", "{request}", *_QUEUE)
WORKERS = _gauge(
    "babelgate.workers", "Processes of this gateway: up, or silent when asked for their numbers.", "{process}", "state"
)
BUILD_INFO = _gauge("babelgate.build_info", "1, with the version that runs.", "", "version", source="broker")

JOURNAL_RECORDS = _counter("babelgate.journal_records", "Records written.", unit="{record}", labels=())
JOURNAL_DROPPED = _counter(
    "babelgate.journal_dropped", "Records lost because the buffer was full.", unit="{record}", labels=()
)
JOURNAL_BUFFER = _gauge("babelgate.journal_buffer", "Records that wait in memory for the disk.", "By")
JOURNAL_SEGMENTS = _counter("babelgate.journal_segments", "Segments closed and landed.", unit="{segment}", labels=())
JOURNAL_ERRORS = _counter(
    "babelgate.journal_errors", "Writes and landings that failed and are tried again.", unit="{error}", labels=()
)

HTTP_DURATION = Metric(
    "http.server.request.duration",
    "histogram",
    "Duration of HTTP requests, waiting for messages included.",
    "s",
    ("http.request.method", "http.route", "http.response.status_code", "url.scheme", "error.type"),
    SECONDS,
)
_OPERATION = ("messaging.operation.name", "messaging.system", "messaging.destination.name", "error.type")
OPERATION_DURATION = Metric(
    "messaging.client.operation.duration",
    "histogram",
    "Duration of calls to a broker; that of a receive includes its wait.",
    "s",
    _OPERATION,
    SECONDS,
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages", "counter", "Messages that were to be sent to a broker.", "{message}", _OPERATION
)
CONSUMED_MESSAGES = Metric(
    "messaging.client.consumed.messages", "counter", "Messages that came from a broker.", "{message}", _OPERATION
)

CATALOGUE: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order of their declaration."""

OUTCOMES = ("acked", "nacked", "rejected", "lease_lost")
REASONS = ("failed", "poison", "unknown_urn")
RESULTS = ("settled", "lease_lost", "unreachable", "unknown", "failed")
OTHER = "_other"
"""The queue of all those past the bound."""
OTHER_VALUE = "_OTHER"
"""What the conventions call a method, or an error, that is none of the known ones."""
