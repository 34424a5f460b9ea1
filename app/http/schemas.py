"""What the hot endpoints take and give, as data: these classes decode, bound, and document it."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from app.errors import EnvelopeSyntaxError, InvalidParameter, Problem

MAX_TOKENS = 1000
"""Of one settle call: its work is bounded, and a consumer holds at most 100 deliveries per receive."""
MAX_ENTRIES = 10_000
"""Of one JSON array: it is held in memory whole; an NDJSON upload has no such bound."""
MAX_NESTED = 1_000_000
"""Objects and arrays at all levels of one JSON array of more than 4 MiB: one call splits it, without interruption."""
MAX_SETTLE_BYTES = 2_097_152
"""Of the body of one settle call: 1000 tokens, each with a kilobyte and more of error text."""
MAX_PARAMETER_BYTES = 65_536
"""Of the body of a receive, or of an operator's request: they hold parameters, and no messages."""
MAX_SECONDS = 31_536_000
"""A year, for delays and leases; the broker's own maximum comes on top."""

Token = Annotated[str, Meta(description="An ack token of a received message.", min_length=1, max_length=1024)]
Tokens = Annotated[list[Token], Meta(min_length=1, max_length=MAX_TOKENS)]
Delay = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="Seconds, may be decimal.", examples=[0])]
Retryable = Annotated[bool | None, Meta(description="Of a failure: whether the same may succeed later.")]
LeaseTime = Annotated[float, Meta(gt=0, le=MAX_SECONDS, description="Seconds, may be decimal.", examples=[60])]

_MAX_REASON = 500

Read = TypeVar("Read", bound=Struct)
Value = TypeVar("Value")


class PublishParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The query of a publish."""

    delay_seconds: Delay | UnsetType = UNSET
    ordering_key: Annotated[str, Meta(min_length=1, max_length=1024)] | UnsetType = UNSET


class ValidateParameters(PublishParameters, forbid_unknown_fields=True, frozen=True):
    """The query of a dry run."""

    mode: Annotated[
        Literal["publish", "consume"],
        Meta(description="By whose rules: a producer's, or those of a consumer who finds the body on the queue."),
    ] = "publish"


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """An empty query."""


class ReceiveRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """What to receive. ``lease_seconds`` defaults to the queue's policy."""

    max_messages: Annotated[int, Meta(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=30, description="Long poll; seconds, may be decimal.")] = 0
    lease_seconds: LeaseTime | UnsetType = UNSET


class FailureView(Struct, forbid_unknown_fields=True, frozen=True):
    """Why a message failed; kept in its ``dead_letter`` block."""

    message: Annotated[str, Meta(max_length=65_536, examples=["mail server refused"])] | None = None
    exception: Annotated[str, Meta(max_length=1024, examples=["SmtpError"])] | None = None


NO_FAILURE = FailureView()


class AckRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages that are done."""

    ack_tokens: Tokens


class NackRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages to deliver again. Without ``delay_seconds`` the queue's backoff applies."""

    ack_tokens: Tokens
    delay_seconds: Delay | None = None
    error: FailureView | None = None


class RejectRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages to dead-letter now."""

    ack_tokens: Tokens
    error: FailureView | None = None


class ExtendRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages whose lease is to end ``lease_seconds`` from now (default: the queue's policy)."""

    ack_tokens: Tokens
    lease_seconds: LeaseTime | None = None


class SettleRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """All four in one call: at least one token, at most 1000 in all."""

    acks: Annotated[list[Token], Meta(max_length=MAX_TOKENS)] = []
    nacks: Annotated[list[NackRequest], Meta(max_length=MAX_TOKENS)] = []
    rejects: Annotated[list[RejectRequest], Meta(max_length=MAX_TOKENS)] = []
    extends: Annotated[list[ExtendRequest], Meta(max_length=MAX_TOKENS)] = []

    def __post_init__(self) -> None:
        count = len(self.acks)
        count += sum(len(nack.ack_tokens) for nack in self.nacks)
        count += sum(len(reject.ack_tokens) for reject in self.rejects)
        count += sum(len(extend.ack_tokens) for extend in self.extends)
        if not 1 <= count <= MAX_TOKENS:
            raise ValueError(f"Expected 1 to {MAX_TOKENS} ack tokens")


