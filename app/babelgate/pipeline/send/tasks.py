"""The task that sends messages to the gateway, writes their ledger lines and returns counts.

A task that Spark repeats sends everything again under the same keys, and the gateway repeats its first answers. Spark's
Python workers import this module.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from babelgate.pipeline.send.bodies import Changes, Unsendable, entry, key_after, key_of, outgoing
from babelgate.pipeline.send.gateway import Outcome, Target
from babelgate.pipeline.send.sender import Sender, StoredMessage
from babelgate.pipeline.storage.schemas import LEDGER, arrow_schema

_PIECE_ROWS = 2000
_PIECE_SECONDS = 2.0
COUNTS = {"status": "string", "code": "string", "detail": "string", "n": "bigint"}
"""The columns of the rows that a task returns. ``detail``: the text of a refusal by the gateway."""
STOPPED = "stopped"
"""The status of the row of a refusal; its ``n`` is the HTTP status."""


class SendTask(NamedTuple):
    """The parameters of every task of a run. ``rate``: messages/s per task; ``pieces``: URL of the ledger's pieces."""

    run: str
    target: Target
    changes: Changes
    pieces: str
    rate: float | None
    give_up_seconds: float


def send(batches: Iterable[Any], sending: SendTask) -> Iterator[Any]:
    """For ``mapInArrow``: sends rows (identity, target_queue, was, under, body, headers, ordering_key), and
    yields rows of COUNTS.

    ``was`` and ``under``: status and key of the message in the ledger; null if it is not there.
    """
    import pyarrow as pa

    pieces = PieceWriter(sending.pieces)
    counts: Counter[tuple[str, str | None]] = Counter()

    def settled(message: StoredMessage, outcome: Outcome) -> None:
        identity, queue, key, _, tries = message
        status, http_status, code = outcome
        counts[status, code] += 1
        at = time.time_ns() // 1_000_000
        pieces.add(LedgerLine(sending.run, identity, key, queue, status, code, http_status, tries, at))

    sender = Sender(
        sending.target,
        settled,
        rate=sending.rate,
        give_up_seconds=sending.give_up_seconds,
        before_waiting=pieces.flush,
    )
    try:
        for batch in batches:
            rows_of = (each.to_pylist() for each in batch.columns)
            for identity, queue, was, under, body, *carried in zip(*rows_of, strict=True):
                key = under or key_of(sending.run, queue, identity)
                message = StoredMessage(identity, queue, key_after(key) if was == "unknown" else key, b"")
                try:
                    text = outgoing(body, queue, sending.changes)
                except Unsendable as error:
                    settled(message, Outcome("rejected", None, error.code))
                else:
                    sender.add(message._replace(entry=entry(text, message.key, *carried)))
        sender.finish()
    finally:
        pieces.flush()
        sender.close()
    rows: list[dict[str, Any]] = [{"status": status, "code": code, "n": n} for (status, code), n in counts.items()]
    if sender.refused is not None:
        http_status, code, detail = sender.refused
        rows.append({"status": STOPPED, "code": code, "detail": detail, "n": http_status})
    yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COUNTS))


class LedgerLine(NamedTuple):
    """A row of ``ledger``. ``at``: Unix ms; ``attempts``: requests of this attempt that carried the message."""

    run_id: str
    message_id: str
    idempotency_key: str
    target_queue: str
    status: str
    code: str | None
    http_status: int | None
    attempts: int
    at: int


class PieceWriter:
    """Writes the lines of one task as Parquet files below the folder ``url``, within about 2 s."""

    def __init__(self, url: str) -> None:
        """``url``: as Arrow reads it."""
        self._url = url
        self._pending: list[LedgerLine] = []
        self._since = 0.0

    def add(self, line: LedgerLine) -> None:
        """Add a line. Writes all pending lines if they are many or 2 s old."""
        if not self._pending:
            self._since = time.monotonic()
        self._pending.append(line)
        if len(self._pending) >= _PIECE_ROWS or time.monotonic() - self._since >= _PIECE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the pending lines as one file, atomically."""
        import pyarrow as pa
        from pyarrow import parquet

        from babelgate.pipeline.storage.input_files import locate

        if not self._pending:
            return
        columns = arrow_schema(LEDGER.columns)
        arrays = [
            pa.array(values, each.type) for values, each in zip(zip(*self._pending, strict=True), columns, strict=True)
        ]
        system, folder = locate(self._url)
        name = f"{uuid.uuid4().hex}.parquet"
        with system.open_output_stream(f"{folder}/.{name}") as file:
            parquet.write_table(pa.Table.from_arrays(arrays, schema=columns), file, compression="zstd")
        if system.type_name == "local":
            _sync(f"{folder}/.{name}")
        system.move(f"{folder}/.{name}", f"{folder}/{name}")
        self._pending = []


def _sync(path: str) -> None:
    """Flush a file to disk, so that it is complete after a loss of power if it has its final name."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
