"""The journal's record: what happened to one message, once; its schema; and how segment files are called.

Programs that only read journals import this module and nothing else of the application.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

VERSION = 1
"""Goes up when a member changes its meaning or goes away; members may be added without."""

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
    "gap",
]

COMPRESSED = {"gzip": ".gz", "zstd": ".zst"}
"""What is added to a segment's name when it lands, by compression."""
OPEN = ".open"
"""What is added to the name of a segment that is still written."""
PART = ".part"
"""What is added to that of a compressed file that is not complete."""

_Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Record(Struct, frozen=True, gc=False):
    """One line of a journal; what each member means stands in :data:`SCHEMA`."""

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


class Column(Struct, frozen=True):
    """A member of the record. ``long`` has 64 bits, signed; ``json`` is any JSON value as it was written.

    ``nullable``: may be null. ``optional``: may be absent.
    """

    name: str
    type: Literal["int", "long", "double", "string", "json"]
    meaning: str
    nullable: bool = False
    optional: bool = False


SCHEMA: tuple[Column, ...] = (
    Column("v", "int", f"version of the record, {VERSION}"),
    Column("node", "string", "the gateway's name: `journal.node`, else the host's"),
    Column("epoch", "string", "one start of one process: 20 hexadecimal digits that sort by the time of the start"),
    Column("seq", "long", "1, 2, 3, … within (node, epoch), without holes; the three together are unique"),
    Column("event", "string", "what happened, see below"),
    Column("at", "long", "when, by the gateway's clock, Unix ms; may go back where the clock does, `seq` does not"),
    Column("queue", "string", "logical name; null in a gap only", nullable=True),
    Column("broker", "string", "configured name; null in a gap only", nullable=True),
    Column("job", "string", "the envelope's", nullable=True),
    Column("message_id", "string", "the envelope's `meta.id`", nullable=True),
    Column("trace_id", "string", "the envelope's", nullable=True),
    Column("attempts", "long", "failed deliveries before this one, as handed out", nullable=True),
    Column("created_at", "long", "the envelope's `meta.created_at`, Unix ms", nullable=True),
    Column("lease_seconds", "double", "of a delivery: the lease it was given", nullable=True),
    Column("bytes", "long", "size of the body", nullable=True),
    Column("lang", "string", "the envelope's `meta.lang`: the producer's language", nullable=True),
    Column(
        "outcome",
        "string",
        "how a lease was ended (acked, nacked, rejected), why a message was dead-lettered, or the code of a poison one",
        nullable=True,
    ),
    Column("to_queue", "string", "of a redriven message: the queue it went to", optional=True),
    Column("envelope", "json", "with `bodies`: the body byte for byte, where it is JSON on one line", optional=True),
    Column("envelope_base64", "string", "with `bodies`: any other body", optional=True),
    Column("count", "long", "of a gap: how many records were lost", optional=True),
    Column("first_lost_at", "long", "of a gap: the `at` of the first that was lost", optional=True),
    Column("last_lost_at", "long", "of a gap: the `at` of the last", optional=True),
)

EVENTS: dict[JournalEvent, str] = {
    "accepted": "a broker has durably accepted the message from a client of the gateway",
    "delivered": "it was handed out to a consumer",
    "acked": "its consumer is done with it",
    "nacked": "its consumer wants it delivered again",
    "rejected": "its consumer wants it dead-lettered",
    "lease_expired": "its lease ran out; where the broker keeps the leases, this is seen when it is handed out again",
    "dead_lettered": "it was moved to the dead-letter queue",
    "redriven": "it was sent back from there, under the same `message_id`",
    "poison": "a body that no consumer can take was found and dead-lettered",
    "gap": "records were lost here, because the buffer was full",
}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_any_json = msgspec.json.Decoder(Raw)


def encode(record: Record) -> bytes:
    """The line of ``record``, without its line feed. Raises ValueError for text that is no Unicode."""
    return _encoder.encode(record)


def encode_into(record: Record, buffer: bytearray) -> None:
    """Append the line of ``record``, with its line feed, to ``buffer``; nothing is appended when it raises.

    Raises ValueError for text that is no Unicode.
    """
    size = len(buffer)
    try:
        _encoder.encode_into(record, buffer, -1)
    except BaseException:
        del buffer[size:]
        raise
    buffer.append(10)


def decode(line: bytes) -> Record:
    """The record of a line, with or without its line feed; unknown members are ignored. Raises ValueError."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def embedded(body: bytes | None) -> tuple[Raw | UnsetType, str | UnsetType]:
    """The members ``envelope`` and ``envelope_base64`` of a record of ``body``: one of them, such that a reader gets
    the same bytes back; neither for None."""
    if body is None:
        return UNSET, UNSET
    if b"\n" not in body and b"\r" not in body:
        try:
            body.decode("utf-8")
            if bytes(_any_json.decode(body)) == body:
                return Raw(body), UNSET
        except (ValueError, RecursionError, msgspec.MsgspecError):
            pass
    return UNSET, b64encode(body).decode("ascii")


def new_epoch(started_at: int, chance: bytes) -> str:
    """The epoch of a process that started at ``started_at`` (Unix ms); ``chance``: 4 random bytes."""
    return f"{started_at:012x}{chance.hex()}"


class Segment(Struct, frozen=True, order=True):
    """What a segment is called: the ``number``-th (from 1) of one process."""

    node: str
    epoch: str
    number: int

    @property
    def owner(self) -> str:
        """The part of the name that tells the process."""
        return f"{self.node}-{self.epoch}"

    @property
    def file_name(self) -> str:
        """The name of the file once it is complete, uncompressed."""
        return f"{self.owner}-{self.number:06d}.ndjson"

    @property
    def started_at(self) -> int:
        """When its process started, Unix ms."""
        return int(self.epoch[:12], 16)

    def landed(self, first_at: int) -> str:
        """Its place below the landing folder, without what the compression adds. ``first_at``: the ``at`` of its first
        record; ``/`` separates."""
        hour = datetime.fromtimestamp(first_at / 1000, UTC)
        return f"date={hour:%Y-%m-%d}/hour={hour:%H}/{self.file_name}"


_NAME = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})-([0-9a-f]{20})-([0-9]{6,12})\.ndjson(?:\.open|\.gz|\.zst)?", re.ASCII
)


def parse_segment(file_name: str) -> Segment | None:
    """The segment of a file's name, whether open, closed or landed; None: it is no segment's."""
    found = _NAME.fullmatch(file_name)
    return Segment(found[1], found[2], int(found[3])) if found else None
