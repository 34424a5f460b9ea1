"""Endpoints for the figures of the last hour."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Query

from babelgate.http import rate_views as views
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, GatewayOf, QueueName


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter()

    @router.get("/rates")
    async def get_rates(
        gateway: GatewayOf, caller: CallerOf, parameters: Annotated[views.RatesParameters, Query()]
    ) -> views.RatesView:
        return views.RatesView.model_validate(await gateway.rates.overview(caller, parameters.limit))

    @router.get("/queues/{queue}/rates", dependencies=NO_PARAMETERS)
    async def get_queue_rates(gateway: GatewayOf, caller: CallerOf, queue: QueueName) -> views.QueueRatesView:
        return views.QueueRatesView.model_validate(await gateway.rates.queue(caller, queue))

    return router
