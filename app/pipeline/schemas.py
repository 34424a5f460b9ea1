"""Every dataset's columns, as data: a dataset is written so and read with this schema, never with an inferred one.

Columns are only ever added, at the end: files written before read as null. What cannot be expressed so is another
``version``, in a folder of its own. Times named ``…_at`` are Unix milliseconds UTC, as in the envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """A table of Parquet files: ``columns`` maps names to Spark SQL types; ``partitions`` are folders in a run."""

    name: str
    columns: Mapping[str, str]
    partitions: tuple[str, ...] = ()
    version: int = 1

    @property
    def ddl(self) -> str:
        """The schema as Spark reads it from a string."""
        return ddl(self.columns)


def ddl(columns: Mapping[str, str]) -> str:
    """Columns as a schema string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


# A body's facts as far as they can be read: of a quarantined body perhaps none.
_BODY = {
    "message_id": "string",
    "job": "string",
    "queue": "string",
    "trace_id": "string",
    "lang": "string",
    "created_at": "bigint",
    "attempts": "bigint",
    "has_dead_letter": "boolean",
    "body": "binary",
    "body_bytes": "bigint",
    "body_sha256": "string",
    "source_file": "string",
    "source_at": "bigint",
    "run_id": "string",
}

# ``body`` is canonical, ``rewritten`` tells whether it was so before; ``dropped``: pointers of the keys left out.
ACCEPTED = Dataset("accepted", {**_BODY, "rewritten": "boolean", "dropped": "array<string>"})
# ``body`` holds the bytes as found; of one that was too large only its beginning, ``body_bytes`` tells its size.
QUARANTINED = Dataset(
    "quarantined", {**_BODY, "reason": "string", "reason_pointer": "string", "detail": "string", "truncated": "boolean"}
)

# The members of a record by their names, see docs/journal.md; ``envelope`` is the body, byte for byte, however the line
# held it; ``date`` is that of ``at``, UTC; ``src_file`` the segment it came from.
JOURNAL = Dataset(
    "journal",
    {
        "v": "int",
        "node": "string",
        "epoch": "string",
        "seq": "bigint",
        "event": "string",
        "at": "bigint",
        "queue": "string",
        "broker": "string",
        "job": "string",
        "message_id": "string",
        "trace_id": "string",
        "attempts": "bigint",
        "created_at": "bigint",
        "lease_seconds": "double",
        "bytes": "bigint",
        "lang": "string",
        "outcome": "string",
        "to_queue": "string",
        "envelope": "binary",
        "count": "bigint",
        "first_lost_at": "bigint",
        "last_lost_at": "bigint",
        "date": "date",
        "ingest_batch": "string",
        "src_file": "string",
    },
)
# ``src_at``: offset in the unpacked file, bytes; ``raw``: its beginning, where it is large.
JOURNAL_CORRUPT = Dataset(
    "journal_corrupt",
    {
        "src_file": "string",
        "src_at": "bigint",
        "reason": "string",
        "detail": "string",
        "raw": "binary",
        "raw_bytes": "bigint",
        "raw_sha256": "string",
        "ingest_batch": "string",
    },
)
# ``kind``: lost (a gap record tells of it), hole (numbers that no segment held), open_end (nothing tells whether more
# came); ``missing``: how many records, null where nobody knows; the times are those of the records around.
JOURNAL_GAPS = Dataset(
    "journal_gaps",
    {
        "kind": "string",
        "node": "string",
        "epoch": "string",
        "first_seq": "bigint",
        "last_seq": "bigint",
        "missing": "bigint",
        "from_at": "bigint",
        "to_at": "bigint",
    },
)

# Of a run that sends: what became of every message. ``message_id``: its id, else ``sha256:`` and that of its body;
# ``status``: accepted, replayed (it was there already), rejected, unknown (it may be there or not), left (to be sent).
LEDGER = Dataset(
    "ledger",
    {
        "run_id": "string",
        "message_id": "string",
        "idempotency_key": "string",
        "target_queue": "string",
        "status": "string",
        "code": "string",
        "http_status": "int",
        "attempts": "int",
        "at": "bigint",
    },
)

DATASETS: Mapping[str, Dataset] = {
    each.name: each for each in (ACCEPTED, QUARANTINED, JOURNAL, JOURNAL_CORRUPT, JOURNAL_GAPS, LEDGER)
}
