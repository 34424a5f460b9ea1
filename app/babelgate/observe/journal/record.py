"""The journal's record, its schema, and the names of segment files.

A record describes one event of one message. Programs that only read journals need no other module of this application.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from babelgate.jsontext import exceeds_depth

VERSION = 1
"""Increases when a member changes its meaning or is removed; new members may be added without an increase."""

JournalEvent = Literal[
    "accepted",
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "lease_expired",
    "dead_lettered",
    "redriven",
    "poison",
    "dropped",
    "gap",
]

COMPRESSED = {"gzip": ".gz", "zstd": ".zst"}
"""Suffix of a landed segment's name, by compression."""
OPEN = ".open"
"""Suffix of the name of a segment that is being written."""
PART = ".part"
"""Suffix of the name of an incomplete compressed file."""

MAX_EMBEDDED_LEVELS = 900
"""Deeper JSON is not embedded: Python 3.11 reads at most 1,000 levels of what a newer version may have written."""

_Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Record(Struct, frozen=True, gc=False):
    """One line of a journal. :data:`SCHEMA` describes each member."""

    v: _Long
    node: str
    epoch: str
    seq: _Long
    event: JournalEvent
    at: _Long
    queue: str | None
    broker: str | None
    job: str | None
    message_id: str | None
    trace_id: str | None
    attempts: _Long | None
    created_at: _Long | None
    lease_seconds: float | None
    bytes: _Long | None
    lang: str | None
    outcome: str | None
    to_queue: str | UnsetType = UNSET
    envelope: Raw | UnsetType = UNSET
    envelope_base64: str | UnsetType = UNSET
    count: _Long | UnsetType = UNSET
    first_lost_at: _Long | UnsetType = UNSET
    last_lost_at: _Long | UnsetType = UNSET
    meta: dict[str, str] | UnsetType = UNSET
    envelope_encrypted: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    ordering_key: str | UnsetType = UNSET
    headers_encrypted: str | UnsetType = UNSET


class Column(Struct, frozen=True):
    """A member of the record. ``long`` is a signed 64-bit integer; ``json`` is any JSON value, as written.

    A ``nullable`` member may be null; an ``optional`` member may be absent.
    """

    name: str
    type: Literal["int", "long", "double", "string", "json"]
    meaning: str
    nullable: bool = False
    optional: bool = False


SCHEMA: tuple[Column, ...] = (
    Column("v", "int", f"version of the record, {VERSION}"),
    Column("node", "string", "the gateway's name: `journal.node`, else the host name"),
    Column("epoch", "string", "identifies one start of one process: 20 hexadecimal digits that sort by start time"),
    Column("seq", "long", "1, 2, 3, … within (node, epoch), without holes; (node, epoch, seq) is unique"),
    Column("event", "string", "the event, see below"),
    Column(
        "at",
        "long",
        "time by the gateway's clock, Unix ms; `at` may go back if the clock does, `seq` never does",
    ),
    Column("queue", "string", "logical name; null only in a gap", nullable=True),
    Column("broker", "string", "configured name; null only in a gap", nullable=True),
    Column("job", "string", "the envelope's `job`", nullable=True),
    Column("message_id", "string", "the envelope's `meta.id`", nullable=True),
    Column("trace_id", "string", "the envelope's `trace_id`", nullable=True),
    Column("attempts", "long", "failed deliveries before this one", nullable=True),
    Column("created_at", "long", "the envelope's `meta.created_at`, Unix ms", nullable=True),
    Column("lease_seconds", "double", "of a delivery: the length of its lease", nullable=True),
    Column("bytes", "long", "size of the body", nullable=True),
    Column("lang", "string", "the envelope's `meta.lang`: the producer's language", nullable=True),
    Column(
        "outcome",
        "string",
        "how a lease ended, why a message was dead-lettered or dropped, the code of poison; `edited`, `forced`: of a "
        "redrive",
        nullable=True,
    ),
    Column("to_queue", "string", "of a redriven message: its new queue", optional=True),
    Column(
        "envelope",
        "json",
        "with `bodies`: the body byte for byte, if it is JSON on one line; redacted as its route says",
        optional=True,
    ),
    Column("envelope_base64", "string", "with `bodies`: any other body", optional=True),
    Column("count", "long", "of a gap: the number of lost records", optional=True),
    Column("first_lost_at", "long", "of a gap: the `at` of the first lost record", optional=True),
    Column("last_lost_at", "long", "of a gap: the `at` of the last lost record", optional=True),
    Column(
        "meta",
        "json",
        "with the setting `meta`: an object with the values of these members of the envelope's `meta`, all as strings",
        optional=True,
    ),
    Column(
        "envelope_encrypted",
        "string",
        "with `bodies`, where the route has `encrypt`: the body, encrypted, in Base64",
        optional=True,
    ),
    Column("headers", "json", "with `bodies`: an object of the native headers, if the message has any", optional=True),
    Column("ordering_key", "string", "with `bodies`: the key that orders the message, if it has one", optional=True),
    Column(
        "headers_encrypted",
        "string",
        "with `bodies`, where the route has `encrypt`: an object of the two before, encrypted, in Base64",
        optional=True,
    ),
)

