"""Endpoints for what happened to messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from msgspec import UNSET

from babelgate.errors import InvalidParameter
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.history import EventPage, History, MessageHistory
from babelgate.http import history_views
from babelgate.http.dependencies import GATEWAY, CallerOf, json_answer
from babelgate.observe.journal import search
from babelgate.observe.journal.record import Record

MAX_ID = 1_024
"""Most characters of an id in a path, without escapes. A publish takes ids of at most 128; other programs may write
longer ones."""

_OF_EVENT = (
    "at",
    "event",
    "queue",
    "broker",
    "message_id",
    "trace_id",
    "job",
    "attempts",
    "outcome",
    "to_queue",
    "lease_seconds",
    "bytes",
    "lang",
    "node",
    "meta",
)
"""The members of an event in an answer, which those of a record are."""


async def _history(request: Request) -> History:
    gateway: Gateway = request.scope[GATEWAY]
    return gateway.history


def _id(description: str, example: str) -> Any:
    """A parameter of the path with any characters. The bounds are of the unescaped text, which :func:`_read` checks."""
    bounds = {"minLength": 1, "maxLength": MAX_ID}
    return Path(description=description, examples=[example], json_schema_extra=bounds)


HistoryOf = Annotated[History, Depends(_history)]
MessageId = Annotated[
    str, _id("The `meta.id` of the message; `id` in the answer to its publish.", "7c1f0a52-6f0e-4a55-9d0d-0a6c1f6f2b11")
]
TraceId = Annotated[str, _id("The `trace_id` of the messages.", "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10")]
Parameters = Annotated[history_views.HistoryQuery, Query()]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter()

    @router.get("/messages", response_model=history_views.EventPageView)
    async def list_events(
        history: HistoryOf, caller: CallerOf, parameters: Annotated[history_views.EventQuery, Query()]
    ) -> Response:
        given = parameters.model_dump(exclude={"limit", "cursor"})
        found = await history.events(caller, search.Query(**given), parameters.limit, parameters.cursor)
        return json_answer({"events": _events(found.events), **_page(found)})

    @router.get("/messages/{message_id}", response_model=history_views.MessageHistoryView)
    async def get_message(
        history: HistoryOf, caller: CallerOf, message_id: MessageId, parameters: Parameters
    ) -> Response:
        sought = _read("message_id", message_id)
        message, page = await history.message(caller, sought, parameters.limit, parameters.cursor)
        return json_answer({**_message(message), "trace_id": message.trace_id, **_page(page)})

    @router.get("/traces/{trace_id}", response_model=history_views.TraceHistoryView)
    async def get_trace(history: HistoryOf, caller: CallerOf, trace_id: TraceId, parameters: Parameters) -> Response:
        sought = _read("trace_id", trace_id)
        messages, page = await history.trace(caller, sought, parameters.limit, parameters.cursor)
        return json_answer({"trace_id": sought, "messages": [*map(_message, messages)], **_page(page)})

    return router


def _read(name: str, escaped: str) -> str:
    """The text of an id in a path, in which the escapes stand. Raises InvalidParameter."""
    try:
        text = unquote(escaped, errors="strict")
    except UnicodeDecodeError:
        raise InvalidParameter(name=name, reason="its escapes are not UTF-8") from None
    if len(text) > MAX_ID:
        raise InvalidParameter(name=name, reason=f"{len(text)} characters; an id in a path has at most {MAX_ID}")
    return text


def _message(message: MessageHistory) -> dict[str, Any]:
    where = message.standing
    return {
        "message_id": message.message_id,
        "job": message.job,
        "status": where.status,
        "detail": where.detail,
        "queue": where.queue,
        "broker": where.broker,
        "events": _events(message.events),
    }


def _events(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {name: None if (value := getattr(record, name)) is UNSET else value for name in _OF_EVENT} for record in records
    ]


def _page(found: EventPage) -> dict[str, Any]:
    return {"next_cursor": found.next_cursor, "searched": found.searched}
