"""Probes and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.cluster.scrape import Scraping
from app.errors import BrokerUnavailable, Draining, InvalidParameter
from app.gateway.authorization import Right
from app.gateway.gateway import Gateway
from app.http import views
from app.http.dependencies import NO_PARAMETERS, CallerOf, PartsResponse
from app.http.exchange import Parts, cut
from app.http.problems import NotReady
from app.observe.metrics.exposition import OPENMETRICS

READYZ = "/readyz"
PROBES = frozenset({"/livez", READYZ, "/startupz"})

_VERBOSE = {
    "parameters": [
        {
            "name": "verbose",
            "in": "query",
            "required": False,
            "allowEmptyValue": True,
            "schema": {"enum": ["true", "false", "1", "0", ""]},
        }
    ]
}
_SWITCH = {"": True, "1": True, "true": True, "0": False, "false": False}


def routes(gateway: Gateway, scraping: Scraping | None) -> APIRouter:
    """The routes over ``gateway``, and ``/metrics`` where there is ``scraping``."""
    router = APIRouter(tags=["operations"])

    @router.get(
        "/livez",
        operation_id="livez",
        summary="Is the process alive?",
        response_model_exclude_none=True,
        dependencies=NO_PARAMETERS,
    )
    async def livez() -> views.ProbeView:
        """The process answers; no broker is asked."""
        return views.ProbeView(status="ok")

    @router.get(
        "/startupz",
        operation_id="startupz",
        summary="Has it started?",
        response_model_exclude_none=True,
        dependencies=NO_PARAMETERS,
    )
    async def startupz() -> views.ProbeView:
        """200 once the gateway has started."""
        if not gateway.started:
            raise NotReady(reason="The gateway is starting.")
        return views.ProbeView(status="ok")

    @router.get(
        READYZ,
        operation_id="readyz",
        summary="May it get requests?",
        response_model_exclude_none=True,
        openapi_extra=_VERBOSE,
    )
    async def readyz(request: Request, caller: CallerOf) -> views.ProbeView:
        """200 once started, while not stopping, and with every required broker up; asks these for at most 2 s.

        `verbose` asks and lists the brokers that `GET /brokers` would show this caller, and what an operator should
        know of their set-up. Without a valid token, or without the right `manage`, no broker is named, except where the
        setting `open_readyz` allows it.
        """
        verbose = _verbose(request)
        if not gateway.started:
            raise NotReady(reason="The gateway is starting.")
        if gateway.draining:
            raise Draining
        if missing := await gateway.overview.missing():
            named = sorted(gateway.overview.managed(caller).intersection(missing))
            if named:
                raise BrokerUnavailable(broker=named[0], reason="it is required, and does not answer")
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
    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Numbers for Prometheus",
        response_class=PlainTextResponse,
        responses={200: {"content": {OPENMETRICS.partition(";")[0]: {"schema": {"type": "string"}}}}},
        dependencies=NO_PARAMETERS,
    )
    async def metrics(request: Request, caller: CallerOf) -> Response:
        """Of all workers of this gateway, and of its brokers, in Prometheus' text format, or in OpenMetrics where
        `Accept` asks for it. Needs the right `manage` on some queue.

        Brokers and workers that do not answer within 2 s are left out.
        """
        caller.require_anywhere(Right.MANAGE)
        text, content_type = await scraping.show(request.headers.get("accept", ""))
        return PartsResponse(Parts(len(text), cut(text)), {"content-type": content_type, "vary": "accept"})


def _verbose(request: Request) -> bool:
    query = request.query_params
    unknown = set(query) - {"verbose"}
    if unknown:
        raise InvalidParameter(name=min(unknown), reason="there is no such parameter")
    value = query.get("verbose", "false").lower()
    if value not in _SWITCH:
        raise InvalidParameter(name="verbose", reason="it is true or false")
    return _SWITCH[value]
