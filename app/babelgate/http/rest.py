"""The FastAPI application, which serves all endpoints but the hot ones."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cache, partial
from typing import Any, NoReturn

from fastapi import Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, create_model
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from babelgate import __version__
from babelgate.cluster.scrape import Scraping
from babelgate.errors import MAX_DETAIL, EnvelopeSyntaxError, InvalidFilter, InvalidParameter, Problem
from babelgate.gateway.gateway import Gateway
from babelgate.http import (
    asyncapi,
    configuration,
    dead_letters,
    health,
    history,
    job_schemas,
    pushes,
    queues,
    rates,
    redrives,
    tokens,
)
from babelgate.http.body import RequestLimits, is_null, read, require_json, require_utf8
from babelgate.http.conversions import conversion_of
from babelgate.http.dependencies import EXCHANGE, GATEWAY, refuse_body, refuse_method
from babelgate.http.exchange import Exchange
from babelgate.http.heads import check_query
from babelgate.http.path_hints import path_hint
from babelgate.http.problems import MethodNotAllowed, NotFound
from babelgate.http.schemas import MAX_PARAMETER_BYTES
from babelgate.jsontext import pointer, syntax_reason
from babelgate.ojs import MEDIA_TYPE
from babelgate.push.pushes import Pushes
from babelgate.schematext import explain, fault_of
from babelgate.tokens.tokens import Tokens

_FAILURE = "babelgate.failure"
_EDIT = re.compile(r"/queues/[^/]+/dead-letters/[^/]+:redrive")
_HIDDEN = frozenset({b"content-type", b"cookie"})
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own spans would duplicate ours, and its logs may quote requests."""


class _Failures:
    """Returns errors to :func:`serve_rest` before Starlette answers them with its own page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            scope[_FAILURE].append(error)


def create_rest(
    scraping: Scraping | None,
    hot: Sequence[str],
    pushing: Pushes | None = None,
    making: Tokens | str = tokens.NO_CREDENTIALS,
) -> FastAPI:
    """Create the FastAPI application, which raises its errors instead of answering them.

    ``hot``: the paths of the other endpoints. The answer to an unknown path names those that are similar. ``scraping``
    and ``pushing``: None where their paths do not exist. ``making``: the tokens, or why none are made.
    """
    rest = FastAPI(
        title="babelgate",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        dependencies=[Depends(refuse_method), Depends(refuse_body)],
    )
    rest.add_middleware(_Failures)
    rest.add_exception_handler(RequestValidationError, _misfit)
    modules = (queues, rates, dead_letters, redrives, tokens, history, job_schemas, asyncapi, configuration, health)
    parts = [module.routes() for module in modules]
    rest.state.tokens = making
    if pushing is not None:
        parts.append(pushes.routes())
        rest.state.pushes = pushing
    if scraping is not None:
        parts.append(health.metrics_routes(scraping))
    for part in parts:
        rest.include_router(part)
    served = [route.path for part in parts for route in part.routes if isinstance(route, APIRoute)]
    templates = [*hot, *dict.fromkeys(served), "/docs", "/openapi.json"]
    rest.add_exception_handler(HTTPException, partial(_refused, templates))
    return rest


async def serve_rest(rest: FastAPI, gateway: Gateway, exchange: Exchange, limits: RequestLimits) -> None:
    """Serve a request with FastAPI. Raises the error of the request.

    A request that only reads ends when its client disconnects (raises ClientGone). One that may write goes on.
    """
    check_query(exchange.scope["query_string"])
    # The body of `:validate` is a message, and that of a redrive of one letter may contain one. All other bodies are
    # parameters, which FastAPI reads as a whole.
    is_validate = exchange.path.endswith(":validate") and exchange.path.startswith("/queues/")
    is_message = is_validate or _EDIT.fullmatch(exchange.path) is not None
    limit = limits.max_entry_bytes if is_message else MAX_PARAMETER_BYTES
    with gateway.admission.other("", min(exchange.announced, limit)) as permit:
        body = await read(exchange, limit, permit)
    if not is_validate and is_null(body):
        body = b""
    # A path that does not exist is refused as such, whatever is sent to it.
    if body and _is_served(rest, exchange):
        if is_validate:
            conversion_of(exchange)
        else:
            require_json(exchange, *((MEDIA_TYPE,) if is_message else ()))
        # A dry run answers as a publish would.
        if not is_validate:
            require_utf8(body)
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return pending.pop() if pending else await exchange.receive()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            exchange.route = route()
            message["headers"] = [*message["headers"], *exchange.head()]
        else:
            exchange.sent += len(message.get("body", b""))
        await exchange.send(message)

    def route() -> str:
        return getattr(scope.get("route"), "path", "")

    failures: list[Exception] = []
    # Hide differences that FastAPI does not expect: the prefix is removed, a body without a media type is JSON, and a
    # HEAD is a GET whose body the server drops. Cookies, which no endpoint reads, would be parsed.
    headers = [field for field in exchange.scope["headers"] if field[0] not in _HIDDEN]
    scope = {
        **exchange.scope,
        "method": "GET" if exchange.scope["method"] == "HEAD" else exchange.scope["method"],
        "path": exchange.path,
        "root_path": "",
        "headers": [*headers, (b"content-type", b"application/json")],
        EXCHANGE: exchange,
        GATEWAY: gateway,
        _FAILURE: failures,
    }
    serving = rest(scope, receive, send)
    try:
        await (exchange.unless_gone(serving) if scope["method"] == "GET" or is_validate else serving)
    finally:
        exchange.route = route()
    if failures:
        raise failures[0]


def _is_served(rest: FastAPI, exchange: Exchange) -> bool:
    scope = {"type": "http", "method": exchange.scope["method"], "path": exchange.path, "root_path": "", "headers": []}
    return any(route.matches(scope)[0] is not Match.NONE for route in rest.routes)


def _refused(templates: Sequence[str], request: Request, error: Exception) -> NoReturn:
    """Convert the errors of Starlette: unknown path, or unknown method. ``templates``: of all paths."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow", "")
        raise MethodNotAllowed(allow="GET, HEAD" if allow == "GET" else allow)
    if error.status_code == 404:
        path = request.scope["path"]
        raise NotFound(path, path_hint(path, templates))
    # FastAPI's answer to a body that Python's parser does not finish. Others are refused before.
    raise EnvelopeSyntaxError(
        [Problem("", "invalid_json", "The body is not one JSON object: it is nested too deeply.")]
    )


