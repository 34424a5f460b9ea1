"""Stored messages: what the broker keeps of a message, and how it looks on the wire."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.servicebus_emulator.codec import Malformed, Value, compound, decode, encode, skip

if TYPE_CHECKING:
    from tools.servicebus_emulator.entity import Entity

ACTIVE, DEFERRED, SCHEDULED = 0, 1, 2
STATES = ("active", "deferred", "scheduled")

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78

# https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html#type-properties
PROPERTY_NAMES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
MESSAGE_ID, CONTENT_TYPE, GROUP_ID = 0, 6, 10

_SCHEDULED = b"x-opt-scheduled-enqueue-time"
_SEQUENCE_NUMBER = encode(("symbol", "x-opt-sequence-number")) + b"\x81"
_ENQUEUED = encode(("symbol", "x-opt-enqueued-time")) + b"\x83"
_LOCKED_UNTIL = encode(("symbol", "x-opt-locked-until")) + b"\x83"
_ENQUEUE_SEQUENCE = encode(("symbol", "x-opt-enqueue-sequence-number")) + b"\x81"
_STATE = encode(("symbol", "x-opt-message-state"))
_SOURCE = encode(("symbol", "x-opt-deadletter-source"))
_BROKERS = frozenset(
    (
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-lock-token",
    )
)


class Message:
    """One stored message. Times are milliseconds of the broker's clock.

    ``raw`` is the encoded message as its sender wrote it. ``due`` is when a scheduled message becomes active,
    ``expires`` when its time to live ends; 0 is never. ``token`` is the lock token while it is locked, and ``holder``
    the link that locked it.
    """

    __slots__ = (
        "count",
        "due",
        "enqueued",
        "entity",
        "expires",
        "holder",
        "id",
        "locked_until",
        "original",
        "parts",
        "queued",
        "raw",
        "sequence",
        "session",
        "source",
        "state",
        "token",
    )

    def __init__(self, id: int, entity: Entity, sequence: int, raw: bytes) -> None:
        self.id = id
        self.entity = entity
        self.sequence = sequence
        self.original = sequence
        self.raw = raw
        self.state = ACTIVE
        self.token: bytes | None = None
        self.locked_until = 0
        self.count = 0
        self.enqueued = 0
        self.due = 0
        self.expires = 0
        self.session: str | None = None
        self.source: str | None = None
        self.queued = False
        self.holder: Any = None
        self.parts: tuple[bytes, int, bytes, bytes] | None = None

    def wire(self, *, peeked: bool = False) -> bytes:
        """The encoded message with the broker's header and annotations."""
        header, annotated, annotations, rest = self.parts or self._split()
        count = self.count
        head = header + (b"\x43" if count == 0 else b"\x70" + count.to_bytes(4, "big"))
        numbers = self.sequence.to_bytes(8, "big", signed=True)
        ours = [
            _SEQUENCE_NUMBER,
            numbers,
            _ENQUEUED,
            self.enqueued.to_bytes(8, "big", signed=True),
            _ENQUEUE_SEQUENCE,
            self.original.to_bytes(8, "big", signed=True),
        ]
        added = 6
        if self.token is not None:
            ours += (_LOCKED_UNTIL, self.locked_until.to_bytes(8, "big", signed=True))
            added += 2
        if peeked or self.state != ACTIVE:
            ours += (_STATE, b"\x54", bytes((self.state,)))
            added += 2
        if self.source is not None:
            ours += (_SOURCE, encode(("string", self.source)))
            added += 2
        return (
            b"\x00\x53\x70"
            + compound(0xD0, 5, head)
            + b"\x00\x53\x72"
            + compound(0xD1, annotated + added, annotations + b"".join(ours))
            + rest
        )

    def _split(self) -> tuple[bytes, int, bytes, bytes]:
        """The header's first four fields, the number and the bytes of the annotations, and the rest."""
        raw = self.raw
        header: list[Value] = []
        annotated, annotations, rest = 0, b"", len(raw)
        for code, start, content in sections(raw):
            if code == HEADER:
                header = decode(raw, content)[0][1]
            elif code == ANNOTATIONS:
                kept = [pair for pair in decode(raw, content)[0][1] if pair[0][1] not in _BROKERS]
                annotated = 2 * len(kept)
                annotations = b"".join(encode(item) for pair in kept for item in pair)
            elif code != DELIVERY_ANNOTATIONS:
                rest = start
                break
        first = b"".join((encode(header[index]) if index < len(header) else b"\x40") for index in range(4))
        self.parts = (first, annotated, annotations, raw[rest:])
        return self.parts

    def add_application_properties(self, values: dict[str, str]) -> None:
        """Set application properties; the others stay as they are."""
        pairs: list[tuple[Value, Value]] = []
        before, after = b"", b""
        for code, start, content in sections(self.raw):
            if code == APPLICATION_PROPERTIES:
                pairs = [pair for pair in decode(self.raw, content)[0][1] if pair[0][1] not in values]
                after = self.raw[skip(self.raw, content) :]
                break
            if code > APPLICATION_PROPERTIES:
                after = self.raw[start:]
                break
            before = self.raw[: skip(self.raw, content)]
        pairs += [(("string", name), ("string", value)) for name, value in values.items()]
        self.raw = before + b"\x00\x53\x74" + encode(("map", pairs)) + after
        self.parts = None

    def native(self, now: int) -> dict[str, Any]:
        """Everything about the message, as JSON."""
        told = describe(self.raw)
        locked = self.token is not None and self.locked_until > now
        told |= {
            "sequence_number": self.sequence,
            "enqueued_sequence_number": self.original,
            "state": "locked" if locked and self.state == ACTIVE else STATES[self.state],
            "locked": locked,
            "lock_token": str(uuid.UUID(bytes_le=self.token)) if self.token is not None and locked else None,
            "locked_until": self.locked_until if locked else None,
            "delivery_count": self.count,
            "enqueued_time": self.enqueued,
            "scheduled_enqueue_time": self.due or None,
            "expires": self.expires or None,
            "dead_letter_source": self.source,
        }
        return told


