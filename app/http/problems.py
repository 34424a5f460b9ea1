"""Errors as RFC 9457 problems: the only module that maps errors to HTTP statuses and headers."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from app import errors
from app.errors import BabelgateError, Problem, shortened
from app.jsontext import MAX_POINTER

CONTENT_TYPE = b"application/problem+json"

RawHeaders = list[tuple[bytes, bytes]]


class HttpError(BabelgateError):
    """The request cannot be served."""

    code = "invalid_request"


class NotFound(HttpError):
    """The path {path} does not exist."""

    code = "not_found"


class MethodNotAllowed(HttpError):
    """This path supports only {allow}."""

    code = "method_not_allowed"


class UnsupportedMediaType(HttpError):
    """{reason}"""

    code = "unsupported_media_type"


class InvalidEncoding(HttpError):
    """The body does not match its Content-Encoding: {reason}."""

    code = "invalid_encoding"


class CompressionRatioTooHigh(HttpError):
    """The body decompresses to more than {limit} times its size. Send it without compression."""

    code = "compression_ratio_too_high"


class ResultsIncomplete(HttpError):
    """All entries were processed, but the results of {omitted} are missing: {reason}. Send no accepted entry again."""

    code = "results_incomplete"


class NotReady(HttpError):
    """{reason}"""

    code = "not_ready"
    retryable = True


class MalformedHttp(HttpError):
    """{reason}"""

    code = "malformed_http"

    def __init__(self, *, kind: str, **facts: Any) -> None:
        """``kind``: one of :data:`app.observe.metrics.catalogue.MALFORMED_KINDS`."""
        super().__init__(kind=kind, **facts)


class RequestTimeout(HttpError):
    """The rest of the request did not arrive in time: {reason}."""

    code = "request_timeout"
    retryable = True


class HeadTooLarge(HttpError):
    """The request head or its trailers exceed {limit} bytes."""

    code = "head_too_large"


class Meaning(NamedTuple):
    """The HTTP status and title of an error. ``retry_after``: seconds; None: the answer has no Retry-After."""

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
    errors.TooManyFailures: Meaning(422, "Too many failed entries"),
    errors.InvalidParameter: Meaning(400, "Invalid parameter"),
    errors.InvalidFilter: Meaning(422, "Invalid filter"),
    errors.InvalidIdempotencyKey: Meaning(400, "Invalid idempotency key"),
    errors.IdempotencyUnsupported: Meaning(422, "Idempotency keys not supported"),
    errors.IdempotencyKeyReused: Meaning(422, "Idempotency key reused"),
    errors.IdempotencyInProgress: Meaning(409, "In progress", 1),
    errors.IdempotencyUnresolved: Meaning(504, "Outcome unknown"),
    errors.KeysFull: Meaning(503, "Idempotency key store full", 10),
    errors.KeyShareFull: Meaning(429, "Idempotency key share full", 10),
    errors.UnsupportedByBroker: Meaning(422, "Not supported by the broker"),
    errors.QueueNotFound: Meaning(404, "Queue not found"),
    errors.UnknownDeadLetter: Meaning(404, "Dead letter not found"),
    errors.DeadLetterNotReached: Meaning(422, "Search not complete"),
    errors.NotRedrivable: Meaning(422, "Not redrivable"),
    errors.ForceNeedsOtherQueue: Meaning(422, "Another queue is required"),
    errors.UnknownRedrive: Meaning(404, "Redrive not found"),
    errors.RedriveRunning: Meaning(409, "Redrive running", 10),
    errors.TooManyRedrives: Meaning(429, "Too many redrives", 10),
    errors.StateUnavailable: Meaning(503, "State unavailable", 10),
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
    errors.PurgeInProgress: Meaning(409, "Purged a moment ago", 60),
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
    ResultsIncomplete: Meaning(507, "Results incomplete"),
    NotReady: Meaning(503, "Not ready", 1),
    errors.InternalError: Meaning(500, "Internal error"),
}

_FACTS = ("actual", "limit", "maximum", "scanned", "next_cursor")


def meaning(error: BabelgateError) -> Meaning:
    """The meaning of an error's class, or of its nearest base class."""
    return next(MEANINGS[cls] for cls in type(error).__mro__ if cls in MEANINGS)


def status_of(error: BabelgateError) -> int:
    """The HTTP status of an error."""
    return meaning(error).status


def detail_of(error: BabelgateError) -> str:
    """The sentence for the client, shortened."""
    return shortened(error.detail)


def defects(error: BabelgateError) -> Sequence[Problem]:
    """The defects of the body, each with its JSON pointer; empty when the error has no place in the body."""
    if isinstance(error, errors.EnvelopeError):
        return error.problems
    pointer = error.facts.get("pointer")
    return () if pointer is None else (Problem(pointer[:MAX_POINTER], error.problem_code, detail_of(error)),)


def problem(error: BabelgateError, instance: str, more: dict[str, Any] | None = None) -> tuple[int, RawHeaders, bytes]:
    """Status, headers and body of the answer for ``error``, with the members ``more``.

    ``instance``: the path of the request; empty when it could not be read.
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
    body.update((name, error.facts[name]) for name in _FACTS if name in error.facts)
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
    """The HTTP/1.1 answer to a request that did not reach the application: head without the empty line, and body."""
    status, headers, body = problem(error, instance="")
    named = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body)), *headers]
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in named]
    return b"\r\n".join(lines) + b"\r\n", body
