"""Requests and answers of the operators' endpoints, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.letter_examples import LETTER_ID

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1, description="Unix milliseconds UTC.")]
Reason = Annotated[
    Literal["failed", "unknown_urn", "poison"],
    Field(description="The contract's reasons. A letter of another program may have another one, and matches none."),
]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
LetterIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, examples=[LETTER_ID])]], Field(min_length=1, max_length=1000)
]


class Strict(BaseModel):
    """Query parameters; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StrictBody(BaseModel):
    """A JSON body; unknown members are refused, and no type is converted to another."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class View(BaseModel):
    """An answer, read from an object of the gateway."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class PeekQuery(Strict):
    limit: int = Field(default=10, ge=1, le=100)


class DeadLetterQuery(Strict):
    job: Text | None = None
    reason: Reason | None = None
    before: Milliseconds | None = Field(
        default=None, description="Dead-lettered before this time; Unix milliseconds UTC."
    )
    after: Milliseconds | None = Field(None, description="Dead-lettered at this time or later; Unix milliseconds UTC.")
    trace_id: Text | None = None
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )


class DeadLetterFilterView(StrictBody):
    """A dead letter matches when it meets all given conditions. Without conditions, every dead letter matches."""

    job: Text | None = None
    reason: Reason | None = None
    before: Milliseconds | None = None
    after: Milliseconds | None = None
    trace_id: Text | None = None


class DeleteDeadLettersRequest(StrictBody):
    """The dead letters to remove."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": [LETTER_ID]}})

    ids: LetterIds


class RedriveRequest(StrictBody):
    """The dead letters to send back, and their target. Without `filter` and `ids`: all dead letters."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Maximum number to send back; 1000 by default, and none with `background`.",
    )
    filter: DeadLetterFilterView | None = Field(default=None, description="Not together with `ids`.")
    ids: LetterIds | None = Field(default=None, description="The `letter_id` of each dead letter; 1 to 1000.")
    to_queue: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="The target queue; by default the queue of the path."
    )
    dry_run: bool = Field(default=False, description="Only count the matching dead letters.")
    force: bool = Field(
        default=False,
        description="Send records without a valid envelope, too: their original bytes, and the native headers where "
        "the target has them. Requires a `to_queue` other than the queue of the path.",
    )
    per_second: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="Maximum rate, in dead letters per second. Without `background`, `limit` letters must take at most "
        "60 s at this rate.",
    )
    background: bool = Field(
        default=False, description="Answer 202 at once with a job, which `Location` leads to. Not with `dry_run`."
    )


class RedriveFailureView(View):
    """A dead letter that was not sent back; it stays in place."""

    letter_id: str
    id: str | None = Field(description="The message's `meta.id`.")
    code: str
    detail: str


class RedriveCountsView(View):
    """`failed` dead letters stay in place; `errors` describes the first of them, `errors_omitted` counts the others."""

    scanned: int = Field(description="Dead letters that were read.")
    matched: int = Field(description="Dead letters that met the conditions.")
    redriven: int = Field(description="Dead letters that were sent back and removed.")
    failed: int = Field(description="Dead letters that could not be sent back, and unknown ids.")
    complete: bool = Field(description="Whether all was read, and nothing that met the conditions is left.")
    errors: list[RedriveFailureView]
    errors_omitted: int


class RedriveResultView(RedriveCountsView):
    dry_run: bool


class JobErrorView(View):
    code: str
    detail: str


class RedriveJobView(RedriveCountsView):
    """A redrive in the background. After a resume, the counts begin with what was redriven before."""

    id: str
    queue: str
    state: Literal["running", "cancelled", "interrupted", "completed", "failed"] = Field(
        description="`cancelled`: on request; `interrupted`: its process has ended; `failed`: see `error`. These can "
        "be resumed. `completed`: all was read, or `limit` was reached."
    )
    to_queue: str
    limit: int | None
    force: bool
    per_second: float | None
    error: JobErrorView | None
    started_at: int = Field(description="Unix milliseconds UTC. Letters that were dead-lettered later are left.")
    updated_at: int = Field(description="Unix milliseconds UTC.")


class RedriveJobListView(View):
    redrives: list[RedriveJobView] = Field(description="Newest first.")


class RedrivenLetterView(View):
    """A dead letter that was sent back."""

    letter_id: str
    id: str | None = Field(description="The `meta.id` of the message; `null`: forced bytes have none.")
    to_queue: str
    edited: bool
    forced: bool
    removed: bool = Field(description="`false`: another call has removed the dead letter meanwhile.")


class RemovalResultView(BaseModel):
    """The result of one id."""

    letter_id: str
    status: int = Field(ge=200, le=599, description="The HTTP status of this id on its own.")
    code: str | None = None
    detail: str | None = None
    retryable: bool | None = Field(default=None, description="For a failure: whether it may succeed later.")


class RemovalView(BaseModel):
    """One result per id, in order; a repeated id has one."""

    removed: int
    failed: int
    results: list[RemovalResultView]


class PurgedView(View):
    removed: int = Field(description="The number of messages removed.")


