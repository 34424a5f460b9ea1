"""Keeps the last of a disk for receives and settles: new messages are refused before it is full.

Each transaction of SQLite writes to its log first, one that removes a message, too. On a disk that is full to the last
byte a message could neither be received nor acknowledged, and so no room would ever be made.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

RESERVED_BYTES = 16 * 1024 * 1024
"""What new messages leave free. SQLite's log grows to about 4 MiB before its pages are written to the file, which may
grow by as much (https://www.sqlite.org/pragma.html#pragma_wal_autocheckpoint); twice that."""

_CHECK_SECONDS = 0.1
_CHECK_BYTES = 1024 * 1024
"""How long, and for how many bytes of new messages, an answer of the file system counts."""


class Room:
    """The room for new messages on the disk of the file ``path``. For one thread."""

    def __init__(self, path: str) -> None:
        self._directory = Path(path).parent
        self._asked_at = -_CHECK_SECONDS
        self._added = 0

    def suffices(self, connection: sqlite3.Connection, size: int) -> bool:
        """Whether ``size`` bytes of new messages leave RESERVED_BYTES free. The pages of ``connection``'s file that
        messages have left are free, too."""
        now = time.monotonic()
        self._added += size
        if now - self._asked_at < _CHECK_SECONDS and self._added < _CHECK_BYTES:
            return True
        try:
            status = os.statvfs(self._directory)
        except OSError:
            return True  # SQLite reports the reason
        free = status.f_bavail * status.f_frsize
        if free < RESERVED_BYTES + size:
            (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            if free + pages * page_size < RESERVED_BYTES + size:
                return False
        self._asked_at, self._added = now, 0
        return True
