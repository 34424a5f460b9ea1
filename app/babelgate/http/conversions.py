"""Converts request bodies that are jobs or events to entries, so that queues of any broker accept them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from babelgate import ojs
from babelgate.clock import Clock
from babelgate.cloudevents import (
    BATCHED,
    PREFIX,
    STRUCTURED,
    HeaderProblem,
    Place,
    binary_entry,
    binary_places,
    fingerprint_of,
    is_binary,
    structured_entry,
    structured_places,
)
from babelgate.errors import BabelgateError, EnvelopeError, Problem, UnsupportedByBroker
from babelgate.gateway.model import Receipt
from babelgate.http.body import media_type, require_json
from babelgate.http.exchange import Exchange
from babelgate.http.problems import UnsupportedMediaType
from babelgate.http.upload import Line
from babelgate.observe.tracing.trace import Trace
from babelgate.runtime import turns

JOB = ojs.MEDIA_TYPE.encode()
EVENT = STRUCTURED.encode()
EVENTS = BATCHED.encode()
"""Media types of a job, of an event, and of an array of events."""
_EVENT_TYPES = PREFIX.encode()

Answer = TypeVar("Answer")
Outcome = Receipt | BabelgateError


class Conversion(Protocol):
    """Another form of a message than an entry. Its methods need no event loop."""

    def entry(self, body: bytes, queue: str, clock: Clock, trace_id: str | None) -> bytes:
        """The entry of ``body``. Raises EnvelopeError with places in ``body``, or in the headers."""

    def places(self, body: bytes, places: Iterable[str]) -> list[Place]:
        """Where ``body``, or a header, has what stands at ``places`` in its entry."""

    def sent(self, body: bytes) -> bytes:
        """The bytes that identify the request of an idempotency key."""


class _Jobs:
    def entry(self, body: bytes, queue: str, clock: Clock, trace_id: str | None) -> bytes:
        return ojs.as_entry(body, queue, clock, trace_id)

    def places(self, body: bytes, places: Iterable[str]) -> list[Place]:
        return [Place(each) for each in ojs.places_in_job(body, places)]

    def sent(self, body: bytes) -> bytes:
        return body


class _Events:
    def entry(self, body: bytes, queue: str, clock: Clock, trace_id: str | None) -> bytes:
        return structured_entry(body, queue, clock, trace_id)

    def places(self, body: bytes, places: Iterable[str]) -> list[Place]:
        return structured_places(body, places)

    def sent(self, body: bytes) -> bytes:
        return body


class _BinaryEvent(Struct, frozen=True):
    """An event whose attributes are the headers ``fields``."""

    fields: dict[bytes, bytes]

    def entry(self, body: bytes, queue: str, clock: Clock, trace_id: str | None) -> bytes:
        return binary_entry(self.fields, body, queue, clock, trace_id)

    def places(self, body: bytes, places: Iterable[str]) -> list[Place]:
        return binary_places(self.fields, places)

    def sent(self, body: bytes) -> bytes:
        return fingerprint_of(self.fields, body)


JOBS, STRUCTURED_EVENTS = _Jobs(), _Events()


class _Delayed(Struct):
    deliver_at: int | None = None


def conversion_of(exchange: Exchange, *others: str) -> Conversion | None:
    """The conversion of the body of ``exchange``, one message; None for one that is an entry already.

    ``others``: the further types of the endpoint, for the error. Raises UnsupportedMediaType, MalformedHttp.
    """
    kind = media_type(exchange)
    if kind == JOB:
        return JOBS
    if kind == EVENT:
        return STRUCTURED_EVENTS
    if kind.startswith(_EVENT_TYPES):
        reason = f"Events must be {', '.join((STRUCTURED, *others))}, not {kind.decode('latin-1')}."
        raise UnsupportedMediaType(reason=reason)
    if is_binary(exchange.headers):
        check_events_headers(exchange)
        return _BinaryEvent(exchange.headers)
    require_json(exchange, ojs.MEDIA_TYPE, STRUCTURED, *others)
    return None


def check_events_headers(exchange: Exchange) -> None:
    """Raise EnvelopeError for a repeated header of an attribute, because another program may read another value."""
    names = [name for name, _ in exchange.scope["headers"] if name.startswith(b"ce-")]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        header = repeated[0].decode("latin-1")
        detail = f"The header {header} occurs more than once."
        raise EnvelopeError([HeaderProblem("", "invalid_attribute", detail, header)])


async def entry(
    conversion: Conversion,
    queue: str,
    body: bytes,
    clock: Clock,
    trace: Trace | None,
    delay_seconds: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    """Convert ``body`` to an entry for ``queue``. ``trace``: of the request, for a message without a trace id.

    Raises EnvelopeError, also for a job with a schedule if the request has ``delay_seconds``, or ``deliver_at`` among
    its ``options``.
    """
    made = await turns.run(conversion.entry, body, queue, clock, _trace_id(trace), size=len(body))
    name = "delay_seconds" if delay_seconds is not None else "deliver_at" if "deliver_at" in (options or {}) else None
    if name is not None and msgspec.json.decode(made, type=_Delayed).deliver_at is not None:
        detail = f"scheduled_at of the job and the query parameter {name} both delay it: send one of them."
        raise EnvelopeError([Problem("/scheduled_at", f"{name}_mismatch", detail)])
    return made


async def entries(conversion: Conversion, exchange: Exchange, bodies: Sequence[Line], clock: Clock) -> Sequence[Line]:
    """Convert each of ``bodies`` like :func:`entry`; an invalid one is replaced by its error, an error stays."""
    trace_id = _trace_id(exchange.trace)

    def entry_or_error(body: Line) -> Line:
        if not isinstance(body, bytes):
            return body
        try:
            return conversion.entry(body, exchange.queue, clock, trace_id)
        except EnvelopeError as error:
            return error.without_frames()

    def size(body: Line) -> int:
        return len(body) if isinstance(body, bytes) else 0

    return await turns.mapped(entry_or_error, bodies, size=size, background=True)


async def located(conversion: Conversion, operation: Awaitable[Answer], body: bytes) -> Answer:
    """The result of ``operation`` on the entry that :func:`entry` has made of ``body``. Its errors point at places in
    ``body``, or at headers."""
    try:
        return await operation
    except (EnvelopeError, UnsupportedByBroker) as error:
        raise await turns.run(_located, conversion, error, body, size=len(body)) from None


async def all_located(
    conversion: Conversion, outcomes: Sequence[Outcome], made: Sequence[Line], bodies: Sequence[bytes]
) -> Sequence[Outcome]:
    """``outcomes`` of what :func:`entries` has ``made`` of ``bodies``; errors of entries point at places in the bodies,
    like those of the conversion."""

    def in_body(position: int) -> Outcome:
        outcome = outcomes[position]
        if isinstance(outcome, BabelgateError) and isinstance(made[position], bytes):
            return _located(conversion, outcome, bodies[position])
        return outcome

    return await turns.mapped(
        in_body, range(len(outcomes)), size=lambda position: len(bodies[position]), background=True
    )


def _located(conversion: Conversion, error: BabelgateError, body: bytes) -> BabelgateError:
    if isinstance(error, UnsupportedByBroker):
        (place,) = conversion.places(body, [error.facts["pointer"]])
        moved = error.moved(place.pointer)
        if place.header:
            moved.facts["header"] = place.header
        return moved
    if isinstance(error, EnvelopeError):
        places = conversion.places(body, [each.pointer for each in error.problems])
        problems = [place.problem(each.code, each.detail) for place, each in zip(places, error.problems, strict=True)]
        return type(error)(problems, **{name: each for name, each in error.facts.items() if name != "problems"})
    return error


def _trace_id(trace: Trace | None) -> str | None:
    return None if trace is None else trace.trace_id
