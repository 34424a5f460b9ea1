"""Writes and reads AMQP messages: the contract's native fields beside an envelope, and what a copy keeps.

The sections of a message: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html. What JMS
clients read of them: https://www.oasis-open.org/committees/download.php/62464/amqp-bindmap-jms-v1.0-wd10.pdf.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from babelgate.brokers import amqp
from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields, unsupported_version
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.envelope.options import MAX_PRIORITY

VERSION, LANGUAGE, ATTEMPTS, APP_ID = "bq_schema_version", "bq_source_lang", "bq_attempts", "bq_app_id"
CONTRACT = frozenset({VERSION, LANGUAGE, ATTEMPTS, APP_ID})
JMS_TYPE = "x-opt-jms-type"
DELIVERY_TIME = "x-opt-delivery-time"

_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The property by which Artemis drops a second message, so that no copy may have it:
https://activemq.apache.org/components/artemis/documentation/latest/duplicate-detection.html"""

_OF_ONE_DELIVERY = frozenset({DELIVERY_TIME, "x-opt-delivery-delay", "x-opt-ingress-time"})
"""Annotations that are no part of a copy."""

_MESSAGE_ID, _CORRELATION_ID, _EXPIRY, _CREATED = 0, 5, 8, 9
_DURABLE = amqp.described(amqp.HEADER, amqp.sequence([amqp.TRUE]))
_BABELQUEUE = amqp.string("babelqueue")
_NULL_CODE = amqp.NULL[0]
_ORDINARY_PRIORITY = 4
"""Of a message without a priority: section 3.2.1 of https://docs.oasis-open.org/amqp/core/v1.0/amqp-core-messaging-v1.0.html"""
_NO_COUNT = amqp.string("0")
_INT64 = range(-(2**63), 2**63)
_TYPES = {0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol", 0xA0: "binary", 0xB0: "binary"}
"""The types of application properties, as a dry run shows them."""


class EncodedParts(Struct, frozen=True):
    """Native parts of a message that a copy keeps, each value in its encoded form.

    ``fields``: the section properties, by position. ``annotations`` and ``properties`` (of the application): by name;
    of the latter those that are no strings. ``header``: priority and time to live. ``is_data``: the body is in data
    sections.
    """

    fields: Mapping[int, bytes]
    annotations: Mapping[str, bytes]
    properties: Mapping[str, bytes]
    header: tuple[bytes, ...]
    is_data: bool


class ArtemisMessage(Struct, frozen=True):
    """A message as it was read. ``count``: failed deliveries before this one. ``version``: see
    :class:`babelgate.brokers.binding.Delivery`, ``unsupported_version``."""

    body: bytes
    headers: Mapping[str, str]
    count: int
    version: str | None
    carried: EncodedParts

    @property
    def priority(self) -> int | None:
        """The priority, 0 to 9; None for that of a message without one."""
        header = self.carried.header
        found = amqp.decode(header[0]) if header else None
        return None if found is None or found == _ORDINARY_PRIORITY else min(found, MAX_PRIORITY)


def encode(message: Outgoing, now_ms: int, dead_id: str | None = None) -> bytes:
    """The message for the broker. ``now_ms``: the time from which its delay counts, in Unix ms. ``dead_id``: the
    message id of a dead letter, which does not expire.

    The body is a string where it is UTF-8, as the SDKs and JMS's text messages have it, and otherwise in a data
    section. Raises ValueError, TypeError or OverflowError for a value that AMQP cannot carry.
    """
    carried = message.carried if isinstance(message.carried, EncodedParts) else None
    fields: dict[int, bytes] = {}
    annotations: dict[str, bytes] = {}
    header = _DURABLE
    if message.priority is not None:
        header = amqp.described(amqp.HEADER, amqp.sequence([amqp.TRUE, amqp.ubyte(message.priority)]))
    if carried is not None:
        fields.update(carried.fields)
        annotations.update(carried.annotations)
        if carried.header:
            header = amqp.described(
                amqp.HEADER, amqp.sequence([amqp.TRUE, *carried.header[: 2 if dead_id is None else 1]])
            )
    properties = _contract(message.body, fields, annotations) if message.is_envelope else {}
    if dead_id is not None:
        fields[_MESSAGE_ID] = amqp.string(dead_id)
        fields.pop(_EXPIRY, None)
    _add_headers(message.headers, carried, properties)
    if message.delay_seconds > 0:
        annotations[DELIVERY_TIME] = amqp.long(now_ms + math.ceil(message.delay_seconds * 1000))
    sections = [header]
    if annotations:
        sections.append(
            amqp.described(
                amqp.ANNOTATIONS, amqp.mapping({amqp.symbol(name): value for name, value in annotations.items()})
            )
        )
    if fields:
        values = [fields.get(position, amqp.NULL) for position in range(max(fields) + 1)]
        sections.append(amqp.described(amqp.PROPERTIES, amqp.sequence(values)))
    if properties:
        sections.append(
            amqp.described(
                amqp.APPLICATION, amqp.mapping({amqp.string(name): value for name, value in properties.items()})
            )
        )
    sections.append(_body_section(message.body, carried is not None and carried.is_data))
    return b"".join(sections)


def _contract(body: bytes, fields: dict[int, bytes], annotations: dict[str, bytes]) -> dict[str, bytes]:
    """Add the contract's projection of the envelope in ``body``, as far as it is one; its application properties."""
    found = envelope_fields(body)
    if found is None:
        return {}
    envelope, meta = found
    if isinstance(envelope.job, str) and envelope.job:
        annotations[JMS_TYPE] = amqp.string(envelope.job)
    if isinstance(envelope.trace_id, str) and envelope.trace_id:
        fields[_CORRELATION_ID] = amqp.string(envelope.trace_id)
    if type(meta.created_at) is int and meta.created_at in _INT64:
        fields[_CREATED] = amqp.timestamp(meta.created_at)
    properties: dict[str, bytes] = {}
    if type(meta.schema_version) is int:
        properties[VERSION] = amqp.string(str(meta.schema_version))
    if isinstance(meta.lang, str) and meta.lang:
        properties[LANGUAGE] = amqp.string(meta.lang)
    properties[ATTEMPTS] = amqp.string(str(envelope.attempts)) if type(envelope.attempts) is int else _NO_COUNT
    properties[APP_ID] = _BABELQUEUE
    return properties


def _add_headers(headers: Mapping[str, str], carried: EncodedParts | None, properties: dict[str, bytes]) -> None:
    """The headers, of which those that came with another type than string keep it unless their text has changed."""
    typed = carried.properties if carried is not None else {}
    for name, value in headers.items():
        if name in CONTRACT or (carried is not None and name == _DUPLICATE_ID):
            continue
        kept = typed.get(name)
        properties[name] = kept if kept is not None and amqp.text_of(amqp.decode(kept)) == value else amqp.string(value)
    for name, kept in typed.items():
        if name not in properties and amqp.text_of(amqp.decode(kept)) is None:
            properties[name] = kept


def _body_section(body: bytes, is_data: bool) -> bytes:
    if not is_data:
        try:
            body.decode()
        except UnicodeDecodeError:
            is_data = True
    return amqp.described(amqp.DATA, amqp.binary(body)) if is_data else amqp.described(amqp.VALUE, amqp.text(body))


def read(raw: bytes) -> ArtemisMessage:
    """A received message. Raises Malformed for bytes that are no message."""
    parts = amqp.parts_of(raw)
    properties: dict[str, bytes] = {}
    headers: dict[str, str] = {}
    version = None
    for key, start in parts.application:
        value = amqp.decode(raw, start)
        if key in CONTRACT:
            version = unsupported_version(amqp.text_of(value)) if key == VERSION else version
            continue
        shown = amqp.text_of(value)
        if shown is not None:
            headers[key] = shown
        if raw[start] not in amqp.STRINGS:
            properties[key] = raw[start : amqp.end_of(raw, start)]
    starts = parts.header
    count = amqp.decode(raw, starts[4]) or 0 if len(starts) > 4 else 0
    carried = EncodedParts(
        {
            number: raw[start : amqp.end_of(raw, start)]
            for number, start in enumerate(parts.properties)
            if raw[start] != _NULL_CODE
        },
        {key: raw[start : amqp.end_of(raw, start)] for key, start in parts.annotations if key not in _OF_ONE_DELIVERY},
        properties,
        tuple(raw[start : amqp.end_of(raw, start)] for start in starts[1:3]),
        parts.is_data,
    )
    return ArtemisMessage(parts.body, headers or NO_HEADERS, count, version, carried)


def identity(raw: bytes) -> bytes:
    """What stays the same of a stored message at each delivery, shortened: two messages that share it are equal."""
    position = 0
    for section, start in amqp.sections(raw):
        if section not in (amqp.HEADER, amqp.DELIVERY_ANNOTATIONS):
            break
        position = amqp.end_of(raw, start)
    return hashlib.blake2b(raw[position:], digest_size=16).digest()


def selector_of(message: ArtemisMessage) -> tuple[str, tuple[str, ...]] | None:
    """A field that a JMS selector can find the message by, and its values; None for a message without one.

    Artemis compares a message id with the prefix that JMS gives it:
    https://activemq.apache.org/components/artemis/documentation/latest/filter-expressions.html
    """
    for number, name in ((_MESSAGE_ID, "JMSMessageID"), (_CORRELATION_ID, "JMSCorrelationID")):
        encoded = message.carried.fields.get(number)
        value = None if encoded is None else amqp.decode(encoded)
        if isinstance(value, str) and value:
            return name, (value, f"ID:{value}") if number == _MESSAGE_ID else (value,)
    return None


def projected(queue: str, encoded: bytes) -> NativeWrite:
    """The transfer of an encoded message to the queue ``queue``, in AMQP's own words, for a dry run."""
    fields: dict[str, Any] = {"body": "amqp-value"}
    headers: dict[str, NativeHeader] = {}
    for section, start in amqp.sections(encoded):
        if section == amqp.HEADER:
            fields["durable"] = amqp.decode(encoded, amqp.items(encoded, start)[0])
        elif section == amqp.PROPERTIES:
            found = zip(amqp.PROPERTY_NAMES, amqp.items(encoded, start), strict=False)
            fields |= {name: _shown(encoded, at) for name, at in found if amqp.decode(encoded, at) is not None}
        elif section == amqp.ANNOTATIONS:
            fields |= {name: _shown(encoded, value) for name, value in amqp.pairs(encoded, start)}
        elif section == amqp.APPLICATION:
            for name, value in amqp.pairs(encoded, start):
                headers[name] = NativeHeader(_TYPES.get(encoded[value], "other"), _shown(encoded, value))
        elif section == amqp.DATA:
            fields["body"] = "data"
    assigned = [DELIVERY_TIME] if DELIVERY_TIME in fields else []
    return NativeWrite("transfer", {"target": queue}, fields, headers, read(encoded).body, assigned)


def _shown(encoded: bytes, position: int) -> Any:
    value = amqp.decode(encoded, position)
    return value if isinstance(value, bool | int | float | str) else amqp.text_of(value)
