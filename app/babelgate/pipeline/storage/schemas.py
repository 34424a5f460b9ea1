"""The columns of every dataset. Datasets are written and read with these schemas, never with an inferred one.

New columns are added at the end, and older files read as null there. Any other change needs a new ``version``, which
has its own folder. Times named ``…_at`` are Unix milliseconds UTC, as in the envelope. ``columns`` has the meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dataset:
    """A table of Parquet files. ``columns`` maps names to Spark SQL types; each of ``partitions`` is a folder level."""

    name: str
    columns: Mapping[str, str]
    partitions: tuple[str, ...] = ()
    version: int = 1

    @property
    def ddl(self) -> str:
        """The schema as a Spark DDL string."""
        return ddl(self.columns)


def ddl(columns: Mapping[str, str]) -> str:
    """``columns`` as a Spark DDL string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


_VIOLATIONS = "array<struct<pointer:string,code:string,detail:string>>"


def arrow_schema(columns: Mapping[str, str]) -> Any:
    """The Arrow schema of ``columns``, which map names to Spark SQL types."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "array<string>": pa.list_(pa.string()),
        _VIOLATIONS: pa.list_(pa.struct([(name, pa.string()) for name in ("pointer", "code", "detail")])),
    }
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


# Members of a body as far as they can be read; a quarantined body may have none.
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

ACCEPTED = Dataset("accepted", {**_BODY, "rewritten": "boolean", "dropped": "array<string>"})
QUARANTINED = Dataset(
    "quarantined",
    {
        **_BODY,
        "reason": "string",
        "reason_pointer": "string",
        "detail": "string",
        "truncated": "boolean",
        "violations": _VIOLATIONS,
    },
)

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
        "meta": "string",
        "envelope_encrypted": "binary",
        "extra": "string",
        "headers": "string",
        "ordering_key": "string",
        "headers_encrypted": "binary",
    },
)
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

# By minute and by day: ``grain``, and ``at``, its beginning. A key that the events lack is null. ``dead_lettered``
# includes poison bodies; ``retried``: delivered after a failed delivery; ``at_least``: records are missing.
_MEASURED = {
    "date": "date",
    "grain": "string",
    "at": "bigint",
}
_OF = {"queue": "string", "job": "string", "lang": "string", "broker": "string"}
THROUGHPUT = Dataset(
    "throughput",
    {
        **_MEASURED,
        **_OF,
        "accepted": "bigint",
        "delivered": "bigint",
        "acked": "bigint",
        "nacked": "bigint",
        "rejected": "bigint",
        "redriven": "bigint",
        "lease_expired": "bigint",
        "poison": "bigint",
        "retried": "bigint",
        "dead_lettered": "bigint",
        "dead_lettered_by": "map<string,bigint>",
        "poison_by": "map<string,bigint>",
        "at_least": "boolean",
    },
    ("date",),
)
RATES = Dataset(
    "rates",
    {
        **_MEASURED,
        **_OF,
        "delivered": "bigint",
        "retried": "bigint",
        "ended": "bigint",
        "dead_lettered": "bigint",
        "retry_rate": "double",
        "dead_letter_rate": "double",
        "at_least": "boolean",
    },
    ("date",),
)
# ``event``: accepted or delivered. A bucket is 2 % wide, see app/babelgate/pipeline/metrics/histogram.py.
PAYLOAD = Dataset(
    "payload",
    {
        **_MEASURED,
        "event": "string",
        **_OF,
        "n": "bigint",
        "sum_bytes": "bigint",
        "max_bytes": "bigint",
        "p50_bytes": "double",
        "p95_bytes": "double",
        "p99_bytes": "double",
        "buckets": "array<struct<bucket:int,n:bigint>>",
        "at_least": "boolean",
    },
    ("date",),
)
# ``date`` and ``at`` come from the message's ``created_at``. ``kind``: wait or end_to_end.
LATENCY_HIST = Dataset(
    "latency_hist",
    {
        **_MEASURED,
        "kind": "string",
        **_OF,
        "bucket": "int",
        "n": "bigint",
        "sum_ms": "bigint",
        "max_ms": "bigint",
        "skewed": "bigint",
        "at_least": "boolean",
    },
    ("date",),
)
LATENCY = Dataset(
    "latency",
    {
        **_MEASURED,
        "kind": "string",
        **_OF,
        "n": "bigint",
        "p50_ms": "double",
        "p95_ms": "double",
        "p99_ms": "double",
        "max_ms": "bigint",
        "sum_ms": "bigint",
        "skewed": "bigint",
        "at_least": "boolean",
    },
    ("date",),
)
# As of the end of ``date``, or of the journal. ``state``: waiting or leased. The last age class has no upper bound.
OPEN = Dataset(
    "open",
    {
        "date": "date",
        "as_of": "bigint",
        "queue": "string",
        "state": "string",
        "from_seconds": "bigint",
        "below_seconds": "bigint",
        "n": "bigint",
        "oldest_at": "bigint",
        "at_least": "boolean",
    },
    ("date",),
)
LIFECYCLE = Dataset(
    "lifecycle",
    {
        "date": "date",
        "message_id": "string",
        "queue": "string",
        "broker": "string",
        "job": "string",
        "lang": "string",
        "trace_id": "string",
        "bytes": "bigint",
        "created_at": "bigint",
        "accepted_at": "bigint",
        "first_at": "bigint",
        "first_delivered_at": "bigint",
        "ended_at": "bigint",
        "outcome": "string",
        "last_queue": "string",
        "last_event": "string",
        "copies": "bigint",
        "deliveries": "bigint",
        "acks": "bigint",
        "nacks": "bigint",
        "lease_expiries": "bigint",
        "dead_letterings": "bigint",
        "redrives": "bigint",
        "events": "bigint",
        "wait_ms": "bigint",
        "e2e_ms": "bigint",
        "skewed": "boolean",
        "hops": "array<struct<at:bigint,event:string,queue:string,broker:string,attempts:bigint,outcome:string,"
        "node:string>>",
        "at_least": "boolean",
    },
    ("date",),
)
TRACES = Dataset(
    "traces",
    {
        "date": "date",
        "trace_id": "string",
        "started_at": "bigint",
        "ended_at": "bigint",
        "trace_ms": "bigint",
        "complete": "boolean",
        "messages": "bigint",
        "open": "bigint",
        "dead_lettered": "bigint",
        "queues": "array<string>",
        "hops": "array<struct<at:bigint,message_id:string,queue:string,job:string,lang:string,created_at:bigint,"
        "accepted_at:bigint,first_delivered_at:bigint,ended_at:bigint,outcome:string,deliveries:bigint>>",
        "at_least": "boolean",
    },
    ("date",),
)

# The outcome of every message of a sending run.
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
    each.name: each
    for each in (
        ACCEPTED,
        QUARANTINED,
        JOURNAL,
        JOURNAL_CORRUPT,
        JOURNAL_GAPS,
        THROUGHPUT,
        RATES,
        PAYLOAD,
        LATENCY_HIST,
        LATENCY,
        OPEN,
        LIFECYCLE,
        TRACES,
        LEDGER,
    )
}
