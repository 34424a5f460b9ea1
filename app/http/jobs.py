"""Bodies that are OJS jobs become envelopes here, so that they can go to a queue on any broker."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import EnvelopeError
from app.gateway import Gateway
from app.http.body import media_type
from app.http.exchange import Exchange
from app.http.upload import Line
from app.ojs import MEDIA_TYPE, as_entry
from app.rights import Right

_JOB = MEDIA_TYPE.encode()


def is_job(exchange: Exchange) -> bool:
    """Whether the body says that it is a job."""
    return media_type(exchange) == _JOB


def entry(exchange: Exchange, gateway: Gateway, queue: str, body: bytes) -> bytes:
    """``body``, or the entry for ``queue`` that a job is. Raises Forbidden and QueueNotFound before EnvelopeError."""
    if not is_job(exchange):
        return body
    gateway.broker(exchange.caller, Right.SEND, queue)
    return as_entry(body, queue, gateway.clock)


def entries(exchange: Exchange, gateway: Gateway, bodies: Sequence[bytes]) -> Sequence[Line]:
    """The same of each; the error of a job that is refused stands in its place."""
    if not is_job(exchange):
        return bodies
    return [_or_error(exchange, gateway, body) for body in bodies]


def _or_error(exchange: Exchange, gateway: Gateway, body: bytes) -> Line:
    try:
        return entry(exchange, gateway, exchange.queue, body)
    except EnvelopeError as error:
        return error
