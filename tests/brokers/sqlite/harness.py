"""SQLite as a broker: a file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from pathlib import Path
from typing import Any

from app.brokers.binding import Outgoing
from tests.harness.broker import Broker, Variant


class SqliteBroker(Broker):
    """A file in ``directory``, without a server."""

    kind = "sqlite"
    sample = "sqlite:///sample.db"
    name = "local"
    embedded = True
    header_options: Mapping[str, Any] | None = {}
    impatient: Mapping[str, Any] = {"busy_timeout_seconds": 0.2}

    def __init__(self, directory: Path, queue_options: Mapping[str, Any] | None = None) -> None:
        self.queue_options = queue_options or {}
        self.path = directory / "messages.db"

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Path]:
        return contextlib.nullcontext(directory)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    async def restart(self) -> None:
        """Nothing of its own to restart."""

    async def kill(self) -> None:
        """Nothing of its own to kill."""

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Another program holds the file's write lock."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.execute("ROLLBACK")

    def hung(self) -> AbstractAsyncContextManager[None]:
        """The same as an outage."""
        return self.outage()

    async def inject(self, queue: str, *bodies: bytes) -> None:
        binding = self.connect()
        await binding.open()
        try:
            await binding.publish(binding.native_queue(queue, {}), [Outgoing(body) for body in bodies])
        finally:
            await binding.close()

    async def dead(self, queue: str) -> Sequence[bytes]:
        return await asyncio.to_thread(self._dead, queue)

    def _dead(self, queue: str) -> Sequence[bytes]:
        with closing(sqlite3.connect(self.path)) as reader:
            rows = reader.execute(
                "SELECT body FROM dead WHERE queue_id = (SELECT id FROM queues WHERE name = ?) ORDER BY id", (queue,)
            )
            return [bytes(body) for (body,) in rows]


VARIANTS = (Variant("sqlite", SqliteBroker, column="SQLite"),)
