"""Writes and reads SQS messages: the contract's message attributes beside an envelope, and native headers."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from babelgate.brokers.binding import NO_HEADERS, DeadRecord, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields, unsupported_version
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.errors import UnsupportedByBroker
from babelgate.jsontext import digits, pointer

MAX_ATTRIBUTES = 10
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html"""

CONTRACT = frozenset({"bq-job", "bq-trace-id", "bq-message-id", "bq-schema-version", "bq-source-lang", "bq-created-at"})
MAX_HEADERS = MAX_ATTRIBUTES - len(CONTRACT)

GROUP_ATTRIBUTE = "babelgate-group"
"""The message group of the original, on a record in a FIFO queue of dead letters."""

VERSION_ATTRIBUTE = "bq-schema-version"

SYSTEM_ATTRIBUTES = ("ApproximateReceiveCount", "SentTimestamp", "MessageGroupId")
"""The system attributes that a receive asks for."""

_NAME = re.compile(r"(?!AWS\.|Amazon\.)(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,255}(?<!\.)", re.IGNORECASE)
FORBIDDEN = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""Outside XML 1.0: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""

_IDENTIFIER = re.compile(r"[!-~]{1,128}")
"""Of a message group or for deduplication: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""

Attributes = dict[str, dict[str, Any]]
Entry = dict[str, Any]
"""An entry of a native batch, without its id."""


class NativeParts(Struct, frozen=True):
    """Native parts of a message that a copy of it keeps: its message group, and attributes that are no texts."""

    group: str | None
    attributes: Mapping[str, Mapping[str, Any]]


class Read(Struct, frozen=True):
    """A received message: ``count`` receives so far; ``version``: see Delivery.unsupported_version."""

    message_id: str
    receipt: str
    body: bytes
    headers: Mapping[str, str]
    count: int
    sent_at: int
    version: str | None
    carried: NativeParts | None


def entry(queue: SqsQueue, message: Outgoing) -> Entry:
    """The message as an entry of ``SendMessageBatch``, without its id. Raises UnsupportedByBroker if SQS refuses it.

    The message group is the ordering key, else that of the original, else the route's. A key or an id with characters
    that SQS refuses is replaced by its SHA-256.
    """
    made = _entry(message)
    if message.delay_seconds > 0:
        # Whole seconds, and never too early.
        made["DelaySeconds"] = -int(-message.delay_seconds // 1)
    if queue.fifo:
        carried = message.carried if isinstance(message.carried, NativeParts) else None
        key = message.ordering_key
        made["MessageGroupId"] = _identifier(key) if key else (carried and carried.group) or queue.group
        if message.dedup_id is None:
            made["MessageDeduplicationId"] = uuid4().hex
        elif not queue.content_based:
            made["MessageDeduplicationId"] = _identifier(message.dedup_id)
    return made


def dead_entry(queue: SqsQueue, record: Outgoing, max_bytes: int) -> Entry:
    """A record in the queue of dead letters ``queue``. In a FIFO queue each has a message group of its own, because a
    received message hides the others of its group.

    One of more than ``max_bytes`` has only the attributes that the message had when it was received.
    """
    made = _entry(record)
    if size_of(record, made) > max_bytes:
        made = _entry(replace(record, is_envelope=False))
    elif queue.fifo:
        carried = record.carried if isinstance(record.carried, NativeParts) else None
        attributes = made.setdefault("MessageAttributes", {})
        if carried is not None and carried.group and len(attributes) < MAX_ATTRIBUTES:
            attributes[GROUP_ATTRIBUTE] = _text(carried.group)
    if queue.fifo:
        made["MessageGroupId"] = made["MessageDeduplicationId"] = uuid4().hex
    return made


def size_of(message: Outgoing, made: Entry) -> int:
    """The bytes of an entry by which Amazon bounds messages: the body, and names, types and values of attributes."""
    total = len(message.body)
    for name, attribute in made.get("MessageAttributes", {}).items():
        value = attribute.get("StringValue")
        size = len(attribute.get("BinaryValue", b"")) if value is None else len(value.encode())
        total += len(name.encode()) + len(attribute["DataType"]) + size
    return total


def forbidden(text: str) -> str | None:
    """The first character of ``text`` that Amazon refuses; None if there is none."""
    # None of them is printable, which is faster to find out.
    if text.isprintable() or (found := FORBIDDEN.search(text)) is None:
        return None
    return found[0]


def read(message: Mapping[str, Any]) -> Read:
    """A message as ``ReceiveMessage`` returns it."""
    system: Mapping[str, str] = message.get("Attributes") or {}
    attributes: Mapping[str, Mapping[str, Any]] = message.get("MessageAttributes") or {}
    headers: Mapping[str, str] = NO_HEADERS
    others: Mapping[str, Mapping[str, Any]] = NO_OTHERS
    group = system.get("MessageGroupId")
    if attributes:
        headers, others = {}, {}
        for name, attribute in attributes.items():
            kind = str(attribute.get("DataType", ""))
            if name in CONTRACT:
                continue
            if name == GROUP_ATTRIBUTE:
                group = attribute.get("StringValue")
            else:
                headers[name] = _shown(attribute)
                if kind.partition(".")[0] != "String":
                    others[name] = _sendable(attribute)
    return Read(
        message["MessageId"],
        message["ReceiptHandle"],
        message["Body"].encode("utf-8", "surrogatepass"),
        headers,
        _whole(system.get("ApproximateReceiveCount")),
        _whole(system.get("SentTimestamp")),
        unsupported_version(attributes.get(VERSION_ATTRIBUTE, {}).get("StringValue")),
        NativeParts(group, others) if group is not None or others else None,
    )


def record(key: Any, found: Read) -> DeadRecord:
    """A dead letter as it was read."""
    return DeadRecord(key, found.body, found.headers, found.carried)


NO_OTHERS: Mapping[str, Mapping[str, Any]] = {}


def _entry(message: Outgoing) -> Entry:
    body = message.body.decode()
    if (found := forbidden(body)) is not None:
        raise _uncarried(found, _place(body))
    attributes = _contract(message) if message.is_envelope else {}
    typed = message.carried.attributes if isinstance(message.carried, NativeParts) else NO_OTHERS
    headers = [each for each in message.headers.items() if each[0] not in typed]
    _add_headers(attributes, headers, strict=not message.is_copy)
    for name, attribute in typed.items():
        if len(attributes) < MAX_ATTRIBUTES:
            attributes.setdefault(name, dict(attribute))
    return {"MessageBody": body, "MessageAttributes": attributes} if attributes else {"MessageBody": body}


def _contract(message: Outgoing) -> Attributes:
    found = envelope_fields(message.body)
    if found is None:
        return {}
    fields, meta = found
    made: Attributes = {}
    for name, value in (
        ("bq-job", fields.job),
        ("bq-trace-id", fields.trace_id),
        ("bq-message-id", meta.id),
        ("bq-source-lang", meta.lang),
    ):
        if isinstance(value, str) and value and not forbidden(value):
            made[name] = _text(value)
    for name, value in (("bq-schema-version", meta.schema_version), ("bq-created-at", meta.created_at)):
        if type(value) is int:
            made[name] = {"DataType": "Number", "StringValue": str(value)}
    return made


def _add_headers(attributes: Attributes, headers: Any, *, strict: bool) -> None:
    """Add headers as far as there is room; a copy (not ``strict``) leaves out those that SQS refuses."""
    for name, value in headers:
        if name in CONTRACT or len(attributes) >= MAX_ATTRIBUTES:
            continue
        found = forbidden(value)
        if _NAME.fullmatch(name) and value and found is None:
            attributes[name] = _text(value)
        elif strict:
            place = pointer("headers", name)
            if found is not None:
                raise _uncarried(found, place)
            reason = (
                f"The header {name} is not one that Amazon SQS carries: a name has letters, digits, _, - and dots, "
                "and a value is not empty."
            )
            raise UnsupportedByBroker("header_unsupported", place, reason)


def _uncarried(character: str, place: str) -> UnsupportedByBroker:
    reason = (
        f"Amazon SQS does not carry the character U+{ord(character):04X}, which XML 1.0 does not allow. Leave it "
        "out, or encode the value, such as in Base64."
    )
    return UnsupportedByBroker("character_unsupported", place, reason)


def _place(body: str) -> str:
    """The pointer of the first name or value of a JSON text that has a character which SQS refuses."""
    try:
        # Numbers as texts: they may have any size.
        return _search(json.loads(body, parse_int=str, parse_float=str), ()) or ""
    except (ValueError, RecursionError):
        return ""


def _search(value: object, path: tuple[str | int, ...]) -> str | None:
    if isinstance(value, str):
        return pointer(*path) if forbidden(value) else None
    members: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for name, member in members:
        if isinstance(name, str) and forbidden(name):
            return pointer(*path, name)
        if (found := _search(member, (*path, name))) is not None:
            return found
    return None


def _text(value: str) -> dict[str, Any]:
    return {"DataType": "String", "StringValue": value}


def _shown(attribute: Mapping[str, Any]) -> str:
    """The value of an attribute as a header's text. Bytes that are no UTF-8 are shown in Base64."""
    value = attribute.get("StringValue")
    if value is None:
        binary: bytes = attribute.get("BinaryValue", b"")
        try:
            return binary.decode()
        except UnicodeDecodeError:
            return b64encode(binary).decode()
    return str(value)


def _sendable(attribute: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: attribute[name] for name in ("DataType", "StringValue", "BinaryValue") if name in attribute}


def _identifier(text: str) -> str:
    return text if _IDENTIFIER.fullmatch(text) else sha256(text.encode()).hexdigest()


def _whole(text: str | None) -> int:
    return (digits(text) or 0) if text is not None else 0


def numbered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one batch, each with its position as its id."""
    return [{"Id": str(position), **each} for position, each in enumerate(entries)]
