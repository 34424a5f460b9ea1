"""Requests and answers of the operators' endpoints, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Strict(BaseModel):
    """Query parameters; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class StrictBody(BaseModel):
    """A JSON body; unknown members are refused, and no type is converted to another."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class View(BaseModel):
    """An answer, read from an object of the gateway."""

    model_config = ConfigDict(from_attributes=True, frozen=True, use_attribute_docstrings=True)


class PeekQuery(Strict):
    limit: int = Field(default=10, ge=1, le=100)
    """Maximum number of messages to return: 1 to 100."""


class PurgedView(View):
    """The result of a removal."""

    removed: int = Field(description="The number of messages removed.")


class PurgeRequest(StrictBody):
    """How to purge. Without a body: remove the messages."""

    dry_run: bool = Field(default=False, description="Only count the messages that would be removed.")


class PurgeResultView(PurgedView):
    """The result of a purge."""

    matched: int
    """The number of messages that were to be removed. In a dry run it is the broker's own count, which may lag."""
    dry_run: bool
    """Whether this was a dry run, which changes nothing."""


PURGE = PurgeRequest()


def purged(count: int, asked: PurgeRequest) -> PurgeResultView:
    """The answer to a purge of ``count`` messages."""
    return PurgeResultView(matched=count, removed=0 if asked.dry_run else count, dry_run=asked.dry_run)


class StatsView(View):
    """Counts of a queue. `null`: the broker does not report this count."""

    depth: int | None = Field(description="Ready messages.")
    in_flight: int | None = Field(description="Leased messages.")
    delayed: int | None
    """Messages with a delay that has not passed, and parked ones; `null` also while the parking broker is down."""
    dead: int | None = Field(description="Dead letters.")
    oldest_age_seconds: float | None
    """Age of the oldest ready message in seconds; `null` without one."""
    foreign: int | None
    """Messages of another program that were left on the queue at the last look; `null` where none are left."""


class CapabilitiesView(View):
    """What the broker of a queue can do."""

    max_delay_seconds: float | None
    """Maximum delay in seconds, parking included. `0`: no delays; `null`: no bound."""
    max_retry_delay_seconds: float | None
    """Maximum delay of a nack in seconds, parking included. `0`: no delays; `null`: no bound."""
    max_lease_seconds: float
    """Maximum lease in seconds."""
    ack_scope: Literal["anywhere", "owner"]
    """Who can settle: `anywhere` any replica; `owner` the replica that delivered. The gateway forwards settles."""
    ordering: Literal["fifo", "key", "none"]
    """`fifo`: first in, first out; `key`: in order per `ordering_key`; `none`: no order."""
    native_release: bool
    """Whether the broker itself can return a message to the queue."""
    delivery_count: Literal["none", "zero_based", "one_based", "added"]
    """How the broker counts deliveries: not at all, from 0, from 1, or added by the gateway."""
    max_body_bytes: int | None
    """Maximum size of a body in bytes; `null`: no bound but that of the gateway."""
    max_batch: int
    """Maximum number of messages in one call to the broker. The gateway splits larger batches."""
    headers: bool = Field(description="Whether messages can have native headers.")
    max_headers: int | None = Field(description="Maximum number of native headers of a message; `null`: no bound.")
    broker_properties: Annotated[list[str], BeforeValidator(sorted)] = Field(
        description="The names of the `broker_properties` that a publish may set."
    )
    priorities: bool = Field(description="Whether a publish may set a `priority`.")


class RateTermsView(View):
    """Rates and other limits; `null`: no limit."""

    requests_per_second: float | None = Field(description="Requests a second, whatever they ask for.")
    messages_per_second: float | None = Field(description="Published messages a second.")
    bytes_per_second: float | None = Field(description="Bytes of published messages a second.")
    burst_seconds: int = Field(
        description="After a pause, as much may come at once as the limits allow in this number of seconds."
    )
    max_message_bytes: int | None = Field(description="Size of one message as it is sent.")
    max_receives: int | None = Field(description="Receives at a time, as `counted_in` says.")
    max_streams: int | None = Field(description="Streams at a time, as `counted_in` says.")
    max_leases: int | None = Field(description="Leases of messages at a time, as `counted_in` says.")


class QueueLimitsView(RateTermsView):
    """The limits of a queue. Requests and messages beyond a rate get 429 `rate_exceeded`."""

    per_identity: RateTermsView | None = Field(description="The limits of each identity on this queue; `null`: none.")
    max_depth: int | None = Field(description="Messages beyond which publishes get 429 `queue_full`; `null`: any.")
    counted_in: Literal["process", "replicas"] = Field(description="`process`: each for itself; `replicas`: together.")


