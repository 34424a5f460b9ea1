"""Writes and reads AMQP messages: the contract's native fields beside an envelope, and what a copy keeps.

The sections of a message: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html. What JMS
clients read of them: https://www.oasis-open.org/committees/download.php/62464/amqp-bindmap-jms-v1.0-wd10.pdf.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from babelgate.brokers.artemis.values import (
    NULL,
    TRUE,
    Malformed,
    binary,
    decode,
    described,
    end_of,
    items,
    long,
    mapping,
    sequence,
    string,
    symbol,
    text,
    text_of,
    timestamp,
)
from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields

VERSION, LANGUAGE, ATTEMPTS, APP_ID = "bq_schema_version", "bq_source_lang", "bq_attempts", "bq_app_id"
CONTRACT = frozenset({VERSION, LANGUAGE, ATTEMPTS, APP_ID})
JMS_TYPE = "x-opt-jms-type"
DELIVERY_TIME = "x-opt-delivery-time"

_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The property by which Artemis drops a second message, so that no copy may have it:
https://activemq.apache.org/components/artemis/documentation/latest/duplicate-detection.html"""

_OF_ONE_DELIVERY = frozenset({DELIVERY_TIME, "x-opt-delivery-delay", "x-opt-ingress-time"})
"""Annotations that are no part of a copy."""

_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS, _PROPERTIES, _APPLICATION = 0x70, 0x71, 0x72, 0x73, 0x74
_DATA, _SEQUENCE, _VALUE, _FOOTER = 0x75, 0x76, 0x77, 0x78
_MESSAGE_ID, _CORRELATION_ID, _EXPIRY, _CREATED = 0, 5, 8, 9
_DURABLE = described(_HEADER, sequence([TRUE]))
_BLANK = " \t\n\v\f\r"
_BABELQUEUE = string("babelqueue")
_NULL_CODE = NULL[0]
_STRINGS = frozenset({0xA1, 0xB1})
_NO_COUNT = string("0")
_INT64 = range(-(2**63), 2**63)


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


def encode(message: Outgoing, now_ms: int, dead_id: str | None = None) -> bytes:
    """The message for the broker. ``now_ms``: the time from which its delay counts, in Unix ms. ``dead_id``: the
    message id of a dead letter, which does not expire.

    The body is a string where it is UTF-8, as the SDKs and JMS's text messages have it, and otherwise in a data
    section. Raises ValueError or struct.error for a value that AMQP cannot carry.
    """
    carried = message.carried if isinstance(message.carried, EncodedParts) else None
    fields: dict[int, bytes] = {}
    annotations: dict[str, bytes] = {}
    header = _DURABLE
    if carried is not None:
        fields.update(carried.fields)
        annotations.update(carried.annotations)
        if carried.header:
            header = described(_HEADER, sequence([TRUE, *carried.header[: 2 if dead_id is None else 1]]))
    properties = _contract(message.body, fields, annotations) if message.is_envelope else {}
    if dead_id is not None:
        fields[_MESSAGE_ID] = string(dead_id)
        fields.pop(_EXPIRY, None)
    _add_headers(message.headers, carried, properties)
    if message.delay_seconds > 0:
        annotations[DELIVERY_TIME] = long(now_ms + math.ceil(message.delay_seconds * 1000))
    sections = [header]
    if annotations:
        sections.append(described(_ANNOTATIONS, mapping({symbol(name): value for name, value in annotations.items()})))
    if fields:
        values = [fields.get(position, NULL) for position in range(max(fields) + 1)]
        sections.append(described(_PROPERTIES, sequence(values)))
    if properties:
        sections.append(described(_APPLICATION, mapping({string(name): value for name, value in properties.items()})))
    sections.append(_body_section(message.body, carried is not None and carried.is_data))
    return b"".join(sections)


def _contract(body: bytes, fields: dict[int, bytes], annotations: dict[str, bytes]) -> dict[str, bytes]:
    """Add the contract's projection of the envelope in ``body``, as far as it is one; its application properties."""
    found = envelope_fields(body)
    if found is None:
        return {}
    envelope, meta = found
    if isinstance(envelope.job, str) and envelope.job:
        annotations[JMS_TYPE] = string(envelope.job)
    if isinstance(envelope.trace_id, str) and envelope.trace_id:
        fields[_CORRELATION_ID] = string(envelope.trace_id)
    if type(meta.created_at) is int and meta.created_at in _INT64:
        fields[_CREATED] = timestamp(meta.created_at)
    properties: dict[str, bytes] = {}
    if type(meta.schema_version) is int:
        properties[VERSION] = string(str(meta.schema_version))
    if isinstance(meta.lang, str) and meta.lang:
        properties[LANGUAGE] = string(meta.lang)
    properties[ATTEMPTS] = string(str(envelope.attempts)) if type(envelope.attempts) is int else _NO_COUNT
    properties[APP_ID] = _BABELQUEUE
    return properties


