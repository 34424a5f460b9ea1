"""A queue: what it is, its figures, the messages that are ready, and its purge."""

from __future__ import annotations

from typing import Any

from babelgate.brokers.binding import Purges
from babelgate.console import bodies
from babelgate.console.abilities import sentences
from babelgate.console.answers import PageAnswer
from babelgate.console.pages import purging
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit, segment
from babelgate.errors import InvalidParameter, UnsupportedByBroker
from babelgate.gateway.authorization import Right
from babelgate.gateway.limit_use import limit_use
from babelgate.http.problems import detail_of

SHOWN_MESSAGES = (20, 50, 100)
"""How many messages the list may have; the last is the most that the API peeks at."""


async def show(visit: Visit) -> PageAnswer:
    """The page, or its figures."""
    queue = visit.parameters["queue"]
    gateway = visit.gateway
    info = await gateway.overview.queue(visit.caller, queue)
    rates = await gateway.rates.queue(visit.caller, queue)
    route = gateway.router.route(queue)
    use = await limit_use(gateway.rate_limits, visit.caller, route, info.stats)
    shares = gateway.rate_limits is not None and gateway.rate_limits.shared is not None
    live: dict[str, Any] = {
        "info": info,
        "rates": rates,
        "limits": use,
        "counted_in": "replicas" if shares else "process",
    }
    if visit.is_fragment:
        return visit.page("queue.html", "queue_live.html", **live)
    rule = gateway.router.rule(queue)
    limit = _limit(visit.query.get("limit", ""))
    rows, unable = await _peeked(visit, queue, limit) if visit.may("observe", queue) else ([], "")
    return visit.page(
        "queue.html",
        "queue_live.html",
        **shared(visit, "queue"),
        **live,
        match=None if rule is None else rule.match,
        abilities=sentences(info.capabilities),
        rows=rows,
        unable=unable,
        limit=limit,
        more=next((each for each in SHOWN_MESSAGES if each > limit), None) if len(rows) == limit else None,
        can_purge=isinstance(route.binding, Purges) and visit.may_change("manage", queue),
        can_pause=visit.may_change("manage", queue),
    )


async def ask_purge(visit: Visit) -> PageAnswer:
    """How many messages a purge would remove, and the form for it."""
    return await purging.ask(visit, _purge(visit))


async def purge(visit: Visit) -> PageAnswer:
    """Remove the messages of the queue whose name was typed."""
    return await purging.act(visit, _purge(visit))


def path_of(queue: str) -> str:
    """The address of a queue below ``/console/``."""
    return f"queues/{segment(queue)}"


def shared(visit: Visit, tab: str) -> dict[str, Any]:
    """What the head of all pages of a queue needs. ``tab``: the page that is shown."""
    queue = visit.parameters["queue"]
    has_push = visit.frame.pushes is not None and visit.may("manage", queue)
    return {
        "queue": queue,
        "base": f"{visit.root}{path_of(queue)}",
        "tab": tab,
        "pause": visit.gateway.pauses.get(queue),
        "has_push": has_push,
        "not_pushed": visit.gateway.overview.pushes.circuits().get(queue) if has_push else None,
    }


def _purge(visit: Visit) -> purging.Purge:
    queue = visit.parameters["queue"]
    purges = visit.gateway.access(visit.caller, Right.MANAGE, queue).route.capabilities.purges
    states = "ready or delayed" if "delayed" in purges else "ready"
    detail = f"These are the messages that are {states}. Leased messages and dead letters stay."
    return purging.Purge("message", detail, path_of(queue), visit.gateway.purge)


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
    PageRoute(method="GET", path="queues/{queue}/purge", handler=ask_purge),
    PageRoute(method="POST", path="queues/{queue}/purge", handler=purge),
)
