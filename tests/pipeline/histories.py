"""Made-up journals for tests, as rows of the dataset ``journal``."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from babelgate.observe.journal.record import Record, Segment, encode
from babelgate.pipeline.storage.schemas import JOURNAL

Row = dict[str, Any]
DAY = 86_400_000
START = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in JOURNAL.columns.items()])
_LANGS = ("go", "php", "python", "node", "java")


def row(event: str, at: int, seq: int, **facts: Any) -> Row:
    """A row of ``journal``; what is not given is null."""
    known = {"v": 1, "node": "n1", "epoch": "e1", "queue": "orders", "broker": "main", "ingest_batch": "b"}
    when = datetime.fromtimestamp(at / 1000, UTC).date()
    return dict.fromkeys(JOURNAL.columns) | known | {"event": event, "at": at, "seq": seq, "date": when} | facts


def frame(spark: Any, folder: Path, rows: Iterable[Row]) -> Any:
    """The rows as Spark reads them from the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows), SCHEMA), folder / "journal.parquet", row_group_size=20_000)
    return spark.read.schema(JOURNAL.ddl).parquet(str(folder))


class Days:
    """Plausible traffic: ``messages`` over ``days`` days, most of it on one queue, with all that goes wrong."""

    def __init__(self, messages: int, days: int = 3, seed: int = 1, hot: float = 0.95) -> None:
        self._chance = random.Random(seed)
        self._messages = messages
        self._span = days * DAY
        self._hot = hot
        self._seq = 0

    def rows(self) -> Iterator[Row]:
        for number in range(self._messages):
            yield from self._message(number)

    def _row(self, event: str, at: int, **facts: Any) -> Row:
        self._seq += 1
        return row(event, at, self._seq, node=f"n{self._seq % 3}", **facts)

    def _message(self, number: int) -> Iterator[Row]:
        chance = self._chance
        made = START + chance.randrange(self._span)
        hot = chance.random() < self._hot
        facts: Row = {
            "queue": "hot" if hot else f"cold-{number % 5}",
            "broker": "main" if hot else "other",
            "message_id": f"id-{number}",
            "trace_id": f"trace-{number // 3}",
            "job": f"urn:babel:job:{number % 7}",
            "lang": _LANGS[number % 5],
            # Some makers' clocks are ahead.
            "created_at": made + (5000 if number % 37 == 0 else 0),
            "bytes": chance.randrange(100, 5000),
        }
        at = made + chance.randrange(-2, 40)
        if number % 50 == 0:
            yield self._row("poison", at, queue="hot", broker="main", bytes=7, attempts=0, outcome="invalid_json")
            return
        if number % 10:
            yield self._row("accepted", at, **facts)
        for attempt in range(1 + chance.choice((0, 0, 0, 0, 1, 2))):
            at += int(chance.lognormvariate(6, 2))
            if number % 23 == 0:
                if number % 2:
                    yield self._row("dropped", at, attempts=attempt, outcome="expired", **facts)
                return
            yield self._row("delivered", at, attempts=attempt, lease_seconds=30.0, **facts)
            at += chance.randrange(1, 3000)
            failed = chance.choice(("nacked", "lease_expired"))
            yield self._row(failed, at, attempts=attempt, outcome="nacked" if failed == "nacked" else None, **facts)
        yield self._row("delivered", at + 5, attempts=1, lease_seconds=30.0, **facts)
        if number % 17 == 0:
            yield self._row("dead_lettered", at + 9, attempts=1, outcome="failed", **facts)
            yield self._row("rejected", at + 9, attempts=1, outcome="rejected", **facts)
            if number % 2:
                return
            at += chance.randrange(2 * DAY)
            back = facts | {"lang": None, "created_at": None}
            target = chance.choice((facts["queue"], "mended"))
            yield self._row("redriven", at + 30, to_queue=target, **back)
            facts["queue"] = target
            if target == "mended":
                facts["broker"] = "spare"
            yield self._row("delivered", at + 20, attempts=0, lease_seconds=30.0, **facts)
        yield self._row("acked", at + 25, attempts=1, outcome="acked", **facts)
        if number % 41 == 0:
            yield self._row("acked", at + 26, attempts=1, outcome="acked", **facts)
        if number % 31 == 0:
            again = facts | {"queue": "next"}
            yield self._row("accepted", at + 24, **again)
            yield self._row("delivered", at + 60, attempts=0, **again)


def land(landing: Path, rows: Iterable[Row], node: str, first_seq: int = 1) -> list[Row]:
    """Put the rows into ``landing`` as a segment of a gateway ``node``; as they will be ingested."""
    segment = Segment(node, f"{START:012x}{'0' * 8}", first_seq)
    known = set(Record.__struct_fields__)
    landed = [
        {**each, "node": node, "epoch": segment.epoch, "seq": first_seq + number} for number, each in enumerate(rows)
    ]
    lines = [
        encode(Record(**{name: value for name, value in each.items() if name in known and not _is_absent(name, value)}))
        for each in landed
    ]
    path = landing / f"{segment.landed(landed[0]['at'])}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"\n".join([*lines, b""])))
    return landed


def _is_absent(name: str, value: Any) -> bool:
    return value is None and name in (
        "to_queue",
        "envelope",
        "envelope_encrypted",
        "meta",
        "count",
        "first_lost_at",
        "last_lost_at",
        "headers",
        "ordering_key",
        "headers_encrypted",
    )
