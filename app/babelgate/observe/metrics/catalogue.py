"""The list of all metrics, as data, for the exposition, OTLP, the documentation and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bucket bounds for durations of HTTP requests and messaging operations, from the conventions of OpenTelemetry."""
_LONG_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0)

_PROMETHEUS_UNITS = {"s": "seconds", "By": "bytes"}

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: ``otel`` is its name in OpenTelemetry, ``labels`` the names of its attributes there, ``unit`` in UCUM.

    ``prometheus`` replaces ``otel`` in the name in Prometheus, where that has a standard name without its unit.

    ``source`` defines how the values of several workers are merged: ``process`` values are added up; ``broker`` values
    are the same in every worker, so one worker reports them.
    """

    otel: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    source: Literal["process", "broker"] = "process"
    prometheus: str = ""

    @property
    def base_unit(self) -> str:
        """The unit in Prometheus, which is the suffix of the name; empty for a plain number."""
        return _PROMETHEUS_UNITS.get(self.unit, "")

    @property
    def family(self) -> str:
        """The name in Prometheus, without the ``_total`` of a counter."""
        name = self.prometheus or self.otel.replace(".", "_")
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
DELIVERED = _counter("babelgate.delivered", "Messages delivered to consumers.")
SETTLED = _counter("babelgate.settled", "Leases that consumers ended, by outcome.", "outcome")
EXTENDED = _counter("babelgate.extended", "Leases that consumers prolonged.")
DEAD_LETTERED = _counter("babelgate.dead_lettered", "Messages moved to a dead-letter queue.", "reason")
REDRIVEN = _counter("babelgate.redriven", "Dead letters sent back, by their original queue.")
POISON = _counter("babelgate.poison", "Unreadable or invalid bodies found on a queue.")
DROPPED = _counter("babelgate.dropped", "Expired messages that were removed, because their route says so.")
SCHEMA_VIOLATIONS = _counter(
    "babelgate.schema_violations",
    "Messages whose data does not match the schema of their job, by what became of them.",
    "action",
)
LEASE_EXPIRED = _counter("babelgate.lease_expired", "Leases that expired before a settle.")
REINJECTED = _counter(
    "babelgate.reinjected", "Delayed messages that the gateway itself moved back to their queues.", labels=("broker",)
)
LOCAL_SETTLES = _counter("babelgate.local_settles", "Settles that the process with the request carried out itself.")
FORWARDED_SETTLES = _counter(
    "babelgate.forwarded_settles", "Settles forwarded to the process that received the message.", "result"
)
END_TO_END = Metric(
    "babelgate.end_to_end", "histogram", "Time from created_at of a message to its ack.", "s", _QUEUE, _LONG_SECONDS
)
BATCH_SIZE = Metric(
    "babelgate.coalesced_batch_size",
    "histogram",
    "Concurrent publishes that were sent in one call to the broker.",
    "{message}",
    _QUEUE,
    _SIZES,
)

QUEUE_DEPTH = _gauge("babelgate.queue_depth", "Messages ready to be received.", "{message}", *_QUEUE, source="broker")
QUEUE_DELAYED = _gauge(
    "babelgate.queue_delayed", "Messages that are delayed or parked.", "{message}", *_QUEUE, source="broker"
)
DEAD_LETTERS = _gauge(
    "babelgate.dead_letters", "Messages in the dead-letter queue.", "{message}", *_QUEUE, source="broker"
)
FOREIGN = _gauge(
    "babelgate.foreign_messages",
    "Messages of another program that were left on the queue at the last look.",
    "{message}",
    *_QUEUE,
    source="broker",
)
OLDEST_AGE = _gauge("babelgate.oldest_message_age", "Age of the oldest ready message.", "s", *_QUEUE, source="broker")
QUEUE_PAUSED = _gauge(
    "babelgate.queue_paused", "Queues that are paused: 1 for each.", "{queue}", *_QUEUE, source="broker"
)
LEASES_IN_FLIGHT = _gauge("babelgate.leases_in_flight", "Messages delivered and not settled yet.", "{message}", *_QUEUE)
BROKER_UP = _gauge("babelgate.broker_up", "Whether the broker answers: 1 or 0.", "", "broker", source="broker")
BROKER_WARNINGS = _gauge(
    "babelgate.broker_warnings",
    "Warnings about settings of the broker, such as those with which it loses messages.",
    "{warning}",
    "broker",
    source="broker",
)
OPEN_CIRCUITS = _gauge(
    "babelgate.open_circuits",
    "Processes that refuse calls to the broker, because it answers no ping.",
    "{process}",
    "broker",
)
STORAGE_REFUSALS = _gauge(
    "babelgate.storage_refusals",
    "Processes that the broker has refused to store something for in the last minute: it is full, or read-only.",
    "{process}",
    "broker",
)
RATE_LIMITED = _counter(
    "babelgate.rate_limited",
    "Requests and messages refused because a rate was exceeded, by limit.",
    unit="{refusal}",
    labels=("limit",),
)
RATES_ALONE = _gauge(
    "babelgate.rates_alone",
    "Processes that count for limits by themselves, because the store that they share does not answer.",
    "{process}",
)
COUNTED_LEASES = _gauge("babelgate.counted_leases", "Leases that count for a limit of identities or queues.", "{lease}")
PUBLISH_INFLIGHT = _gauge("babelgate.publish_inflight", "Publish requests in progress.", "{request}", "broker")
RECEIVE_WAITERS = _gauge("babelgate.receive_waiters", "Receive requests that wait for a message.", "{request}", *_QUEUE)
OPEN_STREAMS = _gauge("babelgate.open_streams", "Streams of consumers that are open.", "{stream}", *_QUEUE)
OPEN_PUSH_CIRCUITS = _gauge(
    "babelgate.open_push_circuits",
    "Processes that push nothing of the queue for a while, because its target fails or asked for a pause.",
    "{process}",
    *_QUEUE,
)
ISSUER_FAILURES = _gauge(
    "babelgate.issuer_failures",
    "Processes that could not read the keys of the issuer of tokens at the last try.",
    "{process}",
    "issuer",
)
CERTIFICATE_EXPIRES = _gauge(
    "babelgate.tls_certificate_expires_timestamp",
    "When the certificate that new connections get ends, in Unix time.",
    "s",
    source="broker",
)
SCHEMA_FAILURES = _gauge(
    "babelgate.schema_failures",
    "Processes that could not read, or could not use, the schemas of jobs at `schemas.url` at the last try.",
    "{process}",
)
CONFIG_RELOADS = _counter(
    "babelgate.config.reloads",
    "Attempts to load the configuration again: applied, or refused as a whole.",
    unit="{load}",
    labels=("outcome",),
)
CONFIG_LOADED = _gauge(
    "babelgate.config.loaded_timestamp",
    "When the configuration that is served by was loaded, in Unix time.",
    "s",
    source="broker",
)
CONFIG_REFUSED = _gauge(
    "babelgate.config.refused",
    "Processes that refused the configuration at the last attempt to load it, and serve by the one before.",
    "{process}",
)
WORKERS = _gauge("babelgate.workers", "Processes of this gateway, up or silent (not answering).", "{process}", "state")
BUILD_INFO = _gauge(
    "babelgate.build_info", "Always 1; the label has the running version.", "", "version", source="broker"
)
PUSH_DURATION = Metric(
    "babelgate.push.duration",
    "histogram",
    "Duration of posts to webhooks, by outcome.",
    "s",
    (*_QUEUE, "outcome"),
    _LONG_SECONDS,
)

JOURNAL_RECORDS = _counter(
    "babelgate.journal_records", "Journal records made, gaps included.", unit="{record}", labels=()
)
JOURNAL_DROPPED = _counter(
    "babelgate.journal_dropped", "Journal records lost because the buffer was full.", unit="{record}", labels=()
)
JOURNAL_BUFFER = _gauge("babelgate.journal_buffer", "Journal records in memory that wait for the disk.", "By")
JOURNAL_SEGMENTS = _counter("babelgate.journal_segments", "Journal segments landed.", unit="{segment}", labels=())
JOURNAL_ERRORS = _counter(
    "babelgate.journal_errors", "Journal writes and landings that failed and are retried.", unit="{error}", labels=()
)

AUDIT_RECORDS = _counter("babelgate.audit_records", "Audit records written.", unit="{record}", labels=())
AUDIT_PENDING = _gauge("babelgate.audit_pending", "Audit records in memory that wait for the disk.", "{record}")
AUDIT_ERRORS = _counter(
    "babelgate.audit_errors", "Audit writes that failed and are retried.", unit="{error}", labels=()
)
AUDIT_LOST = _counter(
    "babelgate.audit_lost", "Audit records lost because the disk failed for long.", unit="{record}", labels=()
)
AUDIT_LEFT_OUT = _counter(
    "babelgate.audit_left_out", "Refusals that the audit trail only counted.", unit="{refusal}", labels=()
)

SPANS_DROPPED = _counter(
    "babelgate.spans_dropped", "Recorded spans that no collector got.", "reason", unit="{span}", labels=()
)

# https://prometheus.io/docs/instrumenting/writing_clientlibs/#standard-and-runtime-collectors, and for OTLP
# https://opentelemetry.io/docs/specs/semconv/system/process-metrics/, where it has the metric.
PROCESS_CPU = Metric("process.cpu.time", "counter", "CPU time of the serving processes.", "s", prometheus="process_cpu")
PROCESS_RESIDENT_MEMORY = Metric(
    "process.memory.usage",
    "gauge",
    "Resident memory of the serving processes.",
    "By",
    prometheus="process_resident_memory",
)
PROCESS_VIRTUAL_MEMORY = Metric(
    "process.memory.virtual",
    "gauge",
    "Virtual memory of the serving processes.",
    "By",
    prometheus="process_virtual_memory",
)
PROCESS_OPEN_FDS = Metric(
    "process.unix.file_descriptor.count",
    "gauge",
    "Open file descriptors of the serving processes.",
    "{file_descriptor}",
    prometheus="process_open_fds",
)
PROCESS_MAX_FDS = _gauge(
    "process.max_fds", "File descriptors that the serving processes may open.", "{file_descriptor}"
)
PROCESS_START_TIME = _gauge(
    "process.start_time", "Start of the gateway, as Unix time in seconds.", "s", source="broker"
)

HTTP_DURATION = Metric(
    "http.server.request.duration",
    "histogram",
    "Duration of HTTP requests, including waits for messages.",
    "s",
    ("http.request.method", "http.route", "http.response.status_code", "url.scheme", "error.type"),
    SECONDS,
)
MALFORMED = _counter(
    "babelgate.malformed_requests",
    "Requests and TLS handshakes that the server refused before any endpoint, by kind.",
    unit="{request}",
    labels=("kind",),
)
_OPERATION = ("messaging.operation.name", "messaging.system", "messaging.destination.name", "error.type")
OPERATION_DURATION = Metric(
    "messaging.client.operation.duration",
    "histogram",
    "Duration of calls to a broker, including the wait of a receive.",
    "s",
    _OPERATION,
    SECONDS,
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages", "counter", "Messages in calls that send to a broker.", "{message}", _OPERATION
)
CONSUMED_MESSAGES = Metric(
    "messaging.client.consumed.messages", "counter", "Messages received from a broker.", "{message}", _OPERATION
)

CATALOGUE: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of their declaration."""

OUTCOMES = ("acked", "nacked", "rejected", "lease_lost")
PUSH_OUTCOMES = ("acked", "nacked", "rejected", "held", "unreachable")
"""What became of a pushed message. The last two are no attempts."""
REASONS = ("failed", "poison", "unknown_urn")
SCHEMA_ACTIONS = ("refused", "warned", "dead_lettered")
SPAN_LOSSES = ("queue_full", "export_failed")
RESULTS = ("settled", "lease_lost", "unreachable", "unknown", "failed")
MALFORMED_KINDS = (
    "tls_handshake",
    "tls_timeout",
    "request_line",
    "target",
    "version",
    "header",
    "framing",
    "head_too_large",
    "head_timeout",
    "connect",
    "pipelined",
    "body",
    "body_timeout",
)
"""What was wrong, in the order in which a request is read."""
OTHER = "_other"
"""The label of queues without a label of their own."""
OTHER_VALUE = "_OTHER"
"""The value that the conventions define for an unknown method or error."""
