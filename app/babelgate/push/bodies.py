"""The bodies of pushes: a table from the name of a format to what makes a body of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from babelgate.cloudevents import BATCHED, STRUCTURED, binary_of, event_of
from babelgate.gateway.model import Message

BodyFormat = Literal["envelope", "data", "cloudevents", "cloudevents_binary"]
"""``envelope``: the bytes of the message, unchanged. ``data``: its member ``data`` alone, as it was sent.
``cloudevents``: an event in the JSON format, without an ack token, because the answer settles the message.
``cloudevents_binary``: the same event with its attributes as headers ``ce-…``, and its data as the body."""

Headers = Sequence[tuple[str, str]]
"""Names in lower case, and values of printable ASCII."""

MakeBody = Callable[[Message], tuple[Headers, bytes]]
"""The headers that describe a body, ``content-type`` first if it has one, and the body."""

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


def _binary_event(message: Message) -> tuple[Headers, bytes]:
    return binary_of(message, message.lease.queue)


FORMATS: Mapping[BodyFormat, MakeBody] = {
    "envelope": _envelope,
    "data": _data,
    "cloudevents": _event,
    "cloudevents_binary": _binary_event,
}
BATCH_TYPES: Mapping[BodyFormat, str] = {
    "envelope": "application/json",
    "data": "application/json",
    "cloudevents": BATCHED,
}
"""The media type of a list of bodies, for each format that has lists."""
assert set(FORMATS) == {*get_args(BodyFormat)} >= set(BATCH_TYPES)