class PolicyView(View):
    """The configured rules of a queue."""

    lease_seconds: float = Field(description="Seconds of a lease when a receive names none.")
    max_attempts: int
    """Failed deliveries after which a message is dead-lettered."""
    backoff_seconds: list[float]
    """Seconds before the next delivery, after each failed one; the last value repeats."""
    ttl_seconds: float | None
    """Seconds after which a message expires; `null`: never."""
    dead_letter_retention_seconds: float | None
    """Seconds for which a dead letter is kept; `null`: forever."""
    ordering_key: Literal["refuse", "ignore"] = Field(
        description="What becomes of a message with an `ordering_key`, when the queue keeps no order."
    )
    expired: Literal["dead_letter", "drop"] = Field(description="What becomes of an expired message.")
    limits: QueueLimitsView | None = Field(description="The limits of the queue; `null`: none.")


class IdempotencyKeysView(View):
    """How the queue keeps idempotency keys."""

    broker: str = Field(description="The broker that keeps the keys.")
    in_one_transaction: bool = Field(
        description="`true`: key and message are written in one transaction (exactly once); `false`: at most once."
    )
    retention_seconds: float
    """Seconds for which a key is remembered."""
    max_keys: int
    """Maximum number of keys kept at a time. Further publishes with a key are 503; beyond their caller's share, 429."""


class PauseView(View):
    """The pause of a queue."""

    paused_at: int = Field(description="Since when the queue is paused, Unix milliseconds UTC.")
    by: str
    """The name of the token that paused the queue, or that changed the pause last."""
    publishes: Literal["accept", "refuse"]
    """What becomes of publishes meanwhile."""
    reason: str | None
    """Why, in words; `null`: none was given."""


class PauseRequest(StrictBody):
    """How to pause. Without a body: publishes are accepted."""

    publishes: Literal["accept", "refuse"] = Field(
        default="accept", description="`refuse`: publishes get 409 `queue_paused` until the queue is resumed."
    )
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="Why, in words: everybody who sees the queue sees it."
    )


PAUSE = PauseRequest()


class PauseResultView(View):
    """The state of a queue after a pause or a resume, and which processes know it."""

    queue: str
    """The name of the queue in paths."""
    pause: PauseView | None = Field(description="The pause in force; `null`: the queue is not paused.")
    kept: bool
    """Whether `state_dir` has it. `false`: it is in memory, and ends with the process that answers."""
    told: int
    """How many other processes have confirmed that they know it."""
    silent: list[str]
    """Peers that gave no answer, by address or socket. They learn it when they answer again."""
    detail: str
    """The same in sentences for people."""


class _QueueFacts(View):
    queue: str
    """The name of the queue in paths."""
    broker: str
    """The configured name of the broker."""
    native_name: str = Field(
        description="The broker's own name of the queue, with every prefix of its profile or layout.",
        examples=["ojs.queue.emails"],
    )
    dead_letter_queue: str | None = Field(
        description="The broker's name of the queue of the dead letters; `null`: they are stored without a queue.",
        examples=["ojs.dead.emails"],
    )
    stored_as: dict[str, str] = Field(
        description="How messages are stored, by option of the route: `layout`, `profile`, `queue_type`. Without an "
        "entry the broker stores them in one way only, or its own settings decide.",
        examples=[{"profile": "ojs", "queue_type": "classic"}],
    )
    stats: StatsView
    capabilities: CapabilitiesView
    policy: PolicyView
    idempotency: IdempotencyKeysView | None = Field(description="`null`: the queue does not support idempotency keys.")
    pause: PauseView | None = Field(description="The pause of the queue; `null`: it is not paused.")


class QueueView(_QueueFacts):
    """A queue: its counts, capabilities and policy."""

    warnings: list[str]
    """Settings of the queue with which its broker loses messages or moves them away, at most 30 seconds old. Empty also
    where the gateway may not ask the broker."""


class ListedQueueView(_QueueFacts):
    """A queue of the list."""

    source: Literal["configured", "broker", "process"] = Field(
        description="How the name is known. `configured`: it is in the configuration. `broker`: the broker lists it. "
        "`process`: the process that answers has used the queue since its start, or knows that it is paused."
    )


class QueueListQuery(Strict):
    limit: int = Field(default=1000, ge=1, le=1000)
    cursor: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )
    paused: bool | None = Field(
        default=None, description="`true`: only paused queues; `false`: only queues that are not paused."
    )


