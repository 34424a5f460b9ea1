"""The first page: the brokers, and what needs attention."""

from __future__ import annotations

from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.gateway.authorization import Right


async def show(visit: Visit) -> PageAnswer:
    """The page, or its live part."""
    manages = bool(visit.caller.patterns(Right.MANAGE))
    brokers = await visit.gateway.overview.brokers(visit.caller) if manages else None
    return visit.page("overview.html", "overview_live.html", brokers=brokers)


ROUTES = (PageRoute(method="GET", path="", handler=show, menu="Overview"),)
