"""The header BrokerProperties, in which a request or the answer with a bare envelope has its broker properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from babelgate.envelope.broker_properties import property_problems, read_properties
from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.errors import EnvelopeError, InvalidParameter
from babelgate.http.exchange import Exchange
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object

HEADER = "BrokerProperties"
NAME = b"brokerproperties"


def from_header(exchange: Exchange) -> Mapping[str, Any] | None:
    """The broker properties in the header of the request, in Python types; None without the header.

    Raises InvalidParameter unless the header is one JSON object, and EnvelopeError for properties that a publish cannot
    have.
    """
    text = exchange.headers.get(NAME)
    if text is None:
        return None
    if sum(name == NAME for name, _ in exchange.scope["headers"]) > 1:
        raise InvalidParameter(name=HEADER, reason="given more than once", header=HEADER)
    try:
        given = {name: member.value for name, member in decode_object(text).by_name().items()}
    except JsonSyntaxError as error:
        raise InvalidParameter(name=HEADER, reason=f"must be one JSON object: {error}", header=HEADER) from None
    except JsonTooDeep:
        reason = "must be one JSON object: it is nested too deeply"
        raise InvalidParameter(name=HEADER, reason=reason, header=HEADER) from None
    if problems := list(islice(property_problems(given), MAX_PROBLEMS)):
        raise EnvelopeError(problems, header=HEADER)
    return read_properties(given)


def refuse_header(exchange: Exchange, reason: str) -> None:
    """Raise InvalidParameter for a request with the header."""
    if NAME in exchange.headers:
        raise InvalidParameter(name=HEADER, reason=reason, header=HEADER)


def as_header(properties: Mapping[str, Any]) -> bytes:
    """``properties`` as JSON in ASCII."""
    return json.dumps(properties, separators=(",", ":")).encode("ascii")
