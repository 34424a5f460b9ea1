"""Reads events in the binary mode of HTTP, whose attributes are headers, as publish entries."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from babelgate.clock import Clock
from babelgate.cloudevents import terms
from babelgate.cloudevents.reading import NOTHING, Data, entry_of, is_json_text, json_data, place_of, problems
from babelgate.cloudevents.terms import BODY, BODY_BASE64, EVENT_FIELDS, HeaderProblem, Place
from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.errors import EnvelopeError, Problem

_PREFIX = b"ce-"
_CONTENT_TYPE = b"content-type"
_escapes = re.compile(rb"\\(.)", re.DOTALL)
_percent = re.compile(rb"%([0-9A-Fa-f]{2})")

Fields = Mapping[bytes, bytes]
"""The headers of a request by their names, which are in lower case."""


def is_binary(fields: Fields) -> bool:
    """Return whether a request with these headers is an event in the binary mode."""
    return not EVENT_FIELDS.isdisjoint(fields)


def binary_entry(fields: Fields, body: bytes, queue: str, clock: Clock, trace_id: str | None = None) -> bytes:
    """Return the publish entry of the event with these headers and ``body``, its data.

    ``trace_id``, that of the request's trace, is used for an event without one. Raises EnvelopeError with all problems
    of the event, each with its header, or with a pointer in ``body``.
    """
    attributes, refused = _attributes_of(fields)
    found = islice(problems(attributes), MAX_PROBLEMS)
    refused += (HeaderProblem("", code, detail, _header(name)) for name, code, detail in found)
    data = NOTHING
    if body:
        try:
            data = _data_of(body, attributes.get("datacontenttype"))
        except EnvelopeError as error:
            refused += error.problems
    if refused:
        raise EnvelopeError(refused[:MAX_PROBLEMS])
    return entry_of(attributes, data, queue, clock, trace_id)


def binary_places(fields: Fields, places: Iterable[str]) -> list[Place]:
    """Where an event has what stands at ``places`` in the entry that :func:`binary_entry` makes of it."""
    return [_place(each, fields) for each in places]


def fingerprint_of(fields: Fields, body: bytes) -> bytes:
    """Return bytes that are equal for equal events only."""
    return b"\n".join([*(b"%b:%b" % each for each in sorted(_own(fields).items())), b"", body])


def _own(fields: Fields) -> dict[bytes, bytes]:
    return {name: value for name, value in fields.items() if name.startswith(_PREFIX) or name == _CONTENT_TYPE}


def _attributes_of(fields: Fields) -> tuple[dict[str, Any], list[Problem]]:
    attributes: dict[str, Any] = {}
    refused: list[Problem] = []
    for field, value in _own(fields).items():
        header = field.decode("latin-1")
        name = "datacontenttype" if field == _CONTENT_TYPE else header.removeprefix("ce-")
        if header == "ce-datacontenttype":
            detail = "In the binary mode the header Content-Type is the attribute datacontenttype."
            refused.append(HeaderProblem("", "invalid_attribute_name", detail, header))
            continue
        try:
            attributes[name] = value.decode("latin-1") if field == _CONTENT_TYPE else decoded(value)
        except UnicodeDecodeError:
            detail = f"{name} must be UTF-8, percent-encoded where it is not printable ASCII."
            refused.append(HeaderProblem("", "invalid_attribute", detail, header))
    return attributes, refused


def decoded(value: bytes) -> str:
    """Return the text of a header (HTTP binding, section 3.1.3.2): quotes are removed first, then escapes decoded once.

    Many programs do not encode the percent sign: one without two digits stands for itself. Raises UnicodeDecodeError.
    """
    value = value.strip(b" \t")
    if len(value) >= 2 and value.startswith(b'"') and value.endswith(b'"'):
        value = _escapes.sub(rb"\1", value[1:-1])
    return _percent.sub(lambda found: bytes([int(found[1], 16)]), value).decode()


def _data_of(body: bytes, content_type: str | None) -> Data:
    if terms.is_json(content_type):
        if is_json_text(body):
            return json_data(body)
        detail = f"The data must be JSON, as Content-Type says: {content_type or 'JSON is what it is without one'}."
        raise EnvelopeError([Problem("", "invalid_event_data", detail)])
    assert content_type is not None
    if terms.is_text(content_type):
        try:
            return Data(msgspec.json.encode(body.decode()), BODY)
        except UnicodeDecodeError:
            pass
    return Data(msgspec.json.encode(base64.b64encode(body).decode()), BODY_BASE64)


def _place(place: str, fields: Fields) -> Place:
    name, rest = place_of(place)
    if name == "data":
        return Place(rest)
    if name == terms.TRACE_ID and b"ce-bqtraceid" not in fields:
        name = terms.TRACEPARENT
    if f"ce-{name}".encode() in fields:
        return Place(header=_header(name))
    return Place(place if name == terms.PARTITION_KEY else rest)


def _header(name: str) -> str:
    return "Content-Type" if name == "datacontenttype" else f"ce-{name}"