def _add_headers(headers: Mapping[str, str], carried: EncodedParts | None, properties: dict[str, bytes]) -> None:
    """The headers, of which those that came with another type than string keep it unless their text has changed."""
    typed = carried.properties if carried is not None else {}
    for name, value in headers.items():
        if name in CONTRACT or (carried is not None and name == _DUPLICATE_ID):
            continue
        kept = typed.get(name)
        properties[name] = kept if kept is not None and text_of(decode(kept)) == value else string(value)
    for name, kept in typed.items():
        if name not in properties and text_of(decode(kept)) is None:
            properties[name] = kept


def _body_section(body: bytes, is_data: bool) -> bytes:
    if not is_data:
        try:
            body.decode()
        except UnicodeDecodeError:
            is_data = True
    return described(_DATA, binary(body)) if is_data else described(_VALUE, text(body))


def read(raw: bytes) -> ArtemisMessage:
    """A received message. Raises Malformed for bytes that are no message."""
    fields: dict[int, bytes] = {}
    annotations: dict[str, bytes] = {}
    properties: dict[str, bytes] = {}
    headers: dict[str, str] = {}
    header: tuple[bytes, ...] = ()
    parts: list[bytes] = []
    count, version, is_data = 0, None, False
    for section, position in sections(raw):
        if section == _HEADER:
            starts = items(raw, position)
            header = tuple(raw[start : end_of(raw, start)] for start in starts[1:3])
            count = decode(raw, starts[4]) or 0 if len(starts) > 4 else 0
        elif section == _ANNOTATIONS:
            for key, start in _pairs(raw, position):
                if key not in _OF_ONE_DELIVERY:
                    annotations[key] = raw[start : end_of(raw, start)]
        elif section == _PROPERTIES:
            for number, start in enumerate(items(raw, position)):
                if raw[start] != _NULL_CODE:
                    fields[number] = raw[start : end_of(raw, start)]
        elif section == _APPLICATION:
            for key, start in _pairs(raw, position):
                value = decode(raw, start)
                if key in CONTRACT:
                    version = _unsupported(value) if key == VERSION else version
                    continue
                shown = text_of(value)
                if shown is not None:
                    headers[key] = shown
                if raw[start] not in _STRINGS:
                    properties[key] = raw[start : end_of(raw, start)]
        elif section == _DATA:
            is_data = True
            parts.append(decode(raw, position))
        elif section in (_VALUE, _SEQUENCE):
            value = decode(raw, position)
            is_data = isinstance(value, bytes)
            parts.append(value if isinstance(value, bytes) else (text_of(value) or "").encode())
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    carried = EncodedParts(fields, annotations, properties, header, is_data)
    return ArtemisMessage(body, headers or NO_HEADERS, count, version, carried)


def identity(raw: bytes) -> bytes:
    """What stays the same of a stored message at each delivery, shortened: two messages that share it are equal."""
    position = 0
    for section, start in sections(raw):
        if section not in (_HEADER, _DELIVERY_ANNOTATIONS):
            break
        position = end_of(raw, start)
    return hashlib.blake2b(raw[position:], digest_size=16).digest()


def selector_of(message: ArtemisMessage) -> tuple[str, tuple[str, ...]] | None:
    """A field that a JMS selector can find the message by, and its values; None for a message without one.

    Artemis compares a message id with the prefix that JMS gives it:
    https://activemq.apache.org/components/artemis/documentation/latest/filter-expressions.html
    """
    for number, name in ((_MESSAGE_ID, "JMSMessageID"), (_CORRELATION_ID, "JMSCorrelationID")):
        encoded = message.carried.fields.get(number)
        value = None if encoded is None else decode(encoded)
        if isinstance(value, str) and value:
            return name, (value, f"ID:{value}") if number == _MESSAGE_ID else (value,)
    return None


def sections(raw: bytes) -> Iterator[tuple[int, int]]:
    """The number of each section, and where its value begins. Raises Malformed."""
    position = 0
    while position < len(raw):
        number, start = _section(raw, position)
        yield number, start
        position = end_of(raw, start)


def _section(raw: bytes, position: int) -> tuple[int, int]:
    """The number of the section at ``position``, and where its value begins."""
    if raw[position] != 0:
        raise Malformed("a section is expected")
    descriptor = decode(raw, position + 1)
    if not isinstance(descriptor, int):
        raise Malformed("an unknown section")
    return descriptor, end_of(raw, position + 1)


def _pairs(raw: bytes, position: int) -> list[tuple[str, int]]:
    """The keys of the map at ``position``, and where their values begin."""
    starts = items(raw, position)
    if len(starts) % 2:
        raise Malformed("a key without a value")
    return [(text_of(decode(raw, key)) or "", value) for key, value in zip(starts[::2], starts[1::2], strict=True)]


def _unsupported(value: Any) -> str | None:
    """The declared schema version, unless it is 1 or blank; see babelqueue's version gate."""
    if value is None or (type(value) is int and value == 1):
        return None
    shown = text_of(value) or ""
    if isinstance(value, str | bytes):
        return None if not shown.strip(_BLANK) or shown == "1" else shown
    return shown
