"""Opens the database file, keeps its schema, its statements, and the order in which processes write."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Literal

from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.sqlite.errors import primary_code, translated
from babelgate.errors import BrokerUnavailable, ConfigError
from babelgate.runtime.files import FileLock

APPLICATION_ID = 0x62_62_71_67
SCHEMA = ("schema_1", "schema_2", "schema_3", "schema_4")
"""The steps from an empty file to this version of the schema; ``PRAGMA user_version`` counts them."""

ENCRYPTED = 5
"""The version of a file with encrypted bodies, which programs without encryption refuse. It has the tables of version
4. The next step of the schema makes version 6."""

WIDEST = 256
"""The most rows that one widened INSERT carries."""

_MODE = 0o600
"""The mode of new files: only this user reads the messages. A stricter umask makes it stricter."""

_POLL_SECONDS = 0.00025
"""Short compared with a commit of about 1 ms, and constant: a long wait does not make the next one longer."""


def _load() -> dict[str, str]:
    text = resources.files("babelgate.brokers.sqlite").joinpath("sqlite.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


SQL = _load()
"""The statements of ``sqlite.sql`` by name."""


def steps(name: str) -> list[str]:
    """The single statements of a step of the schema; a trigger contains some."""
    found, statement = [], ""
    for part in SQL[name].split(";")[:-1]:
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            found.append(statement.strip())
            statement = ""
    return found


def create_schema(connection: sqlite3.Connection, version: int = 0) -> None:
    """Bring the schema from ``version`` (0: an empty file) to the newest."""
    if version == 3 and connection.execute(SQL["has_ranks"]).fetchone():
        version = 4  # A process of version 3 that had the file open during the upgrade has written its own number.
    for statement in chain.from_iterable(steps(step) for step in SCHEMA[version:]):
        connection.execute(statement)


def prove_writable(connection: sqlite3.Connection) -> None:
    """Write the version of the schema, one page, in the transaction of ``connection``.

    That of a newer process, which has brought the schema further since this one has opened the file, is kept.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {max(version, len(SCHEMA))}")


def mark_encrypted(connection: sqlite3.Connection) -> None:
    """Note in the transaction of ``connection`` that the file has encrypted bodies."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < ENCRYPTED:
        connection.execute(f"PRAGMA user_version = {ENCRYPTED}")


@lru_cache(maxsize=64)
def widened(name: str, rows: int) -> str:
    """The ``INSERT … VALUES (…)`` called ``name``, for ``rows`` rows at once."""
    head, _, row = SQL[name].rpartition("VALUES ")
    return f"{head}VALUES {', '.join([row] * rows)}"


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
        """Device and inode of the file, which change when it is replaced; ``None`` for a missing file."""
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
                self._create()
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
        """Become the only process that tries to take SQLite's write lock; yields the deadline of the whole wait.

        SQLite's own waiters sleep longer and longer, and a process that commits without a pause overtakes them. The
        process that has the turn writes next, and the last writer must queue for a turn like the others.
        """
        deadline = time.monotonic() + self.busy_timeout_seconds
        with self._turn_file() as turn:
            while not turn.try_acquire():
                self._pause(deadline)
            yield deadline

    def _create(self) -> None:
        """Create a missing file for this user alone. SQLite gives its mode to ``-wal`` and ``-shm`` beside it.

        An existing file is not even opened: closing it would release the locks that SQLite holds in this process.
        """
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))

    def _turn_file(self) -> FileLock:
        """The file of the turn. A new one has the mode and, if root creates it, the owner of the database."""
        path = f"{self.path}-turn"
        with contextlib.suppress(FileNotFoundError):
            return FileLock(path)
        try:
            beside = os.stat(self.path)
        except FileNotFoundError:
            return FileLock(path, create_mode=_MODE)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
            try:
                if os.geteuid() == 0:
                    os.fchown(descriptor, beside.st_uid, beside.st_gid)
                os.fchmod(descriptor, beside.st_mode & 0o666)
            finally:
                os.close(descriptor)
        return FileLock(path)

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
        self._version(connection)  # refuses a foreign file before anything is changed in it
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise BrokerUnavailable(self.broker, "the file system does not support SQLite's write-ahead log")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        # Some builds zero every freed page; that would write an acked body of 1 MiB a second time.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            create_schema(connection, version)
            if version < len(SCHEMA):
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            # SQLite opens a file that it may only read without an error, and BEGIN IMMEDIATE has none either.
            prove_writable(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _version(self, connection: sqlite3.Connection) -> int:
        """The version of the file's schema. Raises ConfigError for the file of another program or a newer version."""
        owner, version, tables = connection.execute(SQL["file_header"]).fetchone()
        key = f"brokers.{self.broker}"
        if tables and owner != APPLICATION_ID:
            raise ConfigError(key=key, reason=f"{self.path} is another program's database")
        if version > ENCRYPTED:
            reason = f"{self.path} has schema version {version}, newer than the {ENCRYPTED} of this program"
            raise ConfigError(key=key, reason=reason)
        return int(version)
