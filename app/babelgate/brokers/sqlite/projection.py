"""The rows that a publish writes: the writer's own job, run on an empty file in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.sqlite.bodies import StoredBodies
from babelgate.brokers.sqlite.file import SQL, create_schema
from babelgate.brokers.sqlite.jobs import PublishJob, Transaction
from babelgate.runtime.cache import PLAIN_BYTES, Cache

_TABLES = ("messages", "ready", "held")
_ASSIGNED = ("id", "queue_id", "published_at", "until")


def projection(queue: str, message: Outgoing, now: int) -> list[NativeWrite]:
    """The rows of ``message``, published to ``queue`` at ``now`` (Unix ms). The body is the column of that name,
    before it is encrypted."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_schema(connection)
        tx = Transaction(connection, now, Cache(PLAIN_BYTES * 2), StoredBodies(""))
        PublishJob.run(tx, [PublishJob(queue, [message])])
        connection.row_factory = sqlite3.Row
        return [
            _write(table, row) for table in _TABLES for row in connection.execute(SQL[f"written_{table}"]).fetchall()
        ]


def _write(table: str, row: sqlite3.Row) -> NativeWrite:
    columns: dict[str, Any] = {name: row[name] for name in row.keys()}  # noqa: SIM118
    body = columns.pop("body", None)
    if (headers := columns.get("headers")) is not None:
        columns["headers"] = headers.decode()
    assigned = [name for name in _ASSIGNED if name in columns]
    return NativeWrite("INSERT", {"table": table}, columns, body=body, assigned=assigned)
