"""The plain profile: BabelQueue envelopes on a durable queue, as the SDKs write and read them. Pure."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pamqp.commands import Basic

from babelgate.brokers.binding import NO_HEADERS, DeadRecord, Delivery, Outgoing
from babelgate.brokers.envelope_fields import envelope_fields
from babelgate.brokers.options import OptionMap
from babelgate.brokers.rabbitmq import frames
from babelgate.brokers.rabbitmq.delays import delayed_route
from babelgate.brokers.rabbitmq.profile import (
    EXPIRED_HEADER,
    UNLIMITED,
    AddressedMessage,
    NativeMessage,
    QueueDeclaration,
    Topology,
    confirmed,
    priority_of,
    read_priorities,
    read_quorum_limit,
)
from babelgate.brokers.rabbitmq.tables import SHORT_BYTES, whole_number

CONTRACT_HEADERS = frozenset({"x-schema-version", "x-source-lang", "x-attempts"})
"""The headers of the contract. They are written from the body; other values under these names are ignored."""

_KEPT = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to"),
    *("message_id", "timestamp", "message_type", "app_id"),
)

_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_YEAR_9999 = 253_402_300_799_999

# The parts of the properties of an ordinary message, in their order (AMQP 0-9-1, sections 1.8.1 and 4.2.6.1).
_LENGTH, _MOMENT = struct.Struct(">I"), struct.Struct(">Q")
_USUAL = ("content_type", "content_encoding", "headers", "delivery_mode", "correlation_id", "message_id", "timestamp")
_USUAL_START = frames.FLAGS.pack(sum(Basic.Properties.flags[name] for name in (*_USUAL, "message_type", "app_id")))
_USUAL_START += frames.short("application/json") + frames.short("utf-8")
_USUAL_LANG = b"%bI%b%bS" % (frames.short("x-schema-version"), _LENGTH.pack(1), frames.short("x-source-lang"))
_USUAL_ATTEMPTS = frames.short("x-attempts") + b"I"
_USUAL_TABLE_BYTES = len(_USUAL_LANG) + len(_USUAL_ATTEMPTS) + 2 * _LENGTH.size
_PERSISTENT = b"\x02"
_USUAL_END = frames.short("babelqueue")

# Headers that the broker adds on a message's way, which a copy must not have. With x-death, a broker that dead-letters
# the copy to a queue named there would detect a cycle and drop it silently.
OF_THE_JOURNEY = frozenset(
    {
        "x-death",
        *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
        "x-delivery-count",
        "x-acquired-count",
        "CC",
        "BCC",
    }
)

_HIDDEN = CONTRACT_HEADERS | OF_THE_JOURNEY | {EXPIRED_HEADER}
"""Headers that a consumer does not get."""


class PlainProfile:
    """The profile of ``queue``, with ``<queue>.dlq`` for dead letters. See
    babelgate.brokers.rabbitmq.profile.Profile."""

    assigned: frozenset[str] = frozenset()

    def __init__(self, queue: QueueDeclaration, dead_queue: QueueDeclaration) -> None:
        self.queue = queue.name
        self.dead_queue = dead_queue.name
        self.exchange, self.routing_key = "", queue.name
        # A queue that dead-letters by itself is declared together with its dead-letter queue.
        with_dead = "x-dead-letter-routing-key" in queue.arguments
        self.topology = Topology(queues=(dead_queue, queue) if with_dead else (queue,))
        self.dead_topology = Topology(queues=(dead_queue,))
        self.identity: Hashable = self.topology, self.dead_topology

    def message(self, outgoing: Outgoing) -> AddressedMessage:
        """To the default exchange, or with a delay to the delay queues. Raises ValueError for an unsupported delay."""
        if not outgoing.is_envelope:
            return AddressedMessage("", self.queue, foreign_properties(outgoing), outgoing.body)
        properties = _usual_properties(outgoing) or _properties(outgoing)
        if outgoing.delay_seconds > 0:
            exchange, routing_key, needs = delayed_route(self.queue, outgoing.delay_seconds)
            return AddressedMessage(exchange, routing_key, properties, outgoing.body, needs)
        return AddressedMessage("", self.queue, properties, outgoing.body)

    def dead(self, record: Outgoing) -> AddressedMessage:
        """To the default exchange."""
        return AddressedMessage("", self.dead_queue, _properties(record), record.body)

    def read(self, native: NativeMessage, handle: str = "") -> Delivery:
        """The headers without the contract's, as texts; the count is ``x-attempts``, and ``carried`` the properties."""
        table = native.properties.headers or {}
        headers = texts_of(table.items()) if table else NO_HEADERS
        attempts = max(whole_number(table.get("x-attempts")) or 0, 0)
        carried, expired_before = native.properties, EXPIRED_HEADER in table
        return Delivery(
            native.body, handle, 0, headers, attempts, native.redelivered, carried, expired_before=expired_before
        )

    def read_dead(self, native: NativeMessage, key: object = None) -> DeadRecord:
        """Like any delivery: a record is stored as it was written."""
        read = self.read(native)
        return DeadRecord(key, read.body, read.headers, read.carried, priority_of(native))


