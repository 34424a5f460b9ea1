"""Where is my message: what happened to a message, to those of a trace, or to those of a job, a queue or a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from babelgate.console.answers import PageAnswer
from babelgate.console.conditions import time_of
from babelgate.console.routes import PageRoute
from babelgate.console.timelines import picture_of, rows_of, trace_address
from babelgate.console.visits import Visit
from babelgate.errors import InvalidParameter
from babelgate.gateway.history import EventPage, MessageHistory, MessageNotFound, TraceNotFound
from babelgate.http.problems import detail_of
from babelgate.observe.journal.record import EVENTS
from babelgate.observe.journal.search import Query

_NAMES = ("id", "job", "queue", "event", "since", "until", "member", "value")
_OF_ID = 500
"""Events of a message or a trace on one page."""
_OF_LIST = 100


async def show(visit: Visit) -> PageAnswer:
    """The form, and what was found."""
    fields = {name: visit.query.get(name, "").strip() for name in _NAMES}
    context: dict[str, Any] = {"messages": [], "events": None, "page": None, "missing": None, "picture": None}
    if visit.gateway.history.enabled:
        if fields["id"]:
            context |= await _of_id(visit, fields["id"])
        elif any(text for name, text in fields.items() if name != "member"):
            context |= await _of_conditions(visit, fields)
    return visit.page(
        "find.html",
        fields=fields,
        kinds=EVENTS,
        members=visit.gateway.history.meta,
        enabled=visit.gateway.history.enabled,
        rows_of=rows_of,
        **context,
    )


async def _of_id(visit: Visit, sought: str) -> dict[str, Any]:
    """The message with this id, or else the messages of the trace."""
    history, cursor = visit.gateway.history, visit.query.get("cursor") or None
    messages: Sequence[MessageHistory]
    try:
        message, page = await history.message(visit.caller, sought, _OF_ID, cursor)
        messages = [message]
    except MessageNotFound as no_message:
        try:
            messages, page = await history.trace(visit.caller, sought, _OF_ID, cursor)
        except TraceNotFound:
            return {"missing": detail_of(no_message)}
    found: dict[str, Any] = {"messages": messages, "picture": picture_of(messages)}
    trace_id = next((each.trace_id for each in messages if each.trace_id), None)
    found |= {"trace_id": trace_id, "trace_address": trace_address(visit.frame, trace_id)}
    return found | _page(page, {"id": sought})


async def _of_conditions(visit: Visit, fields: Mapping[str, str]) -> dict[str, Any]:
    event = next((kind for kind in EVENTS if kind == fields["event"]), None)
    if fields["event"] and event is None:
        raise InvalidParameter(name="event", reason=f"must be one of {', '.join(EVENTS)}")
    query = Query(
        job=fields["job"] or None,
        queue=fields["queue"] or None,
        event=event,
        since=time_of(fields, "since"),
        until=time_of(fields, "until"),
        meta=f"{fields['member']}={fields['value']}" if fields["value"] else None,
    )
    cursor = visit.query.get("cursor") or None
    page = await visit.gateway.history.events(visit.caller, query, _OF_LIST, cursor)
    return {"events": page.events, **_page(page, {name: text for name, text in fields.items() if text})}


def _page(page: EventPage, fields: Mapping[str, str]) -> dict[str, Any]:
    more = None if page.next_cursor is None else urlencode({**fields, "cursor": page.next_cursor})
    return {"page": page, "more": more}


ROUTES = (PageRoute(method="GET", path="find", handler=show, menu="Find a message"),)
