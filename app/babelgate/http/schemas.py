"""Requests and answers of the hot endpoints: these classes decode, validate and document them."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from babelgate.errors import EnvelopeSyntaxError, InvalidParameter, Problem
from babelgate.gateway.ack_tokens import MAX_TOKEN_LENGTH
from babelgate.http.heads import parameters_of
from babelgate.http.problems import Defect
from babelgate.http.publish_parameters import MAX_SECONDS, Delay
from babelgate.jsontext import pointer
from babelgate.schematext import Fault, explain

MAX_TOKENS = 1000
"""Maximum ack tokens of one settle call. A receive returns at most 100 deliveries."""
MAX_ENTRIES = 10_000
"""Maximum entries of one JSON array, which is kept in memory as a whole. NDJSON has another bound."""
MAX_NESTED = 1_000_000
"""Maximum objects and arrays, at all levels, of a JSON array above 4 MiB. One uninterrupted call splits the array."""
MAX_SETTLE_BYTES = 2_097_152
"""Maximum body of one settle call: 1000 tokens, each with more than a kilobyte of error text."""
MAX_PARAMETER_BYTES = 65_536
"""Maximum body of a request that has parameters and no messages: a receive, or an operator's request."""

Token = Annotated[
    str, Meta(description="An ack token of a received message.", min_length=1, max_length=MAX_TOKEN_LENGTH)
]
Tokens = Annotated[
    list[Token], Meta(min_length=1, max_length=MAX_TOKENS, description=f"1 to {MAX_TOKENS} ack tokens of this queue.")
]
Retryable = Annotated[bool | None, Meta(description="For a failure: whether the same request may succeed later.")]
LeaseTime = Annotated[
    float,
    Meta(
        gt=0,
        le=MAX_SECONDS,
        description="Seconds from now until the lease ends; may be decimal; at most the `max_lease_seconds` of the "
        "broker. Without it: the `lease_seconds` of the queue's policy.",
        examples=[60],
    ),
]
Code = Annotated[str | None, Meta(description="For a failure: its stable code, for programs.")]
Detail = Annotated[str | None, Meta(description="For a failure: a sentence for people.")]

_MAX_NAME = 500
_STEP = re.compile(r"\.(\w+)|\[([0-9]+)\]")
_NAMED = re.compile(r"Object (?P<kind>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_BYTE = re.compile(r"byte ([0-9]+)")

Read = TypeVar("Read", bound=Struct)


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """A query or a body without parameters."""


class ReceiveRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of a receive. ``lease_seconds`` defaults to the queue's policy."""

    max_messages: Annotated[int, Meta(ge=1, le=100, description="Maximum number of messages: 1 to 100.")] = 1
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=30, description="Seconds to wait for the first message (long poll): 0 to 30; may be decimal."),
    ] = 0
    lease_seconds: LeaseTime | UnsetType = UNSET


class StreamRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of a stream. ``lease_seconds`` defaults to the queue's policy."""

    max_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Maximum number of messages of this stream that are delivered and not settled: 1 to 1000.",
        ),
    ] = 10
    lease_seconds: LeaseTime | UnsetType = UNSET
    auto_extend: Annotated[
        bool,
        Meta(
            description="Whether the gateway prolongs the leases of this stream while it is open, up to an hour after "
            "the delivery and at most to the `max_lease_seconds` of the broker."
        ),
    ] = True


class FailureView(Struct, forbid_unknown_fields=True, frozen=True):
    """The reason of a failure; stored in the message's ``dead_letter`` block."""

    message: (
        Annotated[
            str,
            Meta(
                max_length=65_536,
                description="What went wrong: at most 65,536 characters.",
                examples=["mail server refused"],
            ),
        ]
        | None
    ) = None
    exception: (
        Annotated[
            str,
            Meta(
                max_length=1024,
                description="The class of the exception: at most 1,024 characters.",
                examples=["SmtpError"],
            ),
        ]
        | None
    ) = None


NO_FAILURE = FailureView()


class AckRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages to remove from the queue."""

    ack_tokens: Tokens


class NackRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages to deliver again. Without ``delay_seconds``, the queue's backoff applies."""

    ack_tokens: Tokens
    delay_seconds: Delay | None = None
    error: FailureView | None = None
    failed: Annotated[
        bool,
        Meta(
            description="False: the consumer did not attempt the messages. They are available at once, and no attempt "
            "is counted; `delay_seconds` and `error` must be left out."
        ),
    ] = True

    def __post_init__(self) -> None:
        if not self.failed and (self.delay_seconds is not None or self.error is not None):
            raise ValueError("failed: false returns messages at once, so leave out delay_seconds and error")


class RejectRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages to dead-letter immediately."""

    ack_tokens: Tokens
    error: FailureView | None = None


class ExtendRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Messages whose lease will end ``lease_seconds`` from now (default: the queue's policy)."""

    ack_tokens: Tokens
    lease_seconds: LeaseTime | None = None


class SettleRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Acks, nacks, rejects and extends in one call: 1 to 1000 tokens in total."""

    acks: Annotated[
        list[Token], Meta(max_length=MAX_TOKENS, description="Ack tokens of messages to remove from the queue.")
    ] = []
    nacks: Annotated[list[NackRequest], Meta(max_length=MAX_TOKENS, description="Messages to deliver again.")] = []
    rejects: Annotated[
        list[RejectRequest], Meta(max_length=MAX_TOKENS, description="Messages to dead-letter immediately.")
    ] = []
    extends: Annotated[list[ExtendRequest], Meta(max_length=MAX_TOKENS, description="Leases to prolong.")] = []

    def __post_init__(self) -> None:
        count = len(self.acks)
        count += sum(len(nack.ack_tokens) for nack in self.nacks)
        count += sum(len(reject.ack_tokens) for reject in self.rejects)
        count += sum(len(extend.ack_tokens) for extend in self.extends)
        if not 1 <= count <= MAX_TOKENS:
            raise ValueError(f"must have 1 to {MAX_TOKENS} ack tokens in total")


# A union of the kinds of a body is what client generators cannot handle.
_OPEN_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
_PROPERTIES: dict[str, Any] = {"$ref": "#/components/schemas/ReceivedBrokerProperties"}


class DeadLetterEdit(Struct, forbid_unknown_fields=True, frozen=True):
    """The change of a dead letter: either its new ``data``, or a new ``body``: an envelope, a draft or an entry."""

    data: (
        Annotated[
            msgspec.Raw,
            Meta(description="The new `data`; other members stay as they are.", extra_json_schema=_OPEN_OBJECT),
        ]
        | UnsetType
    ) = UNSET
    body: (
        Annotated[
            msgspec.Raw,
            Meta(description="The new message: an envelope, a draft or an entry.", extra_json_schema=_OPEN_OBJECT),
        ]
        | UnsetType
    ) = UNSET

    def __post_init__(self) -> None:
        if (self.data is UNSET) == (self.body is UNSET):
            raise ValueError("must have either data or body")


class RedriveDeadLetterRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """How to send one dead letter back. ``to_queue`` defaults to the queue of the path."""

    to_queue: (
        Annotated[
            str,
            Meta(pattern="^[A-Za-z0-9._-]{1,120}$", description="The target queue; by default the queue of the path."),
        ]
        | None
    ) = None
    edit: DeadLetterEdit | None = None
    force: Annotated[
        bool,
        Meta(
            description="Send a record without a valid envelope: its original bytes, and the native headers where the "
            "target has them. Requires a `to_queue` other than the queue of the path."
        ),
    ] = False


class EntryResult(Struct, frozen=True, omit_defaults=True):
    """The result of one entry of a batch: ``id`` and ``trace_id`` when it was accepted, else its error."""

    index: Annotated[int, Meta(ge=0, description="The position of the entry in the batch, from 0.")]
    status: Annotated[int, Meta(ge=200, le=599, description="The HTTP status of this entry on its own.")]
    id: Annotated[str | None, Meta(description="The `meta.id` of the accepted message.")] = None
    trace_id: Annotated[str | None, Meta(description="The `trace_id` of the accepted message.")] = None
    code: Code = None
    detail: Detail = None
    retryable: Retryable = None
    errors: Annotated[list[Defect] | None, Meta(description="For a failure: each defect of the entry.")] = None
    replayed: Annotated[
        bool | None,
        Meta(description="True: an earlier request with this idempotency key was answered; nothing was written now."),
    ] = None


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """One result per entry, in order. At most 10,000 failed entries have a result; the first 100 of these have
    ``detail`` and ``errors``."""

    accepted: Annotated[int, Meta(description="The number of accepted entries.")]
    failed: Annotated[int, Meta(description="The number of failed entries.")]
    results: Annotated[list[EntryResult], Meta(description="The results, in the order of the entries.")]
    omitted: Annotated[
        dict[str, int] | UnsetType, Meta(description="The number of entries without a result, by code or `accepted`.")
    ] = UNSET


class ReceivedMessage(Struct, frozen=True):
    """A delivery. ``lease_expires_at``: Unix milliseconds; ``envelope``: the reserved body, byte for byte."""

    ack_token: Annotated[str, Meta(description="Proves the lease: send it to ack, nack, reject or extend.")]
    lease_expires_at: Annotated[int, Meta(description="When the lease ends; Unix milliseconds UTC.")]
    attempts: Annotated[int, Meta(ge=0, description="The number of earlier deliveries that ended without an ack.")]
    redelivered: Annotated[bool, Meta(description="Whether the message was delivered before.")]
    headers: Annotated[dict[str, str], Meta(description="Native headers, and a `traceparent` in any case.")]
    envelope: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/ReceivedEnvelope"})]
    broker_properties: Annotated[Any, Meta(extra_json_schema=_PROPERTIES)] = UNSET


class ReceivedView(Struct, frozen=True):
    """Deliveries, oldest first; an empty list when there are none."""

    messages: Annotated[list[ReceivedMessage], Meta(description="Deliveries, oldest first.")]
    paused: Annotated[
        bool | UnsetType, Meta(description="True: the queue is paused, and hands nothing out until it is resumed.")
    ] = UNSET


class TokenResult(Struct, frozen=True, omit_defaults=True):
    """The result of one token. ``index`` counts within the tokens of its action. ``lease_expires_at`` (Unix
    milliseconds) is given after an extend."""

    index: Annotated[int, Meta(ge=0, description="The position of the token among those of its action, from 0.")]
    action: Annotated[Literal["ack", "nack", "reject", "extend"], Meta(description="What was to be done.")]
    status: Annotated[int, Meta(ge=200, le=599, description="The HTTP status of this token on its own.")]
    code: Code = None
    detail: Detail = None
    retryable: Retryable = None
    lease_expires_at: Annotated[
        int | None, Meta(description="After an extend: when the lease ends; Unix milliseconds UTC.")
    ] = None
    dead_lettered: Annotated[
        bool | None,
        Meta(description="True after a nack of the last attempt: the message is a dead letter, not delivered again."),
    ] = None


class SettleOutcome(Struct, frozen=True):
    """One result per token."""

    settled: Annotated[int, Meta(description="The number of tokens that were settled.")]
    failed: Annotated[int, Meta(description="The number of tokens that failed.")]
    results: Annotated[list[TokenResult], Meta(description="The results, by action and in the order of the tokens.")]


def from_body(body: bytes, kind: type[Read]) -> Read:
    """Decode a JSON body. Raises EnvelopeSyntaxError when it is not JSON, InvalidParameter when it does not match."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind, in_body=True) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise syntax_error(error, "one JSON object", body) from None


