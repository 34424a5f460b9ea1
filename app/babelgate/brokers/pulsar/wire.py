"""The frames of Pulsar's binary protocol: commands as bytes, and their fields.

Frames and commands: https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/. Messages of Protocol Buffers are
written and read here field by field, by the numbers in PulsarApi.proto. Every command's type is also the number of its
field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google_crc32c import extend
from google_crc32c import value as crc32c
from msgspec import Struct

CONNECT, CONNECTED, SUBSCRIBE, PRODUCER, SEND, SEND_RECEIPT, SEND_ERROR, MESSAGE, ACK, FLOW = range(2, 12)
SUCCESS, ERROR, CLOSE_PRODUCER, CLOSE_CONSUMER, PRODUCER_SUCCESS, PING, PONG, REDELIVER = range(13, 21)
PARTITIONS, PARTITIONS_RESPONSE, LOOKUP, LOOKUP_RESPONSE, CONSUMER_STATS, CONSUMER_STATS_RESPONSE = range(21, 27)
LAST_MESSAGE_ID, LAST_MESSAGE_ID_RESPONSE = 29, 30
TOPICS, TOPICS_RESPONSE = 32, 33
AUTH_CHALLENGE, AUTH_RESPONSE, ACK_RESPONSE = 36, 37, 38

PROTOCOL_VERSION: Final = 21
"""The newest version whose commands are known here: v21 has the answers of CONSUMER_STATS and ACK that are used."""

Fields = Mapping[int, Any]
"""Values by field number: whole numbers, and slices of bytes. The last one counts where a field is repeated."""

FieldList = Sequence[tuple[int, Any]]
"""The same with all values of repeated fields, in order."""

REPEATED: Final = 0
"""The key of the values of a repeated field, where an answer has one: the topics of TOPICS_RESPONSE."""

_FRAME = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_CHECKSUM, _ENTRY_METADATA = b"\x0e\x01", b"\x0e\x02"

_SMALL = [bytes((number,)) for number in range(128)]
_WORD, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5

_KEY = b"\x0a"
_VALUE_OF = {length: bytes((0x12, length)) for length in range(128)}
"""The heads of the fields of a KeyValue: the value's by its length."""


class MalformedFrame(Exception):
    """Bytes that are not of the protocol."""


class WrongChecksum(Exception):
    """A message whose metadata and payload are not those that its producer sent. ``damaged``: the size of
    the metadata in four bytes, the metadata and the payload."""

    def __init__(self, damaged: bytes) -> None:
        self.damaged = damaged
        super().__init__("the checksum of a message is wrong")


class EntryId(Struct, frozen=True):
    """The place of an entry, which holds one message or a producer's batch."""

    ledger: int
    entry: int


