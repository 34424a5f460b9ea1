"""Requests and answers about what happened to messages, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from babelgate.http.letter_views import Cursor, Milliseconds, Text
from babelgate.http.views import Strict, View

EventName = Literal[
    "accepted",
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "lease_expired",
    "dead_lettered",
    "redriven",
    "poison",
    "dropped",
]


class HistoryQuery(Strict):
    limit: int = Field(default=1000, ge=1, le=1000)
    """Maximum number of events to return: 1 to 1000."""
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the previous page.")


class EventQuery(Strict):
    job: Text | None = None
    """Only events of messages with this `job`."""
    queue: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,120}$")] | None = Field(
        default=None, description="Only events of this queue. Requires the right `listen` or `manage` on it."
    )
    event: EventName | None = None
    """Only events of this kind."""
    since: Milliseconds | None = None
    """Only events at this time or later; Unix milliseconds UTC."""
    until: Milliseconds | None = None
    """Only events before this time; Unix milliseconds UTC."""
    meta: Annotated[str, Field(max_length=400, pattern=r"^[A-Za-z0-9._-]+=[\s\S]+$")] | None = Field(
        default=None,
        description="Only events whose record keeps this member of the message's `meta`, as `NAME=VALUE`: "
        "`ext.shop.tenant=north`. `journal.meta` of the gateway names the members that are kept. Only `accepted`, "
        "`delivered` and those records of dead letters have them for which the gateway had the body.",
        examples=["ext.shop.tenant=north"],
    )
    limit: int = Field(default=100, ge=1, le=1000)
    """Maximum number of events to return: 1 to 1000."""
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the previous page.")


class EventView(View):
    """One event of one message, as the journal has it. What is unknown is `null`."""

    at: int
    """When it happened, by the clock of the gateway; Unix milliseconds UTC."""
    event: EventName
    """What happened."""
    queue: str
    """The queue in which it happened."""
    broker: str | None
    """The configured name of the broker."""
    message_id: str | None
    """The `meta.id` of the message."""
    trace_id: str | None
    """The `trace_id` of the message."""
    job: str | None
    """The `job` of the message."""
    attempts: int | None
    """Failed deliveries before this event."""
    outcome: str | None
    """How a lease ended (`acked`, `nacked`, `rejected`), why the message was dead-lettered, the code of a poison
    message, or `edited` or `forced` for a redriven one that is not the message itself."""
    to_queue: str | None
    """Of a redriven message: its new queue."""
    lease_seconds: float | None
    """Of a delivery: seconds of its lease, without extends."""
    bytes: int | None
    """Size of the body in bytes."""
    lang: str | None
    """The `meta.lang` of the message: the language of its producer."""
    node: str
    """The gateway that recorded the event."""
    meta: dict[str, str] | None
    """Members of the message's `meta` that the record keeps (`journal.meta`), all as strings. `null`: none."""


class SearchedGatewayView(View):
    """Gateways whose journal was searched."""

    node: str
    """Their name in events."""
    since: int | None
    """Their journal was searched from this time on; Unix milliseconds UTC. `null`: it has no event yet."""


class SearchedView(View):
    """How far the search went. Earlier events may be known to the data pipeline."""

    since: int | None
    """All `gateways` were searched from this time on; Unix milliseconds UTC. `null`: they have no event yet."""
    gateways: list[SearchedGatewayView]
    """The gateways that answered, by name."""
    silent: list[str]
    """Addresses of gateways that gave no answer, or keep no journal. What only they know is missing."""


class _SearchPage(View):
    next_cursor: str | None
    """Send it as `cursor` to get the next page; `null`: there is none."""
    searched: SearchedView


class EventPageView(_SearchPage):
    """A page of events."""

    events: list[EventView]
    """Events, newest first."""


class _MessageStatus(View):
    job: str | None
    """The `job` of the message."""
    status: Literal["accepted", "delivered", "acked", "waiting", "dead_lettered", "redriven", "dropped"]
    """Where the message is after these events. `accepted`, `redriven`: in its queue, not delivered since. `delivered`:
    with a consumer, or its lease has expired since. `waiting`: in its queue again, after a nack or an expired lease.
    `acked`: done. `dead_lettered`: in the dead letters of its queue. `dropped`: removed, because it had expired."""
    detail: str
    """The status in a sentence for people."""
    queue: str | None
    """The queue of the status."""
    broker: str | None
    """The broker of that queue. `null`: it was redriven to another queue, and nothing has happened there yet."""
    events: list[EventView]
    """Events, oldest first."""


class MessageHistoryView(_SearchPage, _MessageStatus):
    """A message, and what happened to it."""

    message_id: str
    """The `meta.id` of the message."""
    trace_id: str | None
    """The `trace_id` of the message."""


class TracedMessageView(_MessageStatus):
    """A message of a trace, and what happened to it."""

    message_id: str | None
    """The `meta.id` of the message."""


class TraceHistoryView(_SearchPage):
    """The messages of a trace, and what happened to them."""

    trace_id: str
    """The `trace_id` of the messages."""
    messages: list[TracedMessageView]
    """The messages with an event on this page, by the time of the first one."""
