"""Converts request bodies that are OJS jobs to entries, so that queues of any broker accept them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.errors import BabelgateError, EnvelopeError, Problem, UnsupportedByBroker
from babelgate.gateway.model import Receipt
from babelgate.http.body import media_type
from babelgate.http.exchange import Exchange
from babelgate.http.upload import Line
from babelgate.observe.tracing.trace import Trace
from babelgate.ojs import MEDIA_TYPE, as_entry, places_in_job
from babelgate.runtime import turns

JOB = MEDIA_TYPE.encode()
"""The media type of a job in a request."""

Answer = TypeVar("Answer")
Outcome = Receipt | BabelgateError


class _Delayed(Struct):
    deliver_at: int | None = None


async def entry(
    queue: str,
    body: bytes,
    clock: Clock,
    trace: Trace | None,
    delay_seconds: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    """Convert a job to an entry for ``queue``. ``trace``: of the request, for a job without a trace id.

    Raises EnvelopeError, also for a job with a schedule if the request has ``delay_seconds``, or ``deliver_at`` among
    its ``options``.
    """
    made = await turns.run(as_entry, body, queue, clock, _trace_id(trace), size=len(body))
    name = "delay_seconds" if delay_seconds is not None else "deliver_at" if "deliver_at" in (options or {}) else None
    if name is not None and msgspec.json.decode(made, type=_Delayed).deliver_at is not None:
        detail = f"scheduled_at of the job and the query parameter {name} both delay it: send one of them."
        raise EnvelopeError([Problem("/scheduled_at", f"{name}_mismatch", detail)])
    return made


async def entries(exchange: Exchange, bodies: Sequence[bytes], clock: Clock) -> Sequence[Line]:
    """Convert each of ``bodies`` like :func:`entry`, if they are jobs; an invalid one is replaced by its error."""
    if media_type(exchange) != JOB:
        return bodies
    trace_id = _trace_id(exchange.trace)

    def entry_or_error(body: bytes) -> Line:
        try:
            return as_entry(body, exchange.queue, clock, trace_id)
        except EnvelopeError as error:
            return error.without_frames()

    return await turns.mapped(entry_or_error, bodies, size=len, background=True)


async def located(operation: Awaitable[Answer], body: bytes) -> Answer:
    """The result of ``operation`` on the entry that :func:`entry` has made of the job ``body``. Its errors point at
    places in the job."""
    try:
        return await operation
    except (EnvelopeError, UnsupportedByBroker) as error:
        raise await turns.run(_located, error, body, size=len(body)) from None


async def all_located(outcomes: Sequence[Outcome], made: Sequence[Line], bodies: Sequence[bytes]) -> Sequence[Outcome]:
    """``outcomes`` of what :func:`entries` has ``made`` of ``bodies``; errors of entries point at places in the
    jobs, like those of the conversion."""
    if made is bodies:
        return outcomes

    def in_job(position: int) -> Outcome:
        outcome = outcomes[position]
        if isinstance(outcome, BabelgateError) and isinstance(made[position], bytes):
            return _located(outcome, bodies[position])
        return outcome

    return await turns.mapped(
        in_job, range(len(outcomes)), size=lambda position: len(bodies[position]), background=True
    )


def _located(error: BabelgateError, body: bytes) -> BabelgateError:
    if isinstance(error, UnsupportedByBroker):
        (pointer,) = places_in_job(body, [error.facts["pointer"]])
        return error.moved(pointer)
    if isinstance(error, EnvelopeError):
        places = places_in_job(body, [each.pointer for each in error.problems])
        moved = [Problem(place, each.code, each.detail) for place, each in zip(places, error.problems, strict=True)]
        return type(error)(moved, error.facts.get("trace_id"))
    return error


def _trace_id(trace: Trace | None) -> str | None:
    return None if trace is None else trace.trace_id
