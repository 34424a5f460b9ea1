"""Writes and reads Service Bus messages: the contract's native fields beside an envelope, and broker properties.

Native fields: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-messages-payloads
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec import Struct

from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields
from babelgate.brokers.header_rules import HeaderRules
from babelgate.brokers.servicebus.queue import ServiceBusQueue
from babelgate.brokers.servicebus.sdk_internals import Header, Message, Properties, encode_payload
from babelgate.brokers.servicebus.typed import encoded
from babelgate.envelope.broker_properties import http_date

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
_BLANK = " \t\n\v\f\r"
_NEVER_MS = 922_337_203_685_477
"""The longest time to live, which Service Bus sets where none was given."""

ANNOTATED_STATE = b"x-opt-message-state"
SCHEDULED = 2
"""The state of a message that is not due yet, as a peek shows it."""

_PROPERTIES = {
    "message_id": "message_id",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
"""The client library's name of a field, and AMQP's:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide#messages"""

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

    sequence: int
    body: bytes
    headers: Mapping[str, str]
    count: int
    locked_until: int
    enqueued_at: int
    state: int
    version: str | None
    carried: CarriedParts | None
    properties: Mapping[str, Any]
    dead_reason: str | None
    dead_description: str | None


class Native(NamedTuple):
    """A message for the AMQP engine, its encoded ``payload``, and the ``key`` of its session or partition."""

    message: Message
    payload: bytes
    key: str | None


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


def native(body: bytes, fields: Fields) -> Native:
    """The message for the client library's AMQP engine, encoded once. Its own ``ServiceBusMessage`` is encoded twice,
    to measure it and to send it, and cuts a time to live to whole seconds."""
    annotations: dict[str | bytes, Any] = {}
    if (due := fields.get("scheduled_enqueue_time_utc")) is not None:
        annotations[b"x-opt-scheduled-enqueue-time"] = {"TYPE": "TIMESTAMP", "VALUE": due}
    partition_key = fields.get("partition_key")
    if partition_key is not None:
        annotations[b"x-opt-partition-key"] = partition_key
    ttl = fields.get("time_to_live")
    properties = Properties(**{name: fields.get(field) for field, name in _PROPERTIES.items()})
    made = Message(
        header=None if ttl is None else Header(ttl=ttl),
        message_annotations=annotations or None,
        properties=properties,
        application_properties=fields.get("application_properties"),
        data=[body],
    )
    payload = bytearray()
    encode_payload(payload, made)
    return Native(made, bytes(payload), fields.get("session_id") or partition_key)


def read(message: Any, typed: Mapping[str, bytes]) -> AmqpMessage:
    """A message of the client library's AMQP engine, as it was received or peeked. ``typed``: see typed_properties."""
    annotations = message.message_annotations or {}
    native_properties = message.properties
    header = message.header
    headers: Mapping[str, str] = NO_HEADERS
    others: dict[str, Any] = {}
    found = message.application_properties
    version: Any = None
    dead: dict[str, str] = {}
    if found:
        headers = {}
        for key, value in found.items():
            name = _text(key) or ""
            if name in CONTRACT:
                version = value if name == VERSION else version
            elif name in _DEAD:
                dead[name] = _text(value) or ""
            else:
                if (kept := typed.get(name)) is not None:
                    others[name] = encoded(kept)
                if isinstance(value, bytes | str):
                    headers[name] = _text(value) or ""
                elif value is not None:
                    headers[name] = str(value).lower() if isinstance(value, bool) else str(value)
    fields: Fields = {}
    foreign: Fields = {}
    shown: dict[str, Any] = {}
    if native_properties is not None:
        for name, field in (
            ("To", "to"),
            ("ReplyTo", "reply_to"),
            ("SessionId", "group_id"),
            ("ReplyToSessionId", "reply_to_group_id"),
        ):
            if (text := _text(getattr(native_properties, field))) is not None:
                fields[_FIELDS[name]] = shown[name] = text
        for name, field in (
            ("Label", "subject"),
            ("CorrelationId", "correlation_id"),
            ("MessageId", "message_id"),
            ("ContentType", "content_type"),
        ):
            if (value := getattr(native_properties, field)) is not None:
                foreign[field] = shown[name] = _text(value) if isinstance(value, bytes | str) else str(value)
    if (key := _text(annotations.get(b"x-opt-partition-key"))) is not None:
        fields["partition_key"] = shown["PartitionKey"] = key
    ttl = None if header is None else header.ttl
    if ttl is not None and ttl < min(_NEVER_MS, 2**32 - 1):
        fields["time_to_live"] = ttl
        shown["TimeToLive"] = ttl / 1000
    count = (0 if header is None else header.delivery_count) or 0
    shown["DeliveryCount"] = count + 1
    sequence = annotations.get(b"x-opt-sequence-number") or 0
    shown["SequenceNumber"] = sequence
    for name, annotation in (
        ("EnqueuedTimeUtc", b"x-opt-enqueued-time"),
        ("ScheduledEnqueueTimeUtc", b"x-opt-scheduled-enqueue-time"),
        ("LockedUntilUtc", b"x-opt-locked-until"),
    ):
        if (at := annotations.get(annotation)) is not None:
            shown[name] = http_date(at)
    if (source := _text(annotations.get(b"x-opt-deadletter-source"))) is not None:
        shown["DeadLetterSource"] = source
    return AmqpMessage(
        sequence,
        _body(message),
        headers,
        count,
        annotations.get(b"x-opt-locked-until") or 0,
        annotations.get(b"x-opt-enqueued-time") or 0,
        annotations.get(ANNOTATED_STATE) or 0,
        _unsupported(version),
        CarriedParts(fields, others, foreign) if fields or others or foreign else None,
        shown,
        dead.get(DEAD_REASON),
        dead.get(DEAD_DESCRIPTION),
    )


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


def _body(message: Any) -> bytes:
    """The bytes of the body. One that is not of data sections is no message of BabelQueue: it is shown as a text."""
    if message.data is not None:
        return message.data if isinstance(message.data, bytes) else b"".join(message.data)
    other = message.value if message.sequence is None else message.sequence
    if isinstance(other, bytes):
        return other
    return b"" if other is None else str(other).encode()


def _unsupported(value: Any) -> str | None:
    """The declared schema version, unless it is 1 or blank; see babelqueue's version gate."""
    if isinstance(value, bytes | str):
        text = _text(value) or ""
        return None if not text.strip(_BLANK) or text == "1" else text
    if value is None or (type(value) is int and value == 1):
        return None
    return str(value)
