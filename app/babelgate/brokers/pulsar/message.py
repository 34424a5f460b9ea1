"""Writes and reads Pulsar messages: the contract's properties beside an envelope, keys, and producers' batches, which
may be compressed. The gateway itself compresses none."""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import cramjam
import lz4.block
import zstandard
from msgspec import Struct

from babelgate.brokers.binding import NO_HEADERS, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields, unsupported_version
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.wire import MalformedFrame

JOB, TRACE, MESSAGE_ID = "bq-job", "bq-trace-id", "bq-message-id"
VERSION, LANGUAGE, ATTEMPTS, DELAY = "bq-schema-version", "bq-source-lang", "bq-attempts", "bq-delay"
EXPIRED = "babelgate-expired"
"""Marks a copy of a message of which a lease expired. A message without failures loses the mark."""

CONTRACT: Final = frozenset({JOB, TRACE, MESSAGE_ID, VERSION, LANGUAGE, ATTEMPTS, DELAY, EXPIRED})
"""Properties that are no headers."""

_ATTEMPTS = re.compile(r"[0-9]{1,10}")
_MAX_ATTEMPTS = 2**31 - 1

MAX_BYTES = 67_108_864
"""The most bytes of a payload, ours: a producer declares up to 4 GiB, and a broker takes 5 MiB of compressed ones
(``maxMessageSize``, https://pulsar.apache.org/reference/#/4.0.x/config/reference-configuration-broker)."""

MAX_MESSAGES = 100_000
"""The most messages of a batch, ours: a producer declares up to 2³¹ - 1, whatever the batch has. Producers put 1,000
into one by default (``batchingMaxMessages``,
https://pulsar.apache.org/reference/#/4.0.x/client/client-configuration-producer)."""

_MIN_MESSAGE_BYTES = 4
"""Of a message in a batch: the size of its metadata. A few bytes may declare a batch of any number of messages."""

_ERRORS = (zlib.error, zstandard.ZstdError, lz4.block.LZ4BlockError, cramjam.DecompressionError)


class PulsarParts(Struct, frozen=True):
    """Native parts of a message that a copy of it keeps: its keys, the time of its event in Unix ms, and the properties
    of the contract as they were. ``base64``: the partition key is bytes, and ``key`` their base64."""

    key: str | None
    base64: bool
    ordering: bytes | None
    event: int
    contract: Mapping[str, str]

    @property
    def shared_by(self) -> str | None:
        """What a Key_Shared subscription goes by: https://pulsar.apache.org/docs/4.0.x/concepts-messaging/#ordering-key"""
        return self.key if self.ordering is None else self.ordering.hex()


class ReadMessage(Struct, frozen=True):
    """A message as it was read. ``version``: see Delivery.unsupported_version; ``attempts``: see
    Delivery.declared_attempts. ``is_raw``: the body is that of an entry that cannot be read."""

    body: bytes
    headers: Mapping[str, str]
    version: str | None
    attempts: int | None
    carried: PulsarParts | None
    is_raw: bool = False


def native(message: Outgoing, now_ms: int) -> Any:
    """The metadata of a message without its producer; it is due ``delay_seconds`` after ``now_ms``, in Unix ms.

    A copy keeps the keys, the job on which consumers route it, and a schema version that consumers refuse.
    """
    carried = message.carried if isinstance(message.carried, PulsarParts) else None
    kept: Mapping[str, str] = {} if carried is None else carried.contract
    properties, event = _contract(message.body) if message.is_envelope else ({}, 0)
    if not properties:
        properties = dict(kept)
    else:
        if JOB in kept:
            properties[JOB] = kept[JOB]
        if (version := unsupported_version(kept.get(VERSION))) is not None:
            properties[VERSION] = version
    properties.pop(DELAY, None)
    made = wire.MessageMetadata(publish_time=now_ms, uncompressed_size=len(message.body))
    failure = message.failure
    if failure is not None and failure.attempts and (failure.expired or EXPIRED in kept):
        properties[EXPIRED] = "1"
    if message.delay_seconds > 0:
        delay = math.ceil(message.delay_seconds * 1000)
        made.deliver_at_time = now_ms + delay
        properties[DELAY] = str(delay)
    properties |= {name: value for name, value in message.headers.items() if name not in CONTRACT}
    for name, value in properties.items():
        made.properties.add(key=name.encode(), value=value.encode())
    key = message.ordering_key
    if carried is not None:
        if not key:
            key = carried.key
            if carried.base64:
                made.partition_key_b64_encoded = True
        if carried.ordering is not None:
            made.ordering_key = carried.ordering
        event = carried.event or event
    if key is not None:
        made.partition_key = key.encode()
    if event:
        made.event_time = event
    return made


def read_entry(metadata: Any, payload: bytes, first: int = 0, *, is_damaged: bool = False) -> list[ReadMessage | None]:
    """The messages of an entry, by their positions; None for one that a compaction has removed.

    What cannot be read, because it is encrypted, a chunk, malformed, damaged or has too many messages, is one message
    with the bytes as they are, at the position ``first``: nothing but the whole entry can be handed out, and
    acknowledged.
    """
    is_batch, positions = metadata.HasField("num_messages_in_batch"), positions_of(metadata, payload)
    if not is_damaged and not metadata.encryption_keys and metadata.num_chunks_from_msg <= 1:
        try:
            content = decompressed(metadata.compression, payload, metadata.uncompressed_size)
            return _batch(content, metadata.num_messages_in_batch) if is_batch else [_message(content, metadata)]
        except (ValueError, MalformedFrame):
            if is_batch:
                metadata = wire.MessageMetadata(properties=metadata.properties)
    metadata.ClearField("null_value")
    found: list[ReadMessage | None] = [None for _ in positions]
    found[first] = _message(payload, metadata, is_raw=True)
    return found


