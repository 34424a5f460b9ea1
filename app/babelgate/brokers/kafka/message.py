"""Writes and reads Kafka records: the contract's headers beside an envelope, and native headers of any bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from babelgate.brokers.binding import NO_HEADERS, Delivery, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields, unsupported_version
from babelgate.brokers.projection import NativeHeader, NativeWrite

VERSION = "bq-schema-version"
ATTEMPTS = "bq-attempts"
DELAY = "bq-delay"
ORIGINAL_TOPIC = "bq-original-topic"

_PARKED = frozenset({DELAY, ORIGINAL_TOPIC})
"""Headers of a record on a retry tier; the re-injector removes them."""

CONTRACT = _PARKED | {VERSION, ATTEMPTS, "bq-job", "bq-trace-id", "bq-message-id", "bq-source-lang"}

_MOST_ATTEMPTS = 2**31 - 1
_BATCH_HEAD_BYTES = 61
_FUTURE_MS = 3_600_000
"""A broker refuses a record that is dated later than this:
https://kafka.apache.org/documentation/#topicconfigs_message.timestamp.after.max.ms"""

HeaderList = Sequence[tuple[str, bytes | None]]
"""Headers as Kafka has them: a name may occur several times, and a value is any bytes, or null."""


Identity = tuple[tuple[int, int], int]
"""The date of a record, as the client gives it, and a hash of its key and value."""


class CarriedRecord(Struct, frozen=True):
    """The ``key`` and the ``headers`` of a record, which a copy of it keeps byte for byte."""

    key: bytes | None
    headers: HeaderList


class Written(Struct, frozen=True):
    """A record to write. ``timestamp``: Unix ms; 0: the time of the write."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int = 0


def room_of(record: Written, max_bytes: int) -> int:
    """The most bytes that its value may have where ``max.message.bytes`` is ``max_bytes``, which counts the head of a
    batch, the key and the headers, too; negative where these are too large: https://kafka.apache.org/documentation/#messageformat
    """
    size = len(record.value or b"")
    rest = 3 + _sized(len(record.key or b"")) + _varint(size) + _varint(len(record.headers))
    for name, value in record.headers:
        rest += _sized(len(name.encode())) + _sized(len(value or b""))
    return max_bytes - _BATCH_HEAD_BYTES - rest - _varint(rest + size)


def _sized(length: int) -> int:
    return length + 1 if length < 64 else length + _varint(length)


def _varint(number: int) -> int:
    return ((number << 1).bit_length() + 6) // 7 or 1


def delivery_of(message: Any, handle: str = "", *, redelivered: bool = False) -> Delivery:
    """The delivery of a record as confluent-kafka returns it. The body of a tombstone, whose value is null, is empty.
    The headers are those that are texts, without the contract's."""
    found: HeaderList = message.headers() or ()
    headers: Mapping[str, str] = NO_HEADERS
    version = attempts = None
    if found:
        declared = dict(reversed(found))
        version, attempts = unsupported_version(declared.get(VERSION)), _attempts(declared.get(ATTEMPTS))
        if not CONTRACT.issuperset(declared):
            headers = texts_of(found)
    key = message.key()
    return Delivery(
        message.value() or b"",
        handle,
        0,
        headers,
        redelivered=redelivered,
        carried=CarriedRecord(key, found) if found or key is not None else None,
        unsupported_version=version,
        declared_attempts=attempts,
        ordering_key=None if key is None else key.decode("utf-8", "backslashreplace"),
    )


def timestamp_of(message: Any) -> int | None:
    """The date of a record as confluent-kafka returns it, in Unix ms; None without one."""
    kind, timestamp = message.timestamp()
    return timestamp if kind and timestamp >= 0 else None


def texts_of(headers: HeaderList) -> dict[str, str]:
    """The headers that are UTF-8 texts, without the contract's. Of several with one name: the last, as Kafka's own
    ``lastHeader``."""
    found = {}
    for name, value in headers:
        if name not in CONTRACT and value is not None:
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                # A copy carries it.
                continue
    return found


def record_of(message: Outgoing, topic: str, now_ms: int) -> Written:
    """The record of ``message`` in ``topic``, which may be one of dead letters. ``now_ms``: the time, in Unix ms.

    A new message is dated with its ``created_at``. A copy, and a message that has waited elsewhere, are dated with the
    time of the write, because a topic removes records by their dates.
    """
    carried = message.carried if isinstance(message.carried, CarriedRecord) else None
    is_copy = carried is not None or message.failure is not None or message.dedup_id is None or message.is_late
    made, created = _projection(message.body) if message.is_envelope else ({}, 0)
    if message.failure is not None:
        made[ATTEMPTS] = b"%d" % message.failure.attempts
    key = None if carried is None else carried.key
    if message.ordering_key is not None:
        key = message.ordering_key.encode()
    dated = 0 if is_copy or not 0 < created <= now_ms + _FUTURE_MS else created
    return Written(topic, message.body, key, _headers(message, carried, made), dated)


