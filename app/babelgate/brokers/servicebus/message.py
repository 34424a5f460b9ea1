"""Writes and reads Service Bus messages: the contract's native fields beside an envelope, and broker properties.

Native fields: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-messages-payloads
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from msgspec import Struct

from babelgate.brokers.amqp import PROPERTY_NAMES, STRINGS, Malformed, decode, end_of, parts_of, text_of
from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields, unsupported_version
from babelgate.brokers.header_rules import HeaderRules
from babelgate.brokers.servicebus.properties import http_date
from babelgate.brokers.servicebus.queue import ServiceBusQueue

VERSION = "bq-schema-version"
LANGUAGE = "bq-source-lang"
CREATED = "bq-created-at"
CONTRACT = frozenset({VERSION, LANGUAGE, CREATED})
CONTENT_TYPE = "application/json"

DEAD_REASON = "DeadLetterReason"
DEAD_DESCRIPTION = "DeadLetterErrorDescription"
HEADER_RULES = HeaderRules(max_total_bytes=60 * 1024)
"""All properties of a message have at most 64 KB, of which 4 KiB are for those of the contract and of the service:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""

_DEAD = frozenset({DEAD_REASON, DEAD_DESCRIPTION})
"""Application properties that Service Bus adds to a message that it moves to ``$DeadLetterQueue``."""

MAX_IDENTIFIER = 128
"""Characters of a message id, session id or partition key:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""

_FIELDS = {
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "To": "to",
    "PartitionKey": "partition_key",
    "SessionId": "session_id",
}
"""The client library's name of a broker property that is a text."""

_INT32 = range(-(2**31), 2**31)
_NEVER_MS = 922_337_203_685_477
"""The longest time to live, which Service Bus sets where none was given."""

SCHEDULED = 2
"""The state of a message that is not due yet, as a peek shows it."""

ENCODED = "ENCODED"
"""The type of a value in its encoded form, which the client library writes as it is."""

_DECIMAL128, _OTHER_DECIMALS = 0x94, frozenset({0x74, 0x84})
_COEFFICIENT, _BIAS = (1 << 113) - 1, 6_176

Fields = dict[str, Any]
"""The parts of a message beside its body, as the arguments of the client library's ``ServiceBusMessage`` are called.
``time_to_live`` in ms, ``scheduled_enqueue_time_utc`` in Unix ms."""


class CarriedParts(Struct, frozen=True):
    """Native parts of a message that a copy of it keeps: ``fields`` of the client library, without those of the
    contract, and ``properties``, its application properties that are no texts. ``foreign``: the fields of the contract
    as they were, for a body that is no envelope."""

    fields: Mapping[str, Any]
    properties: Mapping[str, Any]
    foreign: Mapping[str, Any]


class AmqpMessage(Struct, frozen=True):
    """A message as it was read. ``count``: deliveries before this one. Times in Unix ms. ``state``: 0 active, 1
    deferred, 2 scheduled. ``version``: see Delivery.unsupported_version. ``properties``: its broker properties."""

    body: bytes
    headers: Mapping[str, str] = NO_HEADERS
    count: int = 0
    sequence: int = 0
    locked_until: int = 0
    enqueued_at: int = 0
    state: int = 0
    version: str | None = None
    carried: CarriedParts | None = None
    properties: Mapping[str, Any] = {}
    dead_reason: str | None = None
    dead_description: str | None = None


def fields_of(queue: ServiceBusQueue, message: Outgoing, now_ms: int) -> Fields:
    """The native fields of a message. ``now_ms``: the time from which its delay counts, in Unix ms.

    A copy has a message id of its own, as a queue that detects duplicates would drop it: the contract's, ``:`` and a
    random text. Raises ValueError for a message that Service Bus refuses.
    """
    fields: Fields = {"content_type": CONTENT_TYPE}
    properties: dict[str, Any] = {}
    carried = message.carried if isinstance(message.carried, CarriedParts) else None
    if message.is_envelope:
        _add_contract(message.body, fields, properties)
    elif carried is not None:
        fields.update(carried.foreign)
    if message.dedup_id is None and "message_id" in fields:
        fields["message_id"] = f"{fields['message_id'][: MAX_IDENTIFIER - 33]}:{uuid4().hex}"
    for name, value in message.headers.items():
        if name not in CONTRACT and name not in _DEAD:
            properties[name] = value
    if carried is not None:
        # Among the headers they are texts.
        properties |= carried.properties
        for name, value in carried.fields.items():
            fields.setdefault(name, value)
    if properties:
        fields["application_properties"] = properties
    for name, value in message.properties.items():
        if name in _FIELDS:
            fields[_FIELDS[name]] = value
    if (seconds := message.properties.get("TimeToLive")) is not None:
        fields["time_to_live"] = math.ceil(seconds * 1000)
    if queue.sessions:
        session = message.ordering_key or fields.get("session_id")
        if session is None:
            session = queue.name[:MAX_IDENTIFIER]
        if len(session) > MAX_IDENTIFIER:
            raise ValueError(f"the ordering key has {len(session)} characters; a session has at most {MAX_IDENTIFIER}")
        fields["session_id"] = session
    due = message.properties.get("ScheduledEnqueueTimeUtc")
    if message.delay_seconds > 0:
        due = now_ms + math.ceil(message.delay_seconds * 1000)
    if due is not None:
        fields["scheduled_enqueue_time_utc"] = due
    return fields


def dead_fields(queue: ServiceBusQueue, record: Outgoing, now_ms: int) -> Fields:
    """The native fields of a record in a queue of dead letters, where it stays until it is removed."""
    fields = fields_of(queue, record, now_ms)
    fields.pop("time_to_live", None)
    return fields


