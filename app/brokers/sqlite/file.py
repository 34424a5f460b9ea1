"""The database file: how it is opened, its schema, and whose turn it is to write."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.sqlite.errors import primary_code, translated
from app.brokers.sqlite.statements import SQL, steps
from app.errors import BrokerUnavailable, ConfigError

APPLICATION_ID = 0x62_62_71_67
SCHEMA = ("schema_1", "schema_2")
"""The steps that lead from an empty file to this version of the schema; ``PRAGMA user_version`` counts them."""

_POLL_SECONDS = 0.00025
"""Short beside a commit of about 1 ms, and the same for all: nobody waits longer for having waited long."""


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """One SQLite file of the broker ``broker``.

    ``busy_timeout_seconds`` bounds each wait for another process, ``timeout_seconds`` each call as a whole.
    """

    broker: str
    path: str
    synchronous: Literal["full", "normal"] = "full"
    busy_timeout_seconds: float = TIMEOUT_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS

    def identity(self) -> tuple[int, int] | None:
        """What tells this file from another one that took its place; ``None``: there is none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def connect_writer(self) -> sqlite3.Connection:
        """A connection that may write, with the schema in place. Raises a BrokerError, or ConfigError for a file that
        is newer than this program or not its own."""
        connection: sqlite3.Connection | None = None
        try:
            with self._turn() as deadline:
                connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, cached_statements=256)
                self._until_free(deadline, partial(self._prepare, connection))
            return connection
        except Exception as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise translated(error, self.broker) from error
            raise

    def connect_reader(self) -> sqlite3.Connection:
        """A connection that only reads. Raises a BrokerError; never creates the file."""
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"{Path(self.path).as_uri()}?mode=rw", uri=True, timeout=1, isolation_level=None
            )
            connection.execute("PRAGMA query_only = ON")
            return connection
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise translated(error, self.broker) from error

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin to write. Raises BrokerUnavailable when others kept the file for ``busy_timeout_seconds``, else
        sqlite3.Error or OSError."""
        with self._turn() as deadline:
            self._until_free(deadline, partial(connection.execute, "BEGIN IMMEDIATE"))

    @contextmanager
    def _turn(self) -> Iterator[float]:
        """Be the only process that tries to get SQLite's write lock; yields the deadline of the whole wait.

        SQLite's own waiters sleep ever longer and are overtaken by a process that commits without a pause. Whoever
        holds the turn writes next for certain, and the last writer has to queue for a turn like everybody else.
        """
        deadline = time.monotonic() + self.busy_timeout_seconds
        descriptor = os.open(f"{self.path}-turn", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._pause(deadline)
            yield deadline
        finally:
            os.close(descriptor)

    def _until_free(self, deadline: float, step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
            self._pause(deadline)

    def _pause(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise BrokerUnavailable(
                self.broker, f"other processes kept the file locked for {self.busy_timeout_seconds:g} s"
            )
        time.sleep(_POLL_SECONDS)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._version(connection)  # a foreign file is refused before anything is changed in it
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise BrokerUnavailable(self.broker, "the file system does not support SQLite's write-ahead log")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        # Some builds zero every freed page; that would write an acked body of 1 MiB a second time.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            for statement in chain.from_iterable(steps(step) for step in SCHEMA[version:]):
                connection.execute(statement)
            if version < len(SCHEMA):
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {len(SCHEMA)}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _version(self, connection: sqlite3.Connection) -> int:
        """The number of steps the file's schema has taken. Raises ConfigError for one that is not for this program."""
        owner, version, tables = connection.execute(SQL["file_header"]).fetchone()
        key = f"brokers.{self.broker}"
        if tables and owner != APPLICATION_ID:
            raise ConfigError(key=key, reason=f"{self.path} is another program's database")
        if version > len(SCHEMA):
            reason = f"{self.path} has schema version {version}, newer than the {len(SCHEMA)} of this program"
            raise ConfigError(key=key, reason=reason)
        return int(version)
