"""Shows an encoded message in AMQP's own words, for a dry run."""

from __future__ import annotations

from typing import Any

from babelgate.brokers import amqp
from babelgate.brokers.amqp import PROPERTY_NAMES, decode, items, pairs, text_of
from babelgate.brokers.artemis.message import DELIVERY_TIME, read
from babelgate.brokers.projection import NativeHeader, NativeWrite

_TYPES = {0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol", 0xA0: "binary", 0xB0: "binary"}


def projected(queue: str, encoded: bytes) -> NativeWrite:
    """The transfer of an encoded message to the queue ``queue``."""
    fields: dict[str, Any] = {"body": "amqp-value"}
    headers: dict[str, NativeHeader] = {}
    for section, start in amqp.sections(encoded):
        if section == amqp.HEADER:
            fields["durable"] = decode(encoded, items(encoded, start)[0])
        elif section == amqp.PROPERTIES:
            found = zip(PROPERTY_NAMES, items(encoded, start), strict=False)
            fields |= {name: _shown(encoded, at) for name, at in found if decode(encoded, at) is not None}
        elif section == amqp.ANNOTATIONS:
            fields |= {name: _shown(encoded, value) for name, value in pairs(encoded, start)}
        elif section == amqp.APPLICATION:
            for name, value in pairs(encoded, start):
                headers[name] = NativeHeader(_TYPES.get(encoded[value], "other"), _shown(encoded, value))
        elif section == amqp.DATA:
            fields["body"] = "data"
    assigned = [DELIVERY_TIME] if DELIVERY_TIME in fields else []
    return NativeWrite("transfer", {"target": queue}, fields, headers, read(encoded).body, assigned)


def _shown(encoded: bytes, position: int) -> Any:
    value = decode(encoded, position)
    return value if isinstance(value, bool | int | float | str) else text_of(value)
