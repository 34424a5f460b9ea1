"""Keeps everything that the emulator accepted in an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.servicebus_emulator.entity import Queue, Session
    from tools.servicebus_emulator.message import Message

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queue (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, settings TEXT NOT NULL, sequence INTEGER NOT NULL,
  created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS message (
  id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, dead INTEGER NOT NULL, sequence INTEGER NOT NULL,
  original INTEGER NOT NULL, state INTEGER NOT NULL, token BLOB, locked_until INTEGER NOT NULL, count INTEGER NOT NULL,
  enqueued INTEGER NOT NULL, due INTEGER NOT NULL, expires INTEGER NOT NULL, session TEXT, source TEXT
);
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, raw BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS session (
  queue INTEGER NOT NULL, id TEXT NOT NULL, state BLOB, updated INTEGER NOT NULL, PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS duplicate (
  queue INTEGER NOT NULL, id TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, id)
) WITHOUT ROWID;
"""

_MESSAGE = "INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Store:
    """Collects changes in memory; :meth:`commit` writes them in one transaction."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 10000;" + _SCHEMA
        )
        self._messages: dict[int, Message] = {}
        self._bodies: dict[int, Message] = {}
        self._gone: list[int] = []
        self._written: set[int] = {row[0] for row in self._connection.execute("SELECT id FROM message")}
        self._queues: dict[int, Queue] = {}
        self._sequences: dict[int, int] = {}
        self._others: list[tuple[str, tuple[Any, ...]]] = []

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a table in the order of their keys."""
        order = "sequence" if table == "message" else "1"
        return self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()

    def bodies(self) -> dict[int, bytes]:
        """The encoded messages by message id."""
        return dict(self._connection.execute("SELECT id, raw FROM body"))

    def meta(self, name: str) -> Any:
        """A value kept by :meth:`keep`."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def keep(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        self._others.append(("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value))))

    def save(self, message: Message, *, body: bool = False) -> None:
        """The message is new or has changed; ``body``: its encoded message too."""
        self._messages[message.id] = message
        if body:
            self._bodies[message.id] = message

    def remove(self, message: Message) -> None:
        """The message is gone."""
        self._messages.pop(message.id, None)
        self._bodies.pop(message.id, None)
        if message.id in self._written:
            self._written.discard(message.id)
            self._gone.append(message.id)

    def save_queue(self, queue: Queue) -> None:
        """The queue is new, or its settings changed."""
        self._queues[queue.id] = queue

    def save_sequence(self, queue: Queue) -> None:
        """The queue's last sequence number changed."""
        self._sequences[queue.id] = queue.sequence

    def remove_queue(self, queue: Queue) -> None:
        """The queue and all that belongs to it is gone, except its messages."""
        self._queues.pop(queue.id, None)
        self._sequences.pop(queue.id, None)
        self._others += [
            (f"DELETE FROM {table} WHERE {column} = ?", (queue.id,))
            for table, column in (("queue", "id"), ("session", "queue"), ("duplicate", "queue"))
        ]

    def save_session(self, queue: Queue, session: Session) -> None:
        """The session's state changed."""
        row = (queue.id, session.id, session.state, session.updated)
        self._others.append(("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", row))

    def save_duplicate(self, queue: Queue, identifier: str, until: int) -> None:
        """A message id that the queue refuses to store again."""
        self._others.append(("INSERT OR REPLACE INTO duplicate VALUES (?, ?, ?)", (queue.id, identifier, until)))

    def remove_duplicate(self, queue: Queue, identifier: str) -> None:
        """The window of a message id has ended."""
        self._others.append(("DELETE FROM duplicate WHERE queue = ? AND id = ?", (queue.id, identifier)))

    def commit(self) -> None:
        """Write all changes since the last commit; they survive the end of the process."""
        if not (self._messages or self._gone or self._queues or self._sequences or self._others):
            return
        connection = self._connection
        connection.execute("BEGIN")
        for statement, values in self._others:
            connection.execute(statement, values)
        if self._queues:
            connection.executemany(
                "INSERT OR REPLACE INTO queue VALUES (?, ?, ?, ?, ?)",
                [(q.id, q.name, json.dumps(q.settings.json()), q.sequence, q.created) for q in self._queues.values()],
            )
        if self._sequences:
            rows = [(sequence, queue) for queue, sequence in self._sequences.items()]
            connection.executemany("UPDATE queue SET sequence = ? WHERE id = ?", rows)
        if self._gone:
            keys = [(gone,) for gone in self._gone]
            connection.executemany("DELETE FROM message WHERE id = ?", keys)
            connection.executemany("DELETE FROM body WHERE id = ?", keys)
        if self._messages:
            connection.executemany(_MESSAGE, [_row(message) for message in self._messages.values()])
            self._written.update(self._messages)
        if self._bodies:
            bodies = [(message.id, message.raw) for message in self._bodies.values()]
            connection.executemany("INSERT OR REPLACE INTO body VALUES (?, ?)", bodies)
        connection.execute("COMMIT")
        self._messages.clear()
        self._bodies.clear()
        self._gone.clear()
        self._queues.clear()
        self._sequences.clear()
        self._others.clear()

    def close(self) -> None:
        """Write what is left and close the file."""
        self.commit()
        self._connection.close()


def _row(message: Message) -> tuple[Any, ...]:
    return (
        message.id,
        message.entity.queue.id,
        message.entity.dead,
        message.sequence,
        message.original,
        message.state,
        message.token,
        message.locked_until,
        message.count,
        message.enqueued,
        message.due,
        message.expires,
        message.session,
        message.source,
    )
