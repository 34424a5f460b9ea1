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
from babelgate.observe.metrics.exposition import OPENMETRICS

READYZ = "/readyz"
PROBES = frozenset({"/livez", READYZ, "/startupz"})

_VERBOSE = {
    "parameters": [
        {
            "name": "verbose",
            "in": "query",
            "required": False,
            "allowEmptyValue": True,
            "description": "Whether to list the brokers. Without a value: `true`. Without the parameter: `false`.",
            "schema": {"type": "string", "enum": ["true", "false", "1", "0", ""]},
        }
    ]
}
_SWITCH = {"": True, "1": True, "true": True, "0": False, "false": False}


def routes(gateway: Gateway, scraping: Scraping | None) -> APIRouter:
    """The routes that call ``gateway``, and ``/metrics`` when ``scraping`` is given."""
    router = APIRouter(tags=["operations"])

    @router.get(
        "/livez",
        operation_id="livez",
        summary="Liveness probe",
        response_model_exclude_none=True,
        dependencies=NO_PARAMETERS,
    )
    async def livez() -> views.ProbeView:
        """200 while the process answers. No broker is contacted."""
        return views.ProbeView(status="ok")

    @router.get(
        "/startupz",
        operation_id="startupz",
        summary="Start-up probe",
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
        summary="Readiness probe",
        response_model_exclude_none=True,
        openapi_extra=_VERBOSE,
    )
    async def readyz(request: Request, caller: CallerOf) -> views.ProbeView:
        """200 from start to stop of the gateway, while each required broker is up. The check takes at most 2 s.

        With `verbose` the answer lists the state of the brokers that `GET /brokers` shows this caller, with warnings
        about their set-up. Without a valid token, or without the right `manage`, the answer names no broker, unless the
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
    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Metrics for Prometheus",
        response_class=PlainTextResponse,
        responses={200: {"content": {OPENMETRICS.partition(";")[0]: {"schema": {"type": "string"}}}}},
        dependencies=NO_PARAMETERS,
    )
    async def metrics(request: Request, caller: CallerOf) -> Response:
        """Return the metrics of all workers of this gateway and of its brokers, in Prometheus' text format, or in
        OpenMetrics when `Accept` prefers it. Requires the right `manage` on some queue.

        Brokers and workers that do not answer within 2 s are omitted.
        """
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