def from_query(query: bytes, kind: type[Read]) -> Read:
    """Decode a query string. Raises InvalidParameter."""
    # Consumers repeat a few short queries. Long ones are not worth the memory.
    return _remembered(query, kind) if len(query) <= 128 else _parsed(query, kind)


def _parsed(query: bytes, kind: type[Read]) -> Read:
    given: dict[str, Any] = {}
    for name, value in parameters_of(query):
        if name in given:
            raise InvalidParameter(name=name, reason="given more than once")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind, in_body=False) from None


_remembered = lru_cache(maxsize=1024)(_parsed)


@cache
def _schema(kind: type[Struct]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/components/{name}")
    return schema | {"components": components}


def _misfit(error: msgspec.ValidationError, kind: type[Struct], in_body: bool) -> InvalidParameter:
    """The error in our own words. Only place and kind of the fault are read from the text of msgspec."""
    text, _, path = str(error).partition(" - at `")
    place: list[str | int] = [name or int(index) for name, index in _STEP.findall(path)]
    fault: Fault = "wrong"
    if found := _NAMED.fullmatch(text):
        fault = "unknown" if found["kind"] == "contains unknown" else "missing"
        place.append(found["name"])
    # A check of a class raises its own sentence.
    own = isinstance(error.__cause__, ValueError)
    reason = str(error.__cause__) if own else explain(_schema(kind), place, fault)
    name = ".".join(map(str, place))[:_MAX_NAME] or ("body" if in_body else "query")
    return InvalidParameter(name=name, reason=reason, pointer=pointer(*place) if in_body else None)


def syntax_error(error: Exception, what: str, body: bytes) -> EnvelopeSyntaxError:
    """The error of a ``body`` that is not ``what``, such as "one JSON array"; ``error`` is the decoder's."""
    found = _BYTE.search(str(error))
    if body.startswith(BOM_UTF8):
        reason = "it starts with a byte order mark"
    elif isinstance(error, UnicodeDecodeError):
        reason = f"it is not valid UTF-8 at byte {error.start}"
    elif isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    elif found:
        reason = f"it is not valid JSON at byte {found[1]}"
    else:
        reason = "it ends too early" if "truncated" in str(error) else "it is not valid JSON"
    return EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not {what}: {reason}.")])
