"""What a task writes down as it goes: a small Parquet file for every few seconds, of what became of messages.

Executors import it: of libraries it needs no more than they have.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import NamedTuple

from app.pipeline.storage.schemas import LEDGER

_ROWS = 2000
_SECONDS = 2.0


class Line(NamedTuple):
    """A row of ``ledger``; ``at`` is Unix ms, ``attempts`` how many requests of this try carried the message."""

    run_id: str
    message_id: str
    idempotency_key: str
    target_queue: str
    status: str
    code: str | None
    http_status: int | None
    attempts: int
    at: int


class Pieces:
    """Writes the lines of one task below the folder ``url``, soon after they are added."""

    def __init__(self, url: str) -> None:
        """``url``: as Arrow reads it."""
        self._url = url
        self._held: list[Line] = []
        self._since = 0.0

    def add(self, line: Line) -> None:
        """Keep a line; written at once when there are many."""
        if not self._held:
            self._since = time.monotonic()
        self._held.append(line)
        if len(self._held) >= _ROWS or time.monotonic() - self._since >= _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is held, as a file that appears whole."""
        import pyarrow as pa
        from pyarrow import parquet

        from app.pipeline.storage.arrow import schema
        from app.pipeline.storage.input_files import locate

        if not self._held:
            return
        columns = schema(LEDGER.columns)
        arrays = [
            pa.array(values, each.type) for values, each in zip(zip(*self._held, strict=True), columns, strict=True)
        ]
        system, folder = locate(self._url)
        name = f"{uuid.uuid4().hex}.parquet"
        with system.open_output_stream(f"{folder}/.{name}") as file:
            parquet.write_table(pa.Table.from_arrays(arrays, schema=columns), file, compression="zstd")
        if system.type_name == "local":
            _sync(f"{folder}/.{name}")
        system.move(f"{folder}/.{name}", f"{folder}/{name}")
        self._held = []


def _sync(path: str) -> None:
    """To the disk, so that what has its name after a loss of power is whole."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
