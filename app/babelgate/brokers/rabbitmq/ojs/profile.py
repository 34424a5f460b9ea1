"""The OJS profile: maps envelopes to Open Job Spec jobs on exchanges and queues of RabbitMQ.

It publishes jobs. It reads jobs, with their own content type or as plain JSON, and envelopes, which stay as they are. A
copy of a delivery is the received message with another attempt and error.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from pamqp.commands import Basic

from babelgate.brokers.binding import DeadRecord, Delivery, LastFailure, Outgoing
from babelgate.brokers.options import OptionMap, OptionReader
from babelgate.brokers.rabbitmq.delays import delayed_route
from babelgate.brokers.rabbitmq.ojs.message import (
    ATTEMPT,
    ENQUEUED_AT,
    ERROR_CODE,
    ERROR_MESSAGE,
    MAX_TEXT,
    QUEUE,
    SCHEDULED_AT,
    Carried,
    attempts_of,
    beside,
    copied,
    given_headers,
    properties_of,
    record_of,
)
from babelgate.brokers.rabbitmq.ojs.names import Names, names_of
from babelgate.brokers.rabbitmq.plain import foreign_properties
from babelgate.brokers.rabbitmq.profile import (
    EXPIRED_HEADER,
    UNLIMITED,
    AddressedMessage,
    BindingDeclaration,
    ExchangeDeclaration,
    NativeMessage,
    QueueDeclaration,
    Topology,
    confirmed,
    priority_of,
    read_priorities,
    read_quorum_limit,
)
from babelgate.clock import Clock, milliseconds, now_ms, timestamp
from babelgate.envelope.options import EXPIRES_AT_HEADER
from babelgate.jsontext import decode_object
from babelgate.ojs import MEDIA_TYPE, attributes_of, discarded, envelope_of, job_of, retried, revived, value
from babelgate.ojs.editing import FAILED

STEPS_MS = tuple(
    round(seconds * 1000)
    for seconds in (
        *(0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1200, 1800),
        *(3600, 7200, 14_400, 28_800, 57_600, 86_400),
    )
)
"""The delays of the retry exchange, with a queue for each. A delay is rounded up to the next one."""

_ANYTHING: OptionReader[Any] = OptionReader("anything", lambda value: value)
"""Reads ``naming``, which :func:`names_of` checks."""

_INT32_MAX = 2**31 - 1
_PLAIN = "application/json"


class OjsProfile:
    """Writes and reads the messages of one OJS queue; see :class:`babelgate.brokers.rabbitmq.profile.Profile`.

    The time of publishing is also in the body, as ``enqueued_at``.
    """

    assigned = frozenset({ENQUEUED_AT, SCHEDULED_AT})

    def __init__(self, name: str, names: Names, arguments: Mapping[str, Any], clock: Clock) -> None:
        """``name``: the OJS queue; ``arguments``: those of its job queue, except for the dead-letter exchange."""
        self.queue = names.job_queue
        self.dead_queue = names.dead_queue
        self.exchange, self.routing_key = names.job_exchange, names.job_key
        self._name = name
        self._names = names
        self._clock = clock
        self._steps: dict[int, Topology] = {}
        job, dead = (
            ExchangeDeclaration(names.job_exchange, "direct"),
            ExchangeDeclaration(names.dead_exchange, "direct"),
        )
        self.dead_topology = Topology(
            (dead,),
            (QueueDeclaration(names.dead_queue, UNLIMITED if "x-queue-type" in arguments else {}),),
            (BindingDeclaration(names.dead_exchange, names.dead_queue, names.dead_key),),
        )
        # The broker dead-letters jobs that expire or that another consumer rejects; the gateway publishes its own.
        net = {"x-dead-letter-exchange": names.dead_exchange, "x-dead-letter-routing-key": names.dead_key}
        self.topology = Topology(
            (job, *self.dead_topology.exchanges),
            (*self.dead_topology.queues, QueueDeclaration(names.job_queue, {**net, **arguments})),
            (*self.dead_topology.bindings, BindingDeclaration(names.job_exchange, names.job_queue, names.job_key)),
        )
        self.identity: Hashable = name, names, self.topology, self.dead_topology

    def message(self, outgoing: Outgoing) -> AddressedMessage:
        """A new job, or a copy of a delivery: a retry or a redriven dead letter."""
        now = self._clock()
        carried, failure = outgoing.carried, outgoing.failure
        if not outgoing.is_envelope:
            return AddressedMessage(
                self._names.job_exchange, self._names.job_key, foreign_properties(outgoing), outgoing.body
            )
        if isinstance(carried, Carried):
            properties = copied(carried.properties, outgoing.headers)
            job, body = carried.job, outgoing.body
        else:
            made = job_of(outgoing.body, self._name, now, outgoing.headers.get(EXPIRES_AT_HEADER))
            properties = properties_of(made, outgoing, self._name, now)
            job, body = made.attributes, made.body
            attempts = made.attempts
        if failure is not None:
            attempts = failure.attempts
            if job is not None:
                body = retried(job, failure.attempts, failure.error, failure.exception)
        elif isinstance(carried, Carried):
            attempts = 0
            if job is not None:
                body = revived(job)
        headers = self._mark(properties, attempts + 1, failure)
        if outgoing.delay_seconds:
            headers[SCHEDULED_AT] = timestamp(now + round(outgoing.delay_seconds * 1000))
        exchange, key, needs = self._route(outgoing.delay_seconds, failed=failure is not None)
        return AddressedMessage(exchange, key, properties, body, needs)

    def dead(self, record: Outgoing) -> AddressedMessage:
        """A discarded job, or the record itself where the message was no job."""
        # Only this parser reads everything that a body may contain: numbers beyond doubles, unpaired surrogates.
        block: dict[str, Any] = decode_object(record.body).by_name()["dead_letter"].value
        failure = LastFailure(block["attempts"], block["error"], block["exception"] or block["reason"])
        carried, body = record.carried, record.body
        if isinstance(carried, Carried):
            properties = copied(carried.properties)
            if carried.job is None:
                properties.content_type = _PLAIN
            else:
                body = discarded(carried.job, block)
        else:
            properties = Basic.Properties(content_type=_PLAIN, delivery_mode=2, headers=dict(record.headers))
        deliveries = 0 if record.failure is None else record.failure.deliveries
        self._mark(properties, max(failure.attempts, deliveries, 1), failure)
        return AddressedMessage(self._names.dead_exchange, self._names.dead_key, properties, body)

    def read(self, native: NativeMessage, handle: str = "") -> Delivery:
        """A delivery as an envelope; a body that is neither job nor envelope stays as it is."""
        job = attributes_of(native.body, declared=_declared(native))
        seen = given_headers(native.properties)
        around = beside(native, self._name, self.queue, seen)
        envelope = None if job is None else envelope_of(job, around)
        if job is not None and "expires_at" in job and EXPIRES_AT_HEADER not in seen:
            expires_at = milliseconds(value(job, "expires_at", str))
            if expires_at is not None:
                seen[EXPIRES_AT_HEADER] = str(max(expires_at, 0))
        carried = Carried(native.properties, None if envelope is None else job)
        expired_before = EXPIRED_HEADER in (native.properties.headers or {})
        body = native.body if envelope is None else envelope
        attempts = around.attempts
        return Delivery(body, handle, 0, seen, attempts, native.redelivered, carried, expired_before=expired_before)

    def read_dead(self, native: NativeMessage, key: object = None) -> DeadRecord:
        """A dead letter as a record, also where another program or the broker wrote it."""
        found = self.read(native)
        attempts = attempts_of(native.properties.headers or {}, self.queue)
        record = record_of(found.body, found.carried.job, native, self._name, attempts)
        return DeadRecord(key, record, found.headers, found.carried, priority_of(native))

    def _mark(self, properties: Basic.Properties, attempt: int, failure: LastFailure | None) -> dict[str, Any]:
        """Set attempt and last failure in the headers of ``properties``, without a schedule; these headers."""
        headers: dict[str, Any] = dict(properties.headers or {})
        headers[QUEUE] = self._name
        headers[ATTEMPT] = min(attempt, _INT32_MAX)
        if "x-attempts" in headers:
            headers["x-attempts"] = headers[ATTEMPT] - 1
        for name in (ERROR_MESSAGE, ERROR_CODE, SCHEDULED_AT):
            headers.pop(name, None)
        if failure is None:
            headers.pop(EXPIRED_HEADER, None)
        else:
            if failure.expired:
                headers[EXPIRED_HEADER] = "1"
            # The body has the full text.
            headers[ERROR_MESSAGE] = (failure.error or FAILED)[:MAX_TEXT]
            headers[ERROR_CODE] = (failure.exception or FAILED)[:MAX_TEXT]
        properties.headers = headers
        return headers

    def _route(self, delay_seconds: float, failed: bool) -> tuple[str, str, Topology | None]:
        """Exchange, routing key and needed topology: retries use the retry exchange, other delays the delay queues."""
        if delay_seconds <= 0:
            return self._names.job_exchange, self._names.job_key, None
        step = next((step for step in STEPS_MS if step >= round(delay_seconds * 1000, 3)), None)
        if not failed or step is None:
            return delayed_route(self.queue, delay_seconds)
        return self._names.retry_exchange, self._names.after(step)[1], self._step(step)

    def _step(self, delay_ms: int) -> Topology:
        found = self._steps.get(delay_ms)
        if found is None:
            names = self._names
            queue, key = names.after(delay_ms)
            # Never x-expires: it ignores publishing, so an idle queue would be deleted with its jobs.
            classic = {
                "x-dead-letter-exchange": names.job_exchange,
                "x-dead-letter-routing-key": names.job_key,
                "x-message-ttl": delay_ms,
            }
            found = self._steps[delay_ms] = Topology(
                (ExchangeDeclaration(names.retry_exchange, "direct"),),
                (QueueDeclaration(queue, confirmed(classic), or_else=(classic,)),),
                (BindingDeclaration(names.retry_exchange, queue, key),),
            )
        return found


def profile_of(name: str, options: OptionMap, clock: Clock = now_ms) -> OjsProfile:
    """The profile of the OJS queue ``name``. Reads its options.

    ``naming``: ``site`` (the default), ``spec``, or templates; ``max_priority``: 1 to 255, the priority levels of the
    job queue (default: none), which a quorum queue does not have; ``queue_type``: ``classic`` (the default) or
    ``quorum``; ``delivery_limit`` of a quorum queue (default 20; null: none). Raises ConfigError, ``key`` the option's
    name, or ``native_name``.
    """
    names = names_of(options.read("naming", _ANYTHING, "site"), name)
    limit = read_quorum_limit(options)
    ranked = read_priorities(options, limit)
    options.finish(" in the profile ojs")
    arguments = ranked if limit is None else confirmed({"x-delivery-limit": limit})
    return OjsProfile(name, names, arguments, clock)


def _declared(native: NativeMessage) -> bool:
    return (native.properties.content_type or "").partition(";")[0].strip().lower() == MEDIA_TYPE
