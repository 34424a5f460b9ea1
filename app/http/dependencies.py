"""What FastAPI's endpoints share."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Path, Query, Request, Response

from app.http.exchange import Exchange
from app.http.traced import RequestTrace
from app.http.views import Strict
from app.rights import Caller

EXCHANGE = "babelgate.exchange"


def _caller(request: Request) -> Caller:
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange.caller


def _trace(request: Request) -> RequestTrace | None:
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange.trace


class _Nothing(Strict):
    """An empty query."""


def _no_parameters(query: Annotated[_Nothing, Query()]) -> None:
    """A misspelt parameter must not pass for one that was left out."""


CallerOf = Annotated[Caller, Depends(_caller)]
TraceOf = Annotated[RequestTrace | None, Depends(_trace)]
QueueName = Annotated[str, Path(description="The queue: 1 to 120 of `A-Z a-z 0-9 . _ -`.", examples=["emails"])]
NO_PARAMETERS = [Depends(_no_parameters)]


def json_answer(value: Any) -> Response:
    """An answer in which :class:`msgspec.Raw` parts stand byte for byte."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def inlined(name: str, body: bytes) -> dict[str, msgspec.Raw | str | None]:
    """``body`` as the member ``name``, or as ``…_base64`` where it is no JSON object: any bytes may lie on a queue."""
    try:
        msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {name: None, f"{_stem(name)}_base64": b64encode(body).decode("ascii")}
    return {name: msgspec.Raw(body), f"{_stem(name)}_base64": None}


def _stem(name: str) -> str:
    return "body" if name == "envelope" else name
