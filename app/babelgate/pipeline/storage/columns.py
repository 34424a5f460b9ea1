"""The meaning of each column of a dataset, in the words of the pages. ``schemas`` has the names and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from babelgate.observe.journal.record import SCHEMA
from babelgate.pipeline.storage.duckdb_sql import members, parse_type
from babelgate.pipeline.storage.schemas import JOURNAL, Dataset

_ANY: Mapping[str, str] = {
    "message_id": "the envelope's `meta.id`",
    "job": "the envelope's `job`",
    "queue": "logical name of the queue",
    "broker": "configured name of the broker",
    "trace_id": "the envelope's `trace_id`",
    "lang": "the envelope's `meta.lang`: the producer's language",
    "created_at": "the envelope's `meta.created_at`, Unix ms",
    "grain": "length of the time of a row: `minute` or `day`",
    "at": "beginning of that minute or day, Unix ms UTC",
    "at_least": "whether records are missing, so that the numbers are lower bounds",
    "n": "number of values",
    "skewed": "number of messages with a negative time, which counts as 0",
}
"""Columns that mean the same in each dataset that does not say otherwise."""

_VALIDATED: Mapping[str, str] = {
    "queue": "the envelope's `meta.queue`",
    "attempts": "the envelope's `attempts`",
    "has_dead_letter": "whether the body has an object `dead_letter`",
    "body_bytes": "size of the whole body",
    "body_sha256": "SHA-256 of the body, in hexadecimal digits",
    "source_file": "URL of the input",
    "source_at": "offset in the unpacked input in bytes, or number of the row",
    "run_id": "run of `validate` that wrote the row",
}
_COUNTED: Mapping[str, str] = {
    "delivered": "deliveries",
    "retried": "deliveries after a failed delivery of the same message",
    "dead_lettered": "dead-lettered messages, with poison bodies",
}
_MESSAGE: Mapping[str, str] = {
    "accepted_at": "first `accepted` event, Unix ms; null for a message of a foreign producer",
    "first_delivered_at": "first delivery, Unix ms",
    "ended_at": "end of the message, Unix ms; null while it is open",
    "outcome": "`acked`, `dropped`, `dead_lettered` or `open`",
    "deliveries": "number of deliveries",
}
_LOST = "of the records around, Unix ms; null if unknown"

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "accepted": {
        **_VALIDATED,
        "body": "the canonical body",
        "rewritten": "whether the input was not canonical",
        "dropped": "JSON pointers of the keys that were removed, because no envelope has them",
    },
    "quarantined": {
        **_VALIDATED,
        "body": "the input unchanged, or the beginning of one that is too large",
        "reason": "code of the rule that the body breaks",
        "reason_pointer": "JSON pointer to the place",
        "detail": "the rule in words",
        "truncated": "whether `body` is only the beginning",
        "violations": "each place that the schema of the job refuses; the reason is the first",
        "violations[].pointer": "JSON pointer to the place",
        "violations[].code": "code of the violation",
        "violations[].detail": "the violation in words",
    },
    "journal": {
        **{each.name: each.meaning for each in SCHEMA if each.name in JOURNAL.columns},
        "event": "the event: see the page of the journal",
        "envelope": "with `bodies`: the body byte for byte, however the line encoded it",
        "envelope_encrypted": "with `bodies`, where the route has `encrypt`: the encrypted body",
        "meta": "with the setting `meta`: a JSON object of these members of the envelope's `meta`",
        "headers": "with `bodies`: a JSON object of the native headers",
        "headers_encrypted": "where the route has `encrypt`: `headers` and `ordering_key`, encrypted",
        "date": "UTC date of `at`",
        "ingest_batch": "batch of `ingest` that stored the record",
        "src_file": "segment that has the record",
        "extra": "a JSON object of the members that this version does not know",
    },
    "journal_corrupt": {
        "src_file": "segment that has the line",
        "src_at": "offset in the unpacked segment, in bytes",
        "reason": "why it is no record: see the page of `ingest`",
        "detail": "the reason in words",
        "raw": "the content, or its first 64 KiB",
        "raw_bytes": "size of the content",
        "raw_sha256": "SHA-256 of the content, in hexadecimal digits",
        "ingest_batch": "batch of `ingest` that found it",
    },
    "journal_gaps": {
        "kind": "`lost`, `hole` or `open_end`: see the page of `ingest`",
        "node": "the gateway's name",
        "epoch": "one start of one process",
        "first_seq": "first missing `seq`; of `lost`, that of the record which reports it",
        "last_seq": "last missing `seq`; null for `open_end`",
        "missing": "number of missing records; null if unknown",
        "from_at": f"earlier time {_LOST}",
        "to_at": f"later time {_LOST}",
    },
    "throughput": {
        **_COUNTED,
        "date": "UTC date of the events",
        "accepted": "published messages",
        "acked": "acks, also second ones of the same message",
        "nacked": "nacks",
        "rejected": "rejects",
        "redriven": "redriven dead letters",
        "lease_expired": "leases that expired",
        "poison": "poison bodies",
        "dead_lettered_by": "`dead_lettered` by reason",
        "poison_by": "`poison` by code",
    },
    "rates": {
        **_COUNTED,
        "date": "UTC date of the events",
        "ended": "`acked` and `dead_lettered` of `throughput`",
        "retry_rate": "`retried` / `delivered`; null if nothing was delivered",
        "dead_letter_rate": "`dead_lettered` / `ended`; null if nothing ended",
    },
    "payload": {
        "date": "UTC date of the events",
        "event": "`accepted` or `delivered`",
        "sum_bytes": "sum of the sizes",
        "max_bytes": "largest size",
        "p50_bytes": "median of the sizes, at most 1 % off",
        "p95_bytes": "95th percentile",
        "p99_bytes": "99th percentile",
        "buckets": "the histogram, see the page of `metrics`",
        "buckets[].bucket": "sizes from 1.02^bucket to below 1.02^(bucket+1); -1: 0",
        "buckets[].n": "number of sizes",
    },
    "latency_hist": {
        "date": "UTC date of the messages",
        "kind": "`wait` (accepted to delivered) or `end_to_end` (created to acked)",
        "bucket": "times from 1.02^bucket to below 1.02^(bucket+1) ms; -1: 0",
        "sum_ms": "sum of the times",
        "max_ms": "longest time",
    },
    "latency": {
        "date": "UTC date of the messages",
        "kind": "`wait` (accepted to delivered) or `end_to_end` (created to acked)",
        "p50_ms": "median of the times, at most 1 % off",
        "p95_ms": "95th percentile",
        "p99_ms": "99th percentile",
        "max_ms": "longest time",
        "sum_ms": "sum of the times",
    },
    "open": {
        "date": "UTC date of `as_of`",
        "as_of": "time at which the messages had not ended, Unix ms",
        "queue": "last queue of the messages",
        "state": "`waiting` or `leased`",
        "from_seconds": "least age of the class",
        "below_seconds": "the age below which the class ends; null for the oldest",
        "n": "number of messages",
        "oldest_at": "beginning of the oldest message, Unix ms",
    },
    "lifecycle": {
        **_MESSAGE,
        "date": "UTC date of `created_at`, or else of the first event",
        "queue": "first queue",
        "broker": "broker of the first event on the first queue",
        "bytes": "size of the largest body",
        "first_at": "first event, Unix ms",
        "last_queue": "queue after the last event",
        "last_event": "last event",
        "copies": "how often it was accepted",
        "acks": "number of acks",
        "nacks": "number of nacks",
        "lease_expiries": "number of leases that expired",
        "dead_letterings": "how often it was dead-lettered",
        "redrives": "how often it was redriven",
        "events": "number of events, also of those that `hops` leaves out",
        "wait_ms": "accepted, or else created, to the first delivery",
        "e2e_ms": "created, or else accepted, to the first ack",
        "skewed": "whether a negative time became 0",
        "hops": "the first 256 events, in order",
        "hops[].at": "time of the event, Unix ms",
        "hops[].event": "the event: see the page of the journal",
        "hops[].attempts": "failed deliveries before it",
        "hops[].outcome": "how a lease ended, or why the message was dead-lettered",
        "hops[].node": "the gateway's name",
    },
    "traces": {
        "date": "UTC date of the first message",
        "started_at": "beginning of the first message, Unix ms",
        "ended_at": "end of the last message, Unix ms; null until all have ended",
        "trace_ms": "`started_at` to `ended_at`",
        "complete": "whether no message is open",
        "messages": "number of messages, also of those that `hops` leaves out",
        "open": "number of messages that are open",
        "dead_lettered": "number of messages that ended as dead letters",
        "queues": "first queues of the messages in `hops`",
        "hops": "the first 1,000 messages, in the order of their beginnings",
        **{f"hops[].{name}": meaning for name, meaning in _MESSAGE.items()},
        "hops[].at": "`created_at`, or else the first event, Unix ms",
        "hops[].queue": "first queue",
    },
    "ledger": {
        "run_id": "run of the command that sends",
        "message_id": "the envelope's `meta.id`, or `sha256:` and the digest of the body",
        "idempotency_key": "key that the message was sent under",
        "target_queue": "queue that it was sent to",
        "status": "`accepted`, `replayed`, `rejected`, `unknown` or `left`: see the page of redrives",
        "code": "the gateway's problem code, or the reason why it was not sent",
        "http_status": "status of the answer",
        "attempts": "requests that carried it in the last attempt of the run",
        "at": "time of the result, Unix ms",
    },
}
"""By dataset and column; what is not here is in ``_ANY``."""


def described(dataset: Dataset) -> Iterator[tuple[str, str, str]]:
    """The name, Spark SQL type and meaning of each column, and of each member of a struct in a list (``hops[].at``).

    Raises KeyError for a column without a meaning.
    """
    for name, kind in dataset.columns.items():
        outer, inner = parse_type(kind)
        of, parts = parse_type(inner[0]) if outer == "array" else ("", [])
        yield name, "array<struct>" if of == "struct" else kind, _meaning(dataset.name, name)
        if of == "struct":
            for member, part in members(parts):
                yield f"{name}[].{member}", part, _meaning(dataset.name, f"{name}[].{member}")


def _meaning(dataset: str, name: str) -> str:
    own = MEANINGS[dataset]
    return own[name] if name in own else _ANY[name.rpartition(".")[2]]