class StatsView(View):
    """Counts of a queue. `null`: the broker does not report this count."""

    depth: int | None = Field(description="Ready messages.")
    in_flight: int | None = Field(description="Leased messages.")
    delayed: int | None
    dead: int | None = Field(description="Dead letters.")
    oldest_age_seconds: float | None


class CapabilitiesView(View):
    max_delay_seconds: float | None = Field(description="`0`: no delays; `null`: no bound.")
    max_lease_seconds: float
    extendable: bool
    ack_scope: Literal["anywhere", "owner", "owner_offset"]
    ordering: Literal["fifo", "key", "none"]
    native_release: bool
    delivery_count: Literal["none", "zero_based", "one_based", "added"]
    max_body_bytes: int | None
    max_batch: int
    headers: bool = Field(description="Whether messages can have native headers.")


class PolicyView(View):
    lease_seconds: float
    max_attempts: int
    backoff_seconds: list[float]
    ttl_seconds: float | None
    dead_letter_retention_seconds: float | None
    ordering_key: Literal["refuse", "ignore"] = Field(
        description="What becomes of a message with an `ordering_key`, when the queue keeps no order."
    )


class IdempotencyKeysView(View):
    broker: str = Field(description="The broker that keeps the keys.")
    in_one_transaction: bool = Field(
        description="`true`: key and message are written in one transaction (exactly once); `false`: at most once."
    )
    retention_seconds: float
    max_keys: int


class QueueView(View):
    queue: str
    broker: str
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


class ListedQueueView(QueueView):
    source: Literal["configured", "broker", "process"] = Field(
        description="How the name is known. `configured`: it is in the configuration. `broker`: the broker lists it. "
        "`process`: the process that answers has used the queue since its start."
    )


class QueueListQuery(Strict):
    limit: int = Field(default=1000, ge=1, le=1000)
    cursor: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )


class QueueListView(View):
    queues: list[ListedQueueView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; `null`: there is none.")


class BrokerView(View):
    broker: str
    kind: str
    url: str = Field(description="The URL, without its secrets.")
    required: bool
    up: bool
    detail: str | None = Field(description="The error, when the broker is down.")
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
        default=None, description="Only with `verbose`, and for callers that may manage queues on these brokers."
    )


class PeekedMessageView(View):
    """`envelope` is the stored body. `body_base64` replaces it when the body is not a JSON object."""

    headers: dict[str, str]
    envelope: dict[str, Any] | None
    body_base64: str | None


class PeekedListView(View):
    messages: list[PeekedMessageView]


class DeadLetterView(View):
    """`record` is the stored record. `record_base64` replaces it when the record is not a JSON object."""

    letter_id: str = Field(
        description="Identifies the dead letter in its queue: a digest of its record, so records with equal bytes "
        "share it. Operations apply to the oldest of these."
    )
    id: str | None = Field(description="The message's `meta.id`.")
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


class WarningView(View):
    """Something that is accepted, and not as the contract recommends it: an RFC 6901 `pointer`, a stable `code`, and a
    sentence."""

    pointer: str
    code: Literal["id_not_uuid", "trace_id_not_uuid"]
    detail: str


class NativeHeaderView(View):
    type: str = Field(description="The type that the broker stores, by its own name.", examples=["longstr"])
    value: Any = Field(description="A text, a number or a boolean.", examples=["python"])


class NativeWriteView(View):
    """One write of a publish, in the words of the broker. Programs that share the queue find exactly this."""

    operation: str = Field(description="The command or statement.", examples=["basic.publish"])
    target: dict[str, Any] = Field(
        description="Where it writes. RabbitMQ: `exchange`, `routing_key` and `mandatory`. Redis: `key`. SQLite: "
        "`table`.",
        examples=[{"exchange": "", "routing_key": "emails", "mandatory": True}],
    )
    fields: dict[str, Any] = Field(
        description="The native values beside body and headers. RabbitMQ: the properties of the message; `timestamp` "
        "is in Unix seconds, `expiration` in milliseconds. Redis: for a delayed message its `score`, in Unix seconds. "
        "SQLite: the other columns of the row.",
        examples=[{"content_type": "application/json", "delivery_mode": 2}],
    )
    headers: dict[str, NativeHeaderView] = Field(examples=[{"x-attempts": {"type": "int32", "value": 0}}])
    body: str | None = Field(description="The bytes as stored, as text. `null`: none, or not UTF-8.")
    body_base64: str | None = Field(description="The bytes as stored, where they are not UTF-8.")
    assigned: list[str] = Field(
        description="The fields and headers that get their value when the message is written, such as the id of a "
        "row or the time. The value shown is an example."
    )


class ProjectionView(View):
    """`envelope` is the canonical body, byte for byte, as a publish would write it or a consumer would read it."""

    queue: str
    broker: str
    native_name: str
    headers: dict[str, str]
    size_bytes: int
    warnings: list[WarningView]
    delay_seconds: float
    ordering_key: str | None
    idempotency: IdempotencyKeysView | None = Field(
        description="How the `idempotency_key` of the entry would be kept; `null` without one."
    )
    writes: list[NativeWriteView] = Field(
        description="What a publish would write to the broker, made by the code that publishes. Empty with "
        "`mode=consume`."
    )
    envelope: dict[str, Any]