class Defect(Struct, frozen=True):
    """One defect of a body: RFC 6901 ``pointer``, stable ``code``, and a sentence."""

    pointer: str
    code: str
    detail: str


class EntryResult(Struct, frozen=True, omit_defaults=True):
    """The fate of one entry of a batch: ``id`` and ``trace_id`` when it was accepted, else what is wrong with it."""

    index: Annotated[int, Meta(ge=0)]
    status: Annotated[int, Meta(ge=200, le=599, description="The HTTP status this entry alone would have had.")]
    id: str | None = None
    trace_id: str | None = None
    code: str | None = None
    detail: str | None = None
    retryable: Retryable = None
    errors: list[Defect] | None = None
    replayed: Annotated[
        bool | None, Meta(description="True: its idempotency key was answered before, and nothing was written.")
    ] = None


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """One result per entry, in order. Of failed entries the first 10,000 have one, and the first 100 tell what is wrong
    in ``detail`` and ``errors``."""

    accepted: int
    failed: int
    results: list[EntryResult]
    omitted: Annotated[
        dict[str, int] | UnsetType, Meta(description="Failed entries without a result of their own: how many by code.")
    ] = UNSET


class ReceivedMessage(Struct, frozen=True):
    """A delivery. ``lease_expires_at`` in Unix ms; ``envelope`` is the reserved body, byte for byte."""

    ack_token: str
    lease_expires_at: int
    attempts: Annotated[int, Meta(ge=0, description="Deliveries so far that ended without an ack.")]
    redelivered: bool
    headers: Annotated[dict[str, str], Meta(description="Native headers, where the broker has them.")]
    envelope: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/ReceivedEnvelope"})]


class ReceivedView(Struct, frozen=True):
    """Deliveries, oldest first; empty when none came."""

    messages: list[ReceivedMessage]


class TokenResult(Struct, frozen=True, omit_defaults=True):
    """The fate of one token; ``index`` counts within the tokens of its action. ``lease_expires_at`` (Unix ms) after an
    extend."""

    index: Annotated[int, Meta(ge=0)]
    action: Literal["ack", "nack", "reject", "extend"]
    status: Annotated[int, Meta(ge=200, le=599)]
    code: str | None = None
    detail: str | None = None
    retryable: Retryable = None
    lease_expires_at: int | None = None


class SettleOutcome(Struct, frozen=True):
    """One result per token."""

    settled: int
    failed: int
    results: list[TokenResult]


def given(value: Value | UnsetType) -> Value | None:
    """The value of a parameter that may be left out. None is no default for one: the text ``null`` would mean it."""
    return None if isinstance(value, UnsetType) else value


def from_body(body: bytes, kind: type[Read]) -> Read:
    """A JSON body as ``kind``. Raises EnvelopeSyntaxError when it is no JSON, InvalidParameter when it does not fit."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, in_body=True) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not JSON: {error}.")]) from None


def from_query(query: bytes, kind: type[Read]) -> Read:
    """A query string as ``kind``. Raises InvalidParameter."""
    # Consumers ask with the same few queries over and over; a long one is not worth the memory.
    return _remembered(query, kind) if len(query) <= 128 else _parsed(query, kind)


def _parsed(query: bytes, kind: type[Read]) -> Read:
    given: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise InvalidParameter(name="query", reason="it is not a query string in UTF-8") from None
    for name, value in pairs:
        if name in given:
            raise InvalidParameter(name=name, reason="given more than once")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit(error, in_body=False) from None


_remembered = lru_cache(maxsize=1024)(_parsed)


def _misfit(error: msgspec.ValidationError, in_body: bool) -> InvalidParameter:
    # The text may quote the name of a member, which may have any length.
    reason, _, path = str(error).partition(" - at `$")
    reason = reason[:_MAX_REASON]
    pointer = path[:_MAX_REASON].rstrip("`").replace(".", "/").replace("[", "/").replace("]", "")
    name = pointer.removeprefix("/") or ("body" if in_body else "query")
    return InvalidParameter(name=name, reason=reason, pointer=pointer if in_body else None)