def size_and_due(metadata: Any) -> tuple[int, int]:
    """The number of messages that an entry declares, by which the broker counts, and when it is due, in Unix ms."""
    size = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1
    return size, metadata.deliver_at_time


def positions_of(metadata: Any, payload: bytes) -> range:
    """The positions of the messages that may be handed out of an entry: at least one. A batch that declares more than
    MAX_MESSAGES, or more than its bytes can hold, has one, because it is not read."""
    count = metadata.num_messages_in_batch
    content_bytes = metadata.uncompressed_size if metadata.compression else len(payload)
    return range(count if _may_hold(content_bytes, count) else 1)


def partition_of(key: str, count: int) -> int:
    """The partition of a key among ``count``: that of Java's clients, by Java's hash of a text."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % count


def key_text(key: str, *, is_base64: bool) -> str:
    """A partition key as clients show it."""
    return base64.b64decode(key).decode("utf-8", "replace") if is_base64 else key


def _may_hold(content_bytes: int, count: int) -> bool:
    """Whether a batch with ``content_bytes`` decompressed bytes may have ``count`` messages, and is read."""
    return 0 < count <= min(MAX_MESSAGES, content_bytes // _MIN_MESSAGE_BYTES)


def _batch(content: bytes, count: int) -> list[ReadMessage | None]:
    if not _may_hold(len(content), count):
        raise MalformedFrame(f"a batch of {count} messages")
    found: list[ReadMessage | None] = []
    position = 0
    for _ in range(count):
        size = int.from_bytes(content[position : position + 4], "big")
        position += 4
        if size > len(content) - position:
            raise MalformedFrame("a batch ends in a message")
        one = wire.read(wire.SingleMessageMetadata, content[position : position + size])
        position += size
        end = position + max(one.payload_size, 0)
        if end > len(content):
            raise MalformedFrame("a batch ends in a message")
        found.append(None if one.compacted_out else _message(content[position:end], one))
        position = end
    return found


def _message(body: bytes, fields: Any, *, is_raw: bool = False) -> ReadMessage:
    """The message with this body, or with an empty one where ``fields``, its metadata, say so."""
    contract: dict[str, str] = {}
    headers: dict[str, str] = {}
    for each in fields.properties:
        name, value = each.key.decode("utf-8", "replace"), each.value.decode("utf-8", "replace")
        (contract if name in CONTRACT else headers)[name] = value
    key = fields.partition_key.decode("utf-8", "replace") if fields.HasField("partition_key") else None
    ordering = fields.ordering_key if fields.HasField("ordering_key") else None
    carried = None
    if key is not None or ordering is not None or fields.event_time or contract:
        carried = PulsarParts(key, fields.partition_key_b64_encoded, ordering, fields.event_time, contract)
    return ReadMessage(
        b"" if fields.null_value else body,
        headers or NO_HEADERS,
        unsupported_version(contract.get(VERSION)),
        _declared(contract.get(ATTEMPTS)),
        carried,
        is_raw,
    )


def _declared(text: str | None) -> int | None:
    if text is None or not _ATTEMPTS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= _MAX_ATTEMPTS else None


def _contract(body: bytes) -> tuple[dict[str, str], int]:
    """The contract's properties of the envelope in ``body``, as far as it is one, and its ``created_at``, or 0."""
    found = envelope_fields(body)
    if found is None:
        return {}, 0
    properties = {}
    fields, meta = found
    for name, value in ((JOB, fields.job), (TRACE, fields.trace_id), (MESSAGE_ID, meta.id)):
        if isinstance(value, str) and value:
            properties[name] = value
    if type(meta.schema_version) is int:
        properties[VERSION] = str(meta.schema_version)
    if isinstance(meta.lang, str) and meta.lang:
        properties[LANGUAGE] = meta.lang
    attempts: Any = fields.attempts
    properties[ATTEMPTS] = str(attempts if type(attempts) is int and attempts > 0 else 0)
    created: Any = meta.created_at
    return properties, created if type(created) is int and 0 < created < 2**63 else 0


def decompressed(kind: int, payload: bytes, size: int) -> bytes:
    """``payload``, which has ``size`` bytes when it is decompressed; ``kind``: CompressionType of PulsarApi.proto.

    Takes little more memory than ``size`` bytes, whatever the payload says. Raises ValueError for what cannot be
    decompressed to this size, and for a size beyond MAX_BYTES.
    """
    if kind == 0:
        return payload
    decompress = _BY_KIND.get(kind)
    if decompress is None:
        raise ValueError(f"the compression {kind} is unknown")
    if size > MAX_BYTES:
        raise ValueError(f"{size} bytes are more than {MAX_BYTES}")
    try:
        found = decompress(payload, size)
    except _ERRORS as error:
        raise ValueError(str(error)) from error
    if len(found) != size:
        raise ValueError(f"{len(found)} bytes instead of {size}")
    return found


def _zlib(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)


def _zstd(payload: bytes, size: int) -> bytes:
    if zstandard.frame_content_size(payload) not in (-1, size):
        raise ValueError("the frame has another size")
    return zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)


def _lz4(payload: bytes, size: int) -> bytes:
    """A block without a size before it."""
    found: bytes = lz4.block.decompress(payload, uncompressed_size=size)
    return found


def _snappy(payload: bytes, size: int) -> bytes:
    """A raw block, which has its size before it."""
    if cramjam.snappy.decompress_raw_len(payload) != size:
        raise ValueError("the block has another size")
    return bytes(cramjam.snappy.decompress_raw(payload))


_BY_KIND: dict[int, Callable[[bytes, int], bytes]] = {1: _lz4, 2: _zlib, 3: _zstd, 4: _snappy}
