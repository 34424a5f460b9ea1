"""Converts request bodies that are OJS jobs to entries, so that queues of any broker accept them."""

from __future__ import annotations

from collections.abc import Sequence

from app.clock import Clock
from app.errors import EnvelopeError
from app.http.body import media_type
from app.http.exchange import Exchange
from app.http.upload import Line
from app.ojs import MEDIA_TYPE, as_entry
from app.runtime import turns

_JOB = MEDIA_TYPE.encode()


def is_job(exchange: Exchange) -> bool:
    """Whether the media type of the body is that of a job."""
    return media_type(exchange) == _JOB


async def entry(exchange: Exchange, queue: str, body: bytes, clock: Clock) -> bytes:
    """Convert a job to an entry for ``queue``; return any other body unchanged. Raises EnvelopeError."""
    if not is_job(exchange):
        return body
    return await turns.run(as_entry, body, queue, clock, size=len(body))


async def entries(exchange: Exchange, bodies: Sequence[bytes], clock: Clock) -> Sequence[Line]:
    """Convert each of ``bodies`` like :func:`entry`; an invalid job is replaced by its error."""
    if not is_job(exchange):
        return bodies

    def entry_or_error(body: bytes) -> Line:
        try:
            return as_entry(body, exchange.queue, clock)
        except EnvelopeError as error:
            return error.without_frames()

    return await turns.mapped(entry_or_error, bodies, size=len)
