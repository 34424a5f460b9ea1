"""Queues and brokers: look, check, empty."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from app.gateway import Gateway
from app.http.dependencies import NO_PARAMETERS, CallerOf, QueueName, inlined, json_answer
from app.http.operations import PUBLISH_BODY, PUBLISH_QUERY
from app.http.problems import MethodNotAllowed
from app.http.schemas import PublishParameters, from_query
from app.http.views import (
    BrokerList,
    BrokerView,
    PeekedList,
    PeekQuery,
    ProjectionView,
    Purged,
    QueueList,
    QueueView,
)


def routes(gateway: Gateway) -> APIRouter:
    """The routes over ``gateway``."""
    router = APIRouter()

    @router.get("/queues", operation_id="list_queues", tags=["queues"], dependencies=NO_PARAMETERS)
    async def list_queues(caller: CallerOf) -> QueueList:
        """The configured queues, and those that brokers can list, as far as the caller has a right on them."""
        found = await gateway.queues(caller)
        return QueueList(queues=[QueueView.model_validate(info) for info in found])

    @router.post("/queues/{queue}:purge", operation_id="purge_queue", tags=["queues"], dependencies=NO_PARAMETERS)
    async def purge_queue(caller: CallerOf, queue: QueueName) -> Purged:
        """Remove ready and delayed messages, not leased ones. Needs the right `manage`."""
        return Purged(removed=await gateway.purge(caller, queue))

    @router.get("/queues/{queue}", operation_id="get_queue", tags=["queues"], dependencies=NO_PARAMETERS)
    async def get_queue(caller: CallerOf, queue: QueueName) -> QueueView:
        """One queue: counts, capabilities and policy. Needs any right on it."""
        if queue.endswith(":purge"):
            raise MethodNotAllowed(allow="POST")
        return QueueView.model_validate(await gateway.queue(caller, queue))

    @router.get(
        "/queues/{queue}/messages:peek", operation_id="peek_messages", tags=["consume"], response_model=PeekedList
    )
    async def peek_messages(caller: CallerOf, queue: QueueName, asked: Annotated[PeekQuery, Query()]) -> Response:
        """Look at ready messages, oldest first, without reserving them; where the broker can."""
        found = await gateway.peek(caller, queue, asked.limit)
        return json_answer(
            {"messages": [{"headers": dict(each.headers), **inlined("envelope", each.body)} for each in found]}
        )

    @router.post(
        "/queues/{queue}/messages:validate",
        operation_id="validate_message",
        tags=["publish"],
        response_model=ProjectionView,
        openapi_extra={"parameters": PUBLISH_QUERY, "requestBody": PUBLISH_BODY},
    )
    async def validate_message(caller: CallerOf, queue: QueueName, request: Request) -> Response:
        """Dry run: the canonical bytes and the native projection that a publish would write. Writes nothing."""
        asked = from_query(request.scope["query_string"], PublishParameters)
        made = gateway.validate(
            caller,
            queue,
            await request.body(),
            delay_seconds=asked.delay_seconds,
            ordering_key=asked.ordering_key,
        )
        return json_answer(
            {
                "queue": made.queue,
                "broker": made.broker,
                "native_name": made.native_name,
                "headers": dict(made.headers),
                "size_bytes": len(made.body),
                "envelope": msgspec.Raw(made.body),
            }
        )

    @router.get("/brokers", operation_id="list_brokers", tags=["queues"], dependencies=NO_PARAMETERS)
    async def list_brokers(caller: CallerOf) -> BrokerList:
        """All configured brokers, asked now. Needs the right `manage` on some queue."""
        return BrokerList(brokers=[BrokerView.model_validate(info) for info in await gateway.brokers(caller)])

    return router
