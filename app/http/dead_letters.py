"""Endpoints for dead letters: list, redrive, purge."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from app.gateway.gateway import Gateway
from app.gateway.model import DeadLetter, DeadLetterFilter
from app.http import views
from app.http.dependencies import NO_PARAMETERS, CallerOf, QueueName, TraceOf, inlined, listed

_EVERYTHING = views.RedriveRequest()


def routes(gateway: Gateway) -> APIRouter:
    """The routes that call ``gateway``."""
    router = APIRouter(prefix="/queues/{queue}", tags=["dead letters"])

    @router.get(
        "/dead-letters",
        operation_id="list_dead_letters",
        summary="List dead letters",
        response_model=views.DeadLetterPageView,
    )
    async def list_dead_letters(
        caller: CallerOf, queue: QueueName, parameters: Annotated[views.DeadLetterQuery, Query()]
    ) -> Response:
        """Return a page of the dead letters that meet all given conditions, oldest first. A page may be empty and still
        have a next page; large dead letters reduce the number returned below `limit`."""
        where = DeadLetterFilter(
            parameters.job, parameters.reason, parameters.before, parameters.after, parameters.trace_id
        )
        found, cursor = await gateway.dead_letters(caller, queue, where, parameters.limit, parameters.cursor)
        tail = f'],"next_cursor":{json.dumps(cursor)}}}'
        return await listed('{"dead_letters":[', found, _encoded, tail, lambda view: len(view.record))

    @router.post(
        "/dead-letters:redrive",
        operation_id="redrive_dead_letters",
        summary="Redrive dead letters",
        dependencies=NO_PARAMETERS,
    )
    async def redrive_dead_letters(
        caller: CallerOf, queue: QueueName, trace: TraceOf, parameters: views.RedriveRequest = _EVERYTHING
    ) -> views.RedriveResultView:
        """Send dead letters back: publish, wait for the confirm, then remove. An interrupted redrive loses nothing.

        Requires the right `manage`, and `send` on the queue of `to_queue`.
        """
        where = DeadLetterFilter(**dict(parameters.filter))
        result = await gateway.redrive(
            caller, queue, where, parameters.limit, parameters.to_queue, parameters.dry_run, trace
        )
        return views.RedriveResultView.model_validate(result)

    @router.post(
        "/dead-letters:purge",
        operation_id="purge_dead_letters",
        summary="Purge dead letters",
        dependencies=NO_PARAMETERS,
    )
    async def purge_dead_letters(caller: CallerOf, queue: QueueName) -> views.PurgedView:
        """Remove all dead letters of the queue. Requires the right `manage`."""
        return views.PurgedView(removed=await gateway.purge_dead_letters(caller, queue))

    return router


def _encoded(view: DeadLetter) -> bytes:
    letter = {
        "id": view.id,
        "job": view.job,
        "trace_id": view.trace_id,
        "reason": view.reason,
        "error": view.error,
        "failed_at": view.failed_at,
        "attempts": view.attempts,
        "headers": dict(view.headers),
        **inlined("record", view.record),
    }
    return msgspec.json.encode(letter)
