"""Requests and answers of the operators' endpoints, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1, description="Unix milliseconds UTC.")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]


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


class DeadLetterQuery(Strict):
    job: Text | None = None
    """Only dead letters of this `job`."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, examples=["failed"])] | None = None
    """Only dead letters with this reason, such as `failed` or `poison`."""
    before: Milliseconds | None = Field(
        default=None, description="Dead-lettered before this time; Unix milliseconds UTC."
    )
    after: Milliseconds | None = Field(None, description="Dead-lettered at this time or later; Unix milliseconds UTC.")
    trace_id: Text | None = None
    """Only dead letters with this `trace_id`."""
    limit: int = Field(default=50, ge=1, le=1000)
    """Maximum number of dead letters to return: 1 to 1000."""
    cursor: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )


class DeadLetterFilterView(StrictBody):
    """A dead letter matches when it meets all given conditions. Without conditions, every dead letter matches."""

    job: Text | None = None
    """Only dead letters of this `job`."""
    reason: Text | None = None
    """Only dead letters with this reason."""
    before: Milliseconds | None = None
    """Dead-lettered before this time; Unix milliseconds UTC."""
    after: Milliseconds | None = None
    """Dead-lettered at this time or later; Unix milliseconds UTC."""
    trace_id: Text | None = None
    """Only dead letters with this `trace_id`."""


class RedriveRequest(StrictBody):
    """The dead letters to send back, and their target."""

    limit: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Maximum number to send back; 1000 by default."
    )
    filter: DeadLetterFilterView = DeadLetterFilterView()
    to_queue: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="The target queue; by default the queue of the path."
    )
    dry_run: bool = Field(default=False, description="Only count the matching dead letters.")


class RedriveResultView(View):
    """`failed` dead letters stay in place; `errors` describes the first of them."""

    scanned: int
    """The number of dead letters looked at."""
    matched: int
    """How many of them met the filter."""
    redriven: int
    """How many were sent back; 0 for a dry run."""
    failed: int
    """How many could not be sent back, and stay in place."""
    dry_run: bool
    """Whether this was a dry run, which changes nothing."""
    complete: bool = Field(description="Whether no matching dead letter is left.")
    errors: list[dict[str, Any]]
    """The problems of the first failed dead letters."""


class PurgedView(View):
    """The result of a purge."""

    removed: int = Field(description="The number of messages removed.")


class StatsView(View):
    """Counts of a queue. `null`: the broker does not report this count."""

    depth: int | None = Field(description="Ready messages.")
    in_flight: int | None = Field(description="Leased messages.")
    delayed: int | None
    """Messages with a delay that has not passed."""
    dead: int | None = Field(description="Dead letters.")
    oldest_age_seconds: float | None
    """Age of the oldest ready message in seconds; `null` without one."""


class CapabilitiesView(View):
    """What the broker of a queue can do."""

    max_delay_seconds: float | None = Field(description="Maximum delay in seconds. `0`: no delays; `null`: no bound.")
    max_lease_seconds: float
    """Maximum lease in seconds."""
    extendable: bool
    """Whether a lease can be extended."""
    ack_scope: Literal["anywhere", "owner", "owner_offset"]
    """Who can settle: `anywhere` any replica; `owner` the replica that delivered; `owner_offset` that replica, in
    order. The gateway forwards settles."""
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


class PolicyView(View):
    """The configured rules of a queue."""

    lease_seconds: float
    """Seconds of a lease when a receive names none."""
    max_attempts: int
    """Failed deliveries after which a message is dead-lettered."""
    backoff_seconds: list[float]
    """Seconds before the next delivery, after each failed one; the last value repeats."""
    ttl_seconds: float | None
    """Seconds after which a message expires; `null`: never."""
    dead_letter_retention_seconds: float | None
    """Seconds for which a dead letter is kept; `null`: forever."""


class IdempotencyKeysView(View):
    """How the queue keeps idempotency keys."""

    broker: str = Field(description="The broker that keeps the keys.")
    in_one_transaction: bool = Field(
        description="`true`: key and message are written in one transaction (exactly once); `false`: at most once."
    )
    retention_seconds: float
    """Seconds for which a key is remembered."""
    max_keys: int
    """Maximum number of keys kept at a time; further publishes with a key are 503."""


class QueueView(View):
    """A queue: its counts, capabilities and policy."""

    queue: str
    """The name of the queue in paths."""
    broker: str
    """The configured name of the broker."""
    native_name: str
    """What the broker calls the queue."""
    stats: StatsView
    capabilities: CapabilitiesView
    policy: PolicyView
    idempotency: IdempotencyKeysView | None = Field(description="`null`: the queue does not support idempotency keys.")


class QueueListView(View):
    """Queues that the caller has any right on."""

    queues: list[QueueView]
    """The queues, by name."""


class BrokerView(View):
    """A broker and its current state."""

    broker: str
    """The configured name of the broker."""
    kind: str
    """The kind of the broker, such as `sqlite`, `redis` or `rabbitmq`."""
    url: str = Field(description="The URL, without its secrets.")
    required: bool
    """Whether `/readyz` fails while this broker is down."""
    up: bool
    """Whether the broker answered now."""
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
    warnings: list[str]
    """What is doubtful in the set-up of the broker."""


class ProbeView(View):
    """The answer of a successful probe."""

    status: Literal["ok"]
    """Always `ok`; any other state is a problem."""
    brokers: list[BrokerStateView] | None = Field(
        default=None, description="Only with `verbose`, and for callers that may manage queues on these brokers."
    )


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


class DeadLetterView(View):
    """`record` is the stored record. `record_base64` replaces it when the record is not a JSON object."""

    id: str | None
    """The `meta.id` of the message; `null` when its body has none."""
    job: str | None
    """The `job` of the message; `null` when its body has none."""
    trace_id: str | None
    """The `trace_id` of the message; `null` when its body has none."""
    reason: str | None
    """Why the message was dead-lettered, such as `failed` or `poison`."""
    error: str | None
    """The error that the consumer or the gateway gave."""
    failed_at: int | None
    """When the message was dead-lettered; Unix milliseconds UTC."""
    attempts: int | None
    """Failed deliveries before it was dead-lettered."""
    headers: dict[str, str]
    """Native headers of the message."""
    record: dict[str, Any] | None
    """The stored record; `null` when it is not a JSON object."""
    record_base64: str | None
    """The stored record in Base64 when it is not a JSON object; else `null`."""


class DeadLetterPageView(View):
    """A page of dead letters."""

    dead_letters: list[DeadLetterView]
    """Dead letters, oldest first."""
    next_cursor: str | None
    """Send it as `cursor` to get the next page; `null` on the last page."""


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
    envelope: dict[str, Any]
    """The canonical body."""
