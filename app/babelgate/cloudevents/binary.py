"""The binary mode of HTTP, whose attributes are headers: reads events, and writes messages as events."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from babelgate.clock import Clock
from babelgate.cloudevents import terms
from babelgate.cloudevents.reading import NOTHING, Data, entry_of, is_json_text, json_data, place_of, problems
from babelgate.cloudevents.terms import BODY, BODY_BASE64, EVENT_FIELDS, HeaderProblem, Place
from babelgate.cloudevents.writing import Delivered, parts_of, value_of
from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.errors import EnvelopeError, Problem

_PREFIX = b"ce-"
_CONTENT_TYPE = b"content-type"
_escapes = re.compile(rb"\\(.)", re.DOTALL)
_not_plain = re.compile(rb"[^!#$&-~]")
"""Bytes that a header has percent-encoded (HTTP binding, section 3.1.3.2)."""
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


def binary_of(message: Delivered, queue: str) -> tuple[list[tuple[str, str]], bytes]:
    """Return the event of :func:`event_of` without an ack token: its headers, and its data, which are the body.

    Header names are in lower case, values are printable ASCII. ``content-type`` is absent where the event has neither a
    ``datacontenttype`` nor JSON data.
    """
    attributes, members = parts_of(message, queue, settled_by_token=False)
    kind = attributes.pop("datacontenttype", None)
    headers = [
        (f"ce-{name}", encoded(value_of(value) if isinstance(value, msgspec.Raw) else value))
        for name, value in attributes.items()
    ]
    body, is_value = _body_of(members, kind)
    if kind is None and is_value:
        kind = terms.JSON
    if kind is not None:
        # Only a parameter may have other characters.
        headers.insert(0, ("content-type", (kind if kind.isascii() else kind.partition(";")[0]).rstrip()))
    return headers, body


def encoded(value: str | int) -> str:
    """Return the value of an attribute as that of a header; :func:`decoded` is the reverse."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # An id of a foreign message may have an unpaired surrogate.
    text = str(value).encode("utf-8", "replace")
    return _not_plain.sub(lambda found: b"%%%02X" % found[0][0], text).decode("ascii")


def _body_of(members: Mapping[str, msgspec.Raw], kind: str | None) -> tuple[bytes, bool]:
    """The bytes of an event's data, and whether they are a JSON value."""
    if not members:
        return b"", False
    ((name, raw),) = members.items()
    try:
        if name == "data_base64":
            return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True), False
        if not terms.is_json(kind):
            # A value of another type than a string stays as it is.
            return msgspec.json.decode(raw, type=str).encode(), False
    except (binascii.Error, ValueError, msgspec.DecodeError):
        pass
    return bytes(raw), True


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
