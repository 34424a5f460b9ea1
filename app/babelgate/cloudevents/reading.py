"""Reads events in the JSON format as publish entries."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Raw, Struct

from babelgate.clock import Clock
from babelgate.cloudevents import terms
from babelgate.cloudevents.terms import BODY, BODY_BASE64, EXT, MARK, NO_DATA, Place, name_defect, value_defect
from babelgate.envelope.contract import is_id
from babelgate.envelope.options import OPTIONS
from babelgate.envelope.publication import MAX_PROBLEMS, new_ids
from babelgate.errors import EnvelopeError, EnvelopeSyntaxError, Problem
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object, defects, is_encodable, is_plain, pointer
from babelgate.observe.tracing.context import parse, uuid_of

_IDS = uuid.UUID("6f3d0a0e-57c1-5a39-8c53-3d3f6fd5a1c7")
"""The name space of the ids that are made for events whose own id no envelope can have."""
_BODY_MEMBERS = frozenset({"data", "data_base64"})
_DEFECTS = {
    "number_out_of_range": "The number must fit a double; send a larger one as a string.",
    "lone_surrogate": "The string holds an unpaired surrogate, which UTF-8 cannot carry.",
}


class Data(Struct, frozen=True):
    """The data of an event: ``raw`` is JSON text, and ``mark`` says what it is.

    None: an object, which is the data of the envelope. BODY: any other value, or a text. BODY_BASE64: a string in
    base64. NO_DATA: the event has none.
    """

    raw: bytes
    mark: str | None = None


NOTHING = Data(b"", NO_DATA)


def structured_entry(body: bytes, queue: str, clock: Clock, trace_id: str | None = None) -> bytes:
    """Return the publish entry of ``body``, an event in the JSON format.

    ``trace_id``, that of the request's trace, is used for an event without one. Raises EnvelopeSyntaxError, or
    EnvelopeError with all problems of the event and pointers within the event.
    """
    try:
        members = decode_object(body, ("data",)).by_name()
        attributes = {
            name: member.value
            for name, member in members.items()
            if name not in _BODY_MEMBERS and member.value is not None
        }
        refused = [
            Problem(pointer(name) if is_encodable(name) else "", code, detail)
            for name, code, detail in islice(problems(attributes), MAX_PROBLEMS)
        ]
        text = body.decode()
        if not is_plain(text):
            refused += (Problem(at, code, _DEFECTS[code]) for at, code in islice(defects(text), MAX_PROBLEMS))
        data = _data_of(members, attributes.get("datacontenttype"), refused)
    except JsonSyntaxError as error:
        raise EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not one JSON object: {error}.")]) from None
    except (JsonTooDeep, RecursionError):
        raise EnvelopeError([Problem("", "too_deep", "The event is nested too deeply.")]) from None
    if refused:
        raise EnvelopeError(refused[:MAX_PROBLEMS])
    return entry_of(attributes, data, queue, clock, trace_id)


def structured_places(body: bytes, places: Iterable[str]) -> list[Place]:
    """Where the event ``body`` has what stands at ``places`` in the entry that :func:`structured_entry` makes of it."""
    members = decode_object(body, ("data",)).by_name()
    given = {name for name, member in members.items() if member.value is not None}
    in_data = "/data_base64" if "data" not in members else "/data"
    is_object = "data" in members and members["data"].raw.startswith("{")
    return [Place(_place(each, given, in_data, is_object)) for each in places]


def problems(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield attribute, code and description of each problem of ``attributes``, none of which is null."""
    for name in terms.REQUIRED:
        if attributes.get(name, "") == "":
            yield name, "missing_attribute", f"A CloudEvent must have the attribute {name}, which is not empty."
    for name, value in attributes.items():
        found = name_defect(name)
        if found is None and not (value == "" and name in terms.REQUIRED):
            found = value_defect(name, value)
        if found is not None:
            yield name, *found


def json_data(raw: bytes) -> Data:
    """The data of an event whose data is the JSON text ``raw``."""
    return Data(raw, None if raw.lstrip(b" \t\r\n").startswith(b"{") else BODY)


