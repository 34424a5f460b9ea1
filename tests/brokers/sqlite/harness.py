"""SQLite as a broker: a file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.projection import NativeWrite
from tests.harness.broker import EmbeddedBroker, Variant


class SqliteBroker(EmbeddedBroker):
    """The file ``messages.db``."""

    kind = "sqlite"
    sample = "sqlite:///sample.db"
    name = "local"
    impatient: Mapping[str, Any] = {"busy_timeout_seconds": 0.2}

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / "messages.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Another program holds the file's write lock."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")

    async def inject(self, queue: str, *bodies: bytes) -> None:
        binding = self.connect()
        await binding.open()
        try:
            await binding.publish(binding.native_queue(queue, {}), [Outgoing(body) for body in bodies])
        finally:
            await binding.close()

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        return await asyncio.to_thread(self._stored)

    def _stored(self) -> Sequence[NativeWrite]:
        found = []
        with closing(sqlite3.connect(self.path)) as reader:
            for table in ("messages", "ready", "held", "dead", "settled"):
                rows = reader.execute(f"SELECT * FROM {table}")
                for row in rows:
                    columns = dict(zip((column[0] for column in rows.description), row, strict=True))
                    body = columns.pop("body", None)
                    columns = {n: value.decode() if isinstance(value, bytes) else value for n, value in columns.items()}
                    found.append(NativeWrite("INSERT", {"table": table}, columns, body=body))
        return found

    async def dead(self, queue: str) -> Sequence[bytes]:
        return await asyncio.to_thread(self._dead, queue)

    def _dead(self, queue: str) -> Sequence[bytes]:
        with closing(sqlite3.connect(self.path)) as reader:
            rows = reader.execute(
                "SELECT body FROM dead WHERE queue_id = (SELECT id FROM queues WHERE name = ?) ORDER BY id", (queue,)
            )
            return [bytes(body) for (body,) in rows]


VARIANTS = (Variant("sqlite", SqliteBroker, column="SQLite"),)
