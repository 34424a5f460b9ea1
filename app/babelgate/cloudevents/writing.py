"""Writes messages as events: their attributes and data, and the JSON format."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from babelgate.clock import timestamp
from babelgate.cloudevents import terms
from babelgate.cloudevents.terms import BODY, BODY_BASE64, EXT, INT32_MAX, MARK, NO_DATA, name_defect, value_defect
from babelgate.envelope.contract import is_int64, is_text
from babelgate.jsontext import decode_object, is_encodable
from babelgate.observe.tracing.context import trace_headers

_IDS = uuid.UUID("0f1f3f0c-8a7e-5b52-9f0e-6f4c2a9d7b11")
"""The name space of the ids that are made for envelopes without one."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Raw]).decode


class Delivered(Protocol):
    """A message that was handed out; :class:`babelgate.gateway.model.Message` is one."""

    @property
    def ack_token(self) -> str: ...
    @property
    def lease_expires_at(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def trace_id(self) -> str | None: ...


def event_of(message: Delivered, queue: str, *, settled_by_token: bool = True) -> bytes:
    """Return ``message``, received from ``queue``, as an event in the JSON format.

    A message that was published as an event has the attributes and the data of that event. Any other message has its
    ``data``, its queue as ``source``, and its ``created_at`` as ``time``. All have the extension attributes of a
    delivery (``bqattempts`` …), and a ``traceparent``. ``settled_by_token``: whether the consumer gets the ack token.
    """
    attributes, data = parts_of(message, queue, settled_by_token=settled_by_token)
    return _encode(attributes | data)


def parts_of(message: Delivered, queue: str, *, settled_by_token: bool) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Return the attributes of the event of :func:`event_of`, and its member ``data`` or ``data_base64``, if any."""
    top = _members(message.body)
    meta = _members(top.get("meta"))
    kept = value_of(_members(meta.get("ext")).get(EXT))
    kept = kept if isinstance(kept, dict) else {}
    attributes = {
        name: value
        for name, value in kept.items()
        if value is not None and name != "type" and name_defect(name) is None and value_defect(name, value) is None
    }
    is_event = "source" in attributes
    made: dict[str, Any] = {
        "specversion": terms.SPEC_VERSION,
        "id": meta["id"] if is_text(value_of(meta.get("id"))) else str(uuid.uuid5(_IDS, message.body.decode())),
        "source": f"/queues/{queue}",
        "type": top["job"] if is_text(value_of(top.get("job"))) else top["urn"],
    }
    if is_event:
        made |= attributes
    else:
        created_at = value_of(meta.get("created_at"))
        made |= {"time": timestamp(created_at)} if is_int64(created_at) else {}
        made["datacontenttype"] = terms.JSON
    if terms.TRACEPARENT not in made:
        context = trace_headers(message.headers, message.trace_id)
        made |= {name: context[name] for name in (terms.TRACEPARENT, terms.TRACESTATE) if name in context}
    made |= {
        terms.TRACE_ID: top["trace_id"],
        "bqattempts": min(max(message.attempts, 0), INT32_MAX),
        "bqredelivered": message.redelivered,
    }
    if settled_by_token:
        made |= {"bqacktoken": message.ack_token, "bqleaseexpiresat": timestamp(message.lease_expires_at)}
    return made, _data(top["data"], kept.get(MARK) if is_event else None)


def _data(data: Raw, mark: object) -> dict[str, Raw]:
    """The member of an event with its data, if it has any. ``mark``: see MARK; that of foreign data is ignored."""
    if mark == NO_DATA and _members(data) == {}:
        return {}
    wrapped = _members(data) if mark in (BODY, BODY_BASE64) else {}
    if mark == BODY and BODY in wrapped:
        return {"data": wrapped[BODY]}
    if mark == BODY_BASE64 and isinstance(value_of(wrapped.get(BODY_BASE64)), str):
        return {"data_base64": wrapped[BODY_BASE64]}
    return {"data": data}


def _members(raw: bytes | None) -> dict[str, Raw]:
    """The members of an object; empty for any other value."""
    if raw is None or not bytes(raw).lstrip(b" \t\r\n").startswith(b"{"):
        return {}
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        # A name of a foreign body has an unpaired surrogate, which UTF-8 cannot carry.
        return {
            name: Raw(member.raw.encode())
            for name, member in decode_object(bytes(raw)).by_name().items()
            if is_encodable(name)
        }


def value_of(raw: Raw | None) -> Any:
    """The value of a JSON text; None of none."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw), parse_int=_int64)


def _int64(digits: str) -> int | None:
    """An integer with no more characters than the smallest int64 has. Python refuses one of more than 4,300 digits, and
    no attribute has one that is larger than an int64."""
    return int(digits) if len(digits) <= 20 else None
