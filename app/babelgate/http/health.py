"""Endpoints for probes and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from babelgate.cluster.scrape import Scraping
from babelgate.errors import BrokerUnavailable, Draining, InvalidParameter
from babelgate.gateway.authorization import Right
from babelgate.gateway.gateway import Gateway
from babelgate.http import views
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, PartsResponse
from babelgate.http.exchange import Parts, cut
from babelgate.http.problems import NotReady

READYZ = "/readyz"
PROBES = frozenset({"/livez", READYZ, "/startupz"})

_SWITCH = {"": True, "1": True, "true": True, "0": False, "false": False}


def routes(gateway: Gateway, scraping: Scraping | None) -> APIRouter:
    """The routes that call ``gateway``, and ``/metrics`` when ``scraping`` is given."""
    router = APIRouter()

    @router.get("/livez", response_model_exclude_none=True, dependencies=NO_PARAMETERS)
    async def livez() -> views.ProbeView:
        return views.ProbeView(status="ok")

    @router.get("/startupz", response_model_exclude_none=True, dependencies=NO_PARAMETERS)
    async def startupz() -> views.ProbeView:
        if not gateway.started:
            raise NotReady(reason="The gateway is starting.")
        return views.ProbeView(status="ok")

    @router.get(READYZ, response_model_exclude_none=True)
    async def readyz(request: Request, caller: CallerOf) -> views.ProbeView:
        verbose = _verbose(request)
        if not gateway.started:
            raise NotReady(reason="The gateway is starting.")
        if gateway.draining:
            raise Draining
        if missing := await gateway.overview.missing():
            named = sorted(gateway.overview.managed(caller).intersection(missing))
            if named:
                raise BrokerUnavailable(broker=named[0], reason="it is required and does not answer")
            raise NotReady(reason="A required broker does not answer.")
        managed = verbose and gateway.overview.managed(caller)
        states = await gateway.overview.brokers(caller) if managed else []
        return views.ProbeView(
            status="ok", brokers=[views.BrokerStateView.model_validate(state) for state in states] or None
        )

    if scraping is not None:
        _add_metrics(router, scraping)
    return router


def _add_metrics(router: APIRouter, scraping: Scraping) -> None:
    @router.get("/metrics", response_class=PlainTextResponse, dependencies=NO_PARAMETERS)
    async def metrics(request: Request, caller: CallerOf) -> Response:
        caller.require_anywhere(Right.MANAGE)
        text, content_type = await scraping.show(request.headers.get("accept", ""))
        return PartsResponse(Parts(len(text), cut(text)), {"content-type": content_type, "vary": "accept"})


def _verbose(request: Request) -> bool:
    query = request.query_params
    unknown = set(query) - {"verbose"}
    if unknown:
        raise InvalidParameter(name=min(unknown), reason="is not a parameter of this path")
    value = query.get("verbose", "false").lower()
    if value not in _SWITCH:
        raise InvalidParameter(name="verbose", reason="must be true or false")
    return _SWITCH[value]