def sections(raw: bytes) -> list[tuple[int, int, int]]:
    """The sections of an encoded message: descriptor, start, and where the section's value begins."""
    found = []
    position, end = 0, len(raw)
    while position < end:
        if raw[position] != 0:
            raise Malformed("no section begins here")
        if raw[position + 1 : position + 2] == b"\x53":
            code, content = raw[position + 2], position + 3
        else:
            (_, code), content = decode(raw, position + 1)
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise Malformed("unknown section")
        found.append((code, position, content))
        position = skip(raw, content)
    return found


@dataclass(frozen=True, slots=True)
class Arrival:
    """What the broker reads of a message that arrives."""

    raw: bytes
    ttl: int | None
    due: int
    properties: list[Value]

    def property(self, index: int) -> Any:
        """A standard property without its type; None if it is absent."""
        return self.properties[index][1] if index < len(self.properties) else None


def arrival(raw: bytes, *, properties: bool) -> Arrival:
    """Read a message that arrives; its standard properties only on request."""
    ttl: int | None = None
    due = 0
    found: list[Value] = []
    for code, start, content in sections(raw):
        if code == HEADER:
            header = decode(raw, content)[0][1]
            if len(header) > 2:
                ttl = header[2][1]
        elif code == ANNOTATIONS:
            if raw.find(_SCHEDULED, start) >= 0:
                due = next((value[1] for key, value in decode(raw, content)[0][1] if key[1].encode() == _SCHEDULED), 0)
        elif code == PROPERTIES:
            if properties:
                found = decode(raw, content)[0][1]
        elif code > PROPERTIES:
            break
    return Arrival(raw, ttl, due or 0, found)


def batched(raw: bytes) -> list[bytes] | None:
    """The messages of a batch; None for a single message.

    The engine does not report a transfer's message format, so that a batch is recognised by its shape: data sections
    that each hold an encoded message, and no application properties.
    """
    if b"\x00\x53\x75" not in raw:
        return None
    found: list[bytes] = []
    for code, _, content in sections(raw):
        if code in (APPLICATION_PROPERTIES, SEQUENCE, VALUE):
            return None
        if code == DATA:
            size = 1 if raw[content] == 0xA0 else 4
            inner = raw[content + 1 + size : skip(raw, content)]
            if inner[:2] != b"\x00\x53" and inner[:2] != b"\x00\x80":
                return None
            try:
                if not sections(inner):
                    return None
            except (Malformed, IndexError):
                return None
            found.append(inner)
    return found or None


def typed(value: Value) -> dict[str, Any]:
    """A value as JSON, with the name of its AMQP type."""
    name, content = value
    shown: Any = content
    if name in ("binary", "decimal32", "decimal64", "decimal128"):
        shown = base64.b64encode(content).decode()
    elif name == "uuid":
        shown = str(content)
    elif name == "list":
        shown = [typed(item) for item in content]
    elif name == "map":
        shown = [[typed(key), typed(item)] for key, item in content]
    elif name == "array":
        shown = {"of": content[0], "values": [typed((content[0], item)) for item in content[1]]}
    elif name == "described":
        shown = [typed(content[0]), typed(content[1])]
    return {"type": name, "value": shown}


def describe(raw: bytes) -> dict[str, Any]:
    """All that a sender wrote, as JSON: ``body`` is base64 of the data sections, None for another kind of body."""
    told: dict[str, Any] = {
        "header": {},
        "properties": {},
        "application_properties": {},
        "annotations": {},
        "body_type": None,
        "body": None,
    }
    data: list[bytes] = []
    for code, _, content in sections(raw):
        value = decode(raw, content)[0]
        if code == HEADER:
            names = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
            told["header"] = {name: item[1] for name, item in zip(names, value[1], strict=False) if item[1] is not None}
        elif code == PROPERTIES:
            told["properties"] = {
                name: typed(item) for name, item in zip(PROPERTY_NAMES, value[1], strict=False) if item[1] is not None
            }
        elif code in (ANNOTATIONS, APPLICATION_PROPERTIES):
            member = "annotations" if code == ANNOTATIONS else "application_properties"
            told[member] = {str(key[1]): typed(item) for key, item in value[1]}
        elif code == DATA:
            told["body_type"] = "data"
            data.append(value[1])
        elif code in (SEQUENCE, VALUE):
            told["body_type"] = "value" if code == VALUE else "sequence"
            told["body_value"] = typed(value)
    if told["body_type"] == "data":
        told["body"] = base64.b64encode(b"".join(data)).decode()
    return told


def build(sections_of: dict[int, Value]) -> bytes:
    """Encode a message of sections."""
    return b"".join(b"\x00\x53" + bytes((code,)) + encode(value) for code, value in sorted(sections_of.items()))
