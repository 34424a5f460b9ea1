"""The frames of Pulsar's binary protocol: https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/

The messages of Protocol Buffers are those of ``pulsar.proto``, which is read when this module is imported.
"""

from __future__ import annotations

import re
import struct
from importlib import resources
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google_crc32c import extend
from google_crc32c import value as crc32c
from msgspec import Struct

PROTOCOL_VERSION: Final = 21
"""The newest version whose commands are known here: v21 has the answers of CONSUMER_STATS and ACK that are used."""

_FRAME = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_CHECKSUM, _ENTRY_METADATA = b"\x0e\x01", b"\x0e\x02"

_MASK = (1 << 64) - 1

# The only forms of a comment, a message and a field in pulsar.proto.
_COMMENT = re.compile(r"//.*")
_MESSAGE = re.compile(r"message (\w+) \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(optional|repeated) (\w+) (\w+) = (\d+);")


class MalformedFrame(Exception):
    """Bytes that are not of the protocol."""


class DamagedMessage(Exception):
    """A message with a wrong checksum, or with metadata that cannot be read. ``damaged``: the size of the metadata in
    four bytes, the metadata and the payload."""

    def __init__(self, reason: str, damaged: bytes) -> None:
        self.damaged = damaged
        super().__init__(reason)


class EntryId(Struct, frozen=True):
    """The place of an entry, which holds one message or a producer's batch."""

    ledger: int
    entry: int


def _classes(source: str) -> dict[str, Any]:
    """The classes of the messages in ``source``. They are in a pool of their own, so that a module that is imported a
    second time makes its own. Raises ValueError for what has none of the forms."""
    source = _COMMENT.sub("", source)
    if rest := _FIELD.sub("", _MESSAGE.sub(r"\2", source)).split():
        raise ValueError(f"pulsar.proto has an unknown form: {rest[0]}")
    file = descriptor_pb2.FileDescriptorProto(name="babelgate/pulsar.proto", package="babelgate.pulsar")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGE.findall(source):
        message = file.message_type.add(name=name)
        for label, kind, field, number in _FIELD.findall(fields):
            added = message.field.add(name=field, number=int(number))
            added.label = kinds.LABEL_REPEATED if label == "repeated" else kinds.LABEL_OPTIONAL
            if kind[0].isupper():
                added.type_name = f".babelgate.pulsar.{kind}"
            added.type = kinds.TYPE_MESSAGE if kind[0].isupper() else getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}


_NAMES = _classes(resources.files(__package__).joinpath("pulsar.proto").read_text(encoding="utf-8"))
BaseCommand = _NAMES["BaseCommand"]
MessageMetadata = _NAMES["MessageMetadata"]
SingleMessageMetadata = _NAMES["SingleMessageMetadata"]
_TYPES = {name: each.number for name, each in BaseCommand.DESCRIPTOR.fields_by_name.items()}
_KINDS = {number: name for name, number in _TYPES.items()}


def command(kind: str, **fields: Any) -> bytes:
    """The frame of a command, by the name of its field in BaseCommand."""
    encoded: bytes = BaseCommand(type=_TYPES[kind], **{kind: fields}).SerializeToString()
    return _FRAME.pack(len(encoded) + 4, len(encoded)) + encoded


def send(producer: int, sequence: int, metadata: bytes, payload: bytes) -> bytes:
    """The frame of a message, with the checksum that clients verify: some acknowledge a message without one as corrupt.

    https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#message-commands
    """
    base = BaseCommand(type=_TYPES["send"])
    base.send.producer_id = producer
    base.send.sequence_id = sequence
    encoded = base.SerializeToString()
    head = _FRAME.pack(len(encoded) + len(metadata) + len(payload) + 14, len(encoded))
    sized = _SIZE.pack(len(metadata)) + metadata
    checksum = _SIZE.pack(extend(crc32c(sized), payload))
    return b"".join((head, encoded, _CHECKSUM, checksum, sized, payload))


def read(kind: Any, encoded: bytes) -> Any:
    """The message of the class ``kind`` in ``encoded``. Raises MalformedFrame."""
    try:
        return kind.FromString(encoded)
    except (DecodeError, ValueError, RecursionError) as error:
        # Protocol Buffers in Python raise the others, too: for a text that is not UTF-8, and for groups within groups.
        raise MalformedFrame(str(error)) from None


def entry_id(place: EntryId) -> dict[str, int]:
    """The fields of a MessageIdData. Numbers below 0 are those of 64 bits in two's complement."""
    return {"ledgerId": place.ledger & _MASK, "entryId": place.entry & _MASK}


def entry_id_of(fields: Any) -> EntryId:
    """The place in a MessageIdData."""
    return EntryId(fields.ledgerId, fields.entryId)


def read_command(frame: bytes) -> tuple[str, Any, int]:
    """The kind of a command, its fields, and where the rest of the frame begins. Raises MalformedFrame."""
    size = _SIZE.unpack_from(frame)[0]
    base = read(BaseCommand, frame[4 : 4 + size])
    kind = _KINDS.get(base.type, "")
    return kind, getattr(base, kind, None), 4 + size


def split_message(rest: bytes) -> tuple[bytes, bytes]:
    """The metadata and the payload behind a MESSAGE. Raises MalformedFrame, and DamagedMessage for a wrong checksum."""
    position = 0
    try:
        if rest[:2] == _ENTRY_METADATA:
            position = 6 + _SIZE.unpack_from(rest, 2)[0]
        if rest[position : position + 2] == _CHECKSUM:
            position += 6
            if crc32c(rest[position:]) != _SIZE.unpack_from(rest, position - 4)[0]:
                raise DamagedMessage("a message arrived with a wrong checksum", rest[position:])
        size = _SIZE.unpack_from(rest, position)[0]
    except struct.error:
        raise MalformedFrame("it ends before the metadata") from None
    position += 4
    return rest[position : position + size], rest[position + size :]


def read_message(rest: bytes) -> tuple[Any, bytes]:
    """The MessageMetadata and the payload behind a MESSAGE. Raises MalformedFrame, and DamagedMessage."""
    encoded, payload = split_message(rest)
    try:
        return read(MessageMetadata, encoded), payload
    except MalformedFrame:
        damaged = b"".join((_SIZE.pack(len(encoded)), encoded, payload))
        raise DamagedMessage("a message arrived with metadata that cannot be read", damaged) from None
