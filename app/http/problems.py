"""Errors as RFC 9457 problems. The only place that knows an HTTP status of an error."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from app import errors
from app.errors import BabelgateError, Problem
from app.jsontext import MAX_POINTER

CONTENT_TYPE = b"application/problem+json"

RawHeaders = list[tuple[bytes, bytes]]


class HttpError(BabelgateError):
    """The request cannot be served."""

    code = "invalid_request"


class NotFound(HttpError):
    """There is nothing at {path}."""

    code = "not_found"


class MethodNotAllowed(HttpError):
    """This path answers to {allow} only."""

    code = "method_not_allowed"


class UnsupportedMediaType(HttpError):
    """{reason}"""

    code = "unsupported_media_type"


class InvalidEncoding(HttpError):
    """The body is not what its Content-Encoding says: {reason}."""

    code = "invalid_encoding"


class CompressionRatioTooHigh(HttpError):
    """The body unpacks to more than {limit} times its size. Send it without compression."""

    code = "compression_ratio_too_high"


class NotReady(HttpError):
    """{reason}"""

    code = "not_ready"
    retryable = True


class MalformedHttp(HttpError):
    """{reason}"""

    code = "malformed_http"


class RequestTimeout(HttpError):
    """The rest of the request did not arrive in time: {reason}."""

    code = "request_timeout"
    retryable = True


class HeadTooLarge(HttpError):
    """The request head, or its trailers, have more than {limit} bytes."""

    code = "head_too_large"


class InternalError(HttpError):
    """Something unexpected went wrong; the log tells more under this request's id."""

    code = "internal_error"


class Meaning(NamedTuple):
    """What an error is in HTTP. ``retry_after`` in seconds, None where a retry is no question of time."""

    status: int
    title: str
    retry_after: int | None = None


MEANINGS: dict[type[BabelgateError], Meaning] = {
    BabelgateError: Meaning(500, "Internal error"),
    errors.ConfigError: Meaning(500, "Invalid configuration"),
    errors.EnvelopeError: Meaning(422, "Invalid envelope"),
    errors.EnvelopeSyntaxError: Meaning(400, "Invalid JSON"),
    errors.BodyTooLarge: Meaning(413, "Body too large"),
    errors.TooManyLines: Meaning(413, "Too many lines"),
    errors.InvalidParameter: Meaning(400, "Invalid parameter"),
    errors.InvalidIdempotencyKey: Meaning(400, "Invalid idempotency key"),
    errors.IdempotencyUnsupported: Meaning(422, "No idempotency keys here"),
    errors.IdempotencyKeyReused: Meaning(422, "Idempotency key reused"),
    errors.IdempotencyInProgress: Meaning(409, "In progress", 1),
    errors.IdempotencyUnresolved: Meaning(504, "Outcome unknown"),
    errors.KeysFull: Meaning(503, "No room for idempotency keys", 10),
    errors.UnsupportedByBroker: Meaning(422, "Not supported by the broker"),
    errors.QueueNotFound: Meaning(404, "Queue not found"),
    errors.Unauthenticated: Meaning(401, "Unauthenticated"),
    errors.Forbidden: Meaning(403, "Forbidden"),
    errors.InvalidAckToken: Meaning(400, "Invalid ack token"),
    errors.LeaseLost: Meaning(409, "Lease lost"),
    errors.OwnerUnreachable: Meaning(503, "Owner unreachable", 1),
    errors.Draining: Meaning(503, "Stopping", 1),
    errors.Overloaded: Meaning(429, "Overloaded", 1),
    errors.BrokerError: Meaning(502, "Broker error"),
    errors.BrokerUnavailable: Meaning(503, "Broker unavailable", 2),
    errors.OutcomeUnknown: Meaning(504, "Outcome unknown"),
    errors.BrokerRejected: Meaning(502, "Refused by the broker"),
    errors.StorageFull: Meaning(503, "Storage full", 10),
    errors.StorageReadOnly: Meaning(503, "Storage read-only"),
    HttpError: Meaning(400, "Invalid request"),
    NotFound: Meaning(404, "Not found"),
    MethodNotAllowed: Meaning(405, "Method not allowed"),
    UnsupportedMediaType: Meaning(415, "Unsupported media type"),
    InvalidEncoding: Meaning(400, "Invalid encoding"),
    CompressionRatioTooHigh: Meaning(413, "Compression ratio too high"),
    MalformedHttp: Meaning(400, "Malformed HTTP"),
    RequestTimeout: Meaning(408, "Request timed out"),
    HeadTooLarge: Meaning(431, "Request head too large"),
    NotReady: Meaning(503, "Not ready", 1),
    InternalError: Meaning(500, "Internal error"),
}

MAX_DETAIL = 1_000
"""Characters of a sentence that a client sees: it may quote what the client sent."""
_NUMBERS = ("actual", "limit", "maximum")


def meaning(error: BabelgateError) -> Meaning:
    """The meaning of an error's class, or of the nearest class above it."""
    return next(MEANINGS[cls] for cls in type(error).__mro__ if cls in MEANINGS)


def status_of(error: BabelgateError) -> int:
    """The HTTP status of an error."""
    return meaning(error).status


def detail_of(error: BabelgateError) -> str:
    """The sentence that a client sees."""
    detail = error.detail
    return detail if len(detail) <= MAX_DETAIL else detail[:MAX_DETAIL] + "…"


def defects(error: BabelgateError) -> Sequence[Problem]:
    """Where in the body the error is, as far as it can be told."""
    if isinstance(error, errors.EnvelopeError):
        return error.problems
    pointer = error.facts.get("pointer")
    return () if pointer is None else (Problem(pointer[:MAX_POINTER], error.problem_code, detail_of(error)),)


def problem(error: BabelgateError, instance: str, more: dict[str, Any] | None = None) -> tuple[int, RawHeaders, bytes]:
    """Status, headers and body of the answer that tells of ``error``.

    ``instance``: the request's path, empty where none was read.
    """
    status, title, retry_after = meaning(error)
    code = error.problem_code
    body: dict[str, Any] = {
        "type": f"urn:babelgate:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail_of(error),
        "instance": instance,
        "code": code,
        "retryable": error.retryable,
        "trace_id": error.facts.get("trace_id"),
        "errors": defects(error),
    }
    body.update((name, error.facts[name]) for name in _NUMBERS if name in error.facts)
    headers: RawHeaders = []
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.facts.get("retry_after", retry_after)))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="babelgate"'))
    elif status == 405:
        headers.append((b"allow", error.facts["allow"].encode("ascii")))
    elif status == 415:
        headers.append((b"accept-encoding", b"gzip"))
    return status, headers, msgspec.json.encode(body | (more or {}))


def raw_problem(error: BabelgateError) -> tuple[bytes, bytes]:
    """The answer to a request that never reached the application: its head, without the final empty line, and body."""
    status, headers, body = problem(error, instance="")
    named = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body)), *headers]
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in named]
    return b"\r\n".join(lines) + b"\r\n", body
