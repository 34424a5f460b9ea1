"""Every error of SQLite and of the operating system becomes one of the gateway's."""

from __future__ import annotations

import errno
import re
import sqlite3

import pytest

from babelgate.brokers.sqlite.errors import ERRORS, translated
from babelgate.errors import BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull, StorageReadOnly

# Constants of other functions of SQLite: what an authorizer is asked and answers, limits, results that are no errors.
OTHERS = re.compile(
    "OK|DENY|IGNORE|NOTICE|WARNING|ROW|DONE|LIMIT_.*|DBCONFIG_.*|(CREATE|DROP)_.*|DELETE|INSERT|PRAGMA|READ|SELECT|"
    "TRANSACTION|UPDATE|ATTACH|DETACH|ALTER_TABLE|REINDEX|ANALYZE|FUNCTION|SAVEPOINT|RECURSIVE"
)
PRIMARY = {
    name: code
    for name, code in vars(sqlite3).items()
    if name.startswith("SQLITE_") and code <= 0xFF and not OTHERS.fullmatch(name.removeprefix("SQLITE_"))
}


def failure(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


def test_the_module_names_the_errors_known_to_this_test() -> None:
    assert {"SQLITE_BUSY", "SQLITE_FULL", "SQLITE_NOTADB"} <= PRIMARY.keys()


@pytest.mark.parametrize("name", PRIMARY)
def test_every_primary_code_is_mapped(name: str) -> None:
    assert PRIMARY[name] in ERRORS


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_READONLY_DBMOVED, StorageReadOnly),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, BrokerUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, BrokerUnavailable),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, BrokerRejected),
        (0x7F, BrokerUnavailable),
    ],
)
def test_an_extended_code_counts_as_its_primary_one(code: int, expected: type[Exception]) -> None:
    error = translated(failure(code), "local")
    assert type(error) is expected
    assert (error.broker, error.reason) == ("local", "it failed")


def test_an_input_output_error_leaves_the_outcome_of_a_commit_open() -> None:
    assert isinstance(translated(failure(sqlite3.SQLITE_IOERR_FSYNC), "local", committing=True), OutcomeUnknown)
    assert isinstance(translated(failure(sqlite3.SQLITE_FULL), "local", committing=True), StorageFull)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.EROFS, StorageReadOnly), (errno.ENOSPC, StorageFull), (errno.ENOENT, BrokerUnavailable)],
)
def test_errors_of_the_operating_system(number: int, expected: type[Exception]) -> None:
    assert type(translated(OSError(number, "no"), "local")) is expected


def test_what_is_neither_is_the_fault_of_the_message() -> None:
    assert isinstance(translated(OverflowError("too big"), "local"), BrokerRejected)
