"""Endpoints for probes and metrics."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from babelgate.cluster.scrape import Scraping
from babelgate.errors import BrokerUnavailable, Draining, InvalidParameter
from babelgate.gateway.authorization import OPERATORS
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, GatewayOf, PartsResponse
from babelgate.http.parts import Parts, cut
from babelgate.http.probe_views import IssuerStateView, ProbeView, SchemasStateView
from babelgate.http.problems import NotReady
from babelgate.http.views import BrokerStateView

READYZ = "/readyz"
PROBES = frozenset({"/livez", READYZ, "/startupz"})

_SWITCH = {"": True, "1": True, "true": True, "0": False, "false": False}


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter()

    @router.get("/livez", response_model_exclude_none=True, dependencies=NO_PARAMETERS)
    async def livez() -> ProbeView:
        return ProbeView(status="ok")

    @router.get("/startupz", response_model_exclude_none=True, dependencies=NO_PARAMETERS)
    async def startupz(gateway: GatewayOf) -> ProbeView:
        if not gateway.started:
            raise NotReady(reason="The gateway is starting.")
        return ProbeView(status="ok")

    @router.get(READYZ, response_model_exclude_none=True)
    async def readyz(gateway: GatewayOf, request: Request, caller: CallerOf) -> ProbeView:
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
        issuers = gateway.overview.issuers() if managed else {}
        checks = gateway.schema_checks
        return ProbeView(
            status="ok",
            brokers=[BrokerStateView.model_validate(state) for state in states] or None,
            schemas=SchemasStateView(schemas=len(checks.schemas), error=checks.refresh_failure)
            if managed and checks.schemas.source is not None
            else None,
            issuers=[
                IssuerStateView(issuer=name, keys=state.keys, read_at=state.read_at, error=state.failure)
                for name, state in issuers.items()
            ]
            or None,
        )

    return router


def metrics_routes(scraping: Scraping) -> APIRouter:
    """The route of ``/metrics``."""
    router = APIRouter()

    @router.get("/metrics", response_class=PlainTextResponse, dependencies=NO_PARAMETERS)
    async def metrics(request: Request, caller: CallerOf) -> Response:
        caller.require_anywhere(*OPERATORS)
        text, content_type = await scraping.show(request.headers.get("accept", ""))
        return PartsResponse(Parts(len(text), cut(text)), {"content-type": content_type, "vary": "accept"})

    return router


def _verbose(request: Request) -> bool:
    query = request.query_params
    unknown = set(query) - {"verbose"}
    if unknown:
        raise InvalidParameter(name=min(unknown), reason="is not a parameter of this path")
    value = query.get("verbose", "false").lower()
    if value not in _SWITCH:
        raise InvalidParameter(name="verbose", reason="must be true or false")
    return _SWITCH[value]
