"""Converts request bodies that are OJS jobs to entries, so that queues of any broker accept them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.errors import EnvelopeError, Problem
from babelgate.http.body import media_type
from babelgate.http.exchange import Exchange
from babelgate.http.upload import Line
from babelgate.observe.tracing.trace import Trace
from babelgate.ojs import MEDIA_TYPE, as_entry
from babelgate.runtime import turns

JOB = MEDIA_TYPE.encode()
"""The media type of a job in a request."""


class _Delayed(Struct):
    delay_seconds: float | None = None


async def entry(
    queue: str, body: bytes, clock: Clock, trace: Trace | None, delay_seconds: float | None = None
) -> bytes:
    """Convert a job to an entry for ``queue``. ``trace``: of the request, for a job without a trace id.

    Raises EnvelopeError, also for a job with a schedule if the request has a ``delay_seconds``.
    """
    made = await turns.run(as_entry, body, queue, clock, _trace_id(trace), size=len(body))
    if delay_seconds is not None and msgspec.json.decode(made, type=_Delayed).delay_seconds is not None:
        detail = "scheduled_at of the job and the query parameter delay_seconds both delay it: send one of them."
        raise EnvelopeError([Problem("/scheduled_at", "delay_seconds_mismatch", detail)])
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


def _trace_id(trace: Trace | None) -> str | None:
    return None if trace is None else trace.trace_id