def read(raw: bytes) -> AmqpMessage:
    """A message as it was received or peeked. One that cannot be read has its encoding as its body."""
    try:
        return _read(raw)
    except Malformed:
        return AmqpMessage(raw)


def _read(raw: bytes) -> AmqpMessage:
    parts = parts_of(raw)
    headers: dict[str, str] = {}
    others: dict[str, Any] = {}
    dead: dict[str, str] = {}
    version: Any = None
    for name, start in parts.application:
        if name == VERSION:
            version = decode(raw, start)
        elif name in _DEAD:
            dead[name] = text_of(decode(raw, start)) or ""
        elif name not in CONTRACT:
            if raw[start] not in STRINGS:
                others[name] = {"TYPE": ENCODED, "VALUE": raw[start : end_of(raw, start)]}
            if (shown_value := _shown(raw, start)) is not None:
                headers[name] = shown_value
    native_properties = dict(zip(PROPERTY_NAMES, (decode(raw, start) for start in parts.properties), strict=False))
    fields: Fields = {}
    foreign: Fields = {}
    shown: dict[str, Any] = {}
    for name, field in (
        ("To", "to"),
        ("ReplyTo", "reply-to"),
        ("SessionId", "group-id"),
        ("ReplyToSessionId", "reply-to-group-id"),
    ):
        if (text := _text(native_properties.get(field))) is not None:
            fields[_FIELDS[name]] = shown[name] = text
    for name, field in (
        ("Label", "subject"),
        ("CorrelationId", "correlation-id"),
        ("MessageId", "message-id"),
        ("ContentType", "content-type"),
    ):
        if (value := native_properties.get(field)) is not None:
            text = _text(value) if isinstance(value, bytes | str) else str(value)
            foreign[field.replace("-", "_")] = shown[name] = text
    annotations = {name: decode(raw, start) for name, start in parts.annotations}
    if (key := _text(annotations.get("x-opt-partition-key"))) is not None:
        fields["partition_key"] = shown["PartitionKey"] = key
    header = [decode(raw, start) for start in parts.header]
    ttl = header[2] if len(header) > 2 else None
    if ttl is not None and ttl < min(_NEVER_MS, 2**32 - 1):
        fields["time_to_live"] = ttl
        shown["TimeToLive"] = ttl / 1000
    count = (header[4] if len(header) > 4 else 0) or 0
    shown["DeliveryCount"] = count + 1
    sequence = annotations.get("x-opt-sequence-number") or 0
    shown["SequenceNumber"] = sequence
    for name, annotation in (
        ("EnqueuedTimeUtc", "x-opt-enqueued-time"),
        ("ScheduledEnqueueTimeUtc", "x-opt-scheduled-enqueue-time"),
        ("LockedUntilUtc", "x-opt-locked-until"),
    ):
        if (at := annotations.get(annotation)) is not None:
            shown[name] = http_date(at)
    if (source := _text(annotations.get("x-opt-deadletter-source"))) is not None:
        shown["DeadLetterSource"] = source
    return AmqpMessage(
        parts.body,
        headers or NO_HEADERS,
        count,
        sequence,
        annotations.get("x-opt-locked-until") or 0,
        annotations.get("x-opt-enqueued-time") or 0,
        annotations.get("x-opt-message-state") or 0,
        unsupported_version(version),
        CarriedParts(fields, others, foreign) if fields or others or foreign else None,
        shown,
        dead.get(DEAD_REASON),
        dead.get(DEAD_DESCRIPTION),
    )


def _shown(raw: bytes, position: int) -> str | None:
    """An application property as a header's text; None for one without a text."""
    if raw[position] == _DECIMAL128:
        return _decimal(int.from_bytes(raw[position + 1 : end_of(raw, position)], "big"))
    value = None if raw[position] in _OTHER_DECIMALS else decode(raw, position)
    return _text(value) if isinstance(value, bytes) else text_of(value)


def _decimal(number: int) -> str | None:
    """A decimal of 128 bits with a binary integer as its coefficient (IEEE 754-2008); None for an infinite one."""
    if number >> 125 & 3 == 3:
        return None
    digits = decimal.Decimal(number & _COEFFICIENT).as_tuple().digits
    return str(decimal.Decimal((number >> 127, digits, (number >> 113 & 0x3FFF) - _BIAS)))


def _add_contract(body: bytes, fields: Fields, properties: dict[str, Any]) -> None:
    """The contract's projection of the envelope in ``body``, as far as it is one."""
    found = envelope_fields(body)
    if found is None:
        return
    envelope, meta = found
    for name, value in (("subject", envelope.job), ("correlation_id", envelope.trace_id), ("message_id", meta.id)):
        if isinstance(value, str) and value and (name != "message_id" or len(value) <= MAX_IDENTIFIER):
            fields[name] = value
    if type(meta.schema_version) is int:
        properties[VERSION] = _typed(meta.schema_version)
    if isinstance(meta.lang, str) and meta.lang:
        properties[LANGUAGE] = meta.lang
    if type(meta.created_at) is int:
        properties[CREATED] = _long(meta.created_at)


def _long(value: int) -> dict[str, Any]:
    """An AMQP long: the client library writes every other whole number as one of 32 bits."""
    return {"TYPE": "LONG", "VALUE": value}


def _typed(value: Any) -> Any:
    return _long(value) if type(value) is int and value not in _INT32 else value


def _text(value: Any) -> str | None:
    """A text that the AMQP engine gives as bytes; None for none."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None
