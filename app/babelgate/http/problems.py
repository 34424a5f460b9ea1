"""Errors as RFC 9457 problems: the only module that maps errors to HTTP statuses and headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from babelgate import errors
from babelgate.cloudevents import HeaderProblem
from babelgate.errors import BabelgateError, shortened
from babelgate.gateway import buckets, counted_leases, depths, history, loaded, pauses, rate_limits
from babelgate.identities.errors import InvalidToken, IssuerUnavailable
from babelgate.jsontext import MAX_POINTER
from babelgate.observe.audit.trail import AuditUnavailable
from babelgate.privacy.ciphers import BodyUnreadable
from babelgate.push import errors as push_errors
from babelgate.schemas.errors import SchemaNotFound
from babelgate.tokens import errors as token_errors

CONTENT_TYPE = b"application/problem+json"

RawHeaders = list[tuple[bytes, bytes]]


class HttpError(BabelgateError):
    """The request cannot be served: the base of the errors below."""


class NotFound(HttpError):
    """The path {path} does not exist. {hint}"""

    code = "not_found"

    def __init__(self, path: str, hint: str = "All paths are described at /docs.", **facts: Any) -> None:
        super().__init__(path=path, hint=hint, **facts)


class MethodNotAllowed(HttpError):
    """This path supports only {allow}."""

    code = "method_not_allowed"


class UnsupportedMediaType(HttpError):
    """{reason}"""

    code = "unsupported_media_type"


class InvalidSignature(HttpError):
    """{reason} Nothing was published."""

    code = "invalid_signature"


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


class ResumeUnsupported(HttpError):
    """A stream cannot be resumed: what the earlier one did not settle is on the queue again. Leave this header out."""

    code = "resume_unsupported"


class MalformedHttp(HttpError):
    """{reason}"""

    code = "malformed_http"

    def __init__(self, *, kind: str, **facts: Any) -> None:
        """``kind``: one of :data:`babelgate.observe.metrics.catalogue.MALFORMED_KINDS`."""
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
    errors.ConfigError: Meaning(422, "Invalid configuration"),
    loaded.RestartNeeded: Meaning(409, "Restart needed"),
    loaded.ReloadUnavailable: Meaning(409, "Reload unavailable"),
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
    history.JournalDisabled: Meaning(404, "No journal"),
    history.MessageNotFound: Meaning(404, "Message not found"),
    history.TraceNotFound: Meaning(404, "Trace not found"),
    pauses.QueuePaused: Meaning(409, "Queue paused", 10),
    pauses.TooManyPaused: Meaning(409, "Too many paused queues"),
    errors.RedriveRunning: Meaning(409, "Redrive running", 10),
    errors.TooManyRedrives: Meaning(429, "Too many redrives", 10),
    push_errors.PushNotFound: Meaning(404, "Push not found"),
    push_errors.PushConfigured: Meaning(409, "Push in the configuration"),
    push_errors.TooManyPushes: Meaning(409, "Too many pushes"),
    token_errors.TokensDisabled: Meaning(404, "No tokens"),
    token_errors.UnknownToken: Meaning(404, "Token not found"),
    token_errors.TokenNameTaken: Meaning(409, "Name taken"),
    token_errors.TooManyTokens: Meaning(409, "Too many tokens"),
    SchemaNotFound: Meaning(404, "Schema not found"),
    AuditUnavailable: Meaning(503, "Audit unavailable", 10),
    errors.StateUnavailable: Meaning(503, "State unavailable", 10),
    errors.Unauthenticated: Meaning(401, "Unauthenticated"),
    InvalidToken: Meaning(401, "Invalid token"),
    IssuerUnavailable: Meaning(503, "Issuer unavailable", 5),
    errors.Forbidden: Meaning(403, "Forbidden"),
    errors.InvalidAckToken: Meaning(400, "Invalid ack token"),
    errors.LeaseLost: Meaning(409, "Lease lost"),
    errors.OwnerUnreachable: Meaning(503, "Owner unreachable", 1),
    errors.Draining: Meaning(503, "Stopping", 1),
    errors.Overloaded: Meaning(429, "Overloaded", 1),
    buckets.RateExceeded: Meaning(429, "Rate exceeded", 1),
    depths.QueueFull: Meaning(429, "Queue full", 1),
    rate_limits.ConcurrencyExceeded: Meaning(429, "Too many at a time", 1),
    counted_leases.LeasesExceeded: Meaning(429, "Too many leases", 1),
    errors.BrokerError: Meaning(502, "Broker error"),
    errors.BrokerUnavailable: Meaning(503, "Broker unavailable", 2),
    errors.OutcomeUnknown: Meaning(504, "Outcome unknown"),
    errors.BrokerRejected: Meaning(502, "Refused by the broker"),
    errors.PurgeInProgress: Meaning(409, "Purged a moment ago", 60),
    errors.StorageFull: Meaning(503, "Storage full", 10),
    errors.StorageReadOnly: Meaning(503, "Storage read-only"),
    BodyUnreadable: Meaning(503, "Body unreadable", 60),
    HttpError: Meaning(400, "Invalid request"),
    NotFound: Meaning(404, "Not found"),
    MethodNotAllowed: Meaning(405, "Method not allowed"),
    UnsupportedMediaType: Meaning(415, "Unsupported media type"),
    InvalidSignature: Meaning(401, "Invalid signature"),
    InvalidEncoding: Meaning(400, "Invalid encoding"),
    CompressionRatioTooHigh: Meaning(413, "Compression ratio too high"),
    MalformedHttp: Meaning(400, "Malformed HTTP"),
    RequestTimeout: Meaning(408, "Request timed out"),
    HeadTooLarge: Meaning(431, "Request head too large"),
    ResultsIncomplete: Meaning(507, "Results incomplete"),
    ResumeUnsupported: Meaning(422, "Streams cannot be resumed"),
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


class Defect(Struct, frozen=True, omit_defaults=True):
    """One defect of a request, in its body, or in a ``parameter`` or a ``header``."""

    pointer: Annotated[
        str,
        Meta(
            description="RFC 6901 pointer to the member of the body, or to the one that the parameter or the header "
            "stands for. Empty for the whole body, and for what no member stands for."
        ),
    ]
    code: Annotated[str, Meta(description="Stable code, for programs.")]
    detail: Annotated[str, Meta(description="A sentence for people.")]
    parameter: Annotated[
        str | UnsetType, Meta(description="The parameter of the path or the query. Empty for the whole query.")
    ] = UNSET
    header: Annotated[str | UnsetType, Meta(description="The header.")] = UNSET


class Given(NamedTuple):
    """Where a request gives what an error is about: its query, its fields, and the pointer of its only ack token."""

    query: bytes = b""
    fields: Mapping[bytes, bytes] = {}
    token: str | None = None


_NOTHING_GIVEN = Given()
_OPTION_HEADERS = {"idempotency_key": "Idempotency-Key", "broker_properties": "BrokerProperties"}
"""The headers that stand for an option of a message, by the option's member."""


