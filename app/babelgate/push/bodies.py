"""The bodies of pushes: a table from the name of a format to what makes a body of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from babelgate.cloudevents import BATCHED, STRUCTURED, event_of
from babelgate.gateway.model import Message

BodyFormat = Literal["envelope", "data", "cloudevents"]
"""``envelope``: the bytes of the message, unchanged. ``data``: its member ``data`` alone, as it was sent.
``cloudevents``: an event in the JSON format, without an ack token, because the answer settles the message."""

Headers = Sequence[tuple[str, str]]
"""Names in lower case, and values of printable ASCII."""

MakeBody = Callable[[Message], tuple[Headers, bytes]]
"""The headers that describe a body, ``content-type`` first, and the body."""

_JSON: Headers = (("content-type", "application/json"),)
_EVENT: Headers = (("content-type", STRUCTURED),)


class _Framed(msgspec.Struct):
    data: msgspec.Raw


_decode = msgspec.json.Decoder(_Framed).decode


def _envelope(message: Message) -> tuple[Headers, bytes]:
    return _JSON, message.body


def payload(message: Message) -> bytes:
    """The member ``data`` of the body, as it was sent."""
    return bytes(_decode(message.body).data)


def _data(message: Message) -> tuple[Headers, bytes]:
    return _JSON, payload(message)


def _event(message: Message) -> tuple[Headers, bytes]:
    return _EVENT, event_of(message, message.lease.queue, settled_by_token=False)


FORMATS: Mapping[BodyFormat, MakeBody] = {"envelope": _envelope, "data": _data, "cloudevents": _event}
BATCH_TYPES: Mapping[BodyFormat, str] = {
    "envelope": "application/json",
    "data": "application/json",
    "cloudevents": BATCHED,
}
"""The media type of a list of bodies."""
assert set(FORMATS) == set(BATCH_TYPES) == set(get_args(BodyFormat))
