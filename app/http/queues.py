"""Queues and brokers: look, check, empty."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from app.brokers.binding import Peeked
from app.errors import InvalidParameter
from app.gateway.authorization import Caller, Right
from app.gateway.gateway import Gateway
from app.gateway.model import Projection, QueueInfo
from app.http import views
from app.http.dependencies import EXCHANGE, NO_PARAMETERS, CallerOf, QueueName, inlined, json_answer, listed
from app.http.exchange import Exchange
from app.http.jobs import entry, is_job
from app.http.operations import PUBLISH_BODY, VALIDATE_QUERY
from app.http.problems import MethodNotAllowed, UnsupportedMediaType
from app.http.schemas import ValidateParameters, from_query, given


def routes(gateway: Gateway) -> APIRouter:
    """The routes over ``gateway``."""
    router = APIRouter()

    @router.get(
        "/queues",
        operation_id="list_queues",
        summary="List queues",
        tags=["queues"],
        dependencies=NO_PARAMETERS,
        response_model=views.QueueListView,
    )
    async def list_queues(caller: CallerOf) -> Response:
        """The configured queues, and those that brokers can list, as far as the caller has a right on them."""
        return await listed('{"queues":[', await gateway.overview.queues(caller), _queue, "]}", lambda info: 0)

    @router.post(
        "/queues/{queue}:purge",
        operation_id="purge_queue",
        summary="Empty a queue",
        tags=["queues"],
        dependencies=NO_PARAMETERS,
    )
    async def purge_queue(caller: CallerOf, queue: QueueName) -> views.PurgedView:
        """Remove ready and delayed messages, not leased ones. Needs the right `manage`."""
        return views.PurgedView(removed=await gateway.purge(caller, queue))

    @router.get(
        "/queues/{queue}",
        operation_id="get_queue",
        summary="One queue",
        tags=["queues"],
        dependencies=NO_PARAMETERS,
    )
    async def get_queue(caller: CallerOf, queue: QueueName) -> views.QueueView:
        """One queue: counts, capabilities and policy. Needs any right on it."""
        if queue.endswith(":purge"):
            raise MethodNotAllowed(allow="POST")
        return views.QueueView.model_validate(await gateway.overview.queue(caller, queue))

    @router.get(
        "/queues/{queue}/messages:peek",
        operation_id="peek_messages",
        summary="Look at ready messages",
        tags=["consume"],
        response_model=views.PeekedListView,
    )
    async def peek_messages(caller: CallerOf, queue: QueueName, asked: Annotated[views.PeekQuery, Query()]) -> Response:
        """Look at ready messages, oldest first, without reserving them; where the broker can. Fewer than `limit` where
        these are large."""
        found = await gateway.peek(caller, queue, asked.limit)
        return await listed('{"messages":[', found, _peeked, "]}", lambda each: len(each.body))

    @router.post(
        "/queues/{queue}/messages:validate",
        operation_id="validate_message",
        summary="Dry run of a publish",
        tags=["publish"],
        response_model=views.ProjectionView,
        openapi_extra={"parameters": VALIDATE_QUERY, "requestBody": PUBLISH_BODY},
    )
    async def validate_message(caller: CallerOf, queue: QueueName, request: Request) -> Response:
        """Dry run: the canonical bytes and the native projection that a publish would write. Writes nothing.

        With `mode=consume` the body counts as one found on the queue: it is checked by the rules of consumers, nothing
        is completed, and a refusal tells why it would be dead-lettered. Needs the right `listen` then.
        """
        asked = from_query(request.scope["query_string"], ValidateParameters)
        if asked.mode == "consume":
            return _projected(await _consumed(caller, queue, asked, request.scope[EXCHANGE], await request.body()))
        access = gateway.access(caller, Right.SEND, queue)
        made = await gateway.validate(
            caller,
            access,
            await entry(request.scope[EXCHANGE], queue, await request.body(), gateway.clock),
            delay_seconds=given(asked.delay_seconds),
            ordering_key=given(asked.ordering_key),
            trace=request.scope[EXCHANGE].trace,
        )
        return _projected(made)

    async def _consumed(
        caller: Caller, queue: str, asked: ValidateParameters, exchange: Exchange, body: bytes
    ) -> Projection:
        for name in ("delay_seconds", "ordering_key"):
            if given(getattr(asked, name)) is not None:
                raise InvalidParameter(name=name, reason="belongs to a publish: mode=consume has none")
        if is_job(exchange):
            raise UnsupportedMediaType(reason="mode=consume takes the bytes that lie on a queue, not a job.")
        return await gateway.inspect(caller, queue, body)

    @router.get(
        "/brokers",
        operation_id="list_brokers",
        summary="List brokers",
        tags=["queues"],
        dependencies=NO_PARAMETERS,
    )
    async def list_brokers(caller: CallerOf) -> views.BrokerListView:
        """The brokers of the queues that the caller may manage, asked now. Needs the right `manage` on some queue.

        A broker is shown when the right `manage` covers a configured queue of it, a whole configured pattern that is
        routed to it, or when a whole pattern of that right is routed to it. The right on `*` shows all brokers.
        """
        found = await gateway.overview.brokers(caller)
        return views.BrokerListView(brokers=[views.BrokerView.model_validate(info) for info in found])

    return router


def _queue(info: QueueInfo) -> bytes:
    return views.QueueView.model_validate(info).model_dump_json().encode()


def _peeked(message: Peeked) -> bytes:
    return msgspec.json.encode({"headers": dict(message.headers), **inlined("envelope", message.body)})


def _projected(made: Projection) -> Response:
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