def parked(record: Written, tier: str, delay_ms: int) -> Written:
    """``record`` on the retry tier ``tier``, dated with the time of the write, from which its delay counts."""
    headers = [*record.headers, (DELAY, b"%d" % delay_ms), (ORIGINAL_TOPIC, record.topic.encode())]
    return Written(tier, record.value, record.key, headers)


def reinjected(message: Any, topic: str) -> Written:
    """The record that leaves a retry tier: value, key and headers byte for byte, without those of the tier.

    ``topic``: where it goes without the header that names its topic.
    """
    headers: HeaderList = message.headers() or ()
    original = dict(reversed(headers)).get(ORIGINAL_TOPIC)
    target = topic if not original else original.decode("utf-8", "replace")
    return Written(target, message.value(), message.key(), _unparked(headers))


def identity(message: Any) -> Identity:
    """Distinguishes the record from one with the same offset in a topic that was deleted and made again."""
    return message.timestamp(), hash((message.key(), message.value()))


def unparked(record: Written, topic: str) -> Written:
    """What leaves the retry tier for ``topic`` when ``record`` is on it."""
    return Written(topic, record.value, record.key, _unparked(record.headers))


def _unparked(headers: HeaderList) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if name not in _PARKED]


def projected(record: Written, now_ms: int) -> NativeWrite:
    """``record`` in Kafka's words."""
    fields: dict[str, Any] = {"timestamp": record.timestamp or now_ms}
    if record.key is not None:
        fields["key"] = record.key.decode("utf-8", "replace")
    headers = {name: NativeHeader("bytes", (value or b"").decode("utf-8", "replace")) for name, value in record.headers}
    assigned = () if record.timestamp else ("timestamp",)
    return NativeWrite("produce", {"topic": record.topic}, fields, headers, record.value, assigned)


def _headers(
    message: Outgoing, carried: CarriedRecord | None, made: dict[str, bytes]
) -> list[tuple[str, bytes | None]]:
    """The carried headers in their order, those of the contract and of the message in their places, then the new ones.

    A copy of one delivery keeps what the record declared about itself, but for its attempts. A message that is sent
    back from the dead letters declares what its body says.
    """
    headers: list[tuple[str, bytes | None]] = []
    if carried is None and not message.headers:
        headers += made.items()
        return headers
    texts = {name: value for name, value in message.headers.items() if name not in CONTRACT}
    if carried is not None:
        shown = texts_of(carried.headers)
        done = set()
        for name, value in carried.headers:
            if name in CONTRACT:
                if name == ATTEMPTS or (message.failure is None and message.is_envelope):
                    value = made.pop(name, None)
                    if value is None:
                        continue
                elif name in _PARKED:
                    continue
                made.pop(name, None)
            elif name in shown and texts.get(name) != shown[name]:
                # It was replaced or left out since it was read.
                continue
            else:
                done.add(name)
            headers.append((name, value))
        texts = {name: value for name, value in texts.items() if name not in done}
    headers += made.items()
    headers += [(name, value.encode()) for name, value in texts.items()]
    return headers


def _projection(body: bytes) -> tuple[dict[str, bytes], int]:
    """The contract's headers for the envelope in ``body``, as far as it is one, and its ``created_at``, or 0."""
    found = envelope_fields(body)
    if found is None:
        return {}, 0
    fields, meta = found
    made = {}
    for name, value in (("bq-job", fields.job), ("bq-trace-id", fields.trace_id), ("bq-message-id", meta.id)):
        if isinstance(value, str) and value:
            made[name] = value.encode("utf-8", "replace")
    if type(meta.schema_version) is int:
        made[VERSION] = b"%d" % meta.schema_version
    if isinstance(meta.lang, str) and meta.lang:
        made["bq-source-lang"] = meta.lang.encode("utf-8", "replace")
    if type(fields.attempts) is int:
        made[ATTEMPTS] = b"%d" % fields.attempts
    return made, meta.created_at if type(meta.created_at) is int else 0


def _attempts(value: bytes | None) -> int | None:
    """What the header declares; None without it, or where it is no whole number from 0."""
    if value is None or not value.isdigit() or len(value) > 10:
        return None
    return min(int(value), _MOST_ATTEMPTS)