def profile_of(name: str, options: OptionMap) -> PlainProfile:
    """The profile of the queue ``name``. Reads its options; raises ConfigError, ``key`` the option's name.

    ``queue_type``: ``classic`` (the default, declared without arguments as the SDKs do) or ``quorum``, which breaks
    peers that declare without arguments; ``delivery_limit`` of a quorum queue (default 20; null: none) is how often the
    broker redelivers a message before it dead-letters it. ``max_priority``: of a classic queue with priorities, which
    also breaks such peers.
    """
    limit = read_quorum_limit(options)
    ranked = read_priorities(options, limit)
    options.finish(" in the profile plain")
    dead_name = f"{name}.dlq"
    if limit is None:
        return PlainProfile(QueueDeclaration(name, ranked), QueueDeclaration(dead_name))
    arguments = {"x-delivery-limit": limit, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_name}
    return PlainProfile(QueueDeclaration(name, confirmed(arguments)), QueueDeclaration(dead_name, UNLIMITED))


def texts_of(table: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """The headers that a consumer gets: a null is none."""
    return {
        name: value if isinstance(value, str) else _text(value)
        for name, value in table
        if name not in _HIDDEN and value is not None
    }


def _text(value: Any) -> str:
    """A header's value as a text. Bytes that are no UTF-8 are shown in Base64, tables and lists as JSON, and times as
    ISO 8601."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes() | bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return b64encode(value).decode()
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_text)
        case datetime():
            return value.isoformat()
    return str(value)


def with_types(headers: Mapping[str, str], native: Mapping[str, Any]) -> dict[str, Any]:
    """``headers``, of which those that were read with another type than text keep it unless their text has changed."""
    typed = {name: value for name, value in native.items() if not isinstance(value, str) and name in headers}
    return {**headers, **{name: value for name, value in typed.items() if _text(value) == headers[name]}}


def kept_properties(native: Any) -> Basic.Properties:
    """The properties of a persistent copy, without headers; none of ``native`` where that is no message's."""
    kept = {name: getattr(native, name) for name in _KEPT} if isinstance(native, Basic.Properties) else {}
    return Basic.Properties(delivery_mode=2, **kept)


def foreign_properties(outgoing: Outgoing) -> Basic.Properties:
    """The properties of a message that is no envelope: those that it was read with, where it was on this broker.

    Headers of any type stay, except those that a profile or the broker has added.
    """
    carried = outgoing.carried
    # Other profiles carry the properties beside other data.
    native = carried if isinstance(carried, Basic.Properties) else getattr(carried, "properties", None)
    made, headers = kept_properties(native), dict[str, Any]()
    if isinstance(native, Basic.Properties):
        added = CONTRACT_HEADERS | OF_THE_JOURNEY
        found = (native.headers or {}).items()
        headers = {name: value for name, value in found if name not in added and not name.startswith("x-ojs-")}
    headers.update(with_types(outgoing.headers, headers))
    made.headers = headers or None
    return made


def _usual_properties(outgoing: Outgoing) -> bytes | None:
    """What :func:`_properties` returns, encoded in a third of the time, for a new message of the gateway without
    headers; None for any other."""
    if (
        outgoing.carried is not None
        or outgoing.failure is not None
        or outgoing.headers
        or outgoing.priority is not None
    ):
        return None
    found = envelope_fields(outgoing.body)
    if found is None:
        return None
    fields, meta = found
    job, trace_id, attempts, created_at = fields.job, fields.trace_id, fields.attempts, meta.created_at
    if not (
        job
        and trace_id
        and meta.id
        and meta.lang
        and type(job) is type(trace_id) is type(meta.id) is type(meta.lang) is str
        and type(attempts) is type(created_at) is type(meta.schema_version) is int
        and meta.schema_version == 1
        and 0 <= attempts <= _INT32_MAX
        and 0 <= created_at <= _YEAR_9999
    ):
        return None
    try:
        lang = meta.lang.encode()
        return b"".join(
            (
                _USUAL_START,
                _LENGTH.pack(_USUAL_TABLE_BYTES + len(lang)),
                _USUAL_LANG,
                _LENGTH.pack(len(lang)),
                lang,
                _USUAL_ATTEMPTS,
                _LENGTH.pack(attempts),
                _PERSISTENT,
                frames.short(trace_id),
                frames.short(meta.id),
                _MOMENT.pack(created_at // 1000),
                frames.short(job),
                _USUAL_END,
            )
        )
    except ValueError:
        # A surrogate, or a text that is too long.
        return None


def _properties(outgoing: Outgoing) -> Basic.Properties:
    """The contract's properties, from the body; a copy also keeps other properties of the original."""
    headers: dict[str, Any] = {}
    carried: Basic.Properties | None = outgoing.carried
    properties = Basic.Properties(content_type="application/json", delivery_mode=2, priority=outgoing.priority)
    if carried is not None:
        headers.update((name, value) for name, value in (carried.headers or {}).items() if name not in OF_THE_JOURNEY)
        properties.priority = carried.priority
        properties.reply_to = carried.reply_to
        # Not the expiration, which would start again, nor the user id, which the broker compares with the login.
        properties.timestamp = carried.timestamp
    headers.update(with_types(outgoing.headers, headers) if headers else outgoing.headers)
    for name in CONTRACT_HEADERS:
        headers.pop(name, None)
    failure = outgoing.failure
    if failure is None:
        headers.pop(EXPIRED_HEADER, None)
    elif failure.expired:
        headers[EXPIRED_HEADER] = "1"
    found = envelope_fields(outgoing.body)
    if found is None:
        properties.headers = headers or None
        return properties
    fields, meta = found
    _add(headers, "x-schema-version", meta.schema_version)
    _add(headers, "x-source-lang", meta.lang)
    # The record of a message that is no envelope has the count in its dead_letter only.
    _add(headers, "x-attempts", fields.attempts if failure is None else failure.attempts)
    properties.headers = headers
    properties.content_encoding = "utf-8"
    properties.message_id = short_or_none(meta.id)
    properties.correlation_id = short_or_none(fields.trace_id)
    properties.message_type = short_or_none(fields.job)
    if carried is not None and properties.message_id is None:
        properties.message_id = carried.message_id
    properties.app_id = "babelqueue"
    properties.timestamp = _moment(meta.created_at) or properties.timestamp
    return properties


def _add(headers: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, str | bool) or (isinstance(value, int) and -_INT64_MAX <= value <= _INT64_MAX):
        headers[name] = value


def short_or_none(value: Any) -> str | None:
    """``value`` as a property; None where it is no text, or too long. No publish writes such a message, but copies of
    one that another program wrote are made: its body has the value in any case."""
    if not isinstance(value, str):
        return None
    return value if len(value) * 4 <= SHORT_BYTES or len(value.encode()) <= SHORT_BYTES else None


def _moment(created_at: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(created_at // 1000, UTC) if type(created_at) is int and created_at >= 0 else None
    except (ValueError, OverflowError, OSError):
        return None
