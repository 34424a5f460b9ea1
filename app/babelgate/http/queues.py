"""Endpoints for queues and brokers: list, inspect, peek, validate, purge, pause."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from babelgate.brokers.binding import Peeked
from babelgate.brokers.projection import NativeWrite
from babelgate.errors import InvalidParameter
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Projection, QueueInfo
from babelgate.gateway.replicas import Identity, Replicas
from babelgate.http import replica_views, views
from babelgate.http.broker_properties import from_header, refuse_header
from babelgate.http.conversions import conversion_of, entry, located
from babelgate.http.dependencies import (
    EXCHANGE,
    NO_PARAMETERS,
    READS_BODY,
    CallerOf,
    GatewayOf,
    QueueName,
    inlined,
    json_answer,
    listed,
    text_or_base64,
)
from babelgate.http.exchange import Exchange
from babelgate.http.problems import UnsupportedMediaType
from babelgate.http.publish_parameters import OPTIONS, ValidateParameters, given, options_of
from babelgate.http.schemas import from_query


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter()

    @router.get("/queues", response_model=views.QueueListView)
    async def list_queues(
        gateway: GatewayOf, caller: CallerOf, parameters: Annotated[views.QueueListQuery, Query()]
    ) -> Response:
        infos, cursor = await gateway.overview.queues(caller, parameters.limit, parameters.cursor, parameters.paused)
        tail = f'],"next_cursor":{msgspec.json.encode(cursor).decode()}}}'
        return await listed('{"queues":[', infos, _queue, tail, lambda info: 0)

    @router.post("/queues/{queue}:purge", dependencies=NO_PARAMETERS)
    async def purge_queue(
        gateway: GatewayOf, caller: CallerOf, queue: QueueName, parameters: views.PurgeRequest = views.PURGE
    ) -> views.PurgeResultView:
        return views.purged(await gateway.purge(caller, queue, dry_run=parameters.dry_run), parameters)

    @router.post("/queues/{queue}:pause", dependencies=NO_PARAMETERS)
    async def pause_queue(
        gateway: GatewayOf, caller: CallerOf, queue: QueueName, parameters: views.PauseRequest = views.PAUSE
    ) -> views.PauseResultView:
        outcome = await gateway.pauses.pause(caller, queue, parameters.publishes, parameters.reason)
        return views.PauseResultView.model_validate(outcome)

    @router.post("/queues/{queue}:resume", dependencies=NO_PARAMETERS)
    async def resume_queue(gateway: GatewayOf, caller: CallerOf, queue: QueueName) -> views.PauseResultView:
        return views.PauseResultView.model_validate(await gateway.pauses.resume(caller, queue))

    @router.get("/queues/{queue}", dependencies=NO_PARAMETERS)
    async def get_queue(gateway: GatewayOf, caller: CallerOf, queue: QueueName) -> views.QueueView:
        return views.QueueView.model_validate(await gateway.overview.queue(caller, queue))

    @router.get("/queues/{queue}/messages:peek", response_model=views.PeekedListView)
    async def peek_messages(
        gateway: GatewayOf, caller: CallerOf, queue: QueueName, parameters: Annotated[views.PeekQuery, Query()]
    ) -> Response:
        found = await gateway.peek(caller, queue, parameters.limit)
        return await listed('{"messages":[', found, _peeked, "]}", lambda each: len(each.body))

    @router.post("/queues/{queue}/messages:validate", response_model=views.ProjectionView, openapi_extra=READS_BODY)
    async def validate_message(gateway: GatewayOf, caller: CallerOf, queue: QueueName, request: Request) -> Response:
        parameters = from_query(request.scope["query_string"], ValidateParameters)
        if parameters.mode == "consume":
            return _projected(
                await _consumed(gateway, caller, queue, parameters, request.scope[EXCHANGE], await request.body())
            )
        access, delay = gateway.access(caller, Right.SEND, queue), given(parameters.delay_seconds)
        exchange: Exchange = request.scope[EXCHANGE]
        body, properties, options = await request.body(), from_header(exchange), options_of(parameters)
        conversion = conversion_of(exchange)
        validating = gateway.validate(
            caller,
            access,
            body
            if conversion is None
            else await entry(conversion, queue, body, gateway.clock, exchange.trace, delay, options),
            delay_seconds=delay,
            ordering_key=given(parameters.ordering_key),
            trace=exchange.trace,
            broker_properties=properties,
            options=options,
        )
        return _projected(await (validating if conversion is None else located(conversion, validating, body)))

    async def _consumed(
        gateway: Gateway, caller: Caller, queue: str, parameters: ValidateParameters, exchange: Exchange, body: bytes
    ) -> Projection:
        for name in ("delay_seconds", "ordering_key", *OPTIONS):
            if given(getattr(parameters, name)) is not None:
                raise InvalidParameter(name=name, reason="is not allowed with mode=consume")
        refuse_header(exchange, "is not allowed with mode=consume")
        if conversion_of(exchange) is not None:
            reason = "mode=consume takes the bytes stored on a queue, not a job or an event."
            raise UnsupportedMediaType(reason=reason)
        return await gateway.inspect(caller, queue, body)

    @router.get("/brokers", dependencies=NO_PARAMETERS)
    async def list_brokers(gateway: GatewayOf, caller: CallerOf) -> views.BrokerListView:
        found = await gateway.overview.brokers(caller)
        return views.BrokerListView(brokers=[views.BrokerView.model_validate(info) for info in found])

    @router.get("/replicas", dependencies=NO_PARAMETERS)
    async def list_replicas(gateway: GatewayOf, caller: CallerOf) -> replica_views.ReplicaListView:
        replicas = gateway.overview.replicas or Replicas(Identity(gateway.incarnation))
        return replica_views.ReplicaListView.model_validate(await replicas.serving(caller))

    return router


def _queue(info: QueueInfo) -> bytes:
    return views.ListedQueueView.model_validate(info).model_dump_json().encode()


def _peeked(message: Peeked) -> bytes:
    return msgspec.json.encode({"headers": dict(message.headers), **inlined("envelope", message.body)})


def _write(write: NativeWrite) -> dict[str, Any]:
    return msgspec.structs.asdict(write) | text_or_base64("body", write.body)


def _projected(made: Projection) -> Response:
    return json_answer(
        {
            "queue": made.queue,
            "broker": made.broker,
            "native_name": made.native_name,
            "headers": dict(made.headers),
            "size_bytes": len(made.body),
            "warnings": made.warnings,
            "delay_seconds": made.delay_seconds,
            "ordering_key": made.ordering_key,
            "idempotency": made.idempotency,
            "writes": [_write(write) for write in made.writes],
            "envelope": msgspec.Raw(made.body),
        }
    )
