"""The bodies of pushes: a table from the name of a format to what makes a body of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from babelgate.gateway.model import Message

BodyFormat = Literal["envelope", "data"]
"""``envelope``: the bytes of the message, unchanged. ``data``: its member ``data`` alone, as it was sent."""

Headers = Sequence[tuple[str, str]]
"""Names in lower case, and values of printable ASCII."""

MakeBody = Callable[[Message], tuple[Headers, bytes]]
"""The headers that describe a body, ``content-type`` first, and the body."""

_JSON: Headers = (("content-type", "application/json"),)


class _Framed(msgspec.Struct):
    data: msgspec.Raw


_decode = msgspec.json.Decoder(_Framed).decode


def _envelope(message: Message) -> tuple[Headers, bytes]:
    return _JSON, message.body


def _data(message: Message) -> tuple[Headers, bytes]:
    return _JSON, bytes(_decode(message.body).data)


FORMATS: Mapping[BodyFormat, MakeBody] = {"envelope": _envelope, "data": _data}
assert set(FORMATS) == set(get_args(BodyFormat))