def defects(error: BabelgateError, given: Given = _NOTHING_GIVEN) -> list[Defect]:
    """The defects of the request, each with its place; empty when the error has none, such as an unknown queue."""
    if isinstance(error, errors.EnvelopeError):
        header = error.facts.get("header", UNSET)
        return [
            Defect(
                each.pointer,
                each.code,
                each.detail,
                header=each.header if isinstance(each, HeaderProblem) else header,
            )
            for each in error.problems
        ]
    if isinstance(error, loaded.REFUSALS):
        # What is wrong is not in the request.
        found = error.facts.get("problems") or [(error.facts["key"], error.facts["reason"])]
        return [Defect("", error.code, shortened(f"{key}: {reason}")) for key, reason in found]
    place = _place(error, given)
    return [] if place is None else [Defect(place[0][:MAX_POINTER], error.problem_code, detail_of(error), *place[1:])]


def _place(error: BabelgateError, given: Given) -> tuple[str, str | UnsetType, str | UnsetType] | None:
    """The pointer, the parameter and the header of what ``error`` is about; None if it is about the whole request."""
    facts = error.facts
    pointer = facts.get("pointer")
    if "header" in facts or "parameter" in facts:
        return "", facts.get("parameter", UNSET), facts.get("header", UNSET)
    if pointer is None and isinstance(error, errors.InvalidParameter | errors.InvalidFilter):
        return "", facts["name"][:MAX_POINTER], UNSET
    if pointer is None:
        is_of_token = isinstance(error, errors.InvalidAckToken | errors.LeaseLost)
        return (given.token, UNSET, UNSET) if is_of_token and given.token is not None else None
    # An option of a message may have been given in the query or in a header, and not in the body.
    member = pointer[1:].partition("/")[0]
    header = _OPTION_HEADERS.get(member)
    if header is not None and header.lower().encode() in given.fields:
        return pointer, UNSET, header
    is_in_query = re.search(rb"(^|&)%b=" % re.escape(member.encode()), given.query) is not None
    return pointer, member if member and is_in_query else UNSET, UNSET


def problem(
    error: BabelgateError, instance: str, more: dict[str, Any] | None = None, given: Given = _NOTHING_GIVEN
) -> tuple[int, RawHeaders, bytes]:
    """Status, headers and body of the answer for ``error``, with the members ``more``.

    ``instance``: the path of the request; empty when it could not be read. ``given``: what the request gives.
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
        "errors": defects(error, given),
    }
    body.update((name, error.facts[name]) for name in _FACTS if name in error.facts)
    headers: RawHeaders = []
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.facts.get("retry_after", retry_after)))
    if status == 401:
        headers.append((b"www-authenticate", challenge(error)))
    elif status == 405:
        headers.append((b"allow", error.facts["allow"].encode("ascii")))
    elif "accept_encoding" in error.facts:
        # Only where the coding was the cause: https://www.rfc-editor.org/rfc/rfc9110#section-15.5.16
        headers.append((b"accept-encoding", error.facts["accept_encoding"].encode("ascii")))
    return status, headers, msgspec.json.encode(body | (more or {}))


def challenge(error: BabelgateError) -> bytes:
    """What an answer 401 says of the credential: https://www.rfc-editor.org/rfc/rfc6750#section-3"""
    if not isinstance(error, InvalidToken):
        return b'Bearer realm="babelgate"'
    # The sentences of this error have neither quotes nor other characters than ASCII.
    return f'Bearer realm="babelgate", error="invalid_token", error_description="{error.detail}"'.encode("ascii")


def raw_problem(error: BabelgateError) -> tuple[bytes, bytes]:
    """The HTTP/1.1 answer to a request that did not reach the application: head without the empty line, and body."""
    status, headers, body = problem(error, instance="")
    named = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body)), *headers]
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in named]
    return b"\r\n".join(lines) + b"\r\n", body
