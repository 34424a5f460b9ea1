"""The list of queues."""

from __future__ import annotations

from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit

_PAGE_ROWS = 100


async def show(visit: Visit) -> PageAnswer:
    """A page of the list, or its rows."""
    queues, cursor = await visit.gateway.overview.queues(visit.caller, _PAGE_ROWS, visit.query.get("after") or None)
    return visit.page("queues.html", "queues_rows.html", queues=queues, cursor=cursor)


ROUTES = (PageRoute(method="GET", path="queues", handler=show, menu="Queues"),)