def varint(value: int) -> bytes:
    """``value``, from 0, in base 128; a negative one as 64 bits in two's complement."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def number(field: int, value: int) -> bytes:
    """A field with a whole number."""
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    """A field with bytes, or with a message that is encoded already."""
    return b"".join((varint(field << 3 | _BYTES), varint(len(value)), value))


def text(field: int, value: str) -> bytes:
    """A field with a text."""
    return data(field, value.encode())


def pair(field: int, key: str, value: str) -> bytes:
    """A field with a KeyValue."""
    return data(field, text(1, key) + text(2, value))


def pairs_of(several: Iterable[bytes]) -> list[tuple[str, str]]:
    """The texts of KeyValues. Bytes that are not UTF-8 are replaced."""
    found = []
    for each in several:
        behind = each[1] + 2 if len(each) > 3 else 0
        if each[:1] == _KEY and each[behind : behind + 2] == _VALUE_OF.get(len(each) - behind - 2) and behind < 130:
            # As every client writes a short one: the key, then the value, and nothing else.
            key, value = each[2:behind], each[behind + 2 :]
        else:
            fields = read(each)
            key, value = fields.get(1, b""), fields.get(2, b"")
        found.append((key.decode("utf-8", "replace"), value.decode("utf-8", "replace")))
    return found


def command(kind: int, body: bytes) -> bytes:
    """The frame of a command."""
    encoded = number(1, kind) + data(kind, body)
    return _FRAME.pack(len(encoded) + 4, len(encoded)) + encoded


def send(producer: int, sequence: int, metadata: bytes, payload: bytes) -> bytes:
    """The frame of a message, with the checksum that clients verify: some acknowledge a message without one as corrupt.

    https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#message-commands
    """
    encoded = number(1, SEND) + data(SEND, number(1, producer) + number(2, sequence))
    head = _FRAME.pack(len(encoded) + len(metadata) + len(payload) + 14, len(encoded))
    sized = _SIZE.pack(len(metadata)) + metadata
    checksum = _SIZE.pack(extend(crc32c(sized), payload))
    return b"".join((head, encoded, _CHECKSUM, checksum, sized, payload))


def entry_id(field: int, place: EntryId) -> bytes:
    """A field with a MessageIdData."""
    return data(field, number(1, place.ledger) + number(2, place.entry))


def entry_id_of(encoded: bytes) -> EntryId:
    """The place in a MessageIdData."""
    fields = read(encoded)
    return EntryId(fields.get(1, 0), fields.get(2, 0))


def fields_of(encoded: bytes) -> FieldList:
    """Each field with its number, in order. Raises MalformedFrame."""
    found: list[tuple[int, Any]] = []
    position, end = 0, len(encoded)
    try:
        while position < end:
            # Most numbers have one byte, and a call for each would be half of the work.
            tag = encoded[position]
            position += 1
            if tag > 127:
                tag, position = _varint(encoded, position - 1)
            kind = tag & 7
            value: Any
            if kind == _BYTES:
                length = encoded[position]
                position += 1
                if length > 127:
                    length, position = _varint(encoded, position - 1)
                value = encoded[position : position + length]
                position += length
            elif kind == _WORD:
                value = encoded[position]
                position += 1
                if value > 127:
                    value, position = _varint(encoded, position - 1)
            elif kind in (_DOUBLE, _FLOAT):
                length = 8 if kind == _DOUBLE else 4
                value = encoded[position : position + length]
                position += length
            else:
                raise MalformedFrame(f"a field of the unknown kind {kind}")
            found.append((tag >> 3, value))
    except IndexError:
        raise MalformedFrame("it ends in a field") from None
    if position != end:
        raise MalformedFrame("it ends in a field")
    return found


def read(encoded: bytes) -> Fields:
    """The fields by number. Raises MalformedFrame."""
    return dict(fields_of(encoded))


def read_command(frame: bytes) -> tuple[int, bytes, int]:
    """The kind of a command, its fields, and where the rest of the frame begins. Raises MalformedFrame."""
    size = _SIZE.unpack_from(frame)[0]
    fields = read(frame[4 : 4 + size])
    kind = fields.get(1, 0)
    return kind, fields.get(kind, b""), 4 + size


def split_message(rest: bytes) -> tuple[bytes, bytes]:
    """The metadata and the payload behind a MESSAGE. Raises MalformedFrame, and WrongChecksum."""
    position = 0
    try:
        if rest[:2] == _ENTRY_METADATA:
            position = 6 + _SIZE.unpack_from(rest, 2)[0]
        if rest[position : position + 2] == _CHECKSUM:
            position += 6
            if crc32c(rest[position:]) != _SIZE.unpack_from(rest, position - 4)[0]:
                raise WrongChecksum(rest[position:])
        size = _SIZE.unpack_from(rest, position)[0]
    except struct.error:
        raise MalformedFrame("it ends before the metadata") from None
    position += 4
    return rest[position : position + size], rest[position + size :]


def _varint(encoded: bytes, position: int) -> tuple[int, int]:
    value = encoded[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    shift = 7
    while True:
        byte = encoded[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedFrame("a number is too long")
