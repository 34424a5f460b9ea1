"""SQLite as a broker: a file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

from app.brokers.binding import Outgoing
from tests.harness.broker import Broker


class SqliteBroker(Broker):
    """A file in ``directory``. There is no server: what would be its restart is that of the gateways."""

    name = "local"
    embedded = True

    def __init__(self, directory: Path) -> None:
        self.header_options = {}
        self.impatient = {"busy_timeout_seconds": 0.2}
        self.path = directory / "messages.db"

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
        """As in an outage: what a file does not do is answer."""
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