class QueueListView(View):
    """Queues that the caller has any right on."""

    queues: list[ListedQueueView]
    """The queues, by name."""
    next_cursor: str | None = Field(description="The `cursor` of the next page; `null`: there is none.")


class BrokerView(View):
    """A broker and its current state."""

    broker: str
    """The configured name of the broker."""
    kind: str
    """The kind of the broker, such as `sqlite`."""
    url: str = Field(description="The URL, without its secrets.")
    required: bool
    """Whether `/readyz` fails while this broker is down."""
    up: bool
    """Whether the broker answered now."""
    circuit: Literal["closed", "open"]
    """`open`: this process refuses calls to the broker with 503, because it answered no ping."""
    detail: str | None = Field(description="The error, when the broker is down.")
    warnings: list[str]
    """What is doubtful in the set-up of the broker."""
    capabilities: CapabilitiesView


class BrokerListView(View):
    """Brokers that the caller may manage."""

    brokers: list[BrokerView]
    """The brokers, by name."""


class BrokerStateView(View):
    """The current state of a broker."""

    broker: str
    """The configured name of the broker."""
    required: bool
    """Whether `/readyz` fails while this broker is down."""
    up: bool
    """Whether the broker answered now."""
    circuit: Literal["closed", "open"]
    """`open`: this process refuses calls to the broker with 503, because it answered no ping."""
    warnings: list[str]
    """What is doubtful in the set-up of the broker."""


class PeekedMessageView(View):
    """`envelope` is the stored body. `body_base64` replaces it when the body is not a JSON object."""

    headers: dict[str, str]
    """Native headers of the message."""
    envelope: dict[str, Any] | None
    """The stored body; `null` when it is not a JSON object."""
    body_base64: str | None
    """The stored body in Base64 when it is not a JSON object; else `null`."""


class PeekedListView(View):
    """Messages that were looked at and not reserved."""

    messages: list[PeekedMessageView]
    """Ready messages, oldest first."""


class WarningView(View):
    """Something that is accepted, and not as the contract recommends it: an RFC 6901 `pointer`, a stable `code`, and a
    sentence."""

    pointer: str
    """Where in the body: an RFC 6901 pointer."""
    code: Literal["id_not_uuid", "trace_id_not_uuid"]
    """A stable code, for programs."""
    detail: str
    """A sentence for people."""


class NativeHeaderView(View):
    """The value of a native header, and its type."""

    type: str = Field(description="The type that the broker stores, by its own name.", examples=["longstr"])
    value: Any = Field(description="A text, a number or a boolean.", examples=["python"])


class NativeWriteView(View):
    """One write of a publish, in the words of the broker. Programs that share the queue find exactly this."""

    operation: str = Field(description="The command or statement.", examples=["basic.publish"])
    target: dict[str, Any] = Field(
        description="Where it writes, such as an exchange and a routing key, a key or a table.",
        examples=[{"exchange": "", "routing_key": "emails", "mandatory": True}],
    )
    fields: dict[str, Any] = Field(
        description="The native values beside body and headers, such as the properties of a message or the other "
        "columns of a row, in the broker's own names and units.",
        examples=[{"content_type": "application/json", "delivery_mode": 2}],
    )
    headers: dict[str, NativeHeaderView] = Field(
        description="The native headers, with their types.", examples=[{"x-attempts": {"type": "int32", "value": 0}}]
    )
    body: str | None = Field(description="The bytes as stored, as text. `null`: none, or not UTF-8.")
    body_base64: str | None = Field(description="The bytes as stored, where they are not UTF-8.")
    assigned: list[str] = Field(
        description="The fields and headers that get their value when the message is written, such as the id of a "
        "row or the time. The value shown is an example."
    )


class ProjectionView(View):
    """`envelope` is the canonical body, byte for byte, as a publish would write it or a consumer would read it."""

    queue: str
    """The name of the queue in paths."""
    broker: str
    """The configured name of the broker."""
    native_name: str
    """What the broker calls the queue."""
    headers: dict[str, str]
    """Native headers of the message."""
    size_bytes: int
    """Size of the body in bytes."""
    warnings: list[WarningView]
    """What is accepted, and not as the contract recommends it."""
    delay_seconds: float
    """Seconds until the message could be received; 0: at once."""
    ordering_key: str | None
    """The ordering key; `null` without one."""
    idempotency: IdempotencyKeysView | None = Field(
        description="How the `idempotency_key` of the entry would be kept; `null` without one."
    )
    writes: list[NativeWriteView] = Field(
        description="What a publish would write to the broker, made by the code that publishes. Empty with "
        "`mode=consume`."
    )
    envelope: dict[str, Any]
    """The canonical body."""
