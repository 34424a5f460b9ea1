"""Parameters and answers that the endpoints of FastAPI share."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Path, Query, Request, Response
from starlette.types import Receive, Scope, Send

from babelgate.gateway.authorization import Caller
from babelgate.gateway.dead_letter_operations import DeadLetterOperations
from babelgate.gateway.gateway import Gateway
from babelgate.http.exchange import Exchange
from babelgate.http.parts import Parts, json_list, send_parts
from babelgate.http.problems import MethodNotAllowed
from babelgate.http.schemas import NoParameters, from_body
from babelgate.http.traced import RequestTrace
from babelgate.http.views import Strict
from babelgate.jsontext import surely_finite
from babelgate.runtime import turns

EXCHANGE = "babelgate.exchange"
GATEWAY = "babelgate.gateway"

Item = TypeVar("Item")

_JSON = {"content-type": "application/json"}
_VERBS = (":purge", ":redrive", ":cancel", ":resume", ":pause", ":test", ":rotate")
"""Of a queue, a dead letter, a redrive job, a push, and a token."""
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def _exchange(request: Request) -> Exchange:
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.scope[GATEWAY]
    return gateway


async def _letters(request: Request) -> DeadLetterOperations:
    gateway: Gateway = request.scope[GATEWAY]
    return gateway.letters


def _caller(request: Request) -> Caller:
    return _exchange(request).caller


def _trace(request: Request) -> RequestTrace | None:
    return _exchange(request).trace


class _Nothing(Strict):
    """A query without parameters."""


def _no_parameters(query: Annotated[_Nothing, Query()]) -> None:
    """Refuse any query parameter, so that a misspelt one is not ignored."""


async def refuse_method(request: Request) -> None:
    """Raise MethodNotAllowed for a verb with another method than POST. The endpoint of the path without the verb would
    take the verb for a part of its parameter."""
    path = request.scope["path"]
    if request.method != "POST" and path.endswith(_VERBS) and path.startswith(("/queues/", "/tokens/")):
        raise MethodNotAllowed(allow="POST")


async def refuse_body(request: Request) -> None:
    """Refuse any member of a body where the operation takes none: it would be ignored, and it may be one that makes a
    removal smaller. ``{}`` and ``null`` are as good as no body.

    Raises EnvelopeSyntaxError, InvalidParameter.
    """
    route = request.scope["route"]
    takes_one = route.body_field is not None or "requestBody" in (route.openapi_extra or {})
    if route.include_in_schema and not takes_one and (body := await request.body()):
        from_body(body, NoParameters)


ExchangeOf = Annotated[Exchange, Depends(_exchange)]
GatewayOf = Annotated[Gateway, Depends(_gateway)]
LettersOf = Annotated[DeadLetterOperations, Depends(_letters)]
CallerOf = Annotated[Caller, Depends(_caller)]
TraceOf = Annotated[RequestTrace | None, Depends(_trace)]
QueueName = Annotated[str, Path(description="The queue: 1 to 120 of `A-Z a-z 0-9 . _ -`.", examples=["emails"])]
NO_PARAMETERS = [Depends(_no_parameters)]
READS_BODY: dict[str, Any] = {"requestBody": {}}
"""For ``openapi_extra``: the operation reads its body itself, and the parts of the OpenAPI document describe it."""


class PartsResponse(Response):
    """An answer sent in parts, between which the event loop serves other requests. JSON by default."""

    def __init__(self, parts: Parts, headers: Mapping[str, str] = _JSON) -> None:
        super().__init__(headers={**headers, "content-length": str(parts.length)})
        self._parts = parts.parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send_parts(send, self._parts)
        await send({"type": "http.response.body", "body": b""})


async def listed(
    head: str, items: Sequence[Item], encode: Callable[[Item], bytes], tail: str, size: Callable[[Item], int]
) -> Response:
    """A JSON document with a list: ``head``, the encoded items, and ``tail``.

    ``size``: the number of bytes that the encoding of an item processes.
    """
    return PartsResponse(json_list(head.encode(), await turns.mapped(encode, items, size), tail.encode()))


def json_answer(value: Any) -> Response:
    """A JSON answer; :class:`msgspec.Raw` parts are copied byte for byte."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def inlined(name: str, body: bytes) -> dict[str, msgspec.Raw | str | None]:
    """``body`` as the member ``name``, or as ``…_base64`` when it is not a JSON object: a queue may store any bytes."""
    if _is_object(body):
        return {name: msgspec.Raw(body), f"{_stem(name)}_base64": None}
    return {name: None, f"{_stem(name)}_base64": b64encode(body).decode("ascii")}


def text_or_base64(name: str, body: bytes | None) -> dict[str, str | None]:
    """``body`` as the text ``name``, or as ``…_base64`` when it is not UTF-8."""
    if body is not None:
        try:
            return {name: body.decode(), f"{name}_base64": None}
        except UnicodeDecodeError:
            return {name: None, f"{name}_base64": b64encode(body).decode("ascii")}
    return {name: None, f"{name}_base64": None}


def _is_object(body: bytes) -> bool:
    """Whether ``body`` is a JSON object that every client can read."""
    try:
        found = bytes(_decode_raw(body))
        body.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    # Raw accepts numbers outside the range of a double.
    return found.startswith(b"{") and surely_finite(found)


def _stem(name: str) -> str:
    return "body" if name == "envelope" else name
