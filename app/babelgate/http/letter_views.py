"""Requests and answers about dead letters and redrives, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelgate.http.views import Strict, StrictBody, View

LETTER_ID = "5f2b8c0d9e1a47368b7d2c4f6a0e1b93"
"""The id of the dead letter that the examples of the OpenAPI document are about."""

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1, description="Unix milliseconds UTC.")]
Reason = Annotated[
    Literal["failed", "unknown_urn", "poison"],
    Field(description="The contract's reasons. A letter of another program may have another one, and matches none."),
]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
LetterIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64, examples=[LETTER_ID])]], Field(min_length=1, max_length=1000)
]


Cursor = Annotated[str, Field(min_length=1, max_length=1024)]


class SearchQuery(Strict):
    """Where the search for one dead letter begins."""

    cursor: Cursor | None = Field(
        default=None,
        description="Where the search begins: `next_cursor` of a page of the list, or of the problem "
        "`dead_letter_not_reached`. By default at the oldest dead letter.",
    )


class _Conditions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    job: Text | None = None
    """Only dead letters of this `job`."""
    reason: Reason | None = None
    """Only dead letters with this reason."""
    before: Milliseconds | None = None
    """Dead-lettered before this time; Unix milliseconds UTC."""
    after: Milliseconds | None = None
    """Dead-lettered at this time or later; Unix milliseconds UTC."""
    trace_id: Text | None = None
    """Only dead letters with this `trace_id`."""
    error: Text | None = None
    """Only dead letters whose `error` is exactly this text."""


class DeadLetterQuery(_Conditions, Strict):
    limit: int = Field(default=50, ge=1, le=1000)
    """Maximum number of dead letters to return: 1 to 1000."""
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the previous page.")


class DeadLetterFilterView(_Conditions, StrictBody):
    """A dead letter matches when it meets all given conditions. Without conditions, every dead letter matches."""


class DeleteDeadLettersRequest(StrictBody):
    """The dead letters to remove."""

    ids: LetterIds
    """The `letter_id` of each dead letter: 1 to 1000."""


class RedriveRequest(StrictBody):
    """The dead letters to send back, and their target. Without `filter` and `ids`: all dead letters."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Maximum number to send back; 1000 by default, and none with `background`.",
    )
    filter: DeadLetterFilterView = DeadLetterFilterView()
    ids: LetterIds | None = Field(
        default=None, description="The `letter_id` of each dead letter; 1 to 1000. Not together with `filter`."
    )
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
    """The id of the dead letter in its queue."""
    id: str | None = Field(description="The message's `meta.id`; `null`: it has none, or one of over 1,000 characters.")
    code: str
    """A stable code, for programs."""
    detail: str
    """A sentence for people."""


class RedriveCountsView(View):
    """`failed` dead letters stay in place; `errors` describes the first of them, `errors_omitted` counts the others."""

    scanned: int = Field(description="Dead letters that were read.")
    matched: int = Field(description="Dead letters that met the conditions.")
    redriven: int = Field(description="Dead letters that were sent back and removed.")
    failed: int = Field(description="Dead letters that could not be sent back, and unknown ids.")
    complete: bool = Field(description="Whether all was read, and nothing that met the conditions is left.")
    errors: list[RedriveFailureView]
    """The first 20 dead letters that could not be sent back."""
    errors_omitted: int
    """The number of failures that `errors` does not have."""


class RedriveResultView(RedriveCountsView):
    """The result of a redrive."""

    dry_run: bool
    """Whether this was a dry run, which changes nothing."""


class JobErrorView(View):
    """Why a redrive job has failed."""

    code: str
    """A stable code, for programs."""
    detail: str
    """A sentence for people."""


class RedriveJobView(RedriveCountsView):
    """A redrive in the background. After a resume, the counts begin with what was redriven before."""

    id: str
    """Identifies the job on its host."""
    queue: str
    """The queue whose dead letters are sent back."""
    state: Literal["running", "cancelled", "interrupted", "completed", "failed"] = Field(
        description="`cancelled`: on request; `interrupted`: its process has ended; `failed`: see `error`. These can "
        "be resumed. `completed`: all was read, or `limit` was reached."
    )
    to_queue: str
    """The queue to which they are sent."""
    limit: int | None
    """Maximum number to send back; `null`: no maximum."""
    force: bool
    """Whether records without a valid envelope are sent, too."""
    per_second: float | None
    """Maximum rate, in dead letters per second; `null`: no maximum."""
    error: JobErrorView | None
    """Why the job has failed; `null` in other states."""
    started_at: int = Field(description="Unix milliseconds UTC. Letters that were dead-lettered later are left.")
    updated_at: int = Field(description="Unix milliseconds UTC.")


class RedriveJobListView(View):
    """The redrive jobs of a queue."""

    redrives: list[RedriveJobView] = Field(description="Newest first.")


class RedrivenLetterView(View):
    """A dead letter that was sent back."""

    letter_id: str
    """The id of the dead letter in its queue."""
    id: str | None = Field(description="The `meta.id` of the message; `null`: forced bytes have none.")
    to_queue: str
    """The queue to which the message was sent."""
    edited: bool
    """Whether the message was edited."""
    forced: bool
    """Whether its bytes were sent unchanged."""
    removed: bool = Field(description="`false`: another call has removed the dead letter meanwhile.")


class RemovalResultView(BaseModel):
    """The result of one id."""

    letter_id: str = Field(description="The id of the dead letter in its queue.")
    status: int = Field(ge=200, le=599, description="The HTTP status of this id on its own.")
    code: str | None = Field(default=None, description="For a failure: its stable code, for programs.")
    detail: str | None = Field(default=None, description="For a failure: a sentence for people.")
    retryable: bool | None = Field(default=None, description="For a failure: whether it may succeed later.")


class RemovalView(BaseModel):
    """One result per id, in order; a repeated id has one."""

    removed: int = Field(description="The number of dead letters that were removed.")
    failed: int = Field(description="The number of ids whose dead letter was not removed.")
    results: list[RemovalResultView] = Field(description="The result of each id.")


class DeadLetterView(View):
    """`record` is the stored record. `record_base64` replaces it when the record is not a JSON object."""

    letter_id: str = Field(
        description="Identifies the dead letter in its queue: a digest of its record, so records with equal bytes "
        "share it. Operations apply to the oldest of these."
    )
    id: str | None = Field(description="The `meta.id` of the message; `null` when its body has none.")
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
