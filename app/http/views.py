"""What the operators' endpoints take and give, as FastAPI reads and documents it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1, description="Unix milliseconds UTC.")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]


class Strict(BaseModel):
    """A request: unknown members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StrictBody(BaseModel):
    """A JSON request: a number is no boolean, and a string no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class View(BaseModel):
    """An answer, read from the gateway's values."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class PeekQuery(Strict):
    limit: int = Field(default=10, ge=1, le=100)


class DeadLetterQuery(Strict):
    job: Text | None = None
    reason: Annotated[str, Field(min_length=1, max_length=1024, examples=["failed"])] | None = None
    before: Milliseconds | None = Field(default=None, description="Dead-lettered before then; Unix milliseconds UTC.")
    after: Milliseconds | None = Field(
        None, description="Dead-lettered at this moment or later; Unix milliseconds UTC."
    )
    trace_id: Text | None = None
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="`next_cursor` of the page before."
    )


class DeadLetterFilterView(StrictBody):
    """All given conditions hold; without any, every dead letter matches."""

    job: Text | None = None
    reason: Text | None = None
    before: Milliseconds | None = None
    after: Milliseconds | None = None
    trace_id: Text | None = None


class RedriveRequest(StrictBody):
    """What to send back, and where to."""

    limit: int | None = Field(default=None, ge=1, le=1_000_000, description="At most so many; 1000 by default.")
    filter: DeadLetterFilterView = DeadLetterFilterView()
    to_queue: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="Another queue than the one in the path."
    )
    dry_run: bool = Field(default=False, description="Only count what would be sent.")


class RedriveResultView(View):
    """`failed` dead letters stay where they are; `errors` tells of the first of them."""

    scanned: int
    matched: int
    redriven: int
    failed: int
    dry_run: bool
    complete: bool = Field(description="Nothing that matches is left.")
    errors: list[dict[str, Any]]


class PurgedView(View):
    removed: int = Field(description="The number of messages removed.")


class StatsView(View):
    """`null`: the broker cannot tell."""

    depth: int | None = Field(description="Ready messages.")
    in_flight: int | None = Field(description="Leased messages.")
    delayed: int | None
    dead: int | None = Field(description="Dead letters.")
    oldest_age_seconds: float | None


class CapabilitiesView(View):
    max_delay_seconds: float | None = Field(description="0: no delays; null: no bound.")
    max_lease_seconds: float
    extendable: bool
    ack_scope: Literal["anywhere", "owner", "owner_offset"]
    ordering: Literal["fifo", "key", "none"]
    native_release: bool
    delivery_count: Literal["none", "zero_based", "one_based", "added"]
    max_body_bytes: int | None
    max_batch: int
    headers: bool = Field(description="Whether messages carry native headers.")


class PolicyView(View):
    lease_seconds: float
    max_attempts: int
    backoff_seconds: list[float]
    ttl_seconds: float | None
    dead_letter_retention_seconds: float | None


class IdempotencyKeysView(View):
    broker: str = Field(description="Who keeps the keys.")
    in_one_transaction: bool = Field(description="With the message: exactly once; else beside it: at most once.")
    retention_seconds: float
    max_keys: int


class QueueView(View):
    queue: str
    broker: str
    native_name: str
    stats: StatsView
    capabilities: CapabilitiesView
    policy: PolicyView
    idempotency: IdempotencyKeysView | None = Field(description="`null`: an idempotency key is 422.")


class QueueListView(View):
    queues: list[QueueView]


class BrokerView(View):
    broker: str
    kind: str
    url: str = Field(description="Without its secrets.")
    required: bool
    up: bool
    detail: str | None = Field(description="What is wrong, when it is down.")
    warnings: list[str]
    capabilities: CapabilitiesView


class BrokerListView(View):
    brokers: list[BrokerView]


class BrokerStateView(View):
    broker: str
    required: bool
    up: bool
    warnings: list[str]


class ProbeView(View):
    status: Literal["ok"]
    brokers: list[BrokerStateView] | None = Field(
        default=None, description="With `verbose`, for who may manage queues there."
    )


class PeekedMessageView(View):
    """`envelope` is the stored body; `body_base64` stands in its place when that is no JSON."""

    headers: dict[str, str]
    envelope: dict[str, Any] | None
    body_base64: str | None


class PeekedListView(View):
    messages: list[PeekedMessageView]


class DeadLetterView(View):
    """`record` is the stored record; `record_base64` stands in its place when that is no JSON."""

    id: str | None
    job: str | None
    trace_id: str | None
    reason: str | None
    error: str | None
    failed_at: int | None
    attempts: int | None
    headers: dict[str, str]
    record: dict[str, Any] | None
    record_base64: str | None


class DeadLetterPageView(View):
    dead_letters: list[DeadLetterView]
    next_cursor: str | None


class ProjectionView(View):
    """`envelope` is the canonical body, byte for byte: what a publish would write, or a consumer would read."""

    queue: str
    broker: str
    native_name: str
    headers: dict[str, str]
    size_bytes: int
    envelope: dict[str, Any]
