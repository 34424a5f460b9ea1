"""Shows an encoded message in AMQP's own words, for a dry run."""

from __future__ import annotations

from typing import Any

from babelgate.brokers.artemis.message import DELIVERY_TIME, read, sections
from babelgate.brokers.artemis.values import decode, items, text_of
from babelgate.brokers.projection import NativeHeader, NativeWrite

_FIELDS = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA = 0x70, 0x72, 0x73, 0x74, 0x75
_TYPES = {0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol", 0xA0: "binary", 0xB0: "binary"}


def projected(queue: str, encoded: bytes) -> NativeWrite:
    """The transfer of an encoded message to the queue ``queue``."""
    fields: dict[str, Any] = {"body": "amqp-value"}
    headers: dict[str, NativeHeader] = {}
    for section, position in sections(encoded):
        starts = items(encoded, position) if section not in (_DATA, 0x77) else []
        if section == _HEADER:
            fields["durable"] = decode(encoded, starts[0])
        elif section == _PROPERTIES:
            found = zip(_FIELDS, starts, strict=False)
            fields |= {name: _shown(encoded, start) for name, start in found if decode(encoded, start) is not None}
        elif section == _ANNOTATIONS:
            pairs = zip(starts[::2], starts[1::2], strict=True)
            fields |= {str(decode(encoded, key)): _shown(encoded, value) for key, value in pairs}
        elif section == _APPLICATION:
            for key, value in zip(starts[::2], starts[1::2], strict=True):
                kind = _TYPES.get(encoded[value], "other")
                headers[str(decode(encoded, key))] = NativeHeader(kind, _shown(encoded, value))
        elif section == _DATA:
            fields["body"] = "data"
    assigned = [DELIVERY_TIME] if DELIVERY_TIME in fields else []
    return NativeWrite("transfer", {"target": queue}, fields, headers, read(encoded).body, assigned)


def _shown(encoded: bytes, position: int) -> Any:
    value = decode(encoded, position)
    return value if isinstance(value, bool | int | float | str) else text_of(value)
