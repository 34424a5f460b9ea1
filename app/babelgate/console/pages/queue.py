"""A queue: what it is, its figures, the messages that are ready, and its purge."""

from __future__ import annotations

from typing import Any

from babelgate.brokers.binding import Purges
from babelgate.console import bodies
from babelgate.console.abilities import sentences
from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit, segment
from babelgate.errors import InvalidParameter, UnsupportedByBroker
from babelgate.http.problems import detail_of

SHOWN_MESSAGES = (20, 50, 100)
"""How many messages the list may have; the last is the most that the API peeks at."""


async def show(visit: Visit) -> PageAnswer:
    """The page, or its figures."""
    queue = visit.parameters["queue"]
    gateway = visit.gateway
    info = await gateway.overview.queue(visit.caller, queue)
    rates = await gateway.rates.queue(visit.caller, queue)
    if visit.is_fragment:
        return visit.page("queue.html", "queue_live.html", info=info, rates=rates)
    route = gateway.router.route(queue)
    rule = gateway.router.rule(queue)
    limit = _limit(visit.query.get("limit", ""))
    rows, unable = await _peeked(visit, queue, limit) if visit.may("listen", queue) else ([], "")
    return visit.page(
        "queue.html",
        "queue_live.html",
        **shared(visit, "queue"),
        info=info,
        rates=rates,
        match=None if rule is None else rule.match,
        abilities=sentences(info.capabilities),
        rows=rows,
        unable=unable,
        limit=limit,
        more=next((each for each in SHOWN_MESSAGES if each > limit), None) if len(rows) == limit else None,
        can_purge=isinstance(route.binding, Purges) and visit.may_change("manage", queue),
    )


async def purge(visit: Visit) -> PageAnswer:
    """Remove the messages of the queue whose name was typed."""
    queue = visit.parameters["queue"]
    if visit.form.get("confirm", "") != queue:
        reason = "it is not the name of the queue. Nothing was removed."
        raise InvalidParameter(name="The text that you typed", reason=reason)
    removed = await visit.gateway.purge(visit.caller, queue)
    return visit.see_other(path_of(queue), f"{removed:,} message{'s' if removed != 1 else ''} removed.")


def path_of(queue: str) -> str:
    """The address of a queue below ``/console/``."""
    return f"queues/{segment(queue)}"


def shared(visit: Visit, tab: str) -> dict[str, Any]:
    """What the head of all pages of a queue needs. ``tab``: the page that is shown."""
    queue = visit.parameters["queue"]
    return {"queue": queue, "base": f"{visit.root}{path_of(queue)}", "tab": tab}


async def _peeked(visit: Visit, queue: str, limit: int) -> tuple[list[bodies.Row], str]:
    """The messages that are ready, or why the broker shows none."""
    try:
        found = await visit.gateway.peek(visit.caller, queue, limit)
    except UnsupportedByBroker as error:
        return [], detail_of(error)
    return await bodies.rows(list(found), visit.gateway.limits), ""


def _limit(text: str) -> int:
    if text not in ("", *map(str, SHOWN_MESSAGES)):
        raise InvalidParameter(name="limit", reason=f"must be one of {', '.join(map(str, SHOWN_MESSAGES))}")
    return int(text or SHOWN_MESSAGES[0])


ROUTES = (
    PageRoute(method="GET", path="queues/{queue}", handler=show),
    PageRoute(method="POST", path="queues/{queue}/purge", handler=purge),
)
