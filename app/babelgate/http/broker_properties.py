"""The header BrokerProperties, in which a request or the answer with a bare envelope has its broker properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from babelgate.errors import InvalidParameter
from babelgate.http.exchange import Exchange
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object

HEADER = "BrokerProperties"
NAME = b"brokerproperties"


def from_header(exchange: Exchange) -> Mapping[str, Any] | None:
    """The broker properties in the header of the request, as JSON values; None without the header.

    Raises InvalidParameter unless the header is one JSON object.
    """
    text = exchange.headers.get(NAME)
    if text is None:
        return None
    if sum(name == NAME for name, _ in exchange.scope["headers"]) > 1:
        raise InvalidParameter(name=HEADER, reason="given more than once", header=HEADER)
    return from_text(text)


def from_text(text: bytes) -> Mapping[str, Any]:
    """The broker properties in the value of the header. Raises InvalidParameter and EnvelopeError as for a request."""
    try:
        return {name: member.value for name, member in decode_object(text).by_name().items()}
    except JsonSyntaxError as error:
        raise InvalidParameter(name=HEADER, reason=f"must be one JSON object: {error}", header=HEADER) from None
    except JsonTooDeep:
        reason = "must be one JSON object: it is nested too deeply"
        raise InvalidParameter(name=HEADER, reason=reason, header=HEADER) from None


def refuse_header(exchange: Exchange, reason: str) -> None:
    """Raise InvalidParameter for a request with the header."""
    if NAME in exchange.headers:
        raise InvalidParameter(name=HEADER, reason=reason, header=HEADER)


def as_header(properties: Mapping[str, Any]) -> bytes:
    """``properties`` as JSON in ASCII."""
    return json.dumps(properties, separators=(",", ":")).encode("ascii")
