"""Runs queries beside the writer: one thread, one connection, and no locks that delay a writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from babelgate.brokers.sqlite.errors import translated
from babelgate.brokers.sqlite.file import SQL, DatabaseFile
from babelgate.errors import BrokerUnavailable

Rows = list[Sequence[Any]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a changed file: the queues with ready messages, and the next due time (Unix ms)."""

    ready: list[str]
    next_due: int | None


class Reader:
    """Runs queries one after the other, off the event loop.

    Every method raises a BrokerError: BrokerUnavailable for a query that has no answer within ``timeout_seconds``.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{file.broker}-reader")
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._version: int | None = None

    async def rows(self, name: str, *parameters: Any) -> Rows:
        """All rows of the statement called ``name``."""
        return await self._run(lambda connection: connection.execute(SQL[name], parameters).fetchall())

    async def of_queue(self, name: str, queue: str, **parameters: Any) -> Rows:
        """All rows of the statement called ``name`` about ``queue``; none for a queue without a first message."""

        def query(connection: sqlite3.Connection) -> Rows:
            found = connection.execute(SQL["find_queue"], (queue,)).fetchone()
            if found is None:
                return []
            return connection.execute(SQL[name], {"queue_id": found[0], **parameters}).fetchall()

        return await self._run(query)

    async def look(self) -> FileState | None:
        """The file's state; ``None`` when nothing was committed since the last call."""

        def query(connection: sqlite3.Connection) -> FileState | None:
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version == self._version:
                return None
            ready = [name for (name,) in connection.execute(SQL["ready_queues"])]
            next_due = connection.execute(SQL["next_due"]).fetchone()[0]
            self._version = version
            return FileState(ready, next_due)

        return await self._run(query)

    async def close(self) -> None:
        """Interrupt the running query, and close."""
        if self._connection is not None:
            self._connection.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._executor, self._disconnect)
        self._executor.shutdown(wait=False)

    async def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._query, query)
        try:
            await asyncio.wait([running], timeout=self._file.timeout_seconds)
        finally:
            running.cancel()
        if running.cancelled():
            raise BrokerUnavailable(self._file.broker, f"no answer within {self._file.timeout_seconds:g} s")
        return running.result()

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is not None and self._identity != self._file.identity():
            self._disconnect()
        try:
            if self._connection is None:
                self._connection = self._file.connect_reader()
                self._identity = self._file.identity()
                self._version = None
            return query(self._connection)
        except sqlite3.Error as error:
            self._disconnect()
            raise translated(error, self._file.broker) from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