def _misfit(request: Request, error: Exception) -> NoReturn:
    """Convert the first validation error of FastAPI."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    where, *place = found["loc"]
    if found["type"] == "json_invalid":
        reason = syntax_reason(found["ctx"]["error"], place[0])
        raise EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not one JSON object: {reason}.")])
    dependant = request.scope["route"].dependant
    schema = _path_schema(dependant) if where == "path" else _schema(_model(dependant, where))
    reason = (
        str(found["ctx"]["error"])
        if found["type"] == "value_error"
        else explain(schema, place, fault_of(found["type"]))
    )
    name = ".".join(map(str, place)) or str(where)
    # A filter that is well-formed, and asks for what cannot be there, is no syntax error.
    is_filter = found["type"] == "literal_error" and (where != "body" or place[:1] == ["filter"])
    refusal = InvalidFilter if is_filter else InvalidParameter
    raise refusal(name=name[:MAX_DETAIL], reason=reason, pointer=pointer(*place) if where == "body" else None)


def _path_schema(dependant: Dependant) -> dict[str, Any]:
    fields: dict[str, Any] = {
        each.alias: (each.field_info.annotation, each.field_info) for each in dependant.path_params
    }
    schema: dict[str, Any] = create_model("Path", **fields).model_json_schema()
    return schema


def _model(dependant: Dependant, where: str) -> type[BaseModel]:
    """The model that an endpoint, or one of its dependencies, reads its query or body with."""
    fields = dependant.body_params if where == "body" else dependant.query_params
    models = [kind for field in fields if isinstance(kind := field.field_info.annotation, type)]
    models += [_model(each, where) for each in dependant.dependencies if each.query_params and where == "query"]
    return next(kind for kind in models if issubclass(kind, BaseModel))


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()
