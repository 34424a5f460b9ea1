"""Translates the errors of SQLite and of the operating system: the only place that does."""

from __future__ import annotations

import errno
import sqlite3

from babelgate.brokers.errors import ErrorMap
from babelgate.errors import (
    BabelgateError,
    BrokerError,
    BrokerRejected,
    BrokerUnavailable,
    OutcomeUnknown,
    StorageFull,
    StorageReadOnly,
)

ERRORS: dict[int, type[BrokerError]] = {
    sqlite3.SQLITE_ERROR: BrokerRejected,
    sqlite3.SQLITE_INTERNAL: BrokerUnavailable,
    sqlite3.SQLITE_PERM: StorageReadOnly,
    sqlite3.SQLITE_ABORT: BrokerUnavailable,
    sqlite3.SQLITE_BUSY: BrokerUnavailable,
    sqlite3.SQLITE_LOCKED: BrokerUnavailable,
    sqlite3.SQLITE_NOMEM: BrokerUnavailable,
    sqlite3.SQLITE_READONLY: StorageReadOnly,
    sqlite3.SQLITE_INTERRUPT: BrokerUnavailable,
    sqlite3.SQLITE_IOERR: OutcomeUnknown,
    sqlite3.SQLITE_CORRUPT: BrokerUnavailable,
    sqlite3.SQLITE_NOTFOUND: BrokerUnavailable,
    sqlite3.SQLITE_FULL: StorageFull,
    sqlite3.SQLITE_CANTOPEN: BrokerUnavailable,
    sqlite3.SQLITE_PROTOCOL: BrokerUnavailable,
    sqlite3.SQLITE_EMPTY: BrokerUnavailable,
    sqlite3.SQLITE_SCHEMA: BrokerUnavailable,
    sqlite3.SQLITE_TOOBIG: BrokerRejected,
    sqlite3.SQLITE_CONSTRAINT: BrokerRejected,
    sqlite3.SQLITE_MISMATCH: BrokerRejected,
    sqlite3.SQLITE_MISUSE: BrokerRejected,
    sqlite3.SQLITE_NOLFS: StorageFull,
    sqlite3.SQLITE_AUTH: BrokerRejected,
    sqlite3.SQLITE_FORMAT: BrokerUnavailable,
    sqlite3.SQLITE_RANGE: BrokerRejected,
    sqlite3.SQLITE_NOTADB: BrokerUnavailable,
}
"""Primary result code (https://www.sqlite.org/rescode.html) to error. An I/O error leaves open whether the log reached
the disk; outside of a COMMIT nothing was written, and it becomes BrokerUnavailable."""

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code of ``error``; SQLITE_ERROR for an error of Python's sqlite3 module itself."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def translated(error: Exception, broker: str, committing: bool = False) -> BabelgateError:
    """``error`` as an error of :mod:`babelgate.errors`. ``committing``: it was raised by COMMIT."""
    return _ERRORS.translate(broker, error, written=committing)


def _by_number(error: BaseException) -> type[BabelgateError] | None:
    if isinstance(error, sqlite3.Error):
        return ERRORS.get(primary_code(error))
    if isinstance(error, OSError):
        return StorageReadOnly if error.errno in _READ_ONLY else StorageFull if error.errno in _FULL else None
    return None


_ERRORS = ErrorMap({sqlite3.Error: BrokerUnavailable, OSError: BrokerUnavailable}, str, _by_number, BrokerRejected)