EVENTS: dict[JournalEvent, str] = {
    "accepted": "a broker durably accepted the message from a client of the gateway",
    "delivered": "the message was delivered to a consumer",
    "acked": "its consumer has finished it",
    "nacked": "its consumer requested another delivery",
    "rejected": "its consumer requested dead-lettering",
    "lease_expired": "its lease expired; if the broker keeps the leases, this is recorded at the next delivery",
    "dead_lettered": "the message was moved to the dead-letter queue",
    "redriven": "the message was sent back from the dead-letter queue, with the same `message_id` unless it was edited",
    "poison": "an unreadable or invalid body was found and dead-lettered",
    "dropped": "the message had expired and was removed, because its route has `expired: drop`; `outcome` is `expired`",
    "gap": "records were lost here because the buffer was full",
}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_any_json = msgspec.json.Decoder(Raw)


def encode(record: Record) -> bytes:
    """Return the line of ``record``, without its line feed. Raises ValueError for text with unpaired surrogates."""
    return _encoder.encode(record)


def encode_into(record: Record, buffer: bytearray) -> None:
    """Append the line of ``record``, with its line feed, to ``buffer``.

    Raises ValueError for text with unpaired surrogates, and then appends nothing.
    """
    size = len(buffer)
    try:
        _encoder.encode_into(record, buffer, -1)
    except BaseException:
        del buffer[size:]
        raise
    buffer.append(10)


def decode(line: bytes) -> Record:
    """Parse a line, with or without its line feed. Ignores unknown members. Raises ValueError."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def embedded(body: bytes | None) -> tuple[Raw | UnsetType, str | UnsetType]:
    """Return the members ``envelope`` and ``envelope_base64`` for ``body``.

    One of them is set, so that a reader gets the same bytes back; both are UNSET for None.
    """
    if body is None:
        return UNSET, UNSET
    if b"\n" not in body and b"\r" not in body:
        try:
            body.decode("utf-8")
            if bytes(_any_json.decode(body)) == body and not exceeds_depth(body, MAX_EMBEDDED_LEVELS):
                return Raw(body), UNSET
        except (ValueError, RecursionError, msgspec.MsgspecError):
            pass
    return UNSET, b64encode(body).decode("ascii")


def new_epoch(started_at: int, chance: bytes) -> str:
    """Return the epoch of a process started at ``started_at`` (Unix ms); ``chance`` is 4 random bytes."""
    return f"{started_at:012x}{chance.hex()}"


class Segment(Struct, frozen=True, order=True):
    """The identity of a segment: the ``number``-th (from 1) of one process."""

    node: str
    epoch: str
    number: int

    @property
    def owner(self) -> str:
        """The part of the name that identifies the process."""
        return f"{self.node}-{self.epoch}"

    @property
    def file_name(self) -> str:
        """The name of the complete, uncompressed file."""
        return f"{self.owner}-{self.number:06d}.ndjson"

    @property
    def started_at(self) -> int:
        """The start of its process, Unix ms."""
        return int(self.epoch[:12], 16)

    def landed(self, first_at: int) -> str:
        """Return its path below the landing folder, without the suffix of the compression; ``/`` separates.

        ``first_at`` is the ``at`` of its first record, Unix ms.
        """
        hour = datetime.fromtimestamp(first_at / 1000, UTC)
        return f"date={hour:%Y-%m-%d}/hour={hour:%H}/{self.file_name}"


_NAME = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})-([0-9a-f]{20})-([0-9]{6,12})\.ndjson(?:\.open|\.gz|\.zst)?", re.ASCII
)


def parse_segment(file_name: str) -> Segment | None:
    """Parse the file name of an open, closed or landed segment; None for any other name."""
    found = _NAME.fullmatch(file_name)
    return Segment(found[1], found[2], int(found[3])) if found else None