def entry_of(attributes: Mapping[str, Any], data: Data, queue: str, clock: Clock, trace_id: str | None) -> bytes:
    """Return the publish entry of an event without problems."""
    kept = {
        name: value
        for name, value in attributes.items()
        if name not in ("type", "id", terms.TRACE_ID) and name not in terms.OF_DELIVERY
    }
    id_ = attributes["id"]
    if not is_id(id_):
        # Derived from what identifies the event, so that an event which is sent twice has one id.
        kept["id"], id_ = id_, str(uuid.uuid5(_IDS, f"{attributes['source']}\n{id_}"))
    if data.mark is not None:
        kept[MARK] = data.mark
    envelope = {
        "job": attributes["type"],
        "trace_id": _trace_id(attributes) or trace_id or new_ids()[0],
        "data": Raw(_envelope_data(attributes, data)),
        "meta": {
            "id": id_,
            "queue": queue,
            "lang": "python",
            "schema_version": 1,
            "created_at": clock(),
            "ext": {EXT: kept},
        },
        "attempts": 0,
    }
    entry: dict[str, Any] = {"envelope": envelope}
    if terms.PARTITION_KEY in attributes:
        entry["ordering_key"] = attributes[terms.PARTITION_KEY]
    return msgspec.json.encode(entry)


def place_of(place: str) -> tuple[str, str]:
    """Divide ``place``, a pointer in an entry: the attribute that it is about, or ``data``, and the rest within it.

    The attribute is empty where an event has no member for it.
    """
    first, *inner = place.removeprefix("/envelope").split("/")[1:] or [""]
    if first == "data":
        return "data", "".join(f"/{name}" for name in inner)
    if first == "job":
        return "type", ""
    if first == "ordering_key":
        return terms.PARTITION_KEY, ""
    if first == "trace_id":
        return terms.TRACE_ID, ""
    if first == "meta":
        return (inner[2] if inner[:2] == ["ext", EXT] and len(inner) > 2 else inner[0] if inner else ""), ""
    return "", place if first in OPTIONS and first != "headers" else ""


def _place(place: str, given: set[str], in_data: str, is_object: bool) -> str:
    name, rest = place_of(place)
    if name == "data":
        if is_object:
            return in_data + rest
        return "/datacontenttype" if rest == "/content_type" else in_data + rest.removeprefix("/" + in_data[1:])
    if name == terms.TRACE_ID and name not in given:
        name = terms.TRACEPARENT
    # An option that the event does not give keeps its place: the request gives it.
    if name in given:
        return pointer(name)
    return place if name == terms.PARTITION_KEY else rest


def _data_of(members: Mapping[str, Any], content_type: Any, refused: list[Problem]) -> Data:
    """The data of an event; its problems are added to ``refused``."""
    text, encoded = members.get("data"), members.get("data_base64")
    if encoded is None or encoded.value is None:
        return NOTHING if text is None else json_data(text.raw.encode())
    if text is not None:
        detail = "data and data_base64 exclude each other: send one of them."
        refused.append(Problem("/data_base64", "invalid_event_data", detail))
        return NOTHING
    try:
        decoded = base64.b64decode(encoded.value, validate=True) if isinstance(encoded.value, str) else None
    except (binascii.Error, ValueError):
        decoded = None
    if decoded is None:
        refused.append(Problem("/data_base64", "invalid_event_data", "data_base64 must be a string in base64."))
        return NOTHING
    if isinstance(content_type, str) and terms.is_json(content_type) and is_json_text(decoded):
        return json_data(decoded)
    return Data(encoded.raw.encode(), BODY_BASE64)


def is_json_text(text: bytes) -> bool:
    """Return whether ``text`` is JSON that every language reads."""
    try:
        msgspec.json.decode(text)
        return is_plain(text.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _envelope_data(attributes: Mapping[str, Any], data: Data) -> bytes:
    if data.mark is None:
        return data.raw
    if data.mark == NO_DATA:
        return b"{}"
    content_type = msgspec.json.encode(attributes.get("datacontenttype", terms.JSON))
    return b'{"content_type":%b,"%b":%b}' % (content_type, data.mark.encode(), data.raw)


def _trace_id(attributes: Mapping[str, Any]) -> str | None:
    """The trace id that an event gives, as that of an envelope."""
    if terms.TRACE_ID in attributes:
        return str(attributes[terms.TRACE_ID])
    traceparent = attributes.get(terms.TRACEPARENT)
    context = parse(traceparent) if isinstance(traceparent, str) else None
    return None if context is None else uuid_of(context.trace_id)
